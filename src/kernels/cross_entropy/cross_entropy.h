// cross_entropy - the loss of one target per row, its gradient, and the best guess, from raw logits.
//   loss    = log(sum_j exp(x_j)) - x_target
//   dlogits = weight * ((1 + 2 z lse) softmax(x) - onehot(target)),   lse = log(sum_j exp(x_j))
// x, dlogits: [rows, V]; target, weight, loss, argmax: [rows]. The loss is not weighted; the gradient is, so
// that masking and averaging are the caller's choice. z is that of z-loss: the gradient is also that of z
// lse^2, which keeps logits from drifting; `loss` is without it. Exact for logits of any size: the row
// maximum is subtracted first. A NaN or +inf logit gives a NaN loss. Backward:
// docs/explanation/math/cross_entropy.md
#pragma once

#include <cstdint>

#include "base/parallel.h"
#include "kernels/common/impl_table.h"
#include "tensor/tensor.h"

namespace braid {

struct CrossEntropyIn {
  Mat<const float> logits;
  const int32_t* target;          // each in 0 .. V-1, also where the weight is zero
  const float* weight = nullptr;  // of the gradient; null means 1 everywhere
  float z = 0;
};

struct CrossEntropyOut {  // overwritten; every pointer may be null: not wanted
  float* loss = nullptr;
  int32_t* argmax = nullptr;  // the first maximum; some index of the row if it holds a NaN
  Mat<float> dlogits = {};    // may be the logits themselves
};

void cross_entropy(const CrossEntropyIn& in, const CrossEntropyOut& out, Par par = {});

struct CrossEntropyFns {  // rows [begin, end)
  void (*run)(const CrossEntropyIn&, const CrossEntropyOut&, size_t begin, size_t end);
};
const Impls<CrossEntropyFns>& cross_entropy_impls();

}  // namespace braid
