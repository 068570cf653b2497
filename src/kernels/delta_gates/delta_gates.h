// delta_gates - the log-decay and write strength of Gated DeltaNet from two small projections.
//   g = -exp(A_log) softplus(a + dt_bias)          beta = beta_max sigmoid(b)
// a, b, g, beta: [N, H]; A_log, dt_bias: [H]. softplus(x) = log(1 + exp(x)). beta_max is 1, or 2 where
// I - beta k k^T may have negative eigenvalues. arXiv:2412.06464 section 3.4; g and beta are what fast_weight
// takes. Symbols: docs/reference/glossary.md   Backward: docs/explanation/math/delta_gates.md
#pragma once

#include <span>

#include "base/parallel.h"
#include "kernels/common/impl_table.h"
#include "tensor/tensor.h"

namespace braid {

struct DeltaGatesIn {
  Mat<const float> a, b;  // may be views into wider rows
  const float *A_log, *dt_bias;
  float beta_max = 1;
};

struct DeltaGatesGrad {
  Mat<float> da, db;          // overwritten; da may be dg, db may be dbeta
  float* dA_log = nullptr;    // [H], added to; null: not wanted
  float* ddt_bias = nullptr;  // [H], added to; null: not wanted
};

void delta_gates_fwd(const DeltaGatesIn& in, Mat<float> g, Mat<float> beta,
                     Par par = {});  // g may be a, beta b
// scratch: delta_gates_bwd_scratch() numbers; what is in it does not matter.
void delta_gates_bwd(const DeltaGatesIn& in, Mat<const float> dg, Mat<const float> dbeta,
                     const DeltaGatesGrad& out, std::span<float> scratch, Par par = {});
size_t delta_gates_bwd_scratch(size_t rows, size_t heads);

inline constexpr size_t kDeltaGatesBlock = 256;  // rows per task and per partial sum
struct DeltaGatesFns {                           // rows [begin, end)
  void (*fwd)(const DeltaGatesIn&, Mat<float> g, Mat<float> beta, size_t begin, size_t end);
  // sums: [2, H], these rows' part of dA_log and ddt_bias, overwritten.
  void (*bwd)(const DeltaGatesIn&, Mat<const float> dg, Mat<const float> dbeta, const DeltaGatesGrad&,
              float* sums, size_t begin, size_t end);
};
const Impls<DeltaGatesFns>& delta_gates_impls();

}  // namespace braid
