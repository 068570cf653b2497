// Which rows a pass computes (autograd/row_map.h), decided once from its tokens.
//
//   stream   the residual stream: tokens with the same tokens before them share a row (prefix sharing)
//   input    what the first mixer reads: equal tokens share a row
//   output   result of the last mixer: output rows only
//
// A null map means a row per token. Everything here lives in the arena of the pass.
#pragma once

#include <cstdint>
#include <span>

#include "autograd/row_map.h"
#include "tensor/arena.h"

namespace braid {

struct RowPlan {
  std::span<const int32_t> ids;  // token ids of the stream's rows
  const RowMap *stream = nullptr, *input = nullptr, *output = nullptr;
};

struct RowPlanInput {
  std::span<const int32_t> tokens;
  std::span<const uint32_t> offsets;
  std::span<const uint32_t> wanted;  // tokens that need an output row, ascending
  size_t vocab_size;
  bool share;  // equal rows may be computed once: nothing is random, no sequence has a state
};

RowPlan plan_rows(Arena& arena, const RowPlanInput& in);

}  // namespace braid
