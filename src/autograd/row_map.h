// Which tokens the rows of a value belong to, where that is not one row per token: tokens whose values are
// equal share a row, or only some tokens have one. Ops keep track of it: row-wise ops pass the map of their
// input on, ops that move information between tokens expand their inputs to a row per token and return the
// executor's output rows. What calls the ops sees nothing of it.
#pragma once

#include <cstdint>
#include <span>

namespace braid {

struct RowMap {
  static constexpr uint32_t kNoRow = ~uint32_t{0};

  std::span<const uint32_t> of_token;  // each token's row, or kNoRow
  std::span<const uint32_t> token;     // each row's token, ascending; of several the first
  bool skip_others = false;            // tokens without a row need no queries: equal up to rounding
};

}  // namespace braid
