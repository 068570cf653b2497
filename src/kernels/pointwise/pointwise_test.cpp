#include "kernels/pointwise/pointwise.h"

#include <gtest/gtest.h>

#include "support/op_test.h"
#include "kernels/pointwise/pointwise_ref.h"

namespace braid {
namespace {

using C = std::complex<double>;

TEST(Pointwise, RefMapsHaveTheirSlopes) {
  for (const Map m : {Map::kIdentity, Map::kSilu, Map::kSigmoid, Map::kRelu, Map::kElu1, Map::kSoftplus,
                      Map::kLogSigmoid, Map::kGelu}) {
    std::vector<C> x = random_complex(9, 1, 2.0), up = random_complex(9, 2), dx(9), y(9);
    for (size_t i = 0; i < 9; ++i) dx[i] = up[i] * ref::map_slope<C>(m, x[i]);
    expect_gradient(x, dx, [&] {
      for (size_t i = 0; i < 9; ++i) y[i] = ref::map<C>(m, x[i]);
      return dot(y, up);
    });
  }
}

TEST(Pointwise, RefHeadsBlendAndNormEqualComplexStep) {
  const size_t n = 7;
  std::vector<C> x = random_complex(n, 1), up = random_complex(n, 2), s{1.3}, y(n), dx(n), ds(1);
  for (const bool divide : {false, true}) {
    const auto loss = [&] {
      ref::scale_head_fwd<C>(x.data(), s[0], divide, 0.1, y.data(), n);
      return dot(y, up);
    };
    ref::scale_head_bwd<C>(x.data(), s[0], divide, 0.1, up.data(), dx.data(), ds.data(), n);
    expect_gradient(x, dx, loss), expect_gradient(s, ds, loss);
  }
  std::vector<C> a = random_complex(n, 3), z = random_complex(n, 4), da(n), db(n), dz(n);
  for (size_t i = 0; i < n; ++i) ref::blend_bwd<C>(a[i], x[i], z[i], up[i], &da[i], &db[i], &dz[i]);
  const auto blended = [&] {
    for (size_t i = 0; i < n; ++i) y[i] = ref::blend<C>(a[i], x[i], z[i]);
    return dot(y, up);
  };
  expect_gradient(a, da, blended), expect_gradient(x, db, blended), expect_gradient(z, dz, blended);
  for (const double eps : {0.1, 100.0}) {  // below and above the sum
    ref::l1norm_bwd<C>(x.data(), eps, up.data(), dx.data(), n);
    expect_gradient(x, dx, [&] {
      ref::l1norm_fwd<C>(x.data(), eps, y.data(), n);
      return dot(y, up);
    });
  }
}

TEST(Pointwise, RefDecayAndForgetEqualComplexStep) {
  const size_t n = 6;
  std::vector<C> dt = random_complex(n, 1), a{0.4}, up = random_complex(n, 2), g(n), ddt(n), da(1);
  const auto decayed = [&] {
    for (size_t i = 0; i < n; ++i) g[i] = ref::decay<C>(a[0], dt[i]);
    return dot(g, up);
  };
  decayed();
  for (size_t i = 0; i < n; ++i) ddt[i] = ref::decay<C>(a[0], up[i]), da[0] += up[i] * g[i];
  expect_gradient(dt, ddt, decayed), expect_gradient(a, da, decayed);

  std::vector<C> x = random_complex(n, 3), low(n), uk = random_complex(n, 4), k(n), dx(n), dlow(n);
  for (size_t i = 0; i < n; ++i) low[i] = 0.15 * static_cast<double>(i);
  for (size_t i = 0; i < n; ++i) ref::forget_bwd<C>(x[i], low[i], up[i], uk[i], &dx[i], &dlow[i]);
  const auto forgotten = [&] {
    for (size_t i = 0; i < n; ++i) ref::forget<C>(x[i], low[i], &g[i], &k[i]);
    return dot(g, up) + dot(k, uk);
  };
  expect_gradient(x, dx, forgotten), expect_gradient(low, dlow, forgotten);
}

TEST(Pointwise, RefLowerBoundsGrowAndEqualComplexStep) {
  const size_t layers = 5;
  std::vector<C> P = random_complex(layers, 1), dP(layers);
  double before = -1;
  for (size_t l = 0; l < layers; ++l) {
    const double low = ref::lower_bound<C>(P.data(), 1, layers, l).real();
    EXPECT_GT(low, before);
    EXPECT_LT(low, 1);
    before = low;
    std::fill(dP.begin(), dP.end(), C{});
    ref::lower_bound_bwd<C>(P.data(), 1, layers, l, 1.7, dP.data(), 1);
    if (l > 0) expect_gradient(P, dP, [&] { return 1.7 * ref::lower_bound<C>(P.data(), 1, layers, l); });
  }
  EXPECT_EQ(ref::lower_bound<C>(P.data(), 1, layers, 0), C(0));
}

TEST(Pointwise, EveryImplementationEqualsTheReference) {
  expect_all_impls(pointwise_impls(), pointwise_check);
}

TEST(Pointwise, ExtremeInputsStayFinite) {
  const std::vector<float> x{-1e4f, -90, -50, 0, 50, 90, 1e4f}, low(7, 0.0f);
  std::vector<float> y(7), k(7);
  for (const Map m : {Map::kSilu, Map::kSigmoid, Map::kElu1, Map::kSoftplus, Map::kLogSigmoid, Map::kGelu}) {
    map_fwd({.x = {x.data(), 1, 7}, .map = m}, {y.data(), 1, 7});
    for (const float v : y) EXPECT_TRUE(std::isfinite(v)) << static_cast<int>(m);
  }
  forget_fwd({.x = {x.data(), 1, 7}, .low = low.data()}, {y.data(), 1, 7}, {k.data(), 1, 7});
  for (size_t i = 0; i < 7; ++i) EXPECT_TRUE(std::isfinite(y[i]) && y[i] <= 0 && k[i] >= 0 && k[i] <= 1);
}

TEST(Pointwise, ThreadsDoNotChangeABit) {
  const size_t rows = 200, cols = 130, heads = 13;
  const std::vector<float> x = random_vector(rows * cols, 1), dy = random_vector(rows * cols, 2),
                           bias = random_vector(cols, 3), low(cols, 0.25f);
  const Mat<const float> xm{x.data(), rows, cols}, up{dy.data(), rows, cols};
  const auto run = [&](Par par) {
    std::vector<float> dx(3 * rows * cols), sums(2 * cols + heads, 0);
    map_bwd({.x = xm, .map = Map::kGelu, .bias = bias.data()}, up,
            {.dx = {dx.data(), rows, cols}, .dbias = sums.data()}, par);
    decay_bwd({.dt = xm, .a_log = bias.data(), .heads = heads}, up,
              {.ddt = {dx.data() + rows * cols, rows, cols}, .da_log = sums.data() + cols}, par);
    forget_bwd({.x = xm, .low = low.data()}, up, xm,
               {.dx = {dx.data() + 2 * rows * cols, rows, cols}, .dlow = sums.data() + cols + heads}, par);
    dx.insert(dx.end(), sums.begin(), sums.end());
    return dx;
  };
  ThreadPool pool(3);
  EXPECT_EQ(run({}), run(Par(pool)));
}

// silu's slope without its second term.
TEST(Pointwise, AMutantFails) {
  std::vector<double> right, wrong;
  for (const float x : random_vector(64, 1)) {
    right.push_back(ref::map_slope<double>(Map::kSilu, x));
    wrong.push_back(ref::sigmoid<double>(x));
  }
  EXPECT_FALSE(within(compare<double, double>(wrong, right), kTolF32Grad));
}

}  // namespace
}  // namespace braid
