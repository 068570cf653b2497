// The vectorised functions of simd-inl.h against double, over all of float, for every target this machine
// has.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/common/impl_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/simd_math_test.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/simd-inl.h"

#ifndef BRAID_SIMD_MATH_TEST_FNS
#define BRAID_SIMD_MATH_TEST_FNS
namespace braid {
struct SimdMathFns {  // y[i] = f(x[i]) for i < n
  void (*exp)(const float* x, float* y, size_t n);
  void (*log)(const float* x, float* y, size_t n);
  void (*sigmoid)(const float* x, float* y, size_t n);
  void (*silu)(const float* x, float* y, size_t n);
  void (*softplus)(const float* x, float* y, size_t n);
};
}  // namespace braid
#endif

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

template <class F>
HWY_INLINE void map(const float* x, float* y, size_t n, const F& f) {
  for_lanes(n, [&](auto d, size_t i) { hn::StoreU(f(d, hn::LoadU(d, x + i)), d, y + i); });
}

constexpr SimdMathFns kFns{
    [](const float* x, float* y, size_t n) { map(x, y, n, [](auto d, auto v) { return exp_v(d, v); }); },
    [](const float* x, float* y, size_t n) { map(x, y, n, [](auto d, auto v) { return log_v(d, v); }); },
    [](const float* x, float* y, size_t n) { map(x, y, n, [](auto d, auto v) { return sigmoid_v(d, v); }); },
    [](const float* x, float* y, size_t n) { map(x, y, n, [](auto d, auto v) { return silu_v(d, v); }); },
    [](const float* x, float* y, size_t n) {
      map(x, y, n, [](auto d, auto v) { return softplus_v(d, v); });
    }};

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

using Fn = void (*)(const float* x, float* y, size_t n);
constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

const Impls<SimdMathFns>& targets() {
  static const Impls<SimdMathFns> table("simd_math", {"avx512", Isa::kAvx512, &N_AVX3::kFns},
                                        {"avx2", Isa::kAvx2, &N_AVX2::kFns},
                                        {"sse", Isa::kBase, &N_SSSE3::kFns});
  return table;
}

template <class F>  // f(fns, name) for every target that runs here
void for_targets(const F& f) {
  targets().each([&](std::string_view name, Par par) { f(targets().use(par), name); });
}

// Error in units of the last place of the nearest float. Infinity counts as 2^128, the next number after the
// largest.
double ulps(float got, double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : kInf;
  const double top = 0x1p128, g = std::clamp<double>(got, -top, top), w = std::clamp(want, -top, top);
  int e = -1000;  // for zero
  if (w != 0) std::frexp(w, &e);
  const double ulp = std::ldexp(1.0, std::max(std::min(e, 128) - 24, -149)), error = std::fabs(g - w) / ulp;
  return std::isnan(error) ? kInf : error;
}

// Every kStep-th bit pattern (a prime, so that all bits vary), and all numbers around the places where
// something changes.
constexpr uint32_t kStep = 1999;
std::vector<float> sweep() {
  std::vector<float> x{0.0f, -0.0f};
  for (uint64_t u = 0; u < 1ull << 32; u += kStep) {
    const float v = std::bit_cast<float>(static_cast<uint32_t>(u));
    if (std::isfinite(v)) x.push_back(v);
  }
  for (const float centre : {-104.0f, -103.97f, -103.28f, -88.73f, -87.34f, -0.34657f, 0.34657f, 0.70711f,
                             1.0f, 1.41421f, 16.0f, 17.3f, 88.72284f, 89.0f, 0x1p-126f, 0x1p127f}) {
    const int32_t at = std::bit_cast<int32_t>(centre);
    for (int32_t i = -3000; i <= 3000; ++i) x.push_back(std::bit_cast<float>(at + i));
  }
  return x;
}

// The worst error over the sweep of those x for which `domain(x, f(x))` holds.
template <class Domain>
void expect_ulps(Fn fn, double (*exact)(double), double bound, std::string_view what, const Domain& domain) {
  static const std::vector<float> x = sweep();
  std::vector<float> y(x.size(), kNaN);
  fn(x.data(), y.data(), x.size());
  double worst = 0;
  float at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = exact(x[i]);
    if (!domain(x[i], want)) continue;
    const double e = ulps(y[i], want);
    if (e > worst) worst = e, at = x[i];
  }
  EXPECT_LE(worst, bound) << what << " at x = " << at;
  EXPECT_GT(worst, 0.5) << what << ": better than correctly rounded, so nothing was measured";
  testing::Test::RecordProperty(std::string(what), std::to_string(worst));
}

