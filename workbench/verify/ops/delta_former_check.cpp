// What is checked by the tests and by `braid verify`, and what `braid bench kernels` times.
#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "verify/ops.h"
#include "kernels/delta_former/delta_former.h"
#include "kernels/delta_former/delta_former_ref.h"

namespace braid {
namespace {

using K = DeltaKind;

struct Case {
  std::vector<uint32_t> lengths;
  size_t heads, dk, dv;
  DeltaKernel write, read;
  float key_scale;  // of the random q and k
  bool gates = true;
  DeltaSimilarity similarity = DeltaSimilarity::kKey;
  DeltaSolve solve = DeltaSolve::kSubstitution;
  size_t chunk = 0;
};

// Lengths around the vectors, panels and chunks (8, 16, 64), heads that are no multiple of a vector, every
// kernel on both sides, both similarities, both solves.
const std::vector<Case>& cases() {
  constexpr auto kQuery = DeltaSimilarity::kQuery;
  constexpr auto kKey = DeltaSimilarity::kKey;
  static const std::vector<Case> all{
      {{1}, 1, 8, 8, {K::kSoftmax, 0.3f}, {K::kSoftmax, 0.3f}, 1.0f},
      {{2}, 2, 5, 3, {K::kSoftmax, 0.3f}, {K::kLinear}, 1.0f},
      {{65}, 2, 32, 32, {K::kSoftmax, 0.3f}, {K::kSoftmax, 0.18f}, 1.0f, false},
      {{130}, 2, 60, 36, {K::kSoftmax, 0.13f}, {K::kSoftmax, 0.13f}, 1.0f, true, kQuery},
      {{0, 3, 40, 0, 129, 1}, 3, 16, 24, {K::kSoftmax, 0.5f}, {K::kSoftmax, 0.5f}, 1.0f},
      {{200}, 1, 64, 64, {K::kLinear}, {K::kLinear}, 0.125f, false},
      {{64, 17}, 2, 12, 20, {K::kLinear, 0.5f}, {K::kSoftmax, 2.0f}, 0.3f, true, kQuery},
      {{150}, 2, 32, 40, {K::kRelu}, {K::kRelu}, 0.18f},
      {{63}, 1, 1, 1, {K::kExp}, {K::kExp, 0.5f}, 0.3f},
      {{100, 70}, 2, 32, 32, {K::kExp}, {K::kSoftmax, 1.0f}, 0.1f},
      {{40}, 2, 16, 16, {K::kRound}, {K::kRound}, 0.35f},
      {{140}, 2, 32, 32, {K::kRound, 1, 100}, {K::kSoftmax, 0.18f}, 0.18f},
      {{70}, 2, 32, 32, {K::kRound, 1, 100, false}, {K::kRound, 1, 100, false}, 0.18f},
      {{200}, 1, 200, 300, {K::kSoftmax, 0.07f}, {K::kSoftmax, 0.07f}, 1.0f},
      {{70}, 1, 512, 500, {K::kLinear}, {K::kSoftmax, 0.05f}, 0.04f},
      {{90}, 2, 16, 16, {K::kSoftmax, 0.25f}, {K::kSoftmax, 0.25f}, 1.0f, true, kKey, DeltaSolve::kProduct},
      {{90}, 2, 16, 16, {K::kLinear}, {K::kLinear}, 0.25f, true, kQuery, DeltaSolve::kProduct, 20},
      {{300},
       1,
       16,
       16,
       {K::kSoftmax, 0.25f},
       {K::kSoftmax, 0.25f},
       1.0f,
       true,
       kKey,
       DeltaSolve::kSubstitution,
       512},
      {{70}, 1, 32, 32, {K::kSoftmax, 3.0f}, {K::kSoftmax, 3.0f}, 1.0f},  // sharp: the maximum moves a lot
  };
  return all;
}

// Random inputs and what the reference makes of them in double.
struct Problem {
  Case c;
  std::vector<uint32_t> offsets{0};
  size_t rows, kw, vw;
  std::vector<float> q, k, v, a, b, dout, du;
  std::vector<double> o, u, dq, dk, dv, da, db;

