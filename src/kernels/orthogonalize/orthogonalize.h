// orthogonalize - the orthogonal matrix that is nearest to X, nearly: U V^T for X = U S V^T.
//   X <- X / |X|_F, then `steps` times   A = X X^T,  X <- a X + (b A + c A^2) X
// X: [rows, cols], in place. With (a, b, c) = (3.4445, -4.775, 2.0315) and 5 steps singular values end
// between 0.68 and 1.15 unless they were below 1e-3 of the norm: what the Muon optimiser needs (Jordan 2024;
// arXiv:2502.16982). A is of the shorter side. X = 0 stays 0.
#pragma once

#include <span>

#include "base/parallel.h"
#include "tensor/tensor.h"

namespace braid {

struct OrthogonalizeIn {
  int steps = 5;
  float a = 3.4445f, b = -4.7750f, c = 2.0315f;
  float eps = 1e-7f;  // added to the norm
};

size_t orthogonalize_scratch(size_t rows, size_t cols);  // floats; contents need no initialisation
void orthogonalize(const OrthogonalizeIn& in, Mat<float> x, std::span<float> scratch, Par par = {});

}  // namespace braid
