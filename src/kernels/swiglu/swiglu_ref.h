// The definition of swiglu, on any number type. Backward is below forward.
#pragma once

#include "kernels/common/ref_math.h"
#include "kernels/swiglu/swiglu.h"  // Gate

namespace braid::ref {

template <class T>
void swiglu_fwd(Gate gate, const T* g, const T* u, T* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = (gate == Gate::kSilu ? silu(g[i]) : sigmoid(g[i])) * u[i];
}

// Every output may be any input: all of element i is read before anything is written.
template <class T>
void swiglu_bwd(Gate gate, const T* g, const T* u, const T* dy, T* dg, T* du, T* y, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const T a = g[i], b = u[i], up = dy[i], s = sigmoid(a);
    const T value = gate == Gate::kSilu ? silu(a) : s,
            slope = gate == Gate::kSilu ? silu_slope(a) : s * (T(1) - s);
    dg[i] = up * b * slope;
    du[i] = up * value;
    if (y) y[i] = value * b;
  }
}

}  // namespace braid::ref