float at(Fn fn, float x) {  // in a whole vector and in the tail: both must agree
  const std::vector<float> in(33, x);
  std::vector<float> out(33, 12345.0f);
  fn(in.data(), out.data(), in.size());
  EXPECT_EQ(std::bit_cast<uint32_t>(out[0]), std::bit_cast<uint32_t>(out[32])) << x;
  return out[0];
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x / (1 + std::exp(-x)); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

const auto everywhere = [](float, double) { return true; };

TEST(SimdMath, Exp) {
  for_targets([](const SimdMathFns& f, std::string_view t) {
    expect_ulps(
        f.exp, [](double x) { return std::exp(x); }, 1.1, "exp " + std::string(t), everywhere);
    EXPECT_EQ(at(f.exp, 0.0f), 1.0f);
    EXPECT_EQ(at(f.exp, -0.0f), 1.0f);
    EXPECT_EQ(at(f.exp, kInf), kInf);
    EXPECT_EQ(at(f.exp, 88.73f), kInf);
    EXPECT_EQ(at(f.exp, 3e38f), kInf);
    EXPECT_EQ(at(f.exp, -kInf), 0.0f);
    EXPECT_EQ(at(f.exp, -3e38f), 0.0f);
    EXPECT_TRUE(std::isnan(at(f.exp, kNaN)));
    EXPECT_TRUE(std::isnan(at(f.exp, -kNaN)));
  });
}

TEST(SimdMath, Log) {
  for_targets([](const SimdMathFns& f, std::string_view t) {
    expect_ulps(
        f.log, [](double x) { return std::log(x); }, 1, "log " + std::string(t),
        [](float x, double) { return x > 0; });
    EXPECT_EQ(at(f.log, 1.0f), 0.0f);
    EXPECT_EQ(at(f.log, kInf), kInf);
    EXPECT_EQ(at(f.log, 0.0f), -kInf);
    EXPECT_EQ(at(f.log, -0.0f), -kInf);
    for (const float bad : {-1e-40f, -1.0f, -3e38f, -kInf, kNaN, -kNaN})
      EXPECT_TRUE(std::isnan(at(f.log, bad)));
  });
}

TEST(SimdMath, Sigmoid) {
  for_targets([](const SimdMathFns& f, std::string_view t) {
    expect_ulps(f.sigmoid, sigmoid, 2.5, "sigmoid " + std::string(t),
                [](float, double y) { return y >= 3e-39; });
    for (const float x : {-88.8f, -90.0f, -103.0f, -1e30f, -kInf}) EXPECT_EQ(at(f.sigmoid, x), 0.0f);
    EXPECT_EQ(at(f.sigmoid, 0.0f), 0.5f);
    EXPECT_EQ(at(f.sigmoid, kInf), 1.0f);
    EXPECT_TRUE(std::isnan(at(f.sigmoid, kNaN)));
  });
}

TEST(SimdMath, Silu) {
  for_targets([](const SimdMathFns& f, std::string_view t) {
    expect_ulps(f.silu, silu, 2.5, "silu " + std::string(t),
                [](float x, double y) { return x > 0 || std::fabs(y) >= 3e-37 || x > -1; });
    for (const float x : {-88.8f, -90.0f, -103.0f, -1e30f, -3e38f}) EXPECT_EQ(at(f.silu, x), 0.0f);
    EXPECT_TRUE(std::isnan(at(f.silu, -kInf)));
    EXPECT_EQ(at(f.silu, 0.0f), 0.0f);
    EXPECT_EQ(at(f.silu, 3e38f), 3e38f);
    EXPECT_EQ(at(f.silu, kInf), kInf);
    EXPECT_TRUE(std::isnan(at(f.silu, kNaN)));
  });
}

TEST(SimdMath, Softplus) {
  for_targets([](const SimdMathFns& f, std::string_view t) {
    expect_ulps(f.softplus, softplus, 2, "softplus " + std::string(t), everywhere);
    EXPECT_EQ(at(f.softplus, kInf), kInf);
    EXPECT_EQ(at(f.softplus, -kInf), 0.0f);
    EXPECT_EQ(at(f.softplus, 3e38f), 3e38f);
    EXPECT_TRUE(std::isnan(at(f.softplus, kNaN)));
  });
}

TEST(SimdMath, ErrorMeasureSeesOneUlp) {  // the ruler itself
  EXPECT_EQ(ulps(1.0f, 1.0), 0);
  EXPECT_EQ(ulps(std::nextafter(1.0f, 2.0f), 1.0), 1);
  EXPECT_EQ(ulps(0x1p-149f, 0.0), 1);
  EXPECT_LE(ulps(kInf, 3.4028235e38), 1.5);
  EXPECT_EQ(ulps(kNaN, 1.0), kInf);
  EXPECT_EQ(ulps(1.0f, std::nan("")), kInf);
}

}  // namespace
}  // namespace braid
#endif
