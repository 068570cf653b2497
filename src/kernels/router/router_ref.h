// The definition of router for one row, on any number type. Backward is below forward.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>

namespace braid::ref {

// Which experts: the largest logits, of equal ones the first.
template <class T>
void router_choose(const T* logits, size_t experts, size_t k, int32_t* chosen) {
  for (size_t i = 0; i < k; ++i) {
    chosen[i] = -1;
    for (size_t e = 0; e < experts; ++e) {
      bool taken = false;
      for (size_t j = 0; j < i; ++j) taken |= chosen[j] == static_cast<int32_t>(e);
      if (!taken && (chosen[i] < 0 || std::real(logits[e]) > std::real(logits[chosen[i]])))
        chosen[i] = static_cast<int32_t>(e);
    }
  }
}

// Their weights; chosen[0] has the largest logit.
template <class T>
void router_weights(const T* logits, size_t k, const int32_t* chosen, T* w) {
  using std::exp;
  T sum{};
  for (size_t i = 0; i < k; ++i) sum += w[i] = exp(logits[chosen[i]] - T(std::real(logits[chosen[0]])));
  for (size_t i = 0; i < k; ++i) w[i] /= sum;
}

template <class T>
void router_fwd(const T* logits, size_t experts, size_t k, int32_t* chosen, T* w) {
  router_choose(logits, experts, k, chosen);
  router_weights(logits, k, chosen, w);
}

template <class T>
void router_bwd(const T* w, const int32_t* chosen, const T* dw, size_t experts, size_t k, T* dlogits) {
  for (size_t e = 0; e < experts; ++e) dlogits[e] = T(0);
  T mean{};
  for (size_t i = 0; i < k; ++i) mean += w[i] * dw[i];
  for (size_t i = 0; i < k; ++i) dlogits[chosen[i]] = w[i] * (dw[i] - mean);
}

}  // namespace braid::ref
