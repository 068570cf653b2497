// What is checked by the tests and by `braid verify`, and what `braid bench kernels` times.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <tuple>

#include "verify/ops.h"
#include "kernels/fast_weight/fast_weight.h"
#include "kernels/fast_weight/fast_weight_ref.h"

namespace braid {
namespace {

using Decay = FastWeightDecay;
using Write = FastWeightWrite;
using Form = FastWeightForm;

// Log-decays: -g log-uniform in (1e-4, 1); or every other one below -1, down to -90; or all between -12 and
// -30.
enum class Forget { kMild, kStrong, kNearlyAll };

struct Case {
  std::vector<uint32_t> lengths;
  size_t value_heads, key_heads, dk, dv;
  Decay decay;
  Write write;
  Forget forget = Forget::kMild;
  float beta_low = 0, beta_high = 1;
  float key = 1;  // mean square length of a key
  // Numbers are uniform instead of normal, and given states as large as those that the rule makes. Roundings
  // to bf16 are relative to a number, tolerances to the rms of all, and a product of normal numbers, or what
  // is read from a larger state, can be 15 times that.
  bool bounded = false;
};

constexpr Decay kDecays[] = {Decay::kNone, Decay::kHead, Decay::kToken, Decay::kChannel};
constexpr Write kWrites[] = {Write::kAdditive, Write::kDelta};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> c;
    for (const Decay d : kDecays)
      for (const Write w : kWrites) {
        c.push_back({{65}, 2, 1, 24, 40, d, w});
        c.push_back({{0, 1, 2, 63, 0, 17}, 4, 2, 20, 13, d, w});
        c.push_back({{40, 9}, 2, 2, 60, 100, d, w, Forget::kStrong});
        c.push_back({{40, 9, 1}, 2, 1, 20, 24, d, w, Forget::kNearlyAll});
        c.push_back({{33}, 3, 1, 7, 3, d, w, Forget::kMild, 1, 2});
      }
    for (const uint32_t T : {0, 1, 2, 63, 64, 65})
      c.push_back({{T}, 2, 2, 32, 32, Decay::kToken, Write::kDelta, Forget::kMild, 1, 2});
    c.push_back({{300}, 1, 1, 128, 128, Decay::kToken, Write::kDelta});
    c.push_back({{150}, 1, 1, 100, 60, Decay::kToken, Write::kDelta, Forget::kStrong, 1, 2});
    c.push_back({{50}, 2, 1, 96, 192, Decay::kToken, Write::kDelta, Forget::kMild, 1, 2});
    c.push_back({{50}, 2, 1, 192, 96, Decay::kChannel, Write::kDelta});
    c.push_back({{20}, 1, 1, 256, 512, Decay::kToken, Write::kDelta});
    c.push_back({{20}, 1, 1, 512, 256, Decay::kChannel, Write::kDelta});
    c.push_back({{20}, 1, 1, 1, 1, Decay::kChannel, Write::kDelta});
    c.push_back({{65}, 2, 1, 32, 48, Decay::kToken, Write::kDelta, Forget::kMild, 0, 1, 2});  // long keys
    c.push_back({{9}, 1, 1, 520, 4, Decay::kToken, Write::kDelta});                           // reference
    return c;
  }();
  return all;
}

// Random inputs, q, k and v as views into one buffer, and what the reference makes of them in double.
// Sequences 0, 2, .. have an initial state and a cotangent of the final one, or none has.
enum class States { kEven, kNone };
struct Problem {
  Case c;
  std::vector<uint32_t> offsets{0};
  size_t rows, kw, vw, gw, state, seqs;
  std::vector<float> qkv, g, beta, s0, dout, ds_end;
  std::vector<double> o, s_end, dq, dk, dv, dg, dbeta, ds0;

