#include "kernels/orthogonalize/orthogonalize.h"

#include "kernels/orthogonalize/orthogonalize_ref.h"
#include "support/op_test.h"

namespace braid {
namespace {

std::vector<float> orthogonalized(std::vector<float> x, size_t rows, size_t cols, Par par = {}) {
  std::vector<float> scratch(orthogonalize_scratch(rows, cols), NAN);
  orthogonalize({}, {x.data(), rows, cols}, scratch, par);
  return x;
}

TEST(Orthogonalize, EqualsTheReferenceInDouble) {
  for (const auto& [rows, cols] :
       {std::pair<size_t, size_t>{1, 1}, {1, 7}, {9, 1}, {8, 8}, {13, 40}, {96, 33}}) {
    const std::vector<float> x = random_vector(rows * cols, rows), y = orthogonalized(x, rows, cols);
    std::vector<double> expected(x.begin(), x.end());
    const OrthogonalizeIn in;
    ref::orthogonalize<double>(in.steps, in.a, in.b, in.c, in.eps, rows, cols, expected.data());
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], expected[i], 2e-5) << rows << " x " << cols;
  }
}

// X X^T is near the identity: its eigenvalues, here by their sum and the sum of their squares, are near 1.
TEST(Orthogonalize, SingularValuesEndNearOne) {
  const size_t rows = 24, cols = 80;
  std::vector<float> x = random_vector(rows * cols, 3);
  for (size_t i = 0; i < cols; ++i) x[i] *= 30;  // one direction far larger than the others
  const std::vector<float> y = orthogonalized(x, rows, cols);
  double trace = 0, squares = 0;
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < rows; ++j) {
      double sum = 0;
      for (size_t k = 0; k < cols; ++k) sum += static_cast<double>(y[i * cols + k]) * y[j * cols + k];
      if (i == j) trace += sum;
      squares += sum * sum;
    }
  EXPECT_GT(trace, 0.6 * rows);
  EXPECT_LT(trace, 1.3 * rows);
  EXPECT_LT(squares, 1.5 * rows);
}

TEST(Orthogonalize, ZeroStaysZeroAndThreadsDoNotChangeABit) {
  for (const float v : orthogonalized(std::vector<float>(12, 0), 3, 4)) EXPECT_EQ(v, 0);
  const std::vector<float> x = random_vector(300 * 200, 5);
  ThreadPool pool(3);
  EXPECT_EQ(orthogonalized(x, 300, 200), orthogonalized(x, 300, 200, Par(pool)));
}

}  // namespace
}  // namespace braid
