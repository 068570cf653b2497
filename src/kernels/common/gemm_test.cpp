// Every target's small matrix products against a plain double loop, with NaN around every operand.
#include <gtest/gtest.h>

#include <cmath>

#include "base/cpu.h"
#include "verify/compare.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/common/gemm_test.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

// A strided matrix of random numbers; the gaps between rows are NaN, nothing follows the last number.
struct Strided {
  size_t rows, cols, stride;
  std::vector<float> data;
  Strided(size_t r, size_t c, size_t gap, uint64_t seed) : rows(r), cols(c), stride(c + gap) {
    const std::vector<float> x = random_vector(r * c, seed);
    data.assign(r ? (r - 1) * stride + c : 0, NAN);
    for (size_t i = 0; i < r; ++i)
      for (size_t j = 0; j < c; ++j) at(i, j) = x[i * c + j];
  }
  float& at(size_t i, size_t j) { return data[i * stride + j]; }
};

void check_product(bool trans_a, Into into, float alpha, size_t m, size_t n, size_t k, size_t gap) {
  Strided a = trans_a ? Strided(k, m, gap, 1) : Strided(m, k, gap, 1), b(k, n, gap, 2), c(m, n, gap, 3);
  std::vector<double> want;
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (size_t x = 0; x < k; ++x)
        sum += static_cast<double>(trans_a ? a.at(x, i) : a.at(i, x)) * b.at(x, j);
      want.push_back(alpha * sum + (into == Into::kAdd ? c.at(i, j) : 0));
      if (into == Into::kOverwrite) c.at(i, j) = NAN;
    }
  (trans_a ? gemm_tn : gemm_nn)(m, n, k, a.data.data(), a.stride, b.data.data(), b.stride, c.data.data(),
                                c.stride, into, alpha);
  std::vector<float> got;
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < c.stride && i * c.stride + j < c.data.size(); ++j) {
      if (j < n)
        got.push_back(c.at(i, j));
      else
        EXPECT_TRUE(std::isnan(c.at(i, j)));
    }
  const Diff diff = compare<float, double>(got, want);
  EXPECT_TRUE(within(diff, kTolF32)) << hwy::TargetName(HWY_TARGET) << (trans_a ? " TN " : " NN ") << m << "x"
                                     << n << "x" << k << " rms " << diff.rms << " max " << diff.max;
}

void check_products() {
  for (const size_t m : {0, 1, 2, 5, 6, 7, 13, 25, 64})
    for (const size_t n : {1, 3, 4, 7, 8, 12, 15, 16, 17, 31, 33, 47, 64, 101, 128})
      for (const size_t k : {0, 1, 2, 33})
        for (const bool trans_a : {false, true}) {
          check_product(trans_a, Into::kOverwrite, 1.0f, m, n, k, 0);
          check_product(trans_a, Into::kAdd, -0.5f, m, n, k, 3);
        }
}

void check_transpose() {
  for (const size_t rows : {1, 4, 7, 8, 15, 16, 17, 33})
    for (const size_t cols : {1, 3, 4, 5, 8, 19, 32}) {
      Strided from(rows, cols, 3, 1), to(cols, rows, 2, 2);
      for (size_t j = 0; j < cols; ++j)
        for (size_t i = 0; i < rows; ++i) to.at(j, i) = NAN;
      transpose(rows, cols, from.data.data(), from.stride, to.data.data(), to.stride);
      for (size_t j = 0; j < cols; ++j)
        for (size_t i = 0; i < rows; ++i) ASSERT_EQ(to.at(j, i), from.at(i, j));
    }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

TEST(Gemm, EveryTargetEqualsAPlainLoop) {
  N_SSSE3::check_products();
  if (detected_isa() >= Isa::kAvx2) N_AVX2::check_products();
  if (detected_isa() >= Isa::kAvx512) N_AVX3::check_products();
}

TEST(Gemm, EveryTargetTransposes) {
  N_SSSE3::check_transpose();
  if (detected_isa() >= Isa::kAvx2) N_AVX2::check_transpose();
  if (detected_isa() >= Isa::kAvx512) N_AVX3::check_transpose();
}

}  // namespace
}  // namespace braid
#endif
