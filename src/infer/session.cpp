#include "infer/session.h"

#include <numeric>

namespace braid {

std::span<const float> Session::feed(std::span<const int32_t> tokens) {
  for (; tokens.size() > kPromptPiece; tokens = tokens.subspan(kPromptPiece))
    run(tokens.first(kPromptPiece), {});
  const uint32_t last[] = {static_cast<uint32_t>(tokens.size() - 1)};
  const Mat<float> logits = run(tokens, last);
  return {logits.data, logits.cols};
}

Mat<const float> Session::feed_all(std::span<const int32_t> tokens) {
  std::vector<uint32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0u);
  return run(tokens, rows);
}

Mat<float> Session::run(std::span<const int32_t> tokens, std::span<const uint32_t> rows) {
  check(!tokens.empty(), "Session::feed needs a token");
  model_.prepare(state_.position + static_cast<int64_t>(tokens.size()));
  arena_.reset();
  Exec exec({.arena = &arena_, .params = &model_.params(), .par = Par(pool_)});
  const uint32_t offsets[] = {0, static_cast<uint32_t>(tokens.size())};
  State* states[] = {&state_};
  const Var h = model_.hidden(exec, {.tokens = tokens, .offsets = offsets, .states = states}, rows);
  return model_.logits(exec, h);
}

}  // namespace braid
