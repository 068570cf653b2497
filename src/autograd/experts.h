// A mixture of experts in inference.
#pragma once

#include "autograd/ops.h"

namespace braid {

struct ExpertWeights {
  size_t gate, up, down;
};
// The chosen experts' SwiGLUs of each row, weighted and added up. Rows are grouped by expert without
// padding, and experts run together, as many as fit into a bounded working memory.
Var routed_experts(Exec& e, Var x, const Routing& routing, std::span<const ExpertWeights> experts);

}  // namespace braid
