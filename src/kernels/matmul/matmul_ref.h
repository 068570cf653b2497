// The definition of matmul, on any number type. The backward of a product is two products, so there is none
// here:
//   C = A B^T:   dA = dC B (nn),   dB = dC^T A (tn)
#pragma once

#include <cstddef>

#include "kernels/matmul/matmul.h"

namespace braid::ref {

template <class S, class T>  // S: operands, T: sums
void matmul(MatmulForm form, size_t m, size_t n, size_t k, const S* a, size_t a_stride, const S* b,
            size_t b_stride, T* c, size_t c_stride, Into into) {
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) {
      T sum{};
      for (size_t p = 0; p < k; ++p) {
        const S x = form == MatmulForm::kTN ? a[p * a_stride + i] : a[i * a_stride + p];
        const S y = form == MatmulForm::kNT ? b[j * b_stride + p] : b[p * b_stride + j];
        sum += static_cast<T>(x) * static_cast<T>(y);
      }
      T& to = c[i * c_stride + j];
      to = into == Into::kAdd ? to + sum : sum;
    }
}

}  // namespace braid::ref
