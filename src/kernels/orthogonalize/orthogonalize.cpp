#include "kernels/orthogonalize/orthogonalize.h"

#include <algorithm>
#include <cmath>

#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"

namespace braid {

size_t orthogonalize_scratch(size_t rows, size_t cols) {
  const size_t side = std::min(rows, cols);
  return 2 * side * side + 2 * rows * cols;
}

void orthogonalize(const OrthogonalizeIn& in, Mat<float> x, std::span<float> scratch, Par par) {
  const size_t rows = x.rows, cols = x.cols, side = std::min(rows, cols);
  check(scratch.size() >= orthogonalize_scratch(rows, cols), "orthogonalize: too little scratch");
  const bool wide = rows <= cols;
  Mat<float> now{scratch.data(), rows, cols}, next{now.data + rows * cols, rows, cols};
  const Mat<float> gram{next.data + rows * cols, side, side}, poly{gram.data + side * side, side, side};
  double squares = 0;
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) squares += static_cast<double>(x.row(r)[c]) * x.row(r)[c];
  scale(x, static_cast<float>(1 / (std::sqrt(squares) + in.eps)), now, par);
  for (int step = 0; step < in.steps; ++step) {
    matmul(wide ? MatmulForm::kNT : MatmulForm::kTN, now, now, gram, Into::kOverwrite, par);
    matmul(MatmulForm::kNT, gram, gram, poly, Into::kOverwrite, par);  // symmetric: A A^T = A^2
    for (size_t i = 0; i < side * side; ++i) poly.data[i] = in.b * gram.data[i] + in.c * poly.data[i];
    for (size_t i = 0; i < side; ++i) poly.row(i)[i] += in.a;
    if (wide)
      matmul(MatmulForm::kNN, poly, now, next, Into::kOverwrite, par);
    else
      matmul(MatmulForm::kNN, now, poly, next, Into::kOverwrite, par);
    std::swap(now, next);
  }
  scale(now, 1, x, par);
}

}  // namespace braid