  // asked: the rows whose result counts; empty: all.
  explicit Problem(const Case& of, States states = States::kEven, std::span<const uint32_t> asked = {})
      : c(of), seqs(of.lengths.size()) {
    for (const uint32_t n : c.lengths) offsets.push_back(offsets.back() + n);
    rows = offsets.back(), kw = c.key_heads * c.dk, vw = c.value_heads * c.dv;
    gw = c.decay == Decay::kNone ? 0 : c.decay == Decay::kChannel ? c.value_heads * c.dk : c.value_heads;
    state = c.value_heads * c.dk * c.dv;
    const auto random = [&](size_t n, uint64_t seed) {
      std::vector<float> x = random_vector(n, seed);
      if (c.bounded)
        for (float& y : x) y = std::sqrt(3.0f) * std::erf(y / std::sqrt(2.0f));
      return x;
    };
    qkv = random(rows * (2 * kw + vw), 1);
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < kw; ++j)
        qkv[i * (2 * kw + vw) + kw + j] *= std::sqrt(c.key / static_cast<float>(c.dk));
    Rng rng(2, "fast weight checks");
    g.resize(gw * g_rows()), beta.resize(rows * c.value_heads);
    for (float& x : g) {
      x = -std::pow(10.0f, -4 * rng.uniform());
      if (c.forget == Forget::kStrong && rng.below(2)) x = -std::pow(90.0f, rng.uniform());
      if (c.forget == Forget::kNearlyAll) x = -12.0f - 18.0f * rng.uniform();
    }
    for (float& x : beta) x = c.beta_low + (c.beta_high - c.beta_low) * rng.uniform();
    s0 = random(seqs * state, 3), dout = random(rows * vw, 4), ds_end = random(seqs * state, 5);
    for (uint32_t i = 0; i < rows; ++i)
      if (!asked.empty() && std::ranges::find(asked, i) == asked.end())
        std::fill_n(dout.begin() + static_cast<std::ptrdiff_t>(i * vw), vw, 0.0f);
    if (c.bounded)
      for (auto* x : {&s0, &ds_end})
        for (float& y : *x) y /= std::sqrt(static_cast<float>(c.dk));
    o.resize(rows * vw), s_end.resize(seqs * state), dq.resize(rows * kw), dk.resize(rows * kw);
    dv.resize(rows * vw), dg.resize(g.size()), dbeta.resize(beta.size()), ds0.resize(seqs * state);
    const auto part = [&](size_t begin, size_t width) {
      std::vector<double> x;
      for (size_t i = 0; i < rows; ++i)
        for (size_t j = begin; j < begin + width; ++j) x.push_back(qkv[i * (2 * kw + vw) + j]);
      return x;
    };
    const std::vector<double> qd = part(0, kw), kd = part(kw, kw), vd = part(2 * kw, vw), gd = to_double(g),
                              bd = to_double(beta), sd = to_double(s0), dod = to_double(dout),
                              dsd = to_double(ds_end);
    const ref::FastWeightDims<double> d{c.value_heads, c.key_heads, c.dk, c.dv, c.decay, c.write, scale()};
    std::vector<double> share(g.size());
    for (size_t s = 0; s < seqs; ++s) {
      const bool given = states == States::kEven && s % 2 == 0;
      const size_t at = offsets[s], n = c.lengths[s], g_at = c.decay == Decay::kHead ? 0 : at * gw;
      const ref::FastWeightArgs<double> in{qd.data() + at * kw,
                                           kd.data() + at * kw,
                                           vd.data() + at * vw,
                                           gd.data() + g_at,
                                           bd.data() + at * c.value_heads,
                                           given ? sd.data() + s * state : nullptr};
      ref::fast_weight_fwd<double>(d, n, in, o.data() + at * vw, s_end.data() + s * state);
      double* dgs = c.decay == Decay::kHead ? share.data() : dg.data() + g_at;
      ref::fast_weight_bwd<double>(d, n, in, dod.data() + at * vw, given ? dsd.data() + s * state : nullptr,
                                   {dq.data() + at * kw, dk.data() + at * kw, dv.data() + at * vw, dgs,
                                    dbeta.data() + at * c.value_heads, ds0.data() + s * state});
      for (size_t h = 0; c.decay == Decay::kHead && h < gw; ++h) dg[h] += share[h];
    }
  }

  // dg over its decay: what each dg is relative to, however strong the decay. Smaller decays than e^-60 leave
  // denormal numbers.
  template <class T>
  std::vector<double> per_decay(const std::vector<T>& of) const {
    std::vector<double> x(of.begin(), of.end());
    for (size_t i = 0; i < x.size(); ++i) x[i] *= std::exp(std::min(-static_cast<double>(g[i]), 60.0));
    return x;
  }
  size_t g_rows() const { return c.decay == Decay::kHead ? 1 : rows; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(c.dk)); }
  FastWeightShape shape(Form form, size_t chunk = 0) const {
    return {c.value_heads, c.key_heads, c.dk, c.dv, c.decay, c.write, scale(), form, chunk};
  }
  Mat<const float> view(size_t begin, size_t width) const {
    return {qkv.data() + begin, rows, width, 2 * kw + vw};
  }
  FastWeightIn in(std::span<const uint32_t> cuts, std::span<const float* const> states) const {
    return {view(0, kw),
            view(kw, kw),
            view(2 * kw, vw),
            {g.data(), g_rows(), gw},
            {beta.data(), rows, c.value_heads},
            cuts,
            states};
  }
  std::string name(Form form, size_t chunk = 0) const {
    constexpr const char *kNames[] = {"none", "head", "token", "channel"},
                         *kForgets[] = {"", " strong", " nearly all"};
    std::string lengths;
    for (const uint32_t n : c.lengths) lengths += fmt::format("{}{}", lengths.empty() ? "" : ",", n);
    return fmt::format(
        "{} h{}/{} d{}/{} {} {}{} beta<{} {} ", lengths, c.value_heads, c.key_heads, c.dk, c.dv,
        kNames[static_cast<size_t>(c.decay)], c.write == Write::kDelta ? "delta" : "additive",
        kForgets[static_cast<size_t>(c.forget)], c.beta_high,
        form == Form::kChunk ? fmt::format("chunk {}", chunk ? chunk : kFastWeightChunk) : "recurrent");
  }
};

