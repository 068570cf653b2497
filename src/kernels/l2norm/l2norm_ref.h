// The definition of l2norm, on any number type. Backward is below forward.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>

namespace braid::ref {

// One group: x, y [n]. rstd may be null.
template <class T>
void l2norm_fwd(const T* x, T* y, T* rstd, size_t n, T eps) {
  using std::sqrt;
  T square{};
  for (size_t i = 0; i < n; ++i) square += x[i] * x[i];
  const T r = T(1) / sqrt(square + eps);
  if (rstd) *rstd = r;
  for (size_t i = 0; i < n; ++i) y[i] = x[i] * r;
}

// dx = rstd (dy - y (y . dy)) with y = x rstd; added to dx if `add`. dx may be dy or x.
template <class T>
void l2norm_bwd(const T* x, T rstd, const T* dy, T* dx, size_t n, bool add) {
  T dot{};
  for (size_t i = 0; i < n; ++i) dot += dy[i] * x[i] * rstd;
  for (size_t i = 0; i < n; ++i) {
    const T d = rstd * (dy[i] - x[i] * rstd * dot);
    dx[i] = add ? dx[i] + d : d;
  }
}

}  // namespace braid::ref
