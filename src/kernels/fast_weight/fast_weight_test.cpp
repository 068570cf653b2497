#include "kernels/fast_weight/fast_weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "support/op_test.h"
#include "kernels/fast_weight/fast_weight_ref.h"

namespace braid {
namespace {

using C = std::complex<double>;
using Decay = FastWeightDecay;
using Write = FastWeightWrite;
using Form = FastWeightForm;
constexpr Decay kDecays[] = {Decay::kNone, Decay::kHead, Decay::kToken, Decay::kChannel};
constexpr Write kWrites[] = {Write::kAdditive, Write::kDelta};

// A small problem for the reference with random cotangents of the outputs and of the final state.
struct Small {
  ref::FastWeightDims<C> d;
  size_t n;
  std::vector<C> q, k, v, g, beta, s0, dout, ds_end, o, s_end, dq, dk, dv, dg, dbeta, ds0;

  Small(Decay decay, Write write, size_t tokens) : d{4, 2, 3, 2, decay, write, 0.7}, n(tokens) {
    q = random_complex(n * 2 * 3, 1), k = random_complex(n * 2 * 3, 2, 0.6), v = random_complex(n * 4 * 2, 3);
    g = random_complex(d.g_count(n), 4), beta = random_complex(n * 4, 5), s0 = random_complex(4 * 3 * 2, 6);
    for (C& x : g) x = -std::abs(x.real());
    for (C& x : beta) x = 1.0 + std::tanh(x.real());
    dout = random_complex(n * 4 * 2, 7), ds_end = random_complex(s0.size(), 8);
    o.resize(dout.size()), s_end.resize(s0.size()), dq.resize(q.size()), dk.resize(k.size());
    dv.resize(v.size()), dg.resize(g.size()), dbeta.resize(beta.size()), ds0.resize(s0.size());
  }
  ref::FastWeightArgs<C> args() const {
    return {q.data(), k.data(), v.data(), g.data(), beta.data(), s0.data()};
  }
  C loss() {
    ref::fast_weight_fwd<C>(d, n, args(), o.data(), s_end.data());
    return dot(o, dout) + dot(s_end, ds_end);
  }
  void backward() {
    ref::fast_weight_bwd<C>(d, n, args(), dout.data(), ds_end.data(),
                            {dq.data(), dk.data(), dv.data(), dg.data(), dbeta.data(), ds0.data()});
  }
};

TEST(FastWeight, RefBackwardEqualsComplexStep) {
  for (const Decay decay : kDecays)
    for (const Write write : kWrites)
      for (const size_t n : {0, 1, 5}) {
        SCOPED_TRACE(testing::Message() << int(decay) << " " << int(write) << " T " << n);
        Small p(decay, write, n);
        p.backward();
        const auto loss = [&] { return p.loss(); };
        expect_gradient(p.q, p.dq, loss);
        expect_gradient(p.k, p.dk, loss);
        expect_gradient(p.v, p.dv, loss);
        expect_gradient(p.g, p.dg, loss);
        if (write == Write::kDelta) expect_gradient(p.beta, p.dbeta, loss);
        expect_gradient(p.s0, p.ds0, loss);
      }
}

TEST(FastWeight, EveryImplementationEqualsTheReference) {
  expect_all_impls(fast_weight_impls(), fast_weight_check);
}

TEST(FastWeight, HeadsThatAreTooWideAreSaidToRunTheReference) {
  fast_weight_impls().each([](std::string_view name, Par par) {
    EXPECT_EQ(fast_weight_impl({1, 1, 512, 512, Decay::kNone, Write::kDelta}, par), name);
    EXPECT_EQ(fast_weight_impl({1, 1, 513, 8, Decay::kNone, Write::kDelta}, par), "ref");
    EXPECT_EQ(fast_weight_impl({1, 1, 8, 513, Decay::kNone, Write::kDelta}, par), "ref");
  });
}

// A ragged batch with one state per sequence.
struct Batch {
  FastWeightShape shape;
  std::vector<uint32_t> offsets{0, 70, 70, 71, 100, 160};
  size_t rows = 160, kw = 2 * 20, vw = 4 * 72, gw, state = 4 * 20 * 72;
  std::vector<float> q = random_vector(rows * kw, 1), k = random_vector(rows * kw, 2, 0.2f),
                     v = random_vector(rows * vw, 3), dout = random_vector(rows * vw, 4), g, beta;
  std::vector<float> s0 = random_vector(5 * state, 5), ds_end = random_vector(5 * state, 6);