// One pointer per sequence; with kOdd null for every second.
enum class Odd { kNull, kGiven };
template <class T, class V>
std::vector<T*> pointers(V& x, size_t seqs, size_t state, Odd odd) {
  std::vector<T*> p;
  for (size_t s = 0; s < seqs; ++s) p.push_back(odd == Odd::kNull && s % 2 ? nullptr : x.data() + s * state);
  return p;
}

void check_packed(const Problem& p, Form form, size_t chunk, std::vector<CheckRow>& rows, Par par,
                  Precision precision = Precision::kF32) {
  FastWeightShape shape = p.shape(form, chunk);
  shape.precision = precision;
  const bool narrow = precision == Precision::kBf16;
  const Tol tol = narrow ? kTolBf16 : kTolF32, tol_grad = narrow ? kTolBf16 : kTolF32Grad;
  const auto empty = [](const std::vector<double>& like) { return std::vector<float>(like.size(), NAN); };
  std::vector<float> o = empty(p.o), s_end = empty(p.s_end), dq = empty(p.dq), dk = empty(p.dk),
                     dv = empty(p.dv), dg = empty(p.dg), dbeta = empty(p.dbeta), ds0 = empty(p.ds0);
  const auto s0 = pointers<const float>(p.s0, p.seqs, p.state, Odd::kNull),
             ds_end = pointers<const float>(p.ds_end, p.seqs, p.state, Odd::kNull);
  const auto ends = pointers<float>(s_end, p.seqs, p.state, Odd::kGiven),
             dstarts = pointers<float>(ds0, p.seqs, p.state, Odd::kGiven);
  const FastWeightIn in = p.in(p.offsets, s0);
  std::vector<float> scratch(
      std::max(fast_weight_fwd_scratch(shape, par), fast_weight_bwd_scratch(shape, p.offsets, {}, par)), NAN);
  fast_weight_fwd(shape, in, {o.data(), p.rows, p.vw}, ends, {}, scratch, par);
  std::fill(scratch.begin(), scratch.end(), NAN);
  fast_weight_bwd(shape, in, {}, {p.dout.data(), p.rows, p.vw}, ds_end,
                  {{dq.data(), p.rows, p.kw},
                   {dk.data(), p.rows, p.kw},
                   {dv.data(), p.rows, p.vw},
                   {dg.data(), p.g_rows(), p.gw},
                   {dbeta.data(), p.rows, p.c.value_heads},
                   dstarts},
                  scratch, par);
  const std::string name = p.name(form, fast_weight_chunk(shape, par)) + (narrow ? "bf16 products " : "");
  rows.push_back({name + "o", compare<float, double>(o, p.o), tol});
  rows.push_back({name + "S", compare<float, double>(s_end, p.s_end), tol});
  rows.push_back({name + "dq", compare<float, double>(dq, p.dq), tol_grad});
  rows.push_back({name + "dk", compare<float, double>(dk, p.dk), tol_grad});
  rows.push_back({name + "dv", compare<float, double>(dv, p.dv), tol_grad});
  rows.push_back({name + "dg", compare<float, double>(dg, p.dg), tol_grad});
  if (p.c.forget != Forget::kMild && !dg.empty())
    rows.push_back(
        {name + "dg / decay", compare<double, double>(p.per_decay(dg), p.per_decay(p.dg)), tol_grad});
  if (p.c.write == Write::kDelta)
    rows.push_back({name + "dbeta", compare<float, double>(dbeta, p.dbeta), tol_grad});
  rows.push_back({name + "dS0", compare<float, double>(ds0, p.ds0), tol_grad});
}

void check_alone(const Case& c, std::vector<CheckRow>& rows, Par par) {
  const Problem p(c, States::kNone);
  const FastWeightShape shape = p.shape(Form::kAuto);
  std::vector<float> o(p.o.size(), NAN), dq(p.dq.size(), NAN), dk(p.dk.size(), NAN), dv(p.dv.size(), NAN),
      dg(p.dg.size(), NAN), dbeta(p.dbeta.size(), NAN),
      scratch(
          std::max(fast_weight_fwd_scratch(shape, par), fast_weight_bwd_scratch(shape, p.offsets, {}, par)),
          NAN);
  fast_weight_fwd(shape, p.in(p.offsets, {}), {o.data(), p.rows, p.vw}, {}, {}, scratch, par);
  std::fill(scratch.begin(), scratch.end(), NAN);
  fast_weight_bwd(shape, p.in(p.offsets, {}), {}, {p.dout.data(), p.rows, p.vw}, {},
                  {{dq.data(), p.rows, p.kw},
                   {dk.data(), p.rows, p.kw},
                   {dv.data(), p.rows, p.vw},
                   {dg.data(), p.g_rows(), p.gw},
                   {dbeta.data(), p.rows, p.c.value_heads},
                   {}},
                  scratch, par);
  const std::string name = p.name(Form::kAuto);
  rows.push_back({name + "o", compare<float, double>(o, p.o), kTolF32});
  rows.push_back({name + "dq", compare<float, double>(dq, p.dq), kTolF32Grad});
  rows.push_back({name + "dk", compare<float, double>(dk, p.dk), kTolF32Grad});
  rows.push_back({name + "dv", compare<float, double>(dv, p.dv), kTolF32Grad});
  rows.push_back({name + "dg", compare<float, double>(dg, p.dg), kTolF32Grad});
  if (c.write == Write::kDelta)
    rows.push_back({name + "dbeta", compare<float, double>(dbeta, p.dbeta), kTolF32Grad});
}

