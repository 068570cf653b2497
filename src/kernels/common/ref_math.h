// Functions that several references share, on any number type: one definition each, since two with one name
// would silently become one when linked.
#pragma once

#include <cmath>
#include <complex>

namespace braid::ref {

template <class T>
double real_part(T x) {
  return std::real(x);
}

template <class T>
T sigmoid(T x) {
  using std::exp;
  return T(1) / (T(1) + exp(-x));
}

template <class T>
T softplus(T x) {  // log(1 + exp(x)), the larger part outside the logarithm; its slope is the sigmoid
  using std::exp, std::log;
  return real_part(x) > 0 ? x + log(T(1) + exp(-x)) : log(T(1) + exp(x));
}

template <class T>
T silu(T z) {
  using std::exp;
  return z / (T(1) + exp(-z));
}

template <class T>
T silu_slope(T z) {  // d silu / dz
  const T s = sigmoid(z);
  return s * (T(1) + z * (T(1) - s));
}

}  // namespace braid::ref
