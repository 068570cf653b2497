// The definition of delta_gates, on any number type. Backward is below forward.
#pragma once

#include <cmath>
#include <complex>

namespace braid::ref {

template <class T>
T softplus(T x) {
  using std::exp, std::log, std::real;
  return real(x) > 20 ? x : log(T(1) + exp(x));
}

template <class T>
T sigmoid(T x) {
  using std::exp;
  return T(1) / (T(1) + exp(-x));
}

template <class T>
T softplus_slope(T x) {
  using std::real;
  return real(x) > 20 ? T(1) : sigmoid(x);
}

// One token of one head.
template <class T>
void delta_gates_fwd(T a, T b, T A_log, T dt_bias, T beta_max, T* g, T* beta) {
  using std::exp;
  *g = -exp(A_log) * softplus(a + dt_bias);
  *beta = beta_max * sigmoid(b);
}

// da and db are overwritten, dA_log and ddt_bias added to:
//   da = -dg exp(A_log) softplus'(a + dt_bias)     dA_log = sum dg g     ddt_bias = sum da
//   db = dbeta beta_max s (1 - s) with s = sigmoid(b)
template <class T>
void delta_gates_bwd(T a, T b, T A_log, T dt_bias, T beta_max, T dg, T dbeta, T* da, T* db, T* dA_log,
                     T* ddt_bias) {
  using std::exp;
  const T s = sigmoid(b), x = a + dt_bias;
  *da = -dg * exp(A_log) * softplus_slope(x);
  *db = dbeta * beta_max * s * (T(1) - s);
  *dA_log -= dg * exp(A_log) * softplus(x);
  *ddt_bias += *da;
}

}  // namespace braid::ref
