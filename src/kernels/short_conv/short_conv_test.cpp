#include "kernels/short_conv/short_conv.h"

#include <algorithm>
#include <cmath>

#include "support/op_test.h"
#include "kernels/short_conv/short_conv_ref.h"

namespace braid {
namespace {

using C = std::complex<double>;

TEST(ShortConv, RefBackwardEqualsComplexStep) {
  for (const bool silu : {false, true})
    for (const size_t tokens : {0, 1, 2, 7})  // 0, 1 and 2 are shorter than the state
      for (const size_t before : {1, 3}) {
        // Every second one with a norm over two heads of two channels.
        const bool l2 = (tokens + before / 2) % 2;
        const size_t width = before + 1;
        const ref::ShortConvDims n{tokens, 5, width, silu, l2 ? 2u : 0u, l2 ? 4u : 0u};
        const size_t D = n.channels, states = D * before;
        std::vector<C> x = random_complex(tokens * D, 1), w = random_complex(D * width, 2),
                       state = random_complex(states, 3), dy = random_complex(tokens * D, 4),
                       dlast = random_complex(states, 5);
        std::vector<C> y(x.size()), last(states), dx(x.size()), dw(w.size()), dstate(states);
        const auto loss = [&] {
          ref::short_conv_fwd<C>(n, x.data(), w.data(), state.data(), y.data(), last.data());
          return dot(y, dy) + dot(last, dlast);
        };
        ref::short_conv_bwd<C>(n, x.data(), w.data(), state.data(), dy.data(), dlast.data(), dx.data(),
                               dw.data(), dstate.data());
        expect_gradient(x, dx, loss);
        expect_gradient(w, dw, loss);
        expect_gradient(state, dstate, loss);
      }
}

TEST(ShortConv, EveryImplementationEqualsTheReference) {
  expect_all_impls(short_conv_impls(), short_conv_check);
}

struct Batch {
  std::vector<uint32_t> offsets{2, 40, 40, 41, 43, 110};
  size_t rows = 113, D = 200, W = 4, states = 5 * D * (W - 1);
  std::vector<float> x = random_vector(rows * D, 1), w = random_vector(D * W, 2),
                     state = random_vector(states, 3), dy = random_vector(rows * D, 4),
                     dlast = random_vector(states, 5);

