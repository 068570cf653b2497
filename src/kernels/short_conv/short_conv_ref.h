// The definition of short_conv, on any number type. Backward is below forward.
#pragma once

#include <vector>

#include "kernels/common/ref_math.h"
#include "kernels/l2norm/l2norm_ref.h"

namespace braid::ref {

struct ShortConvDims {
  size_t tokens, channels, width;
  bool silu;
  size_t l2_dim = 0, l2_channels = 0;
};
inline constexpr double kShortConvEps = 1e-6;

// The W - 1 inputs before the sequence, then the sequence: [W - 1 + tokens, channels].
template <class T>
std::vector<T> short_conv_extended(const ShortConvDims& n, const T* x, const T* state) {
  const size_t before = n.width - 1;
  std::vector<T> e((before + n.tokens) * n.channels, T(0));
  for (size_t j = 0; state && j < before; ++j)
    for (size_t d = 0; d < n.channels; ++d) e[j * n.channels + d] = state[d * before + j];
  for (size_t i = 0; i < n.tokens * n.channels; ++i) e[before * n.channels + i] = x[i];
  return e;
}

// One sequence: x, y [tokens, channels]; w [channels, W]; state, last [channels, W - 1] or null.
template <class T>
void short_conv_fwd(const ShortConvDims& n, const T* x, const T* w, const T* state, T* y, T* last) {
  const std::vector<T> e = short_conv_extended(n, x, state);
  for (size_t t = 0; t < n.tokens; ++t)
    for (size_t d = 0; d < n.channels; ++d) {
      T z{};
      for (size_t j = 0; j < n.width; ++j) z += w[d * n.width + j] * e[(t + j) * n.channels + d];
      y[t * n.channels + d] = n.silu ? silu(z) : z;
    }
  for (size_t t = 0; t < n.tokens; ++t)
    for (size_t d = 0; d < n.l2_channels; d += n.l2_dim) {
      T* head = y + t * n.channels + d;
      l2norm_fwd<T>(head, head, nullptr, n.l2_dim, T(kShortConvEps));
    }
  for (size_t j = 0; last && j + 1 < n.width; ++j)
    for (size_t d = 0; d < n.channels; ++d) last[d * (n.width - 1) + j] = e[(n.tokens + j) * n.channels + d];
}

// dx and dstate are overwritten, dw is added to; dstate and dlast may be null.
template <class T>
void short_conv_bwd(const ShortConvDims& n, const T* x, const T* w, const T* state, const T* dy,
                    const T* dlast, T* dx, T* dw, T* dstate) {
  const size_t before = n.width - 1;
  const std::vector<T> e = short_conv_extended(n, x, state);
  std::vector<T> de(e.size(), T(0));
  for (size_t j = 0; dlast && j < before; ++j)
    for (size_t d = 0; d < n.channels; ++d) de[(n.tokens + j) * n.channels + d] = dlast[d * before + j];
  // dz starts as the gradient of y before the norm.
  std::vector<T> dz(dy, dy + n.tokens * n.channels), z(n.channels), a(n.channels);
  for (size_t t = 0; t < n.tokens; ++t) {
    T* dzt = dz.data() + t * n.channels;
    for (size_t d = 0; d < n.channels; ++d) {
      z[d] = T(0);
      for (size_t j = 0; j < n.width; ++j) z[d] += w[d * n.width + j] * e[(t + j) * n.channels + d];
      a[d] = n.silu ? silu(z[d]) : z[d];
    }
    for (size_t d = 0; d < n.l2_channels; d += n.l2_dim) {
      std::vector<T> unit(n.l2_dim);
      T rstd;
      l2norm_fwd<T>(&a[d], unit.data(), &rstd, n.l2_dim, T(kShortConvEps));
      l2norm_bwd<T>(&a[d], rstd, dzt + d, dzt + d, n.l2_dim, false);
    }
    for (size_t d = 0; d < n.channels; ++d) {
      if (n.silu) dzt[d] *= silu_slope(z[d]);
      for (size_t j = 0; j < n.width; ++j) {
        de[(t + j) * n.channels + d] += dzt[d] * w[d * n.width + j];
        dw[d * n.width + j] += dzt[d] * e[(t + j) * n.channels + d];
      }
    }
  }
  for (size_t j = 0; dstate && j < before; ++j)
    for (size_t d = 0; d < n.channels; ++d) dstate[d * before + j] = de[j * n.channels + d];
  for (size_t i = 0; i < n.tokens * n.channels; ++i) dx[i] = de[before * n.channels + i];
}

}  // namespace braid::ref