// Few tokens read. Of the first sequence none, of the others some, not always the last.
void check_asked(const Case& c, std::vector<CheckRow>& rows, Par par) {
  std::vector<uint32_t> asked;
  for (uint32_t s = 0, at = 0; s < c.lengths.size(); at += c.lengths[s++])
    for (uint32_t t = 0; s > 0 && t < c.lengths[s]; ++t)
      if (t == s || t + 1 + s % 2 == c.lengths[s]) asked.push_back(at + t);
  const Problem p(c, States::kNone, asked);
  const FastWeightShape shape = p.shape(Form::kAuto);
  const auto few = [&](const auto& all, size_t width) {
    std::remove_cvref_t<decltype(all)> x;
    for (const uint32_t i : asked) x.insert(x.end(), &all[i * width], &all[i * width] + width);
    return x;
  };
  std::vector<float> q;
  for (const uint32_t i : asked) q.insert(q.end(), p.view(0, p.kw).row(i), p.view(0, p.kw).row(i) + p.kw);
  const std::vector<float> dout = few(p.dout, p.vw);
  const size_t n = asked.size();
  FastWeightIn in = p.in(p.offsets, {});
  in.q = {q.data(), n, p.kw};
  std::vector<float> o(n * p.vw, NAN), dq(n * p.kw, NAN), dk(p.dk.size(), NAN), dv(p.dv.size(), NAN),
      dg(p.dg.size(), NAN), dbeta(p.dbeta.size(), NAN),
      scratch(fast_weight_asked_scratch(shape, p.offsets, par), NAN);
  fast_weight_asked_fwd(shape, in, asked, {o.data(), n, p.vw}, par);
  fast_weight_asked_bwd(shape, in, asked, {dout.data(), n, p.vw},
                        {{dq.data(), n, p.kw},
                         {dk.data(), p.rows, p.kw},
                         {dv.data(), p.rows, p.vw},
                         {dg.data(), p.g_rows(), p.gw},
                         {dbeta.data(), p.rows, c.value_heads},
                         {}},
                        scratch, par);
  const std::string name = p.name(Form::kAuto) + "asked ";
  rows.push_back({name + "o", compare<float, double>(o, few(p.o, p.vw)), kTolF32});
  rows.push_back({name + "dq", compare<float, double>(dq, few(p.dq, p.kw)), kTolF32Grad});
  rows.push_back({name + "dk", compare<float, double>(dk, p.dk), kTolF32Grad});
  rows.push_back({name + "dv", compare<float, double>(dv, p.dv), kTolF32Grad});
  rows.push_back({name + "dg", compare<float, double>(dg, p.dg), kTolF32Grad});
  if (c.write == Write::kDelta)
    rows.push_back({name + "dbeta", compare<float, double>(dbeta, p.dbeta), kTolF32Grad});
}