  // y, dx, last, dstate, dw behind each other.
  std::vector<float> run(Par par) const {
    std::vector<float> out(2 * rows * D + 2 * states + D * W, 7.0f);
    float *y = out.data(), *dx = y + rows * D, *last = dx + rows * D, *dstate = last + states,
          *dw = dstate + states;
    const ShortConvIn in{.x = {x.data(), rows, D},
                         .w = w.data(),
                         .width = W,
                         .offsets = offsets,
                         .state = state.data(),
                         .silu = true,
                         .l2_dim = 40,
                         .l2_channels = 120};
    short_conv_fwd(in, {y, rows, D}, last, par);
    short_conv_bwd(in, {dy.data(), rows, D}, dlast.data(), {.dx = {dx, rows, D}, .dw = dw, .dstate = dstate},
                   par);
    return out;
  }
};

TEST(ShortConv, ThreadsDoNotChangeABitAndRowsOfNoSequenceStay) {
  const Batch b;
  ThreadPool pool(3);
  const std::vector<float> alone = b.run({});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(alone, b.run(Par(pool)));
  for (const size_t r : {0, 1, 110, 112})
    for (size_t d = 0; d < b.D; ++d) EXPECT_EQ(alone[r * b.D + d] + alone[(b.rows + r) * b.D + d], 14.0f);
}

TEST(ShortConv, StepsOfABatchHaveTheBitsOfEachAlone) {
  const size_t n = 3, D = 70, W = 5, each = D * (W - 1);
  const std::vector<float> x = random_vector(n * D, 1), w = random_vector(D * W, 2),
                           start = random_vector(n * each, 3);
  std::vector<float> together = start, apart = start, y(n * D, NAN), z(n * D, NAN);
  float* const states[] = {&together[2 * each], &together[0], &together[each]};  // any order
  ThreadPool pool(2);
  short_conv_step({.x = {x.data(), n, D}, .w = w.data(), .width = W, .states = states}, {y.data(), n, D},
                  Par(pool));
  const size_t at[] = {2 * each, 0, each};
  for (size_t s = 0; s < n; ++s) {
    float* const one[] = {&apart[at[s]]};
    short_conv_step({.x = {&x[s * D], 1, D}, .w = w.data(), .width = W, .states = one}, {&z[s * D], 1, D});
  }
  EXPECT_EQ(y, z);
  EXPECT_EQ(together, apart);
}

// Above 32 MB y is written past the caches; pieces are not.
TEST(ShortConv, LargeOutputsHaveTheBitsOfSmallOnes) {
  const size_t T = 2100, D = 4096 + 48, W = 4;
  const std::vector<float> w = random_vector(D * W, 2), row = random_vector(D, 1);
  Tensor x(DType::kF32, {T, D}), whole(DType::kF32, {T, D}), pieces(DType::kF32, {T, D});
  for (size_t t = 0; t < T; ++t)
    for (size_t d = 0; d < D; ++d) x.mat().row(t)[d] = row[(d * 7 + t) % D];
  std::vector<float> state(D * (W - 1), 0.0f);
  const uint32_t all[] = {0, T};
  const ShortConvIn in{.x = x.mat(),
                       .w = w.data(),
                       .width = W,
                       .offsets = all,
                       .silu = true,
                       .l2_dim = 128,
                       .l2_channels = 2048};
  ThreadPool pool(2);
  short_conv_fwd(in, whole.mat(), nullptr, Par(pool));
  for (uint32_t begin = 0; begin < T; begin += 700) {
    const uint32_t some[] = {0, 700};
    ShortConvIn part = in;
    part.x = x.mat().row_range(begin, begin + 700);
    part.offsets = some, part.state = state.data();
    short_conv_fwd(part, pieces.mat().row_range(begin, begin + 700), state.data());
  }
  EXPECT_TRUE(std::ranges::equal(whole.as<float>(), pieces.as<float>()));
  // The same for dx; over dy it stays in the caches.
  Tensor dx(DType::kF32, {T, D});
  std::vector<float> dw(D * W), dw_in_place(D * W);
  short_conv_bwd(in, whole.mat(), nullptr, {.dx = dx.mat(), .dw = dw.data()}, Par(pool));
  short_conv_bwd(in, whole.mat(), nullptr, {.dx = whole.mat(), .dw = dw_in_place.data()});
  EXPECT_TRUE(std::ranges::equal(whole.as<float>(), dx.as<float>()));
  EXPECT_EQ(dw, dw_in_place);
}

// NaN in an input must come out, so that divergence shows; it reaches W tokens and one channel.
TEST(ShortConv, NanReachesWTokensOfOneChannel) {
  const size_t T = 12, D = 9, W = 4;
  std::vector<float> x(T * D, 1.0f), y(T * D, 0.0f);
  const std::vector<float> w(D * W, 0.5f);
  x[5 * D + 3] = NAN;
  const uint32_t offsets[] = {0, T};
  short_conv_fwd({.x = {x.data(), T, D}, .w = w.data(), .width = W, .offsets = offsets, .silu = true},
                 {y.data(), T, D}, nullptr);
  for (size_t t = 0; t < T; ++t)
    for (size_t d = 0; d < D; ++d) EXPECT_EQ(std::isnan(y[t * D + d]), d == 3 && t >= 5 && t < 9);
}

// What a wrong kernel would give: weights reversed in time; the state forgotten; its newest input first;
// silu's slope left out of the backward; all channels normalised instead of the first half; the norm left out
// of the backward.
TEST(ShortConv, MutantsFail) {
  const ref::ShortConvDims n{20, 8, 4, true, 4, 4}, linear{20, 8, 4, false, 4, 4}, all{20, 8, 4, true, 4, 8},
      none{20, 8, 4, true};
  const size_t D = 8, W = 4, each = D * (W - 1), size = 20 * D;
  const std::vector<double> x = to_double(random_vector(size, 1)), w = to_double(random_vector(D * W, 2)),
                            state = to_double(random_vector(each, 3)), dy = to_double(random_vector(size, 4));
  std::vector<double> reversed = w, turned = state;
  for (size_t d = 0; d < D; ++d) {
    std::reverse(&reversed[d * W], &reversed[d * W] + W);
    std::reverse(&turned[d * (W - 1)], &turned[d * (W - 1)] + W - 1);
  }
  const auto fwd = [&](const std::vector<double>& weights, const double* before,
                       const ref::ShortConvDims& dims) {
    std::vector<double> y(size);
    ref::short_conv_fwd<double>(dims, x.data(), weights.data(), before, y.data(), nullptr);
    return y;
  };
  const auto bwd = [&](const ref::ShortConvDims& dims) {
    std::vector<double> dx(size), dw(D * W);
    ref::short_conv_bwd<double>(dims, x.data(), w.data(), state.data(), dy.data(), nullptr, dx.data(),
                                dw.data(), nullptr);
    dx.insert(dx.end(), dw.begin(), dw.end());
    return dx;
  };
  const auto differ = [](const std::vector<double>& a, const std::vector<double>& b, Tol tol) {
    const std::vector<float> f(a.begin(), a.end());
    return !within(compare<float, double>(f, b), tol);
  };
  const std::vector<double> y = fwd(w, state.data(), n);
  EXPECT_FALSE(differ(y, y, kTolF32));
  EXPECT_TRUE(differ(fwd(reversed, state.data(), n), y, kTolF32));
  EXPECT_TRUE(differ(fwd(w, nullptr, n), y, kTolF32));
  EXPECT_TRUE(differ(fwd(w, turned.data(), n), y, kTolF32));
  EXPECT_TRUE(differ(fwd(w, state.data(), all), y, kTolF32));
  EXPECT_TRUE(differ(bwd(linear), bwd(n), kTolF32Grad));
  EXPECT_TRUE(differ(bwd(none), bwd(n), kTolF32Grad));
}

}  // namespace
}  // namespace braid
