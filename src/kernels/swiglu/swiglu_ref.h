// The definition of swiglu, on any number type. Backward is below forward.
#pragma once

#include "kernels/rmsnorm/rmsnorm_ref.h"  // silu

namespace braid::ref {

template <class T>
void swiglu_fwd(const T* g, const T* u, T* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = silu(g[i]) * u[i];
}

// Every output may be any input: all of element i is read before anything is written.
template <class T>
void swiglu_bwd(const T* g, const T* u, const T* dy, T* dg, T* du, T* y, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const T a = g[i], b = u[i], up = dy[i];
    dg[i] = up * b * silu_slope(a);
    du[i] = up * silu(a);
    if (y) y[i] = silu(a) * b;
  }
}

}  // namespace braid::ref
