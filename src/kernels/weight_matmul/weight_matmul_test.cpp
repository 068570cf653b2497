#include "kernels/weight_matmul/weight_matmul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/op_test.h"
#include "verify/ops/stored_sample.h"

namespace braid {
namespace {

constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kQ8,
                                     WeightFormat::kQ4};

std::vector<float> run(const StoredMatrix& w, const std::vector<float>& x, size_t m, Par par = {}) {
  std::vector<float> y(m * w.rows);
  const WeightProduct p{{x.data(), m, w.cols}, w, {y.data(), m, w.rows}};
  std::vector<float> scratch(weight_matmul_scratch({&p, 1}, Activations::kF32, par));
  weight_matmul({&p, 1}, Into::kOverwrite, Activations::kF32, scratch, par);
  return y;
}

TEST(WeightMatmul, EveryImplementationEqualsTheReference) {
  expect_all_impls(weight_matmul_impls(), weight_matmul_check);
}

// Sequences decoded together get exactly what each gets alone.
TEST(WeightMatmul, ARowDoesNotDependOnTheOthers) {
  const size_t k = 224;
  const std::vector<float> x = random_vector(kFewRows * k, 1);
  for (const WeightFormat f : kFormats) {
    const StoredSample w(f, 70, k, 2);
    for (size_t m = 1; m <= kFewRows; ++m) {
      const std::vector<float> together = run(w.matrix(), x, m);
      for (size_t r = 0; r < m; ++r) {
        const std::vector<float> alone =
            run(w.matrix(), std::vector<float>(x.begin() + r * k, x.begin() + (r + 1) * k), 1);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin() + r * 70))
            << weight_format_name(f) << ", row " << r << " of " << m;
      }
    }
  }
}

TEST(WeightMatmul, ThreadsDoNotChangeABit) {
  const size_t k = 160;
  ThreadPool pool(3);
  for (const WeightFormat f : kFormats)
    for (const size_t m : {size_t{1}, size_t{8}, size_t{600}}) {
      const StoredSample w(f, 700, k, 2, 300);
      const std::vector<float> x = random_vector(m * k, 1);
      EXPECT_EQ(run(w.matrix(), x, m), run(w.matrix(), x, m, Par(pool)));
    }
}

// What rounding X to 16 bits loses against X as it is: at most 2^-16 of a block's largest number. One number
// a thousand times as large as its neighbours takes their last ten bits, in its block alone.
TEST(WeightMatmul, RoundingXLosesLittle) {
  const size_t n = 64, k = 512, m = 40;
  for (const WeightFormat f : {WeightFormat::kQ8, WeightFormat::kQ4}) {
    const StoredSample w(f, n, k, 1);
    std::vector<float> x = random_vector(m * k, 2);
    const auto loss = [&] {
      std::vector<double> want(m * n, 0);
      for (size_t i = 0; i < m; ++i)
        for (size_t j = 0; j < n; ++j)
          for (size_t l = 0; l < k; ++l)
            want[i * n + j] += static_cast<double>(x[i * k + l]) * w.number(j, l);
      return compare<float, double>(run(w.matrix(), x, m), want).rms;
    };
    EXPECT_LT(loss(), 3e-5);
    EXPECT_GT(loss(), 1e-6);  // it is rounded
    for (size_t i = 0; i < m; ++i) x[i * k + 100] *= 1000;
    EXPECT_LT(loss(), 1e-4);
  }
}

