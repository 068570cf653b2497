#include "kernels/selective_scan/selective_scan.h"

#include <cmath>

#include "support/op_test.h"
#include "kernels/selective_scan/selective_scan_ref.h"

namespace braid {
namespace {

using C = std::complex<double>;

TEST(SelectiveScan, RefBackwardEqualsComplexStep) {
  for (const size_t tokens : {0, 1, 2, 6})
    for (const bool with_skip : {true, false}) {
      const double low = with_skip ? -1 : 0;
      const ref::SelectiveScanDims n{tokens, 3, 2};
      const size_t D = n.channels, S = n.state, TD = tokens * D, TS = tokens * S, DS = D * S;
      std::vector<C> x = random_complex(TD, 1), dt = random_complex(TD, 2, 0.3), A = random_complex(DS, 3),
                     B = random_complex(TS, 4), Cm = random_complex(TS, 5), skip = random_complex(D, 6),
                     h0 = random_complex(DS, 7), dy = random_complex(TD, 8), dlast = random_complex(DS, 9);
      for (C& v : dt) v += 1.0;
      for (C& v : A) v = -std::exp(v.real());
      std::vector<C> y(TD), last(DS), dx(TD), ddt(TD), dA(DS), dB(TS), dC(TS), dskip(D), dh0(DS);
      const ref::SelectiveScanArgs<C> in{x.data(),  dt.data(), A.data(),
                                         B.data(),  Cm.data(), with_skip ? skip.data() : nullptr,
                                         h0.data(), low};
      const auto loss = [&] {
        ref::selective_scan_fwd<C>(n, in, y.data(), last.data());
        return dot(y, dy) + dot(last, dlast);
      };
      ref::selective_scan_bwd<C>(
          n, in, dy.data(), dlast.data(),
          {dx.data(), ddt.data(), dA.data(), dB.data(), dC.data(), dskip.data(), dh0.data()});
      expect_gradient(x, dx, loss);
      expect_gradient(dt, ddt, loss);
      expect_gradient(A, dA, loss);
      expect_gradient(B, dB, loss);
      expect_gradient(Cm, dC, loss);
      if (with_skip) expect_gradient(skip, dskip, loss);
      expect_gradient(h0, dh0, loss);
    }
}

TEST(SelectiveScan, EveryImplementationEqualsTheReference) {
  expect_all_impls(selective_scan_impls(), selective_scan_check);
}

struct Batch {
  std::vector<uint32_t> offsets{2, 40, 40, 41, 43, 110};
  size_t rows = 113, D = 200, S = 16, states = 5 * D * S;
  std::vector<float> x = random_vector(rows * D, 1), dt = random_vector(rows * D, 2),
                     A = random_vector(D * S, 3), B = random_vector(rows * S, 4),
                     C = random_vector(rows * S, 5), skip = random_vector(D, 6),
                     h0 = random_vector(states, 7), dy = random_vector(rows * D, 8),
                     dlast = random_vector(states, 9);
  Batch() {
    for (float& v : dt) v = 0.1f * std::exp(v);
    for (float& v : A) v = -std::exp(v);
  }

