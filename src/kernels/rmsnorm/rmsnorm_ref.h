// The definition of rmsnorm, on any number type. Backward is below forward.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>

#include "kernels/common/ref_math.h"
#include "kernels/rmsnorm/rmsnorm.h"

namespace braid::ref {

// How x is gated: f(z), or nothing where z is null.
struct RmsNormGating {
  RmsNormGate gate = RmsNormGate::kSilu;
  RmsNormOrder order = RmsNormOrder::kNormFirst;
  bool first() const { return order == RmsNormOrder::kGateFirst; }
  template <class T>
  T value(const T* z, size_t i) const {
    if (!z) return T(1);
    return gate == RmsNormGate::kSilu ? silu(z[i]) : sigmoid(z[i]);
  }
  template <class T>
  T slope(const T* z, size_t i) const {
    if (gate == RmsNormGate::kSilu) return silu_slope(z[i]);
    const T s = value(z, i);
    return s * (T(1) - s);
  }
};

// One group: x, z, y [n]. z may be null.
template <class T>
void rmsnorm_fwd(const T* x, const T* w, const T* z, T* y, T* rstd, size_t n, T eps, T offset,
                 RmsNormGating f = {}) {
  using std::sqrt;
  const auto u = [&](size_t i) { return f.first() ? x[i] * f.value(z, i) : x[i]; };
  T square{};
  for (size_t i = 0; i < n; ++i) square += u(i) * u(i);
  const T r = T(1) / sqrt(square / T(n) + eps);
  if (rstd) *rstd = r;
  for (size_t i = 0; i < n; ++i) y[i] = u(i) * r * (offset + w[i]) * (f.first() ? T(1) : f.value(z, i));
}

// Norm first, with xh = x rstd and a = dy (offset + w) f(z):
//   dx = rstd (a - xh mean(a xh))     dw += dy xh f(z)     dz = dy xh (offset + w) f'(z)
// Gate first, with u = x f(z), uh = u rstd and a = dy (offset + w):
//   du = rstd (a - uh mean(a uh))     dw += dy uh          dx = du f(z)     dz = du x f'(z)
// dx and dz are overwritten, dw is added to.
template <class T>
void rmsnorm_bwd(const T* x, const T* w, const T* z, T rstd, const T* dy, T* dx, T* dw, T* dz, size_t n,
                 T offset, RmsNormGating f = {}) {
  const auto u = [&](size_t i) { return f.first() ? x[i] * f.value(z, i) : x[i]; };
  const auto a = [&](size_t i) { return dy[i] * (offset + w[i]) * (f.first() ? T(1) : f.value(z, i)); };
  T dot{};
  for (size_t i = 0; i < n; ++i) dot += a(i) * u(i) * rstd;
  for (size_t i = 0; i < n; ++i) {
    const T gate = f.value(z, i), uh = u(i) * rstd, du = rstd * (a(i) - uh * dot / T(n));
    dw[i] += dy[i] * uh * (f.first() ? T(1) : gate);
    if (z) dz[i] = f.slope(z, i) * (f.first() ? du * x[i] : dy[i] * uh * (offset + w[i]));
    dx[i] = f.first() ? du * gate : du;
  }
}

}  // namespace braid::ref
