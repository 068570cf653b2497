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

// dx may be x.
template <class T>
void cross_entropy_grad(const T* x, size_t target, T weight, T* dx, size_t n) {
  using std::exp, std::real;
  const T top(real(x[first_maximum(x, n)]));
  T sum{};
  for (size_t i = 0; i < n; ++i) sum += exp(x[i] - top);
  for (size_t i = 0; i < n; ++i) dx[i] = weight * (exp(x[i] - top) / sum - T(i == target ? 1 : 0));
}

}  // namespace braid::ref
