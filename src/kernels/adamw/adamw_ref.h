// The definition of adamw, on any number type.
#pragma once

#include <cmath>
#include <cstddef>

#include "kernels/adamw/adamw.h"

namespace braid::ref {

template <class T>
void adamw(const AdamWIn& in, T* p, const T* g, T* m, T* v, size_t n) {
  const T b1 = T(in.beta1), b2 = T(in.beta2), lr = T(in.lr);
  const T correct1 = T(1 - std::pow(in.beta1, in.step)), correct2 = T(1 - std::pow(in.beta2, in.step));
  for (size_t i = 0; i < n; ++i) {
    const T scaled = T(in.grad_scale) * g[i];
    m[i] = b1 * m[i] + T(1 - in.beta1) * scaled;
    v[i] = b2 * v[i] + T(1 - in.beta2) * scaled * scaled;
    p[i] -= lr * T(in.weight_decay) * p[i];
    p[i] -= lr * (m[i] / correct1) / (std::sqrt(v[i] / correct2) + T(in.eps));
  }
}

}  // namespace braid::ref
