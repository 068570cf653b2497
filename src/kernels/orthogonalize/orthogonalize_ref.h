// The definition of orthogonalize, on any number type.
#pragma once

#include <cmath>
#include <vector>

namespace braid::ref {

template <class S>
void orthogonalize(int steps, S a, S b, S c, S eps, size_t rows, size_t cols, S* x) {
  S squares = 0;
  for (size_t i = 0; i < rows * cols; ++i) squares += x[i] * x[i];
  const S norm = std::sqrt(squares) + eps;
  for (size_t i = 0; i < rows * cols; ++i) x[i] /= norm;
  std::vector<S> gram(rows * rows), poly(rows * rows), next(rows * cols);
  for (int step = 0; step < steps; ++step) {
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < rows; ++j) {
        S sum = 0;
        for (size_t k = 0; k < cols; ++k) sum += x[i * cols + k] * x[j * cols + k];
        gram[i * rows + j] = sum;
      }
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < rows; ++j) {
        S sum = 0;
        for (size_t k = 0; k < rows; ++k) sum += gram[i * rows + k] * gram[k * rows + j];
        poly[i * rows + j] = b * gram[i * rows + j] + c * sum;
      }
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < cols; ++j) {
        S sum = a * x[i * cols + j];
        for (size_t k = 0; k < rows; ++k) sum += poly[i * rows + k] * x[k * cols + j];
        next[i * cols + j] = sum;
      }
    std::copy(next.begin(), next.end(), x);
  }
}

}  // namespace braid::ref