// Forward emits states every so many tokens; backward starts from them and takes cotangents of them.
void check_emitted(const Case& c, size_t every, Form form, std::vector<CheckRow>& rows, Par par) {
  const Problem p(c);
  const size_t n = p.rows, count = n / every;
  const FastWeightShape shape = p.shape(form);
  std::vector<float> o(p.o.size()), emitted(count * p.state, NAN);
  const std::vector<float> d_emitted = random_vector(emitted.size(), 9);
  const auto wide = [&](size_t begin, size_t width) {
    std::vector<double> x;
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < width; ++j) x.push_back(p.view(begin, width).row(i)[j]);
    return x;
  };
  const std::vector<double> q = wide(0, p.kw), k = wide(p.kw, p.kw), v = wide(2 * p.kw, p.vw),
                            g = to_double(p.g), beta = to_double(p.beta), s0 = to_double(p.s0),
                            dout = to_double(p.dout), dsd = to_double(p.ds_end), ded = to_double(d_emitted);
  std::vector<double> od(o.size()), want(emitted.size()), dq(n * p.kw), dk(n * p.kw), dv(n * p.vw),
      dg(p.g.size()), dbeta(p.beta.size()), ds0(p.state);
  const ref::FastWeightDims<double> dims{c.value_heads, c.key_heads, c.dk, c.dv, c.decay, c.write, p.scale()};
  const ref::FastWeightArgs<double> args{q.data(), k.data(), v.data(), g.data(), beta.data(), s0.data()};
  ref::fast_weight_fwd<double>(dims, n, args, od.data(), nullptr, every, want.data());
  ref::fast_weight_bwd<double>(dims, n, args, dout.data(), dsd.data(),
                               {dq.data(), dk.data(), dv.data(), dg.data(), dbeta.data(), ds0.data()}, every,
                               ded.data());
  const float *start = p.s0.data(), *kept = emitted.data(), *d_kept = d_emitted.data(),
              *ds_end = p.ds_end.data();
  float* to = emitted.data();
  const FastWeightIn in = p.in(p.offsets, {&start, 1});
  const FastWeightKept marks{every, {&kept, 1}, {&d_kept, 1}};
  std::vector<float> scratch(fast_weight_fwd_scratch(shape, par), NAN);
  fast_weight_fwd(shape, in, {o.data(), n, p.vw}, {}, {every, {&to, 1}}, scratch, par);
  const std::string name = fmt::format("{}every {} ", p.name(form), every);
  rows.push_back({name + "o", compare<float, double>(o, od), kTolF32});
  rows.push_back({name + "emitted", compare<float, double>(emitted, want), kTolF32});
  if (form != Form::kChunk) return;
  std::vector<float> gq(dq.size(), NAN), gk(dk.size(), NAN), gv(dv.size(), NAN), gg(dg.size(), NAN),
      gb(dbeta.size(), NAN), gs(p.state, NAN);
  float* const gs_at = gs.data();
  scratch.assign(fast_weight_bwd_scratch(shape, p.offsets, marks, par), NAN);
  fast_weight_bwd(shape, in, marks, {p.dout.data(), n, p.vw}, {&ds_end, 1},
                  {{gq.data(), n, p.kw},
                   {gk.data(), n, p.kw},
                   {gv.data(), n, p.vw},
                   {gg.data(), p.g_rows(), p.gw},
                   {gb.data(), n, c.value_heads},
                   {&gs_at, 1}},
                  scratch, par);
  rows.push_back({name + "dq", compare<float, double>(gq, dq), kTolF32Grad});
  rows.push_back({name + "dk", compare<float, double>(gk, dk), kTolF32Grad});
  rows.push_back({name + "dv", compare<float, double>(gv, dv), kTolF32Grad});
  rows.push_back({name + "dg", compare<float, double>(gg, dg), kTolF32Grad});
  rows.push_back({name + "dbeta", compare<float, double>(gb, dbeta), kTolF32Grad});
  rows.push_back({name + "dS0", compare<float, double>(gs, ds0), kTolF32Grad});
}

// q, k and v in bf16 give what their values in f32 give.
void check_bf16(const Case& c, std::vector<CheckRow>& rows, Par par) {
  Problem p(c);
  std::vector<bf16> narrow;
  for (float& x : p.qkv) narrow.push_back(to_bf16(x)), x = to_f32(narrow.back());
  const auto run = [&](const FastWeightIn& in) {
    const FastWeightShape shape = p.shape(Form::kChunk);
    std::vector<float> scratch(
        std::max(fast_weight_fwd_scratch(shape, par), fast_weight_bwd_scratch(shape, p.offsets, {}, par)),
        NAN);
    std::vector<float> all(p.rows * (2 * p.vw + 2 * p.kw + p.gw + c.value_heads));
    float *o = all.data(), *dq = o + p.rows * p.vw, *dk = dq + p.rows * p.kw, *dv = dk + p.rows * p.kw,
          *dg = dv + p.rows * p.vw, *dbeta = dg + p.rows * p.gw;
    fast_weight_fwd(shape, in, {o, p.rows, p.vw}, {}, {}, scratch, par);
    fast_weight_bwd(shape, in, {}, {p.dout.data(), p.rows, p.vw}, {},
                    {{dq, p.rows, p.kw},
                     {dk, p.rows, p.kw},
                     {dv, p.rows, p.vw},
                     {dg, p.rows, p.gw},
                     {dbeta, p.rows, c.value_heads},
                     {}},
                    scratch, par);
    return all;
  };
  const FastWeightIn f32 = p.in(p.offsets, {});
  FastWeightIn in = f32;
  const auto view = [&](size_t begin, size_t width) {
    return Mat<const bf16>(narrow.data() + begin, p.rows, width, 2 * p.kw + p.vw);
  };
  in.q = in.k = in.v = {};
  in.q_bf16 = view(0, p.kw), in.k_bf16 = view(p.kw, p.kw), in.v_bf16 = view(2 * p.kw, p.vw);
  const std::vector<double> want = to_double(run(f32));
  rows.push_back({p.name(Form::kChunk) + "bf16 inputs", compare<float, double>(run(in), want), kTolF32});
}

