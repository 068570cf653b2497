// A mixture of experts in inference.
#pragma once

#include "autograd/ops.h"

namespace braid {

struct ExpertWeights {
  size_t gate, up, down;
};
// The chosen experts' SwiGLUs of each row, weighted and added up. Rows lie together by expert, nothing is
// padded, and all experts run in one parallel region.
Var routed_experts(Exec& e, Var x, const Routing& routing, std::span<const ExpertWeights> experts);

}  // namespace braid