  explicit Problem(const Case& of) : c(of) {
    for (const uint32_t n : c.lengths) offsets.push_back(offsets.back() + n);
    rows = offsets.back(), kw = c.heads * c.dk, vw = c.heads * c.dv;
    q = random_vector(rows * kw, 1, c.key_scale), k = random_vector(rows * kw, 2, c.key_scale);
    // A score that f32 and double round to different sides would differ by a whole step. Multiples of 1/16
    // have exact scores, in both.
    if (c.write.kind == K::kRound)
      for (std::vector<float>* x : {&q, &k})
        for (float& e : *x) e = std::rint(e * 16) / 16;
    v = random_vector(rows * vw, 3), a = random_vector(rows * c.heads, 4), b = random_vector(a.size(), 5);
    for (float& x : a) x = 1 + 0.3f * x;
    for (float& x : b) x = std::fmax(0.0f, 0.5f + 0.5f * std::tanh(x) - 0.05f);  // some are exactly 0
    dout = random_vector(rows * vw, 6), du = random_vector(rows * vw, 7);
    for (std::vector<double>* x : {&o, &u, &dv}) x->resize(rows * vw);
    for (std::vector<double>* x : {&dq, &dk}) x->resize(rows * kw);
    for (std::vector<double>* x : {&da, &db}) x->resize(rows * c.heads);
    for (size_t s = 0; s < c.lengths.size(); ++s)
      for (size_t h = 0; h < c.heads; ++h) one_head(offsets[s], c.lengths[s], h);
  }

  void one_head(size_t row, size_t n, size_t h) {
    const auto from = [&](const std::vector<float>& x, size_t width) {
      std::vector<double> y;
      for (size_t i = row; i < row + n; ++i)
        for (size_t e = 0; e < width; ++e) y.push_back(x[(i * c.heads + h) * width + e]);
      return y;
    };
    const std::vector<double> qd = from(q, c.dk), kd = from(k, c.dk), vd = from(v, c.dv), ad = from(a, 1),
                              bd = from(b, 1), up = from(dout, c.dv), u_up = from(du, c.dv);
    std::vector<double> y(n * c.dv), x(n * c.dv), gq(n * c.dk), gk(n * c.dk), gv(n * c.dv), ga(n), gb(n);
    const ref::DeltaFormerArgs<double> args{qd.data(), kd.data(), vd.data(), c.gates ? ad.data() : nullptr,
                                            c.gates ? bd.data() : nullptr};
    ref::delta_former_fwd<double>(shape(), 0, n, args, y.data(), x.data());
    ref::delta_former_bwd<double>(shape(), n, args, x.data(), up.data(), u_up.data(),
                                  {gq.data(), gk.data(), gv.data(), ga.data(), gb.data()});
    const auto to = [&](const std::vector<double>& src, std::vector<double>& dst, size_t width) {
      for (size_t i = 0; i < n; ++i)
        for (size_t e = 0; e < width; ++e) dst[((row + i) * c.heads + h) * width + e] = src[i * width + e];
    };
    to(y, o, c.dv), to(x, u, c.dv), to(gq, dq, c.dk), to(gk, dk, c.dk), to(gv, dv, c.dv);
    to(ga, da, 1), to(gb, db, 1);
  }