// The sequence cut at every position into two pieces, and as single steps, in place on one state, equals the
// whole.
void check_cut(const Case& c, Form form, std::vector<CheckRow>& rows, Par par) {
  const Problem p(c);
  const FastWeightShape shape = p.shape(form);
  std::vector<float> scratch(fast_weight_fwd_scratch(shape, par), NAN);
  const auto run = [&](std::vector<uint32_t> cuts, std::vector<float>& all, std::vector<double>& want) {
    std::vector<float> o(p.o.size(), NAN), S(p.s0);
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      float* const state = S.data();
      const float* const start = state;
      fast_weight_fwd(shape, p.in({&cuts[i], 2}, {&start, 1}), {o.data(), p.rows, p.vw}, {&state, 1}, {},
                      scratch, par);
    }
    all.insert(all.end(), o.begin(), o.end()), all.insert(all.end(), S.begin(), S.end());
    want.insert(want.end(), p.o.begin(), p.o.end()), want.insert(want.end(), p.s_end.begin(), p.s_end.end());
  };
  std::vector<float> all, steps;
  std::vector<double> want, steps_want;
  std::vector<uint32_t> every;
  for (uint32_t cut = 0; cut <= p.rows; ++cut) {
    run({0, cut, static_cast<uint32_t>(p.rows)}, all, want);
    every.push_back(cut);
  }
  run(every, steps, steps_want);
  rows.push_back({p.name(form) + "cut anywhere", compare<float, double>(all, want), kTolF32});
  rows.push_back({p.name(form) + "single steps", compare<float, double>(steps, steps_want), kTolF32});
}

}  // namespace

std::vector<CheckRow> fast_weight_check(Par par) {
  std::vector<CheckRow> rows;
  for (const Case& c : cases()) {
    const Problem p(c);
    check_packed(p, Form::kRecurrent, 0, rows, par);
    check_packed(p, Form::kChunk, 0, rows, par);
  }
  // Nothing known of states, and none asked for: kAuto takes these whole.
  for (const Decay d : kDecays)
    for (const Write w : kWrites) check_alone({{40, 1, 0, 64, 33}, 2, 1, 64, 70, d, w}, rows, par);
  for (const Decay d : kDecays)
    for (const Write w : kWrites) {
      check_asked({{5, 40, 0, 17, 2}, 2, 1, 20, 37, d, w}, rows, par);
      check_asked({{3, 40, 9}, 4, 4, 32, 32, d, w, Forget::kMild, 1, 2}, rows, par);
      check_asked({{1, 70}, 2, 1, 24, 40, d, w, Forget::kStrong}, rows, par);
    }
  check_asked({{2, 9}, 1, 1, 520, 4, Decay::kToken, Write::kDelta}, rows, par);  // reference
  const Problem ragged({{40, 1, 0, 9}, 2, 1, 20, 24, Decay::kToken, Write::kDelta, Forget::kMild, 0, 2});
  for (const size_t chunk : {1, 2, 5, 64, 128}) check_packed(ragged, Form::kChunk, chunk, rows, par);
  check_packed(Problem({{70}, 1, 1, 24, 20, Decay::kChannel, Write::kDelta, Forget::kStrong}), Form::kChunk,
               64, rows, par);
  for (const Form form : {Form::kRecurrent, Form::kChunk}) {
    for (const Decay d : kDecays)
      for (const Write w : kWrites) check_cut({{37}, 2, 1, 12, 36, d, w}, form, rows, par);
    check_cut({{20}, 1, 1, 64, 64, Decay::kToken, Write::kDelta, Forget::kStrong, 1, 2}, form, rows, par);
    check_emitted({{50}, 2, 1, 12, 20, Decay::kToken, Write::kDelta}, 16, form, rows, par);
    check_emitted({{53}, 2, 1, 12, 140, Decay::kChannel, Write::kDelta}, 11, form, rows, par);
  }
  check_bf16({{37, 3}, 2, 1, 20, 24, Decay::kToken, Write::kDelta}, rows, par);
  const auto check_narrow = [&](const Case& c, size_t chunk) {
    check_packed(Problem(c), Form::kChunk, chunk, rows, par, Precision::kBf16);
  };
  for (const Decay d : kDecays)
    for (const Write w : kWrites) {
      check_narrow({{150, 0, 1, 64}, 2, 1, 48, 70, d, w, Forget::kMild, 0, 1, 1, true}, 0);
      if (d == Decay::kToken || d == Decay::kChannel)
        check_narrow({{90, 3}, 2, 2, 60, 100, d, w, Forget::kStrong, 0, 1, 1, true}, 0);
    }
  check_narrow({{300}, 1, 1, 128, 128, Decay::kToken, Write::kDelta, Forget::kMild, 0, 1, 1, true}, 0);
  for (const size_t chunk : {1, 5, 16, 128})
    check_narrow({{40, 1, 0, 150}, 2, 1, 20, 24, Decay::kToken, Write::kDelta, Forget::kMild, 0, 2, 1, true},
                 chunk);
  return rows;
}

namespace {

struct BenchShape {
  std::string name;
  size_t seqs, length, heads, d;
  Decay decay;
  Write write = Write::kDelta;
};

// One layer's tensors. Forward emits states for backward when sequences are long, as training does.
struct BenchData {
  BenchShape b;
  size_t rows, w, gw, every;
  Tensor qkv, g, beta, dout, o, dqkv, dg, dbeta, states, scratch;
  std::vector<uint32_t> offsets;
  std::vector<float*> emitted;
  std::vector<const float*> kept;

