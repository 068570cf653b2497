// router - which experts a token goes to, and how much each of them counts.
//   chosen = the k largest logits of a row, the first of equals      w = softmax over the chosen ones
// which is the softmax over all experts, renormalised over those that are kept (Qwen3-Next, Qwen3.5).
// logits: [rows, experts]; chosen, w: [rows, k], largest first. Rows are few numbers, so a plain loop is all
// there is. Backward: dlogit_i = w_i (dw_i - sum_j w_j dw_j) for the chosen, 0 for the others; the choice has
// no gradient.
#pragma once

#include <cstdint>

#include "kernels/common/into.h"
#include "tensor/tensor.h"

namespace braid {

void router_fwd(Mat<const float> logits, size_t k, int32_t* chosen, Mat<float> w);
void router_bwd(Mat<const float> w, const int32_t* chosen, Mat<const float> dw,
                Mat<float> dlogits);  // overwritten

}  // namespace braid
