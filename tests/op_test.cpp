// `braid op` through its files: every op against its reference in double, with every optional tensor, padding
// of NaN, every form and gradient; and each mistake with its message.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "io/safetensors.h"
#include "kernels/attention/attention_ref.h"
#include "kernels/delta_former/delta_former_ref.h"
#include "verify/compare.h"
#include "kernels/fast_weight/fast_weight_ref.h"
#include "kernels/l2norm/l2norm_ref.h"
#include "kernels/selective_scan/selective_scan_ref.h"
#include "kernels/short_conv/short_conv_ref.h"
#include "process.h"

namespace braid::test {
namespace {

using Doubles = std::vector<double>;
using Args = std::vector<std::string>;

struct Array {
  Shape shape;
  std::vector<float> data;
};
using Arrays = std::map<std::string, Array>;

const TempDir& dir() {
  static const TempDir d;
  return d;
}

// Sequences of at most T tokens; the rest of their rows is padding.
struct Batch {
  size_t T;
  std::vector<int32_t> lengths;
  size_t B() const { return lengths.size(); }
  bool full() const {
    return std::all_of(lengths.begin(), lengths.end(),
                       [&](int32_t n) { return n == static_cast<int32_t>(T); });
  }
};

class Inputs {
 public:
  explicit Inputs(const Batch& b) : b_(b) {}
  // Normal numbers; with `tokens` the padding is NaN.
  void add(const std::string& name, Shape shape, float scale = 1, bool tokens = true) {
    Array a{shape, random_vector(shape.count(), ++seed_, scale)};
    const size_t width = tokens ? shape.count() / (b_.B() * b_.T) : 0;
    for (size_t s = 0; tokens && s < b_.B(); ++s)
      std::fill(a.data.begin() + (s * b_.T + b_.lengths[s]) * width, a.data.begin() + (s + 1) * b_.T * width,
                NAN);
    arrays[name] = std::move(a);
  }
  template <class F>
  void change(const std::string& name, const F& f) {
    for (float& x : arrays.at(name).data) x = f(x);
  }
  Doubles get(const std::string& name) const {
    return arrays.contains(name) ? to_double(arrays.at(name).data) : Doubles();
  }
  void write(const std::string& path) const {
    std::vector<NamedTensor> t;
    for (const auto& [name, a] : arrays) t.push_back({name, {a.data.data(), DType::kF32, a.shape}});
    if (!b_.full())
      t.push_back({"lengths", {b_.lengths.data(), DType::kI32, {static_cast<int64_t>(b_.B())}}});
    ASSERT_TRUE(write_safetensors(path, t));
  }
  Arrays arrays;