  Batch(Decay decay, Write write)
      : shape{4, 2, 20, 72, decay, write, 0.2f}, gw(decay == Decay::kChannel ? 80 : 4) {
    g = random_vector(rows * gw, 7), beta = random_vector(rows * 4, 8);
    for (float& x : g) x = -0.1f * x * x;
    for (float& x : beta) x = 1 + std::tanh(x);
  }
  template <class T>
  std::vector<T*> states(T* x) const {
    return {x, x + state, x + 2 * state, x + 3 * state, x + 4 * state};
  }
  // Outputs, final states and gradients behind each other.
  std::vector<float> run(Par par) const {
    std::vector<float> out(rows * (2 * vw + 2 * kw + gw + 4) + 5 * state, NAN), ds = ds_end;
    float *o = out.data(), *dq = o + rows * vw, *dk = dq + rows * kw, *dv = dk + rows * kw,
          *dg = dv + rows * vw, *dbeta = dg + rows * gw, *s_end = dbeta + rows * 4;
    const auto starts = states(s0.data());
    const auto ends = states(s_end), dstarts = states(ds.data());
    const auto dends = states<const float>(ds.data());
    const size_t g_rows = shape.decay == Decay::kHead ? 1 : rows;
    const FastWeightIn in{{q.data(), rows, kw},
                          {k.data(), rows, kw},
                          {v.data(), rows, vw},
                          {g.data(), g_rows, gw},
                          {beta.data(), rows, 4},
                          offsets,
                          starts};
    std::vector<float> scratch(
        std::max(fast_weight_fwd_scratch(shape, par), fast_weight_bwd_scratch(shape, offsets, {}, par)), NAN);
    fast_weight_fwd(shape, in, {o, rows, vw}, ends, {}, scratch, par);
    fast_weight_bwd(
        shape, in, {}, {dout.data(), rows, vw}, dends,
        {{dq, rows, kw}, {dk, rows, kw}, {dv, rows, vw}, {dg, g_rows, gw}, {dbeta, rows, 4}, dstarts},
        scratch, par);
    std::erase_if(out, [](float x) { return std::isnan(x); });  // what this decay and write do not have
    out.insert(out.end(), ds.begin(), ds.end());
    return out;
  }
};

TEST(FastWeight, ThreadsDoNotChangeABit) {
  ThreadPool pool(3);
  for (const Decay decay : kDecays)
    for (const Write write : kWrites)
      for (const Form form : {Form::kRecurrent, Form::kChunk, Form::kAuto}) {
        Batch b(decay, write);
        b.shape.form = form;
        const std::vector<float> alone = b.run({});
        for (int i = 0; i < 3; ++i) EXPECT_EQ(alone, b.run(Par(pool)));
      }
}

TEST(FastWeight, ThreadsDoNotChangeABitOfWhatFewAsk) {
  ThreadPool pool(3);
  const std::vector<uint32_t> rows{3, 69, 70, 99, 120, 158};
  const size_t n = rows.size();
  for (const Decay decay : kDecays) {
    const Batch b(decay, Write::kDelta);
    const size_t g_rows = decay == Decay::kHead ? 1 : b.rows;
    const auto run = [&](Par par) {
      std::vector<float> o(n * b.vw), dq(n * b.kw), dk(b.rows * b.kw), dv(b.rows * b.vw), dg(g_rows * b.gw),
          dbeta(b.rows * 4), scratch(fast_weight_asked_scratch(b.shape, b.offsets, par), NAN);
      const FastWeightIn in{{b.q.data(), n, b.kw},
                            {b.k.data(), b.rows, b.kw},
                            {b.v.data(), b.rows, b.vw},
                            {b.g.data(), g_rows, b.gw},
                            {b.beta.data(), b.rows, 4},
                            b.offsets,
                            {}};
      fast_weight_asked_fwd(b.shape, in, rows, {o.data(), n, b.vw}, par);
      fast_weight_asked_bwd(b.shape, in, rows, {b.dout.data(), n, b.vw},
                            {{dq.data(), n, b.kw},
                             {dk.data(), b.rows, b.kw},
                             {dv.data(), b.rows, b.vw},
                             {dg.data(), g_rows, b.gw},
                             {dbeta.data(), b.rows, 4},
                             {}},
                            scratch, par);
      for (const auto* x : {&dq, &dk, &dv, &dg, &dbeta}) o.insert(o.end(), x->begin(), x->end());
      return o;
    };
    const std::vector<float> alone = run({});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(alone, run(Par(pool)));
  }
}

// Whatever this machine has for products of bf16, the chunk form with them holds its tolerance.
TEST(FastWeight, ProductsOfBf16ByEveryImplementation) {
  matmul_bf16_impls().each([&](std::string_view name, Par par) {
    for (const CheckRow& r : fast_weight_check(par))
      EXPECT_TRUE(r.ok()) << name << ": " << r.what << " rms " << r.diff.rms << " max " << r.diff.max;
  });
}

// In-place steps of many sequences equal the sequences alone, bit by bit.
TEST(FastWeight, StepsOfABatchEqualTheirParts) {
  const Batch b(Decay::kToken, Write::kDelta);
  const std::vector<uint32_t> offsets{0, 1, 2, 3, 4, 5};
  std::vector<float> together = b.s0, apart = b.s0, o(5 * b.vw, NAN), o_apart(5 * b.vw, NAN);
  const auto run = [&](std::vector<float>& S, std::vector<float>& out, size_t first, size_t count, Par par) {
    const auto from = b.states<const float>(S.data());
    const auto to = b.states(S.data());
    fast_weight_fwd(b.shape,
                    {{b.q.data(), b.rows, b.kw},
                     {b.k.data(), b.rows, b.kw},
                     {b.v.data(), b.rows, b.vw},
                     {b.g.data(), b.rows, b.gw},
                     {b.beta.data(), b.rows, 4},
                     std::span(offsets).subspan(first, count + 1),
                     std::span(from).subspan(first, count)},
                    {out.data(), 5, b.vw}, std::span(to).subspan(first, count), {}, {}, par);
  };
  ThreadPool pool(2);
  run(together, o, 0, 5, Par(pool));
  for (size_t s = 0; s < 5; ++s) run(apart, o_apart, s, 1, {});
  EXPECT_EQ(o, o_apart);
  EXPECT_EQ(together, apart);
}

// NaN in an input must come out, so that divergence shows, and stay in its head.
TEST(FastWeight, NanComesThrough) {
  Batch b(Decay::kToken, Write::kDelta);
  b.k[0] = NAN;
  std::vector<float> o(b.rows * b.vw, 0.0f);
  fast_weight_fwd(b.shape,
                  {{b.q.data(), b.rows, b.kw},
                   {b.k.data(), b.rows, b.kw},
                   {b.v.data(), b.rows, b.vw},
                   {b.g.data(), b.rows, b.gw},
                   {b.beta.data(), b.rows, 4},
                   b.offsets,
                   {}},
                  {o.data(), b.rows, b.vw});
  EXPECT_TRUE(std::isnan(o[69 * b.vw]));
  EXPECT_FALSE(std::isnan(o[69 * b.vw + 2 * 72]));  // the other key head
  EXPECT_FALSE(std::isnan(o[70 * b.vw]));           // the next sequence
}

// Several delta steps per token and one read, as a longer stream: decay on a token's first row, query on its
// last.
TEST(FastWeight, DeltaProductIsAnExpandedStream) {
  const size_t T = 21, steps = 3, dk = 12, dv = 20, rows = T * steps;
  const std::vector<float> q = random_vector(T * dk, 1), k = random_vector(rows * dk, 2, 0.25f),
                           v = random_vector(rows * dv, 3), x = random_vector(T + rows, 4);
  std::vector<float> wide_q(rows * dk, 0.0f), g(rows, 0.0f), beta(rows), o(rows * dv, NAN);
  for (size_t t = 0; t < T; ++t) {
    std::copy_n(&q[t * dk], dk, &wide_q[(t * steps + steps - 1) * dk]);
    g[t * steps] = -0.3f * std::abs(x[t]);
  }
  for (size_t i = 0; i < rows; ++i) beta[i] = 1 + std::tanh(x[T + i]);
  // The definition: decay once, then Householder steps, then read.
  std::vector<double> S(dk * dv, 0.0), want;
  for (size_t t = 0; t < T; ++t) {
    for (double& s : S) s *= std::exp(static_cast<double>(g[t * steps]));
    for (size_t i = t * steps; i < (t + 1) * steps; ++i)
      for (size_t c = 0; c < dv; ++c) {
        double e = v[i * dv + c];
        for (size_t r = 0; r < dk; ++r) e -= S[r * dv + c] * k[i * dk + r];
        for (size_t r = 0; r < dk; ++r) S[r * dv + c] += double(beta[i]) * k[i * dk + r] * e;
      }
    for (size_t c = 0; c < dv; ++c) {
      double sum = 0;
      for (size_t r = 0; r < dk; ++r) sum += S[r * dv + c] * q[t * dk + r];
      want.push_back(0.5 * sum);
    }
  }
  const std::vector<uint32_t> offsets{0, rows};
  for (const Form form : {Form::kRecurrent, Form::kChunk}) {
    const FastWeightShape shape{1, 1, dk, dv, Decay::kToken, Write::kDelta, 0.5f, form};
    std::vector<float> scratch(fast_weight_fwd_scratch(shape));
    fast_weight_fwd(shape,
                    {{wide_q.data(), rows, dk},
                     {k.data(), rows, dk},
                     {v.data(), rows, dv},
                     {g.data(), rows, 1},
                     {beta.data(), rows, 1},
                     offsets,
                     {}},
                    {o.data(), rows, dv}, {}, {}, scratch);
    std::vector<float> last;
    for (size_t t = 0; t < T; ++t)
      last.insert(last.end(), &o[(t * steps + steps - 1) * dv], &o[(t + 1) * steps * dv]);
    EXPECT_TRUE(within(compare<float, double>(last, want), kTolF32));
  }
}

// 131,072 tokens, unit keys, beta up to 2, log-uniform decays: finite, and both forms end in the same state.
TEST(FastWeight, LongSequencesStayFiniteAndExact) {
  const size_t T = 131072, dk = 16, dv = 8;
  std::vector<float> q = random_vector(T * dk, 1), k = random_vector(T * dk, 2), v = random_vector(T * dv, 3),
                     g(T), beta(T), dout = random_vector(T * dv, 4);
  Rng rng(5, "soak");
  for (size_t t = 0; t < T; ++t) {
    double norm = 0;
    for (size_t i = 0; i < dk; ++i) norm += double(k[t * dk + i]) * k[t * dk + i];
    for (size_t i = 0; i < dk; ++i) k[t * dk + i] /= static_cast<float>(std::sqrt(norm));
    g[t] = -std::pow(10.0f, -1 - 5 * rng.uniform()), beta[t] = 2 * rng.uniform();
  }
  const std::vector<uint32_t> offsets{0, T};
  std::vector<std::vector<float>> outputs, states, gradients;
  for (const Form form : {Form::kRecurrent, Form::kChunk}) {
    const FastWeightShape shape{1, 1, dk, dv, Decay::kToken, Write::kDelta, 0.25f, form};
    std::vector<float> o(T * dv, NAN), S(dk * dv, NAN), dq(T * dk, NAN), dk_(T * dk, NAN), dv_(T * dv, NAN),
        dg(T, NAN), dbeta(T, NAN),
        scratch(std::max(fast_weight_fwd_scratch(shape), fast_weight_bwd_scratch(shape, offsets)));
    float* const end = S.data();
    const FastWeightIn in{{q.data(), T, dk},
                          {k.data(), T, dk},
                          {v.data(), T, dv},
                          {g.data(), T, 1},
                          {beta.data(), T, 1},
                          offsets,
                          {}};
    fast_weight_fwd(shape, in, {o.data(), T, dv}, {&end, 1}, {}, scratch);
    fast_weight_bwd(shape, in, {}, {dout.data(), T, dv}, {},
                    {{dq.data(), T, dk},
                     {dk_.data(), T, dk},
                     {dv_.data(), T, dv},
                     {dg.data(), T, 1},
                     {dbeta.data(), T, 1},
                     {}},
                    scratch);
    for (const auto* x : {&o, &S, &dq, &dk_, &dv_, &dg, &dbeta})
      for (const float y : *x) ASSERT_TRUE(std::isfinite(y));
    outputs.push_back(o), states.push_back(S), gradients.push_back(dg);
  }
  EXPECT_TRUE(within(compare<float, double>(outputs[1], to_double(outputs[0])), kTolF32));
  EXPECT_TRUE(within(compare<float, double>(states[1], to_double(states[0])), kTolF32));
  EXPECT_TRUE(within(compare<float, double>(gradients[1], to_double(gradients[0])), kTolF32Grad));
}

// One number of everything, so that dg = dS exp(g) S0: with g = -20 less than the roundings of S and of dS,
// which are 1. Additive, since a delta write with k = 1 leaves nothing of the start state.
TEST(FastWeight, StrongDecayKeepsTheDigitsOfItsGradient) {
  const float one = 1, zero = 0;
  const std::vector<uint32_t> offsets{0, 1};
  fast_weight_impls().each([&](std::string_view name, Par par) {
    for (const Decay decay : {Decay::kHead, Decay::kToken, Decay::kChannel})
      for (const Form form : {Form::kRecurrent, Form::kChunk})
        for (const float g : {-1.0f, -12.0f, -20.0f, -60.0f}) {
          const FastWeightShape shape{1, 1, 1, 1, decay, Write::kAdditive, 1.0f, form};
          const float* const state = &one;
          float dq, dk, dv, ds0;
          std::vector<float> dg(1, NAN), scratch(fast_weight_bwd_scratch(shape, offsets, {}, par), NAN);
          float* const to = &ds0;
          fast_weight_bwd(
              shape, {{&one, 1, 1}, {&one, 1, 1}, {&one, 1, 1}, {&g, 1, 1}, {}, offsets, {&state, 1}}, {},
              {&zero, 1, 1}, {&state, 1},
              {{&dq, 1, 1}, {&dk, 1, 1}, {&dv, 1, 1}, {dg.data(), 1, 1}, {}, {&to, 1}}, scratch, par);
          const std::vector<double> want{std::exp(static_cast<double>(g))};
          EXPECT_TRUE(within(compare<float, double>(dg, want), kTolF32Grad))
              << name << " form " << int(form) << " decay " << int(decay) << " g " << g << ": " << dg[0];
        }
  });
}

// Mutants of the reference that the comparisons must reject.
std::vector<double> real(const std::vector<C>& x) {
  std::vector<double> y;
  for (const C& c : x) y.push_back(c.real());
  return y;
}

bool passes(const std::vector<C>& mutant, const std::vector<C>& want, Tol tol) {
  return within(compare<double, double>(real(mutant), real(want)), tol);
}

TEST(FastWeightMutant, DroppedDecayOnTheCarryFails) {
  for (const Decay decay : {Decay::kHead, Decay::kToken, Decay::kChannel}) {
    // The token that receives the carried state forgets its decay, as at a chunk's border.
    Small p(decay, Write::kDelta, 6);
    p.loss();
    const std::vector<C> want = p.o, end = p.s_end;
    p.loss();
    EXPECT_TRUE(passes(p.o, want, kTolF32));
    for (size_t i = 0; i < p.g.size(); ++i)
      if (decay == Decay::kHead || i / (p.g.size() / 6) == 3) p.g[i] = 0;
    p.loss();
    EXPECT_FALSE(passes(p.o, want, kTolF32));
    EXPECT_FALSE(passes(p.s_end, end, kTolF32));
  }
}

// The last token's share of A_C / A_C, which has no decay, added and taken away again.
TEST(FastWeightMutant, AShareThatCancelsFails) {
  for (const double g : {-12.0, -20.0}) {
    const std::vector<double> want{std::exp(g)};
    const float share = 1;
    const std::vector<float> right{static_cast<float>(want[0])}, mutant{(right[0] + share) - share};
    EXPECT_TRUE(within(compare<float, double>(right, want), kTolF32Grad));
    EXPECT_FALSE(within(compare<float, double>(mutant, want), kTolF32Grad));
  }
}

TEST(FastWeightMutant, ReversedCotangentFails) {
  Small p(Decay::kToken, Write::kDelta, 6);
  p.backward();
  const std::vector<C> dq = p.dq, dk = p.dk, dv = p.dv, dg = p.dg;
  const size_t width = p.dout.size() / p.n;
  for (size_t t = 0; t < p.n / 2; ++t)
    std::swap_ranges(&p.dout[t * width], &p.dout[(t + 1) * width], &p.dout[(p.n - 1 - t) * width]);
  p.backward();
  EXPECT_FALSE(passes(p.dq, dq, kTolF32Grad));
  EXPECT_FALSE(passes(p.dk, dk, kTolF32Grad));
  EXPECT_FALSE(passes(p.dv, dv, kTolF32Grad));
  EXPECT_FALSE(passes(p.dg, dg, kTolF32Grad));
}

TEST(FastWeightMutant, WrongKeyHeadFails) {
  for (const Write write : kWrites) {
    Small p(Decay::kToken, write, 6);
    p.loss();
    const std::vector<C> want = p.o;
    for (size_t t = 0; t < p.n; ++t) std::swap_ranges(&p.k[t * 6], &p.k[t * 6 + 3], &p.k[t * 6 + 3]);
    p.loss();
    EXPECT_FALSE(passes(p.o, want, kTolF32));
  }
}

// The chunk formulas in double, with a switch for each mistake that is easily made.
enum class Slip { kNone, kSignOfTheInverse, kNoDecayOnTheState, kNoDecayOnTheCarry };
std::vector<C> chunked(const Small& p, size_t chunk, Slip slip) {
  const auto& d = p.d;
  std::vector<C> out(p.o.size());
  for (size_t h = 0; h < d.value_heads; ++h) {
    const size_t kh = d.key_head(h);
    std::vector<C> S(&p.s0[h * d.dk * d.dv], &p.s0[h * d.dk * d.dv] + d.dk * d.dv);
    const auto k = [&](size_t t, size_t i) { return p.k[(t * d.key_heads + kh) * d.dk + i]; };
    const auto q = [&](size_t t, size_t i) { return p.q[(t * d.key_heads + kh) * d.dk + i]; };
    for (size_t t0 = 0; t0 < p.n; t0 += chunk) {
      const size_t c = std::min(chunk, p.n - t0);
      const auto ratio = [&](size_t i, size_t j) {  // A_i / A_j; j = c stands for the chunk's start
        C r = 1;
        for (size_t t = j == c ? 0 : j + 1; t <= i; ++t) r *= std::exp(p.g[(t0 + t) * d.value_heads + h]);
        return r;
      };
      std::vector<C> U(c * d.dv);
      for (size_t x = 0; x < d.dv; ++x)
        for (size_t i = 0; i < c; ++i) {
          C u = p.v[((t0 + i) * d.value_heads + h) * d.dv + x];
          for (size_t r = 0; r < d.dk; ++r)
            u -= (slip == Slip::kNoDecayOnTheState ? C(1) : ratio(i, c)) * k(t0 + i, r) * S[r * d.dv + x];
          for (size_t j = 0; j < i; ++j)
            for (size_t r = 0; r < d.dk; ++r)
              u -= (slip == Slip::kSignOfTheInverse ? C(-1) : C(1)) * ratio(i, j) * k(t0 + i, r) *
                   k(t0 + j, r) * U[j * d.dv + x];
          U[i * d.dv + x] = p.beta[(t0 + i) * d.value_heads + h] * u;
          C sum = 0;
          for (size_t r = 0; r < d.dk; ++r) {
            sum += ratio(i, c) * q(t0 + i, r) * S[r * d.dv + x];
            for (size_t j = 0; j <= i; ++j)
              sum += ratio(i, j) * q(t0 + i, r) * k(t0 + j, r) * U[j * d.dv + x];
          }
          out[((t0 + i) * d.value_heads + h) * d.dv + x] = d.scale * sum;
        }
      for (size_t r = 0; r < d.dk; ++r)
        for (size_t x = 0; x < d.dv; ++x) {
          C s = (slip == Slip::kNoDecayOnTheCarry ? C(1) : ratio(c - 1, c)) * S[r * d.dv + x];
          for (size_t j = 0; j < c; ++j) s += ratio(c - 1, j) * k(t0 + j, r) * U[j * d.dv + x];
          S[r * d.dv + x] = s;
        }
    }
  }
  return out;
}

TEST(FastWeightMutant, SlipsInTheChunkFormulasFail) {
  Small p(Decay::kToken, Write::kDelta, 7);
  p.loss();
  EXPECT_TRUE(passes(chunked(p, 3, Slip::kNone), p.o, kTolF64));
  for (const Slip slip : {Slip::kSignOfTheInverse, Slip::kNoDecayOnTheState, Slip::kNoDecayOnTheCarry})
    EXPECT_FALSE(passes(chunked(p, 3, slip), p.o, kTolF32));
}

// The same for a query that goes back: every token asks.
enum class BackSlip { kNone, kFadesFirst, kForgetsToFade, kKeepsWhatItRead };
std::vector<C> asked(const Small& p, BackSlip slip) {
  const auto& d = p.d;
  std::vector<C> out(p.o.size());
  for (size_t h = 0; h < d.value_heads; ++h)
    for (size_t at = 0; at < p.n; ++at) {
      const size_t kh = d.key_head(h);
      std::vector<C> w(&p.q[(at * d.key_heads + kh) * d.dk], &p.q[(at * d.key_heads + kh) * d.dk] + d.dk);
      C* o = &out[(at * d.value_heads + h) * d.dv];
      for (size_t t = at + 1; t-- > 0;) {
        const C* k = &p.k[(t * d.key_heads + kh) * d.dk];
        const auto fade = [&] {
          for (size_t i = 0; i < d.dk; ++i) w[i] *= std::exp(p.g[d.g_at(t, h, i)]);
        };
        if (slip == BackSlip::kFadesFirst) fade();
        C a = 0;
        for (size_t i = 0; i < d.dk; ++i) a += k[i] * w[i];
        if (d.delta()) a *= p.beta[t * d.value_heads + h];
        for (size_t x = 0; x < d.dv; ++x) o[x] += d.scale * a * p.v[(t * d.value_heads + h) * d.dv + x];
        for (size_t i = 0; i < d.dk; ++i)
          if (d.delta() && slip != BackSlip::kKeepsWhatItRead) w[i] -= a * k[i];
        if (slip != BackSlip::kFadesFirst && slip != BackSlip::kForgetsToFade) fade();
      }
      for (size_t i = 0; i < d.dk; ++i)
        for (size_t x = 0; x < d.dv; ++x) o[x] += d.scale * w[i] * p.s0[(h * d.dk + i) * d.dv + x];
    }
  return out;
}

TEST(FastWeightMutant, SlipsOfAQueryThatGoesBackFail) {
  for (const Decay decay : {Decay::kHead, Decay::kToken, Decay::kChannel})
    for (const Write write : kWrites) {
      Small p(decay, write, 7);
      p.loss();
      EXPECT_TRUE(passes(asked(p, BackSlip::kNone), p.o, kTolF64));
      EXPECT_FALSE(passes(asked(p, BackSlip::kFadesFirst), p.o, kTolF32));
      EXPECT_FALSE(passes(asked(p, BackSlip::kForgetsToFade), p.o, kTolF32));
      EXPECT_EQ(passes(asked(p, BackSlip::kKeepsWhatItRead), p.o, kTolF32), write == Write::kAdditive);
    }
}

TEST(FastWeightMutant, MissingBetaInTheGradientFails) {
  Small p(Decay::kToken, Write::kDelta, 6);
  p.backward();
  std::vector<C> dv = p.dv;
  for (size_t i = 0; i < dv.size(); ++i) dv[i] /= p.beta[i / p.d.dv];
  EXPECT_FALSE(passes(dv, p.dv, kTolF32Grad));
}

}  // namespace
}  // namespace braid
