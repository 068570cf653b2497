// The definition of rmsnorm, on any number type. Backward is below forward.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>

namespace braid::ref {

template <class T>
T silu(T z) {
  using std::exp;
  return z / (T(1) + exp(-z));
}

template <class T>
T silu_slope(T z) {  // d silu / dz
  using std::exp;
  const T s = T(1) / (T(1) + exp(-z));
  return s * (T(1) + z * (T(1) - s));
}

// One group: x, z, y [n]. z may be null.
template <class T>
void rmsnorm_fwd(const T* x, const T* w, const T* z, T* y, T* rstd, size_t n, T eps, T offset) {
  using std::sqrt;
  T square{};
  for (size_t i = 0; i < n; ++i) square += x[i] * x[i];
  const T r = T(1) / sqrt(square / T(n) + eps);
  if (rstd) *rstd = r;
  for (size_t i = 0; i < n; ++i) y[i] = x[i] * r * (offset + w[i]) * (z ? silu(z[i]) : T(1));
}

// With xh = x rstd and a = dy (offset + w) silu(z):
//   dx = rstd (a - xh mean(a xh))     dw += dy xh silu(z)     dz = dy xh (offset + w) silu'(z)
// dx and dz are overwritten, dw is added to.
template <class T>
void rmsnorm_bwd(const T* x, const T* w, const T* z, T rstd, const T* dy, T* dx, T* dw, T* dz, size_t n,
                 T offset) {
  T dot{};
  for (size_t i = 0; i < n; ++i) dot += dy[i] * (offset + w[i]) * (z ? silu(z[i]) : T(1)) * x[i] * rstd;
  for (size_t i = 0; i < n; ++i) {
    const T gate = z ? silu(z[i]) : T(1), xh = x[i] * rstd;
    dx[i] = rstd * (dy[i] * (offset + w[i]) * gate - xh * dot / T(n));
    dw[i] += dy[i] * xh * gate;
    if (z) dz[i] = dy[i] * xh * (offset + w[i]) * silu_slope(z[i]);
  }
}

}  // namespace braid::ref