 private:
  Batch b_;
  uint64_t seed_ = 0;
};

// What the reference gives: outputs and gradients by name.
struct Wanted {
  std::map<std::string, Doubles> outputs, gradients;
};

Args op_args(const std::string& op, const Args& more) {
  Args args{"op", op, "--in", dir() / "in", "--out", dir() / "out"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// Runs the op and compares exactly the tensors that are expected. Returns how many are off.
int differences(const std::string& op, const Args& more, const std::map<std::string, Doubles>& wanted,
                Tol tol) {
  const Finished f = run_braid(op_args(op, more));
  EXPECT_EQ(f.code, 0) << f.err;
  if (f.code) return 1000;
  const Result<SafeTensors> file = SafeTensors::open(dir() / "out");
  EXPECT_TRUE(file);
  std::vector<std::string> names;
  int wrong = 0;
  for (const auto& [name, want] : wanted) {
    names.push_back(name);
    const View* got = file->find(name);
    if (!got || static_cast<size_t>(got->shape.count()) != want.size()) {
      ++wrong;
      continue;
    }
    wrong += !within(compare<float, double>(got->as<float>(), want), tol);
  }
  EXPECT_EQ(file->names(), names);
  return wrong;
}

void expect_op(const std::string& op, const Inputs& in, const Wanted& want, const Args& forms,
               const Args& more, const std::string& what, const Args& backward_forms = {""}) {
  SCOPED_TRACE(op + " " + what);
  in.write(dir() / "in");
  for (const std::string& form : forms) {
    Args args = more;
    if (!form.empty()) args.insert(args.end(), {"--form", form});
    EXPECT_EQ(differences(op, args, want.outputs, kTolF32), 0) << form;
  }
  std::map<std::string, Doubles> all = want.outputs;
  all.insert(want.gradients.begin(), want.gradients.end());
  for (const std::string& form : backward_forms) {
    Args args = more;
    args.push_back("--backward");
    if (!form.empty()) args.insert(args.end(), {"--form", form});
    EXPECT_EQ(differences(op, args, all, kTolF32Grad), 0) << "backward " << form;
  }
}

struct FastWeightCase {
  int decay;  // rank of g, 0 for none
  bool delta, s0, ds, l2norm;
  Batch batch;
};

Wanted fast_weight_wanted(const Inputs& in, const FastWeightCase& c, double scale, size_t Hk, size_t Hv,
                          size_t dk, size_t dv) {
  const Batch& b = c.batch;
  const size_t kw = Hk * dk, vw = Hv * dv, state = Hv * dk * dv;
  constexpr FastWeightDecay kDecays[] = {FastWeightDecay::kNone, FastWeightDecay::kHead,
                                         FastWeightDecay::kNone, FastWeightDecay::kToken,
                                         FastWeightDecay::kChannel};
  const ref::FastWeightDims<double> d{
      Hv,   Hk, dk, dv, kDecays[c.decay], c.delta ? FastWeightWrite::kDelta : FastWeightWrite::kAdditive,
      scale};
  const Doubles q = in.get("q"), k = in.get("k"), v = in.get("v"), g = in.get("g"), beta = in.get("beta"),
                s0 = in.get("S0"), up = in.get("do"), ds = in.get("dS");
  Doubles qn = q, kn = k;
  std::vector<double> rq(b.B() * b.T * Hk, 1), rk = rq;
  for (size_t i = 0; c.l2norm && i < rq.size(); ++i) {
    ref::l2norm_fwd<double>(&q[i * dk], &qn[i * dk], &rq[i], dk, 1e-6);
    ref::l2norm_fwd<double>(&k[i * dk], &kn[i * dk], &rk[i], dk, 1e-6);
  }
  Doubles o(b.B() * b.T * vw), S(b.B() * state), dq(q.size()), dkey(k.size()), dvalue(v.size()), dg(g.size()),
      dbeta(beta.size()), ds0(S.size()), share(g.size());
  const size_t gw = c.decay == 3 ? Hv : c.decay == 4 ? Hv * dk : 0;
  for (size_t s = 0; s < b.B(); ++s) {
    const size_t at = s * b.T, n = b.lengths[s];
    const ref::FastWeightArgs<double> a{&qn[at * kw],
                                        &kn[at * kw],
                                        &v[at * vw],
                                        g.data() + at * gw,
                                        beta.data() + (c.delta ? at * Hv : 0),
                                        c.s0 ? &s0[s * state] : nullptr};
    ref::fast_weight_fwd<double>(d, n, a, &o[at * vw], &S[s * state]);
    ref::fast_weight_bwd<double>(
        d, n, a, &up[at * vw], c.ds ? &ds[s * state] : nullptr,
        {&dq[at * kw], &dkey[at * kw], &dvalue[at * vw], c.decay == 1 ? share.data() : dg.data() + at * gw,
         dbeta.data() + (c.delta ? at * Hv : 0), &ds0[s * state]});
    for (size_t h = 0; c.decay == 1 && h < Hv; ++h) dg[h] += share[h];
    for (size_t i = at * Hk; c.l2norm && i < (at + n) * Hk; ++i) {
      ref::l2norm_bwd<double>(&q[i * dk], rq[i], &dq[i * dk], &dq[i * dk], dk, false);
      ref::l2norm_bwd<double>(&k[i * dk], rk[i], &dkey[i * dk], &dkey[i * dk], dk, false);
    }
  }
  Wanted w{{{"o", o}, {"S", S}}, {{"dq", dq}, {"dk", dkey}, {"dv", dvalue}, {"dS0", ds0}}};
  if (c.decay) w.gradients["dg"] = dg;
  if (c.delta) w.gradients["dbeta"] = dbeta;
  return w;
}

Inputs fast_weight_inputs(const FastWeightCase& c, int64_t Hk, int64_t Hv, int64_t dk, int64_t dv) {
  const int64_t B = static_cast<int64_t>(c.batch.B()), T = static_cast<int64_t>(c.batch.T);
  Inputs in(c.batch);
  in.add("q", {B, T, Hk, dk}), in.add("k", {B, T, Hk, dk}, 0.3f), in.add("v", {B, T, Hv, dv});
  if (c.decay == 1) in.add("g", {Hv}, 0.3f, false);
  if (c.decay == 3) in.add("g", {B, T, Hv}, 0.3f);
  if (c.decay == 4) in.add("g", {B, T, Hv, dk}, 0.3f);
  if (c.decay) in.change("g", [](float x) { return -std::fabs(x); });
  if (c.delta) in.add("beta", {B, T, Hv}), in.change("beta", [](float x) { return 2 / (1 + std::exp(-x)); });
  if (c.s0) in.add("S0", {B, Hv, dk, dv}, 1, false);
  in.add("do", {B, T, Hv, dv});
  if (c.ds) in.add("dS", {B, Hv, dk, dv}, 1, false);
  return in;
}

const Batch kFull{7, {7, 7}}, kRagged{9, {4, 9, 0, 1}}, kNone{3, {0, 0}};

TEST(Op, FastWeightEqualsTheReference) {
  const FastWeightCase cases[] = {
      {0, false, false, false, false, kFull},   {0, true, true, true, false, kRagged},
      {1, false, true, false, true, kRagged},   {1, true, false, true, false, kFull},
      {3, false, false, false, false, kRagged}, {3, true, true, true, true, kRagged},
      {3, true, false, false, true, kFull},     {4, false, true, false, false, kFull},
      {4, true, true, true, true, kRagged},     {3, true, true, true, true, kNone}};
  for (const FastWeightCase& c : cases) {
    const size_t Hk = 2, Hv = 4, dk = 6, dv = 5;
    const Inputs in = fast_weight_inputs(c, Hk, Hv, dk, dv);
    Args more{"--set", c.l2norm ? "l2norm=1" : "l2norm=0"};
    if (c.s0) more.push_back("scale=0.7");
    expect_op("fast_weight", in, fast_weight_wanted(in, c, c.s0 ? 0.7 : 1 / std::sqrt(6.0), Hk, Hv, dk, dv),
              {"", "auto", "chunk", "recurrent", "step"}, more,
              "decay " + std::to_string(c.decay) + (c.delta ? " delta" : "") + (c.l2norm ? " l2norm" : ""),
              {"", "chunk", "recurrent"});
  }
}

// What a wrong verb would give must not pass: gradients that do not go through the norm, a forgotten state.
TEST(Op, MutantsFail) {
  const FastWeightCase c{3, true, true, true, true, kRagged};
  const Inputs in = fast_weight_inputs(c, 2, 4, 6, 5);
  in.write(dir() / "in");
  const Args more{"--backward", "--set", "l2norm=1", "scale=0.7"};
  const auto off = [&](const FastWeightCase& mutant) {
    Wanted w = fast_weight_wanted(in, mutant, 0.7, 2, 4, 6, 5);
    w.outputs.insert(w.gradients.begin(), w.gradients.end());
    return differences("fast_weight", more, w.outputs, kTolF32Grad);
  };
  EXPECT_EQ(off(c), 0);
  FastWeightCase no_norm = c, no_state = c, no_cotangent = c;
  no_norm.l2norm = false, no_state.s0 = false, no_cotangent.ds = false;
  EXPECT_GT(off(no_norm), 0);
  EXPECT_GT(off(no_state), 0);
  EXPECT_GT(off(no_cotangent), 0);
}

TEST(Op, AttentionEqualsTheReference) {
  for (const Batch& b : {kFull, kRagged, kNone})
    for (const size_t window : {0, 3}) {
      const size_t H = 4, Hkv = 2, d = 6;
      const int64_t B = static_cast<int64_t>(b.B()), T = static_cast<int64_t>(b.T);
      Inputs in(b);
      in.add("q", {B, T, 4, 6}), in.add("k", {B, T, 2, 6}), in.add("v", {B, T, 2, 6}),
          in.add("do", {B, T, 4, 6});
      const double scale = window ? 0.9 : 1 / std::sqrt(6.0);
      const ref::AttentionDims<double> dims{H, Hkv, d, d, window, scale};
      const Doubles q = in.get("q"), k = in.get("k"), v = in.get("v"), up = in.get("do");
      Doubles o(q.size()), lse(b.B() * b.T * H), dq(q.size()), dk(k.size()), dv(v.size());
      for (size_t s = 0; s < b.B(); ++s) {
        const size_t n = b.lengths[s], qa = s * b.T * H * d, ka = s * b.T * Hkv * d;
        ref::attention_fwd<double>(dims, &q[qa], &k[ka], &v[ka], n, n, 0, nullptr, &o[qa], lse.data());
        ref::attention_bwd<double>(dims, &q[qa], &k[ka], &v[ka], &o[qa], lse.data(), &up[qa], n, &dq[qa],
                                   &dk[ka], &dv[ka]);
      }
      Args more;
      if (window) more = {"--set", "window=3", "--set", "scale=0.9"};
      expect_op("attention", in, {{{"o", o}}, {{"dq", dq}, {"dk", dk}, {"dv", dv}}}, {"", "chunk", "step"},
                more, "window " + std::to_string(window));
    }
}

TEST(Op, DeltaFormerEqualsTheReference) {
  struct Setting {
    const char *kappa1, *kappa2;
    DeltaKind write, read;
    bool gates, query;
  };
  const Setting settings[] = {{"softmax", "softmax", DeltaKind::kSoftmax, DeltaKind::kSoftmax, true, false},
                              {"linear", "kappa1", DeltaKind::kLinear, DeltaKind::kLinear, true, true},
                              {"round", "softmax", DeltaKind::kRound, DeltaKind::kSoftmax, false, false}};
  for (const Batch& b : {kFull, kRagged, kNone})
    for (const Setting& c : settings) {
      const size_t H = 2, d = 6;
      const int64_t B = static_cast<int64_t>(b.B()), T = static_cast<int64_t>(b.T);
      Inputs in(b);
      for (const char* name : {"q", "k", "v", "do"}) in.add(name, {B, T, 2, 6}, 0.5);
      if (c.gates) in.add("a", {B, T, 2}), in.add("b", {B, T, 2}, 0.3);
      const DeltaFormerShape shape{.heads = 1,
                                   .dk = d,
                                   .dv = d,
                                   .write = delta_kernel(c.write, d, 100),
                                   .read = delta_kernel(c.read, d, 100),
                                   .similarity = c.query ? DeltaSimilarity::kQuery : DeltaSimilarity::kKey};
      std::map<std::string, Doubles> out;
      for (const char* name : {"o", "u", "dq", "dk", "dv"}) out[name].resize(b.B() * b.T * H * d);
      if (c.gates) out["da"].resize(b.B() * b.T * H), out["db"].resize(b.B() * b.T * H);
      for (size_t s = 0; s < b.B(); ++s)
        for (size_t h = 0; h < H; ++h) {
          const size_t n = b.lengths[s];
          const auto take = [&](const char* name, size_t width) {
            const Doubles all = in.get(name);
            Doubles one;
            for (size_t t = 0; !all.empty() && t < n; ++t)
              for (size_t e = 0; e < width; ++e) one.push_back(all[((s * b.T + t) * H + h) * width + e]);
            return one;
          };
          const Doubles q = take("q", d), k = take("k", d), v = take("v", d), up = take("do", d),
                        a = take("a", 1), beta = take("b", 1);
          std::map<std::string, Doubles> one;
          for (const char* name : {"o", "u", "dq", "dk", "dv"}) one[name].resize(n * d);
          for (const char* name : {"da", "db"}) one[name].resize(n);
          const ref::DeltaFormerArgs<double> args{q.data(), k.data(), v.data(), c.gates ? a.data() : nullptr,
                                                  c.gates ? beta.data() : nullptr};
          ref::delta_former_fwd<double>(shape, 0, n, args, one["o"].data(), one["u"].data());
          ref::delta_former_bwd<double>(
              shape, n, args, one["u"].data(), up.data(), nullptr,
              {one["dq"].data(), one["dk"].data(), one["dv"].data(), one["da"].data(), one["db"].data()});
          for (auto& [name, all] : out) {
            const size_t width = name == "da" || name == "db" ? 1 : d;
            for (size_t i = 0; i < n * width; ++i)
              all[((s * b.T + i / width) * H + h) * width + i % width] = one[name][i];
          }
        }
      std::map<std::string, Doubles> gradients;
      for (const char* name : {"dq", "dk", "dv", "da", "db"})
        if (out.contains(name)) gradients[name] = out[name], out.erase(name);
      expect_op("delta_former", in, {out, gradients}, {"", "chunk", "step"},
                {"--set", std::string("kappa1=") + c.kappa1, "--set", std::string("kappa2=") + c.kappa2,
                 "--set", c.query ? "similarity=qk" : "similarity=kk"},
                c.kappa1);
    }
}

TEST(Op, SelectiveScanEqualsTheReference) {
  for (const Batch& b : {kFull, kRagged, kNone})
    for (const bool with_state : {false, true}) {
      const size_t D = 5, N = 3;
      const int64_t B = static_cast<int64_t>(b.B()), T = static_cast<int64_t>(b.T);
      Inputs in(b);
      in.add("x", {B, T, 5}), in.add("dt", {B, T, 5}), in.add("A", {5, 3}, 1, false), in.add("Bm", {B, T, 3});
      in.add("Cm", {B, T, 3}), in.add("Dskip", {5}, 1, false), in.add("dy", {B, T, 5});
      if (with_state) in.add("h0", {B, 5, 3}, 1, false);
      in.change("dt", [](float x) { return std::fabs(x); });
      in.change("A", [](float x) { return -std::fabs(x); });
      const Doubles x = in.get("x"), dt = in.get("dt"), A = in.get("A"), Bm = in.get("Bm"), Cm = in.get("Cm"),
                    skip = in.get("Dskip"), h0 = in.get("h0"), up = in.get("dy");
      Doubles y(x.size()), h(b.B() * D * N), dx(x.size()), ddt(x.size()), dA(A.size()), dB(Bm.size()),
          dC(Cm.size()), dskip(D), dh0(h.size());
      for (size_t s = 0; s < b.B(); ++s) {
        const size_t at = s * b.T * D, bt = s * b.T * N, st = s * D * N;
        const ref::SelectiveScanDims dims{static_cast<size_t>(b.lengths[s]), D, N};
        const ref::SelectiveScanArgs<double> a{&x[at],
                                               &dt[at],
                                               A.data(),
                                               &Bm[bt],
                                               &Cm[bt],
                                               skip.data(),
                                               with_state ? &h0[st] : nullptr,
                                               with_state ? -1.0 : 0.0};
        ref::selective_scan_fwd<double>(dims, a, &y[at], &h[st]);
        ref::selective_scan_bwd<double>(
            dims, a, &up[at], nullptr,
            {&dx[at], &ddt[at], dA.data(), &dB[bt], &dC[bt], dskip.data(), &dh0[st]});
      }
      expect_op(
          "selective_scan", in,
          {{{"y", y}, {"h", h}},
           {{"dx", dx}, {"ddt", ddt}, {"dA", dA}, {"dBm", dB}, {"dCm", dC}, {"dDskip", dskip}, {"dh0", dh0}}},
          {"", "recurrent", "step"}, with_state ? Args{"--set", "negative=1"} : Args{},
          with_state ? "state" : "");
    }
}

TEST(Op, ShortConvEqualsTheReference) {
  for (const Batch& b : {kFull, kRagged, kNone})
    for (const bool silu : {false, true}) {
      const bool with_state = silu;
      const size_t D = 5, W = 4, each = D * (W - 1);
      const int64_t B = static_cast<int64_t>(b.B()), T = static_cast<int64_t>(b.T);
      Inputs in(b);
      in.add("x", {B, T, 5}), in.add("w", {5, 4}, 1, false), in.add("dy", {B, T, 5});
      if (with_state) in.add("state", {B, 5, 3}, 1, false);
      const Doubles x = in.get("x"), w = in.get("w"), state = in.get("state"), up = in.get("dy");
      Doubles y(x.size()), last(b.B() * each), dx(x.size()), dw(w.size()), dstate(last.size());
      for (size_t s = 0; s < b.B(); ++s) {
        const size_t at = s * b.T * D;
        const ref::ShortConvDims dims{static_cast<size_t>(b.lengths[s]), D, W, silu};
        const double* before = with_state ? &state[s * each] : nullptr;
        ref::short_conv_fwd<double>(dims, &x[at], w.data(), before, &y[at], &last[s * each]);
        ref::short_conv_bwd<double>(dims, &x[at], w.data(), before, &up[at], nullptr, &dx[at], dw.data(),
                                    &dstate[s * each]);
      }
      Args more;
      if (silu) more = {"--set", "silu=1"};
      expect_op("short_conv", in, {{{"y", y}, {"state", last}}, {{"dx", dx}, {"dw", dw}, {"dstate", dstate}}},
                {"", "chunk", "step"}, more, silu ? "silu, state" : "");
    }
}

TEST(Op, SaysWhenHeadsAreTooWideForAnythingButTheReference) {
  for (const int64_t d : {8, 513}) {
    Inputs in({2, {2}});
    for (const char* name : {"q", "k", "v"}) in.add(name, {1, 2, 1, d});
    in.write(dir() / "in");
    const Finished f = run_braid(op_args("attention", {}), {.env = {"BRAID_KERNEL=attention=sse"}});
    EXPECT_EQ(f.code, 0) << f.err;
    EXPECT_NE(f.out.find(d == 8 ? "attention, chunk, by sse: " : "attention, chunk, by ref: "),
              std::string::npos)
        << f.out;
    const Finished json =
        run_braid(op_args("attention", {"--json"}), {.env = {"BRAID_KERNEL=attention=sse"}});
    EXPECT_NE(json.out.find(d == 8 ? R"("impl":"sse")" : R"("impl":"ref")"), std::string::npos) << json.out;
  }
  const std::string kernels = run_braid({"kernels"}).out;
  for (const char* op : {"attention ", "fast_weight "}) {
    const size_t at = kernels.find(op), end = kernels.find('\n', at);
    ASSERT_NE(at, std::string::npos);
    EXPECT_NE(kernels.substr(at, end - at).find("heads above 512 numbers by ref"), std::string::npos) << op;
  }
}

TEST(Op, ThreadsDoNotChangeAByteOfTheFile) {
  const FastWeightCase c{4, true, true, true, true, kRagged};
  fast_weight_inputs(c, 2, 4, 40, 70).write(dir() / "in");
  const auto bytes = [&](const char* threads) {
    const Finished f = run_braid(
        op_args("fast_weight", {"--backward", "--set", "l2norm=1", "--threads", threads, "--json"}));
    EXPECT_EQ(f.code, 0) << f.err;
    EXPECT_NE(f.out.find("\"op\":\"fast_weight\""), std::string::npos) << f.out;
    return slurp(dir() / "out");
  };
  EXPECT_EQ(bytes("1"), bytes("3"));
}

TEST(Op, ListsAndDocumentsItself) {
  const std::string list = run_braid({"op"}).out;
  for (const char* op : {"fast_weight", "attention", "delta_former", "selective_scan", "short_conv"}) {
    EXPECT_NE(list.find(op), std::string::npos);
    const Finished f = run_braid({"op", op, "--help"});
    EXPECT_EQ(f.code, 0);
    for (const char* part : {"[B, T, ", "lengths", "I32 [B]", "with --backward", "step", "(default)"})
      EXPECT_NE(f.out.find(part), std::string::npos) << op << ": " << part;
  }
}

void expect_error(const Finished& f, int code, const std::vector<std::string>& parts) {
  EXPECT_EQ(f.code, code) << f.err;
  EXPECT_TRUE(f.err.starts_with("braid: ")) << f.err;
  for (const std::string& p : parts)
    EXPECT_NE(f.err.find(p), std::string::npos) << "'" << p << "' is not in: " << f.err;
}

TEST(Op, OptionsThatCannotBeUsed) {
  expect_error(run_braid({"op", "fast_wieght"}), 2, {"'fast_wieght'", "'fast_weight'"});
  expect_error(run_braid({"op", "attention"}), 2, {"--in: is missing", "--out: is missing"});
  const auto with = [](const std::string& op, const Args& more) { return run_braid(op_args(op, more)); };
  expect_error(with("attention", {"--form", "recurrent"}), 2,
               {"attention has no form 'recurrent'", "chunk, step"});
  expect_error(with("attention", {"--form", "step", "--backward"}), 2, {"step has no backward"});
  expect_error(with("attention", {"--threads", "99999999999999999999"}), 2, {"--threads"});
  expect_error(with("attention", {"--threads", "100000"}), 2, {"--threads", "1024"});
  expect_error(with("attention", {"--frm", "step"}), 2, {"--frm", "'--form'"});
  // All of them at once.
  expect_error(with("attention", {"--set", "windw=3", "--set", "scale=1e999", "--set", "window=2.5", "--set",
                                  "window=1", "--set", "scale", "--form", "fast"}),
               2,
               {"'windw'", "'window'", "scale: is '1e999'", "window: is '2.5'", "given twice",
                "write scale=VALUE", "no form 'fast'"});
  for (const char* bad : {"window=-1", "window=99999999999999999999", "window=", "window=x", "scale=nan",
                          "scale=inf", "scale=0.5x"})
    expect_error(with("attention", {"--set", bad}), 2, {"--set", "give a "});
  expect_error(with("short_conv", {"--set", "silu=2"}), 2, {"silu: is '2'", "0 | 1"});
  expect_error(with("fast_weight", {"--form", "chunks", "--set", "chunk=1000", "l2nrm=1"}), 2,
               {"auto, chunk, recurrent, step", "chunk: is '1000'", "from 0 to 128", "'l2norm'"});
  expect_error(with("selective_scan", {"--set", "scale=2"}), 2, {"'scale'", "use 'negative'"});
}

TEST(Op, FilesThatCannotBeUsed) {
  const Batch b{3, {3, 3}};
  const auto base = [&] {
    Inputs in(b);
    in.add("q", {2, 3, 4, 8}), in.add("k", {2, 3, 4, 8}), in.add("v", {2, 3, 4, 5});
    return in;
  };
  const auto with = [&](const Inputs& in, const Args& more = {}) {
    in.write(dir() / "in");
    return run_braid(op_args("fast_weight", more));
  };
  EXPECT_EQ(with(base()).code, 0);
  EXPECT_EQ(with(base(), {"--form", "chunk", "--set", "chunk=5"}).code, 0);
  expect_error(with(base(), {"--form", "step", "--set", "chunk=5"}), 1, {"--set chunk", "--form chunk"});
  expect_error(run_braid({"op", "fast_weight", "--in", "/nonexistent/x", "--out", dir() / "out"}), 1,
               {"/nonexistent/x"});
  expect_error(run_braid({"op", "fast_weight", "--in", dir() / "in", "--out", "/nonexistent/x"}), 1,
               {"/nonexistent/x"});
  expect_error(run_braid({"op", "fast_weight", "--in", dir() / "in", "--out", dir() / "in"}), 2,
               {"--out", "--in"});

  // A file with many mistakes gets as many messages.
  Inputs in = base();
  in.arrays.erase("v");
  in.arrays["vv"] = in.arrays["q"];
  in.add("k", {2, 3, 4, 7}), in.add("beta", {2, 3}), in.add("g", {2, 5, 4}, 1, false);
  expect_error(with(in, {"--backward"}), 1,
               {"v: is missing", "F32 [B, T, Hv, dv]", "vv: is not a tensor of fast_weight", "use 'v'",
                "k: has shape [2, 3, 4, 7]; expected [B, T, Hk, dk] = [2, 3, 4, 8]",
                "beta: has shape [2, 3]; expected [B, T, Hv]",
                "g: has shape [2, 5, 4]; expected [Hv] or [B, T, Hv] or [B, T, Hv, dk]", "do: is missing",
                "braid op fast_weight --help"});
  in = base();
  in.add("v", {2, 3, 6, 5});
  expect_error(with(in), 1, {"v: has 6 heads", "multiple of the 4 heads"});
  in = base();
  in.add("q", {2, 3, 0, 8}, 1, false);
  expect_error(with(in), 1, {"q: has shape [2, 3, 0, 8]", "1 or more"});

  // Wrong number formats, wrong lengths.
  const auto raw = [&](std::vector<NamedTensor> more) {
    const Inputs good = base();
    for (const auto& [name, a] : good.arrays) more.push_back({name, {a.data.data(), DType::kF32, a.shape}});
    EXPECT_TRUE(write_safetensors(dir() / "in", more));
    return run_braid(op_args("fast_weight", {}));
  };
  const std::vector<double> beta(24, 0.5);
  const std::vector<int64_t> wide{3, 3};
  const std::vector<int32_t> lengths{-1, 4};
  expect_error(
      raw({{"beta", {beta.data(), DType::kF64, {2, 3, 4}}}, {"lengths", {wide.data(), DType::kI64, {2}}}}), 1,
      {"beta: is F64; give F32", "lengths: is I64; give I32"});
  expect_error(raw({{"lengths", {lengths.data(), DType::kI32, {2}}}}), 1,
               {"number 0 is -1", "number 1 is 4", "give 0 to T = 3"});

  // States of any size from a small file.
  const std::vector<float> few(1 << 20, 0.0f);
  const View row{few.data(), DType::kF32, {1, 1, 1, 1 << 20}};
  ASSERT_TRUE(write_safetensors(dir() / "in", {{"q", row}, {"k", row}, {"v", row}}));
  expect_error(run_braid(op_args("fast_weight", {})), 1, {"the results would take", "GB"});

  // A cut file, and what was at --out stays as it was.
  base().write(dir() / "in");
  const std::string whole = slurp(dir() / "in");
  spit(dir() / "out", "old");
  for (const size_t size : {size_t{0}, size_t{5}, size_t{100}, whole.size() - 4}) {
    spit(dir() / "in", whole.substr(0, size));
    expect_error(run_braid(op_args("fast_weight", {})), 1, {dir() / "in"});
  }
  EXPECT_EQ(slurp(dir() / "out"), "old");

  // Limits of the other ops.
  Inputs conv(b);
  conv.add("x", {2, 3, 4}), conv.add("w", {4, 9}, 1, false), conv.add("state", {2, 4, 3}, 1, false);
  conv.write(dir() / "in");
  expect_error(run_braid(op_args("short_conv", {})), 1,
               {"state: has shape [2, 4, 3]; expected [B, D, W-1] = [2, 4, 8]"});
  conv.arrays.erase("state");
  conv.write(dir() / "in");
  expect_error(run_braid(op_args("short_conv", {})), 1, {"w: has W = 9", "2 to 8"});
}

}  // namespace
}  // namespace braid::test