  DeltaFormerShape shape() const {
    return {c.heads, c.dk, c.dv, c.write, c.read, c.similarity, c.solve, c.chunk};
  }
  DeltaFormerIn in() const {
    DeltaFormerIn x{{q.data(), rows, kw}, {k.data(), rows, kw}, {v.data(), rows, vw}, {}, {}, offsets, {}};
    if (c.gates) x.a = {a.data(), rows, c.heads}, x.b = {b.data(), rows, c.heads};
    return x;
  }
};

const char* name_of(K kind) {
  constexpr const char* kNames[] = {"linear", "relu", "exp", "softmax", "round"};
  return kNames[static_cast<size_t>(kind)];
}

std::string name_of(const Case& c) {
  std::string name;
  for (const uint32_t n : c.lengths) name += fmt::format("{}{}", name.empty() ? "" : ",", n);
  return name + fmt::format(" h{} d{}/{} {}-{}{}{}{} ", c.heads, c.dk, c.dv, name_of(c.write.kind),
                            name_of(c.read.kind), c.similarity == DeltaSimilarity::kQuery ? " qk" : "",
                            c.solve == DeltaSolve::kProduct ? " product" : "",
                            c.chunk ? fmt::format(" chunk {}", c.chunk) : "");
}

void check_packed(const Case& c, std::vector<CheckRow>& rows, Par par) {
  const Problem p(c);
  const size_t n = p.rows;
  std::vector<float> o(n * p.vw, NAN), u = o, m = o, lse_w(n * c.heads, NAN), lse_r = lse_w,
                                       dq(n * p.kw, NAN), dk = dq, dv = o, da = lse_w, db = lse_w;
  std::vector<float> scratch(delta_former_fwd_scratch(p.shape(), p.offsets, par), NAN);
  delta_former_fwd(
      p.shape(), p.in(),
      {{o.data(), n, p.vw}, {u.data(), n, p.vw}, {m.data(), n, p.vw}, lse_w.data(), lse_r.data()}, scratch,
      par);
  scratch.assign(delta_former_bwd_scratch(p.shape(), p.offsets, par), NAN);
  delta_former_bwd(
      p.shape(), p.in(),
      {{o.data(), n, p.vw}, {u.data(), n, p.vw}, {m.data(), n, p.vw}, lse_w.data(), lse_r.data()},
      {p.dout.data(), n, p.vw}, {p.du.data(), n, p.vw},
      {{dq.data(), n, p.kw},
       {dk.data(), n, p.kw},
       {dv.data(), n, p.vw},
       {da.data(), n, c.heads},
       {db.data(), n, c.heads}},
      scratch, par);
  const std::string name = name_of(c);
  const auto row = [&](const char* what, const std::vector<float>& got, const std::vector<double>& want,
                       Tol tol) {
    rows.push_back({name + what, compare<float, double>(got, want), tol});
  };
  row("o", o, p.o, kTolF32);
  row("u", u, p.u, kTolF32);
  // One token, or a rounding without a gradient: no dq and dk, or nothing but rounding.
  if (n > 1 && c.write.straight_through) {
    row("dq", dq, p.dq, kTolF32Grad);
    row("dk", dk, p.dk, kTolF32Grad);
  }
  row("dv", dv, p.dv, kTolF32Grad);
  row("da", da, p.da, kTolF32Grad);
  if (n > 1) row("db", db, p.db, kTolF32Grad);
}

// One sequence cut at every position, and as single steps: rows [begin, end) with the rows before them as
// cached (k, u), in up to three segments.
void check_cached(const Case& c, std::vector<CheckRow>& rows, Par par) {
  const Problem p(c);
  std::vector<float> o(p.o.size()), u(p.u.size());
  const auto run = [&](size_t begin, size_t end, size_t pieces) {
    std::vector<KvSegment> segments;
    for (size_t i = 0; i < pieces; ++i) {
      const size_t from = begin * i / pieces, to = begin * (i + 1) / pieces;
      segments.push_back({p.k.data() + from * p.kw, u.data() + from * p.vw, to - from,
                          static_cast<int64_t>(from), p.kw, p.vw});
    }
    const std::span<const KvSegment> past = segments;
    const uint32_t offsets[] = {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
    DeltaFormerIn in = p.in();
    in.offsets = offsets, in.past = {&past, 1};
    std::vector<float> scratch(delta_former_fwd_scratch(p.shape(), offsets, par), NAN);
    delta_former_fwd(p.shape(), in, {{o.data(), p.rows, p.vw}, {u.data(), p.rows, p.vw}}, scratch, par);
  };
  std::vector<float> all_o, all_u;
  std::vector<double> want_o, want_u;
  const auto keep = [&] {
    all_o.insert(all_o.end(), o.begin(), o.end()), all_u.insert(all_u.end(), u.begin(), u.end());
    want_o.insert(want_o.end(), p.o.begin(), p.o.end()), want_u.insert(want_u.end(), p.u.begin(), p.u.end());
    std::fill(o.begin(), o.end(), NAN), std::fill(u.begin(), u.end(), NAN);
  };
  keep(), all_o.clear(), all_u.clear(), want_o.clear(), want_u.clear();
  for (size_t cut = 0; cut <= p.rows; ++cut) {
    run(0, cut, 1 + cut % 3);
    run(cut, p.rows, 1 + cut % 3);
    keep();
  }
  for (size_t i = 0; i < p.rows; ++i) run(i, i + 1, 1 + i % 3);
  keep();
  rows.push_back({name_of(c) + "cut anywhere o", compare<float, double>(all_o, want_o), kTolF32});
  rows.push_back({name_of(c) + "cut anywhere u", compare<float, double>(all_u, want_u), kTolF32});
}

}  // namespace

std::vector<CheckRow> delta_former_check(Par par) {
  std::vector<CheckRow> rows;
  for (const Case& c : cases()) check_packed(c, rows, par);
  check_cached({{70}, 2, 8, 12, {K::kSoftmax, 0.35f}, {K::kSoftmax, 0.35f}, 1.0f}, rows, par);
  check_cached({{40}, 1, 16, 16, {K::kRound, 1, 100}, {K::kLinear}, 0.25f, true, DeltaSimilarity::kQuery},
               rows, par);
  return rows;
}

namespace {

struct BenchData {
  std::vector<float> q, k, v, o, u, m, lse_write, lse_read, dout, dq, dk, dv, scratch;
  std::vector<uint32_t> offsets;
};

// a = b = 1, as in the paper's listing.
void bench_kernel(const std::string& name, const DeltaKernel& write, float key_scale,
                  std::vector<BenchCase>& out) {
  const size_t T = 1024, heads = 8, d = 64, w = heads * d;
  auto x = std::make_shared<BenchData>();
  x->q = random_vector(T * w, 1), x->k = random_vector(T * w, 2, key_scale), x->v = random_vector(T * w, 3);
  x->dout = random_vector(T * w, 4);
  for (std::vector<float>* y : {&x->o, &x->u, &x->m, &x->dq, &x->dk, &x->dv}) y->resize(T * w);
  x->lse_write.resize(T * heads), x->lse_read.resize(T * heads);
  x->offsets = {0, static_cast<uint32_t>(T)};
  const DeltaFormerShape shape{heads, d, d, write, delta_kernel(K::kSoftmax, d)};
  const auto mat = [=](std::vector<float>& y) { return Mat<float>(y.data(), T, w); };
  const auto in = [=] { return DeltaFormerIn{mat(x->q), mat(x->k), mat(x->v), {}, {}, x->offsets, {}}; };
  const auto fwd = [=](Par par) {
    x->scratch.resize(delta_former_bwd_scratch(shape, x->offsets, par));  // no less than forward's
    delta_former_fwd(shape, in(), {mat(x->o), mat(x->u), mat(x->m), x->lse_write.data(), x->lse_read.data()},
                     x->scratch, par);
  };
  const auto both = [=](Par par) {
    fwd(par);
    delta_former_bwd(shape, in(), {mat(x->o), mat(x->u), mat(x->m), x->lse_write.data(), x->lse_read.data()},
                     mat(x->dout), {}, {mat(x->dq), mat(x->dk), mat(x->dv)}, x->scratch, par);
  };
  // A product of d numbers for each pair of tokens: four forward, ten backward.
  const double product = 2.0 * d * heads * T * (T + 1) / 2;
  out.push_back({"delta_former fwd T1024 h8 d64 " + name, 4 * product, 0, fwd});
  out.push_back({"delta_former fwd+bwd T1024 h8 d64 " + name, 14 * product, 0, both});
}

}  // namespace

std::vector<BenchCase> delta_former_bench() {
  std::vector<BenchCase> out;
  bench_kernel("softmax", delta_kernel(K::kSoftmax, 64), 1.0f, out);
  bench_kernel("round", delta_kernel(K::kRound, 64, 100), 0.125f, out);
  // One decode step: 16 heads over 4096 cached tokens.
  struct Data {
    std::vector<float> q, k, v, o, u, scratch;
    KvSegment cache;
    std::span<const KvSegment> past;
    std::vector<uint32_t> offsets{0, 1};
  };
  const size_t tokens = 4096, heads = 16, d = 128, w = heads * d;
  auto x = std::make_shared<Data>();
  x->q = random_vector(w, 1), x->o.resize(w), x->u.resize(w);
  x->k = random_vector(tokens * w, 2), x->v = random_vector(tokens * w, 3);
  x->cache = {x->k.data(), x->v.data(), tokens, 0, w, w};
  x->past = {&x->cache, 1};
  const DeltaFormerShape shape{heads, d, d, delta_kernel(K::kSoftmax, d), delta_kernel(K::kSoftmax, d)};
  out.push_back({"delta_former step over 4096 h16 d128", 0, 8.0 * tokens * w, [=](Par par) {
                   x->scratch.resize(delta_former_fwd_scratch(shape, x->offsets, par));
                   const Mat<const float> q(x->q.data(), 1, w);
                   delta_former_fwd(shape, {q, q, q, {}, {}, x->offsets, {&x->past, 1}},
                                    {.o = {x->o.data(), 1, w}, .u = {x->u.data(), 1, w}}, x->scratch, par);
                 }});
  return out;
}

}  // namespace braid
