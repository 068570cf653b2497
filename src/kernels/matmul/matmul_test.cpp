#include "kernels/matmul/matmul.h"

#include <gtest/gtest.h>

#include "support/op_test.h"
#include "kernels/matmul/matmul_ref.h"

namespace braid {
namespace {

using C = std::complex<double>;

// The gradient rule of the head comment: dA = dC B, dB = dC^T A for C = A B^T.
TEST(Matmul, BackwardFormsEqualComplexStep) {
  const size_t m = 3, n = 4, k = 5;
  std::vector<C> a = random_complex(m * k, 1), b = random_complex(n * k, 2), dc = random_complex(m * n, 3),
                 c(m * n);
  std::vector<C> da(m * k), db(n * k);
  ref::matmul<C, C>(MatmulForm::kNN, m, k, n, dc.data(), n, b.data(), k, da.data(), k, Into::kOverwrite);
  ref::matmul<C, C>(MatmulForm::kTN, n, k, m, dc.data(), n, a.data(), k, db.data(), k, Into::kOverwrite);
  const auto loss = [&] {
    ref::matmul<C, C>(MatmulForm::kNT, m, n, k, a.data(), k, b.data(), k, c.data(), n, Into::kOverwrite);
    return dot(c, dc);
  };
  expect_gradient(a, da, loss);
  expect_gradient(b, db, loss);
}

TEST(Matmul, EveryImplementationEqualsTheReference) { expect_all_impls(matmul_impls(), matmul_check); }
TEST(Matmul, EveryBf16ImplementationEqualsTheReference) {
  expect_all_impls(matmul_bf16_impls(), matmul_bf16_check);
}

// More shapes than a thread keeps products for, twice, and one that oneDNN does not have: k = 0.
TEST(Matmul, OnednnTakesAnyNumberOfShapes) {
  if (detected_isa() < Isa::kAvx512) GTEST_SKIP() << "needs AVX-512";
  const KernelChoice onednn = KernelChoice().force("matmul_bf16", "onednn");
  for (int round = 0; round < 2; ++round)
    for (size_t m = 1; m <= 20; ++m)
      for (size_t k = 0; k <= 20; k += 4) {
        const size_t n = 5;
        std::vector<bf16> a, b;
        for (const float x : random_vector(m * k, 1)) a.push_back(to_bf16(x));
        for (const float x : random_vector(n * k, 2)) b.push_back(to_bf16(x));
        std::vector<float> c(m * n, 1.0f);
        std::vector<double> want(m * n, 1.0);
        for (size_t i = 0; i < m; ++i)
          for (size_t j = 0; j < n; ++j)
            for (size_t x = 0; x < k; ++x)
              want[i * n + j] += double(to_f32(a[i * k + x])) * double(to_f32(b[j * k + x]));
        matmul(MatmulForm::kNT, {a.data(), m, k}, {b.data(), n, k}, {c.data(), m, n}, Into::kAdd,
               Par().with(onednn));
        EXPECT_TRUE(within(compare<float, double>(c, want), kTolF32)) << m << " x " << k;
      }
}

TEST(Matmul, ThreadsDoNotChangeABit) {
  const size_t m = 700, n = 300, k = 100;
  const std::vector<float> a = random_vector(m * k, 1), b = random_vector(n * k, 2);
  const auto run = [&](Par par) {
    std::vector<float> c(m * n), one(n);
    matmul(MatmulForm::kNT, {a.data(), m, k}, {b.data(), n, k}, {c.data(), m, n}, Into::kOverwrite, par);
    matmul(MatmulForm::kNT, {a.data(), 1, k}, {b.data(), n, k}, {one.data(), 1, n}, Into::kOverwrite, par);
    c.insert(c.end(), one.begin(), one.end());
    return c;
  };
  ThreadPool pool(3);
  EXPECT_EQ(run({}), run(Par(pool)));
}

// Up to kSkinnyRows rows: each has the bits that it has alone. (oneDNN, there for comparison, promises
// nothing.)
TEST(Matmul, ARowOfAFewHasTheBitsItHasAlone) {
  matmul_impls().each([&](std::string_view name, Par par) {
    if (name == "onednn") return;
    for (const size_t k : {1, 7, 37, 256})
      for (const size_t n : {1, 3, 70}) {
        const std::vector<float> a = random_vector(kSkinnyRows * k, 1), b = random_vector(n * k, 2);
        const auto run = [&](size_t first, size_t rows, float* c) {
          matmul(MatmulForm::kNT, {a.data() + first * k, rows, k}, {b.data(), n, k}, {c, rows, n},
                 Into::kOverwrite, par);
        };
        std::vector<float> alone(kSkinnyRows * n), together(kSkinnyRows * n);
        for (size_t r = 0; r < kSkinnyRows; ++r) run(r, 1, alone.data() + r * n);
        for (size_t m = 2; m <= kSkinnyRows; ++m) {
          run(kSkinnyRows - m, m, together.data());
          EXPECT_TRUE(std::equal(together.begin(), together.begin() + static_cast<ptrdiff_t>(m * n),
                                 alone.end() - static_cast<ptrdiff_t>(m * n)))
              << name << " k " << k << " n " << n << " m " << m;
        }
      }
  });
}

// A mutant that takes B for its transpose must be caught.
TEST(Matmul, AMutantFails) {
  const size_t n = 16;
  const std::vector<float> a = random_vector(n * n, 1), b = random_vector(n * n, 2);
  const std::vector<double> ad = to_double(a), bd = to_double(b);
  std::vector<double> want(n * n);
  std::vector<float> got(n * n);
  ref::matmul<double, double>(MatmulForm::kNT, n, n, n, ad.data(), n, bd.data(), n, want.data(), n,
                              Into::kOverwrite);
  matmul(MatmulForm::kNN, {a.data(), n, n}, {b.data(), n, n}, {got.data(), n, n}, Into::kOverwrite);
  EXPECT_FALSE(within(compare<float, double>(got, want), kTolF32));
}

}  // namespace
}  // namespace braid
