// The definition of cross_entropy, on any number type. First the loss, then its gradient.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>

namespace braid::ref {

template <class T>
size_t first_maximum(const T* x, size_t n) {
  using std::real;
  size_t best = 0;
  for (size_t i = 1; i < n; ++i)
    if (real(x[i]) > real(x[best])) best = i;
  return best;
}

// One row: x [n]. The maximum is subtracted as a constant, by its real part.
template <class T>
T cross_entropy_loss(const T* x, size_t target, size_t n) {
  using std::exp, std::log, std::real;
  const T top(real(x[first_maximum(x, n)]));
  T sum{};
  for (size_t i = 0; i < n; ++i) sum += exp(x[i] - top);
  return log(sum) + (top - x[target]);
}

// The square of lse, which z-loss adds z times.
template <class T>
T squared_lse(const T* x, size_t n) {
  const T lse = cross_entropy_loss(x, 0, n) + x[0];
  return lse * lse;
}

// dx may be x.
template <class T>
void cross_entropy_grad(const T* x, size_t target, T weight, T z, T* dx, size_t n) {
  using std::exp, std::log, std::real;
  const T top(real(x[first_maximum(x, n)]));
  T sum{};
  for (size_t i = 0; i < n; ++i) sum += exp(x[i] - top);
  const T factor = T(1) + T(2) * z * (log(sum) + top);
  for (size_t i = 0; i < n; ++i) dx[i] = weight * (factor * exp(x[i] - top) / sum - T(i == target ? 1 : 0));
}

}  // namespace braid::ref