  explicit BenchData(const BenchShape& of)
      : b(of),
        rows(b.seqs * b.length),
        w(b.heads * b.d),
        gw(b.decay == Decay::kChannel ? w : b.heads),
        every(b.length >= 256 ? 128 : 0) {
    qkv = bench_tensor(rows * 3 * w, 1.7f / std::sqrt(static_cast<float>(b.d)));
    g = bench_tensor(rows * gw), beta = bench_tensor(rows * b.heads), dout = bench_tensor(rows * w);
    for (float& x : g.as<float>()) x = -0.1f * x * x;
    for (float& x : beta.as<float>()) x = 0.5f + 0.4f * x;
    o = bench_tensor(rows * w), dqkv = bench_tensor(rows * 3 * w), dg = bench_tensor(rows * gw);
    dbeta = bench_tensor(rows * b.heads);
    const size_t state = b.heads * b.d * b.d, count = every ? b.length / every : 0;
    states = bench_tensor(b.seqs * count * state);
    for (size_t s = 0; s <= b.seqs; ++s) {
      offsets.push_back(static_cast<uint32_t>(s * b.length));
      if (!every || s == b.seqs) continue;
      emitted.push_back(states.as<float>().data() + s * count * state);
      kept.push_back(emitted.back());
    }
  }
  Mat<float> part(Tensor& x, size_t i) { return {x.as<float>().data() + i * w, rows, w, 3 * w}; }
  Mat<float> mat(Tensor& x, size_t cols) { return {x.as<float>().data(), rows, cols}; }
  FastWeightIn in() {
    return {part(qkv, 0), part(qkv, 1), part(qkv, 2), mat(g, gw), mat(beta, b.heads), offsets, {}};
  }
  std::span<float> room(size_t n) {
    if (static_cast<size_t>(scratch.shape().count()) < n) scratch = bench_tensor(n);
    return scratch.as<float>();
  }
  void forward(const FastWeightShape& s, Par par, bool emit) {
    fast_weight_fwd(s, in(), mat(o, w), {}, emit ? FastWeightEmit{every, emitted} : FastWeightEmit{},
                    room(fast_weight_fwd_scratch(s, par)), par);
  }
  void backward(const FastWeightShape& s, Par par) {
    const FastWeightKept from{every, kept};
    fast_weight_bwd(s, in(), from, mat(dout, w), {},
                    {part(dqkv, 0), part(dqkv, 1), part(dqkv, 2), mat(dg, gw), mat(dbeta, b.heads), {}},
                    room(fast_weight_bwd_scratch(s, offsets, from, par)), par);
  }
  // The last token of each sequence asks, and no other.
  std::vector<uint32_t> last() const {
    std::vector<uint32_t> tokens;
    for (size_t s = 0; s < b.seqs; ++s) tokens.push_back(offsets[s + 1] - 1);
    return tokens;
  }
  FastWeightIn asked_in() {
    FastWeightIn few = in();
    few.q.rows = b.seqs;
    return few;
  }
  void asked_forward(const FastWeightShape& s, Par par) {
    fast_weight_asked_fwd(s, asked_in(), last(), {o.as<float>().data(), b.seqs, w}, par);
  }
  void asked_backward(const FastWeightShape& s, Par par) {
    Mat<float> dq = part(dqkv, 0);
    dq.rows = b.seqs;
    fast_weight_asked_bwd(s, asked_in(), last(), {dout.as<float>().data(), b.seqs, w},
                          {dq, part(dqkv, 1), part(dqkv, 2), mat(dg, gw), mat(dbeta, b.heads), {}},
                          room(fast_weight_asked_scratch(s, offsets, par)), par);
  }
};

// Memory of a case, made when it first runs.
auto lazy(const BenchShape& b) {
  return [data = std::make_shared<std::unique_ptr<BenchData>>(), b]() -> BenchData& {
    if (!*data) *data = std::make_unique<BenchData>(b);
    return **data;
  };
}

// 7 flops per number of the state and token forward (decay, two reads, a write), 21 with backward, whatever
// the form does.
void bench_shape(const BenchShape& b, std::initializer_list<Form> forms, std::vector<BenchCase>& out,
                 Precision precision = Precision::kF32) {
  const auto use = lazy(b);
  const double numbers = static_cast<double>(b.seqs * b.length * b.heads * b.d * b.d);
  for (const Form form : forms) {
    const FastWeightShape shape{b.heads, b.heads, b.d, b.d, b.decay, b.write, 1.0f, form, 0, precision};
    const std::string how = precision == Precision::kBf16 ? "bf16 chunk "
                            : form == Form::kChunk        ? "chunk "
                            : form == Form::kRecurrent    ? "recurrent "
                                                          : "auto ";
    out.push_back({"fast_weight " + b.name + " fwd", 7 * numbers, 0,
                   [=](Par par) { use().forward(shape, par, false); }, how + "forward"});
    out.push_back({"fast_weight " + b.name + " fwd+bwd", 21 * numbers, 0,
                   [=](Par par) { use().forward(shape, par, true), use().backward(shape, par); },
                   how + "forward+backward"});
  }
}

// One query of each sequence goes back through it: a dot product and two additions of a vector for each
// token, 11 of these with backward.
void bench_asked(const BenchShape& b, std::vector<BenchCase>& out) {
  const auto use = lazy(b);
  const FastWeightShape shape{b.heads, b.heads, b.d, b.d, b.decay, b.write, 1.0f};
  const double numbers = static_cast<double>(b.seqs * b.length * b.heads * b.d);
  out.push_back({"fast_weight " + b.name + " asked fwd", 6 * numbers, 0,
                 [=](Par par) { use().asked_forward(shape, par); }, "asked forward"});
  out.push_back({"fast_weight " + b.name + " asked fwd+bwd", 22 * numbers, 0,
                 [=](Par par) { use().asked_forward(shape, par), use().asked_backward(shape, par); },
                 "asked forward+backward"});
}

// Single steps of `seqs` sequences in place. The state is read and written once each: 8 bytes per number.
BenchCase bench_step(size_t seqs, size_t heads, size_t d) {
  struct Data {
    Tensor qkv, state, o, g, beta;
    std::vector<float*> to;
    std::vector<const float*> from;
    std::vector<uint32_t> offsets{0};
  };
  const size_t w = heads * d;
  auto data = std::make_shared<std::unique_ptr<Data>>();
  const auto run = [=](Par par) {
    if (!*data) {
      *data = std::make_unique<Data>();
      Data& x = **data;
      x.qkv = bench_tensor(seqs * 3 * w, 0.15f), x.state = bench_tensor(seqs * w * d),
      x.o = bench_tensor(seqs * w);
      x.g = bench_tensor(seqs * heads), x.beta = bench_tensor(seqs * heads);
      for (float& y : x.g.as<float>()) y = -0.1f * y * y;
      for (float& y : x.beta.as<float>()) y = 0.5f + 0.4f * y;
      for (size_t s = 0; s < seqs; ++s) {
        x.to.push_back(x.state.as<float>().data() + s * w * d), x.from.push_back(x.to.back());
        x.offsets.push_back(static_cast<uint32_t>(s + 1));
      }
    }
    Data& x = **data;
    const auto part = [&](size_t i) {
      return Mat<const float>(x.qkv.as<float>().data() + i * w, seqs, w, 3 * w);
    };
    fast_weight_fwd({heads, heads, d, d, Decay::kToken, Write::kDelta, 1.0f},
                    {part(0),
                     part(1),
                     part(2),
                     {x.g.as<float>().data(), seqs, heads},
                     {x.beta.as<float>().data(), seqs, heads},
                     x.offsets,
                     x.from},
                    {x.o.as<float>().data(), seqs, w}, x.to, {}, {}, par);
  };
  const double numbers = static_cast<double>(seqs * w * d);
  return {fmt::format("fast_weight {} x h{} d{} token delta step", seqs, heads, d), 7 * numbers, 8 * numbers,
          run, "step"};
}

}  // namespace

