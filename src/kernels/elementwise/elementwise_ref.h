// The definition of elementwise, on any number type. (The sums are linear: add is its own backward, and so is
// scale.)
#pragma once

#include <cstddef>

namespace braid::ref {

template <class T>
void add(const T* a, const T* b, T* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = a[i] + b[i];
}

template <class T>
void scale(const T* x, T factor, T* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = factor * x[i];
}

template <class T>
double sum_squares(const T* x, size_t n) {
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace braid::ref
