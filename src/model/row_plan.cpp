#include "model/row_plan.h"

#include <algorithm>

namespace braid {
namespace {

const RowMap* keep(Arena& arena, const RowMap& map) {
  RowMap& kept = arena.take<RowMap>(1)[0];
  return &(kept = map);
}

// A sequence shares the rows of the tokens that it has in common with the beginning of the one before it.
const RowMap* by_prefix(Arena& arena, const RowPlanInput& in) {
  const size_t n = in.tokens.size();
  const std::span<uint32_t> row = arena.take<uint32_t>(n), token = arena.take<uint32_t>(n);
  uint32_t count = 0;
  for (size_t s = 0; s + 1 < in.offsets.size(); ++s) {
    const uint32_t begin = in.offsets[s], end = in.offsets[s + 1];
    uint32_t t = begin;
    if (s > 0)
      for (uint32_t before = in.offsets[s - 1]; t < end && before < begin; ++t, ++before) {
        if (in.tokens[t] != in.tokens[before]) break;
        row[t] = row[before];
      }
    for (; t < end; ++t) row[t] = count, token[count++] = t;
  }
  if (8 * count > 7 * n) return nullptr;  // gathers cost more than so little saves
  return keep(arena, {.of_token = row, .token = token.first(count)});
}

// Equal token ids share a row: in synthetic tasks and bytes of text they are few.
const RowMap* by_token(Arena& arena, const RowPlanInput& in) {
  constexpr size_t kTablePerToken = 16;  // a larger table costs more than it saves
  const size_t n = in.tokens.size();
  if (in.vocab_size > kTablePerToken * n) return nullptr;
  const std::span<uint32_t> row_of_id = arena.take<uint32_t>(in.vocab_size), row = arena.take<uint32_t>(n),
                            token = arena.take<uint32_t>(n);
  std::ranges::fill(row_of_id, RowMap::kNoRow);
  uint32_t count = 0;
  for (uint32_t t = 0; t < n; ++t) {
    uint32_t& r = row_of_id[static_cast<size_t>(in.tokens[t])];
    if (r == RowMap::kNoRow) token[r = count++] = t;
    row[t] = r;
  }
  if (2 * count > n) return nullptr;
  return keep(arena, {.of_token = row, .token = token.first(count)});
}

const RowMap* only_wanted(Arena& arena, const RowPlanInput& in) {
  const size_t n = in.tokens.size();
  const std::span<uint32_t> row = arena.take<uint32_t>(n);
  std::ranges::fill(row, RowMap::kNoRow);
  for (size_t i = 0; i < in.wanted.size(); ++i) row[in.wanted[i]] = static_cast<uint32_t>(i);
  return keep(arena, {.of_token = row, .token = in.wanted, .skip_others = in.share});
}

}  // namespace

RowPlan plan_rows(Arena& arena, const RowPlanInput& in) {
  RowPlan plan{.ids = in.tokens, .output = only_wanted(arena, in)};
  if (!in.share) return plan;
  plan.stream = by_prefix(arena, in);
  plan.input = by_token(arena, in);
  if (!plan.input) plan.input = plan.stream;
  if (!plan.stream) return plan;
  const std::span<int32_t> ids = arena.take<int32_t>(plan.stream->token.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = in.tokens[plan.stream->token[i]];
  plan.ids = ids;
  return plan;
}

}  // namespace braid