std::vector<BenchCase> fast_weight_bench() {
  std::vector<BenchCase> out;
  const auto both = {Form::kChunk, Form::kRecurrent};
  // The parity experiment has the delta rule without decay.
  bench_shape({"1024xT40 h4 d32 delta", 1024, 40, 4, 32, Decay::kNone}, {Form::kAuto}, out);
  bench_asked({"1024xT40 h4 d32 delta", 1024, 40, 4, 32, Decay::kNone}, out);
  bench_shape({"1024xT40 h4 d32 token delta", 1024, 40, 4, 32, Decay::kToken}, {Form::kAuto}, out);
  bench_shape({"1024xT40 h4 d32 token delta", 1024, 40, 4, 32, Decay::kToken}, both, out);
  bench_shape({"T2048 h16 d128 token delta", 1, 2048, 16, 128, Decay::kToken}, both, out);
  bench_shape({"T2048 h16 d128 token delta bf16", 1, 2048, 16, 128, Decay::kToken}, {Form::kChunk}, out,
              Precision::kBf16);
  bench_shape({"T2048 h16 d128 channel delta", 1, 2048, 16, 128, Decay::kChannel}, both, out);
  out.push_back(bench_step(1, 16, 128));
  out.push_back(bench_step(64, 32, 128));
  // Lengths: the time per token must not grow, with any rule. The same number of tokens for each, so that
  // what the caches hold is the same, too.
  const std::tuple<const char*, Decay, Write> rules[] = {
      {"linear attention", Decay::kNone, Write::kAdditive}, {"Mamba-2", Decay::kToken, Write::kAdditive},
      {"GLA", Decay::kChannel, Write::kAdditive},           {"DeltaNet", Decay::kNone, Write::kDelta},
      {"Gated DeltaNet", Decay::kToken, Write::kDelta},     {"KDA", Decay::kChannel, Write::kDelta}};
  for (const auto& [name, decay, write] : rules)
    for (const size_t k : {1, 8, 32, 128})
      bench_shape(
          {fmt::format("{} {}xT{}k h2 d64", name, 128 / k, k), 128 / k, k * 1024, 2, 64, decay, write},
          {Form::kAuto}, out);
  return out;
}

}  // namespace braid