TEST(WeightMatmul, XMayBeTinyHugeOrNotANumber) {
  const size_t k = 64;
  for (const WeightFormat f : {WeightFormat::kQ8, WeightFormat::kQ4}) {
    const StoredSample w(f, 7, k, 1);
    for (const float x : {0.0f, 1e-40f, 1e-30f, 1e30f}) {
      const std::vector<float> y = run(w.matrix(), std::vector<float>(k, x), 1);
      for (size_t j = 0; j < 7; ++j) {
        double want = 0;
        for (size_t i = 0; i < k; ++i) want += static_cast<double>(x) * w.number(j, i);
        EXPECT_NEAR(y[j], want, 1e-4 * std::fabs(x) * k + 1e-33) << x;
      }
    }
    for (const float bad : {INFINITY, -INFINITY, NAN})
      for (const size_t m : {size_t{1}, size_t{40}}) {
        std::vector<float> x(m * k, 1);
        x[40] = bad;
        const std::vector<float> y = run(w.matrix(), x, m);
        for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isfinite(y[i]), i >= 7) << bad << " " << i;
      }
  }
}

// What a format may lose: half of the last bit, or half a step of the block's scale.
TEST(WeightMatmul, StoredNumbersAreNear) {
  const size_t cols = 4096;
  std::vector<float> x = random_vector(cols, 1);
  for (size_t i = 64; i < 96; ++i) x[i] = 0;
  for (const WeightFormat f : kFormats) {
    std::vector<std::byte> data(weight_row_bytes(f, cols));
    std::vector<bf16> scales(weight_row_scales(f, cols));
    store_row(f, x, data.data(), scales.data());
    for (size_t i = 0; i < cols; ++i) {
      float most = 0;
      for (size_t j = i / 32 * 32; j < i / 32 * 32 + 32; ++j) most = std::max(most, std::fabs(x[j]));
      const float step = most * 1.01f;  // bf16 scales are rounded up
      const float bound = f == WeightFormat::kF32             ? 0
                          : f == WeightFormat::kBf16          ? std::fabs(x[i]) / 256
                          : f == WeightFormat::kQ8            ? step / 127 / 2
                          : std::fabs(x[i]) < 7.5f / 8 * most ? step / 8 / 2
                                                              : step / 8;
      EXPECT_LE(std::fabs(ref::stored_number<float>(f, data.data(), scales.data(), i) - x[i]), bound)
          << weight_format_name(f) << " " << i << " " << x[i];
    }
  }
}

TEST(WeightMatmul, InfinitiesAndNaNStayVisible) {
  for (const float bad : {INFINITY, -INFINITY, NAN})
    for (const WeightFormat f : kFormats) {
      std::vector<float> x(64, 1);
      x[40] = bad;
      std::vector<std::byte> data(weight_row_bytes(f, 64));
      std::vector<bf16> scales(weight_row_scales(f, 64));
      store_row(f, x, data.data(), scales.data());
      EXPECT_FALSE(std::isfinite(ref::stored_number<float>(f, data.data(), scales.data(), 40)));
      EXPECT_NEAR(ref::stored_number<float>(f, data.data(), scales.data(), 3), 1, 0.01)
          << weight_format_name(f);
    }
}

// Mutants that must be caught: the scales of the next block, the halves of a byte the other way round.
TEST(WeightMatmul, MutantsFail) {
  const size_t n = 20, k = 96;
  for (const WeightFormat f : {WeightFormat::kQ8, WeightFormat::kQ4}) {
    const StoredSample w(f, n, k, 1);
    const std::vector<float> x = random_vector(k, 2);
    const std::vector<double> xd = to_double(x);
    std::vector<double> want(n);
    ref::weight_matmul<double>(xd.data(), k, 1, w.matrix(), want.data(), n, Into::kOverwrite);
    const auto fails = [&](const StoredRows& part) {
      const std::vector<float> got = run({f, n, k, {&part, 1}}, x, 1);
      EXPECT_FALSE(within(compare<float, double>(got, want), kTolF32)) << weight_format_name(f);
    };
    const StoredRows right = w.matrix().parts[0];
    fails({right.data, right.scales + 1, n});
    std::vector<std::byte> turned(right.data, right.data + n * weight_row_bytes(f, k));
    for (std::byte& b : turned) b = b << 4 | b >> 4;
    fails({turned.data(), right.scales, n});
  }
}

}  // namespace
}  // namespace braid