  // y, dx, ddt, dB, dC, last, dh0, dA, dskip behind each other.
  std::vector<float> run(Par par) const {
    std::vector<float> out(3 * rows * D + 2 * rows * S + 2 * states + D * S + D, 7.0f);
    float *y = out.data(), *dx = y + rows * D, *ddt = dx + rows * D, *dB = ddt + rows * D,
          *dC = dB + rows * S, *last = dC + rows * S, *dh0 = last + states, *dA = dh0 + states,
          *dskip = dA + D * S;
    const SelectiveScanIn in{.x = {x.data(), rows, D},
                             .dt = {dt.data(), rows, D},
                             .A = A.data(),
                             .B = {B.data(), rows, S},
                             .C = {C.data(), rows, S},
                             .skip = skip.data(),
                             .offsets = offsets,
                             .h0 = h0.data()};
    selective_scan_fwd(in, {y, rows, D}, last, par);
    std::vector<float> scratch(selective_scan_bwd_scratch(D, S, offsets, par), NAN);
    selective_scan_bwd(in, {dy.data(), rows, D}, dlast.data(),
                       {.dx = {dx, rows, D},
                        .ddt = {ddt, rows, D},
                        .dB = {dB, rows, S},
                        .dC = {dC, rows, S},
                        .dA = dA,
                        .dskip = dskip,
                        .dh0 = dh0},
                       scratch, par);
    return out;
  }
};

TEST(SelectiveScan, ThreadsDoNotChangeABitAndRowsOfNoSequenceStay) {
  const Batch b;
  ThreadPool pool(3);
  const std::vector<float> alone = b.run({});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(alone, b.run(Par(pool)));
  for (const size_t r : {0, 1, 110, 112}) {
    for (size_t i = 0; i < b.D; ++i)
      for (const size_t which : {0, 1, 2}) EXPECT_EQ(alone[(which * b.rows + r) * b.D + i], 7.0f);
    for (size_t i = 0; i < b.S; ++i)
      for (const size_t which : {0, 1})
        EXPECT_EQ(alone[3 * b.rows * b.D + (which * b.rows + r) * b.S + i], 7.0f);
  }
}

TEST(SelectiveScan, StepsOfABatchHaveTheBitsOfEachAlone) {
  const size_t n = 3, each = 200 * 16;
  const Batch b;
  std::vector<float> together(b.h0.begin(), b.h0.begin() + n * each), apart = together, y(n * b.D, NAN),
                                                                      z(n * b.D, NAN);
  const size_t at[] = {2 * each, 0, each};  // any order
  float* const states[] = {&together[at[0]], &together[at[1]], &together[at[2]]};
  const auto step = [&](size_t from, size_t count, std::span<float* const> h, float* to, Par par) {
    selective_scan_step({.x = {&b.x[from * b.D], count, b.D},
                         .dt = {&b.dt[from * b.D], count, b.D},
                         .A = b.A.data(),
                         .B = {&b.B[from * b.S], count, b.S},
                         .C = {&b.C[from * b.S], count, b.S},
                         .skip = b.skip.data(),
                         .states = h},
                        {to, count, b.D}, par);
  };
  ThreadPool pool(2);
  step(0, n, states, y.data(), Par(pool));
  for (size_t s = 0; s < n; ++s) {
    float* const one[] = {&apart[at[s]]};
    step(s, 1, one, &z[s * b.D], {});
  }
  EXPECT_EQ(y, z);
  EXPECT_EQ(together, apart);
}

// NaN in an input must come out, so that divergence shows: in its channel, from its token on.
TEST(SelectiveScan, NanComesThrough) {
  const size_t T = 20, D = 9, S = 4;
  std::vector<float> x(T * D, 1.0f), y(T * D, 0.0f);
  const std::vector<float> dt(T * D, 0.5f), A(D * S, -1.0f), B(T * S, 1.0f);
  x[5 * D + 3] = NAN;
  const uint32_t offsets[] = {0, T};
  selective_scan_fwd({.x = {x.data(), T, D},
                      .dt = {dt.data(), T, D},
                      .A = A.data(),
                      .B = {B.data(), T, S},
                      .C = {B.data(), T, S},
                      .offsets = offsets},
                     {y.data(), T, D}, nullptr);
  for (size_t t = 0; t < T; ++t)
    for (size_t d = 0; d < D; ++d) EXPECT_EQ(std::isnan(y[t * D + d]), d == 3 && t >= 5);
}

// What a wrong kernel would give: the state lost at a chunk's edge; B and C exchanged; the input not scaled
// by dt; and in the backward the gradient of the last state forgotten.
TEST(SelectiveScan, MutantsFail) {
  const size_t T = 40, D = 5, S = 4;
  const std::vector<double> x = to_double(random_vector(T * D, 1)), B = to_double(random_vector(T * S, 2)),
                            Cm = to_double(random_vector(T * S, 3)), dy = to_double(random_vector(T * D, 4)),
                            dlast = to_double(random_vector(D * S, 5)), dt(T * D, 0.3), A(D * S, -0.5);
  using Args = ref::SelectiveScanArgs<double>;
  const Args in{x.data(), dt.data(), A.data(), B.data(), Cm.data(), nullptr, nullptr};
  const auto fwd = [&](const Args& args, size_t piece) {
    std::vector<double> y(T * D);
    for (size_t t = 0; t < T; t += piece) {
      Args part = args;
      part.x += t * D, part.dt += t * D, part.B += t * S, part.C += t * S;
      ref::selective_scan_fwd<double>({std::min(piece, T - t), D, S}, part, &y[t * D], nullptr);
    }
    return y;
  };
  const auto bwd = [&](const double* last) {
    std::vector<double> dx(T * D), ddt(T * D), dA(D * S), dB(T * S), dC(T * S), dskip(D), dh0(D * S);
    ref::selective_scan_bwd<double>(
        {T, D, S}, in, dy.data(), last,
        {dx.data(), ddt.data(), dA.data(), dB.data(), dC.data(), dskip.data(), dh0.data()});
    return dx;
  };
  const auto differ = [](const std::vector<double>& a, const std::vector<double>& b, Tol tol) {
    const std::vector<float> f(a.begin(), a.end());
    return !within(compare<float, double>(f, b), tol);
  };
  Args exchanged = in, unscaled = in;
  std::swap(exchanged.B, exchanged.C);
  std::vector<double> larger = x;
  for (double& v : larger) v /= 0.3;
  unscaled.x = larger.data();
  const std::vector<double> y = fwd(in, T);
  EXPECT_FALSE(differ(y, y, kTolF32));
  EXPECT_TRUE(differ(fwd(in, kSelectiveScanChunk), y, kTolF32));
  EXPECT_TRUE(differ(fwd(exchanged, T), y, kTolF32));
  EXPECT_TRUE(differ(fwd(unscaled, T), y, kTolF32));
  EXPECT_TRUE(differ(bwd(nullptr), bwd(dlast.data()), kTolF32Grad));
}

}  // namespace
}  // namespace braid
