#include "tasks/score.h"

#include <bit>

#include <fmt/format.h>

namespace braid {

Score& Score::operator+=(const Score& other) {
  positions += other.positions, right_positions += other.right_positions;
  sequences += other.sequences, right_sequences += other.right_sequences;
  return *this;
}

Score score(const Answered& a) {
  size_t answers = 0, right = 0;
  for (size_t t = 0; t < a.targets.size(); ++t) {
    if (!a.supervised(t)) continue;
    ++answers;
    right += a.right(t);
  }
  return {.positions = answers,
          .right_positions = right,
          .sequences = answers > 0,
          .right_sequences = answers > 0 && right == answers};
}

Answered answered(const BatchView& batch, std::span<const int32_t> predicted, size_t i) {
  check(predicted.size() == batch.tokens.size(), "score needs one prediction per token");
  return {batch.tokens_of(i), batch.targets_of(i), predicted.subspan(batch.begin(i), batch.length(i))};
}

Score score(const BatchView& batch, std::span<const int32_t> predicted) {
  Score total;
  for (size_t i = 0; i < batch.sequences(); ++i) total += score(answered(batch, predicted, i));
  return total;
}

size_t doubling(size_t n) { return static_cast<size_t>(std::bit_width(n - 1)); }

std::string doubling_text(size_t index) {
  if (index < 2) return fmt::format("{}", index + 1);
  const size_t last = size_t{1} << index;
  return fmt::format("{}-{}", last / 2 + 1, last);
}

int32_t argmax(std::span<const float> logits) {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] == logits[i] && (best < 0 || logits[i] > logits[static_cast<size_t>(best)]))
      best = static_cast<int32_t>(i);
  return best;
}

}  // namespace braid
