// swiglu - gated products: inside the feed-forward layer, and of a mixer's output.
//   y = silu(g) * u          silu(g) = g / (1 + exp(-g))
//   y = sigmoid(g) * u       sigmoid(g) = 1 / (1 + exp(-g))
// g, u, y: [rows, cols], strided, so that g and u may be the two halves of one projection's output.
// arXiv:2002.05202 eq. (5), with the bias-free projections done outside; sigmoid: the output gate of
// arXiv:2505.06708. Backward: docs/explanation/math/swiglu.md
#pragma once

#include "base/parallel.h"
#include "kernels/common/impl_table.h"
#include "tensor/tensor.h"

namespace braid {

enum class Gate { kSilu, kSigmoid };

struct SwigluIn {
  Mat<const float> g, u;  // gate, up
  Gate gate = Gate::kSilu;
};

struct SwigluGrad {   // overwritten
  Mat<float> dg, du;  // may be g and u, or dy
  Mat<float> y = {};  // if not null: forward's y again, same bits, so that only g and u need keeping
};

void swiglu_fwd(const SwigluIn& in, Mat<float> y, Par par = {});  // y may be g or u
void swiglu_bwd(const SwigluIn& in, Mat<const float> dy, const SwigluGrad& out, Par par = {});

struct SwigluFns {  // rows [begin, end)
  void (*fwd)(const SwigluIn&, Mat<float> y, size_t begin, size_t end);
  void (*bwd)(const SwigluIn&, Mat<const float> dy, const SwigluGrad&, size_t begin, size_t end);
};
const Impls<SwigluFns>& swiglu_impls();

}  // namespace braid
