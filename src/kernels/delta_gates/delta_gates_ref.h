// The definition of delta_gates, on any number type. Backward is below forward.
#pragma once

#include "kernels/common/ref_math.h"

namespace braid::ref {

// One token of one head.
template <class T>
void delta_gates_fwd(T a, T b, T A_log, T dt_bias, T beta_max, T* g, T* beta) {
  using std::exp;
  *g = -exp(A_log) * softplus(a + dt_bias);
  *beta = beta_max * sigmoid(b);
}

// da and db are overwritten, dA_log and ddt_bias added to:
//   da = -dg exp(A_log) sigmoid(a + dt_bias)     dA_log = sum dg g     ddt_bias = sum da
//   db = dbeta beta_max s (1 - s) with s = sigmoid(b)
template <class T>
void delta_gates_bwd(T a, T b, T A_log, T dt_bias, T beta_max, T dg, T dbeta, T* da, T* db, T* dA_log,
                     T* ddt_bias) {
  using std::exp;
  const T s = sigmoid(b), x = a + dt_bias;
  *da = -dg * exp(A_log) * sigmoid(x);
  *db = dbeta * beta_max * s * (T(1) - s);
  *dA_log -= dg * exp(A_log) * softplus(x);
  *ddt_bias += *da;
}

}  // namespace braid::ref
