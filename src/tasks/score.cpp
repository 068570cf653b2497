#include "tasks/score.h"

namespace braid {

Score& Score::operator+=(const Score& other) {
  positions += other.positions, right_positions += other.right_positions;
  sequences += other.sequences, right_sequences += other.right_sequences;
  return *this;
}

Score score(const BatchView& batch, std::span<const int32_t> predicted) {
  check(predicted.size() == batch.tokens.size(), "score needs one prediction per token");
  Score total;
  for (size_t i = 0; i < batch.sequences(); ++i) {
    size_t answers = 0, right = 0;
    for (size_t t = batch.begin(i); t < batch.begin(i) + batch.length(i); ++t) {
      if (batch.targets[t] == kUnsupervised) continue;
      ++answers;
      right += predicted[t] == batch.targets[t];
    }
    total += {.positions = answers,
              .right_positions = right,
              .sequences = answers > 0,
              .right_sequences = answers > 0 && right == answers};
  }
  return total;
}

int32_t argmax(std::span<const float> logits) {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] == logits[i] && (best < 0 || logits[i] > logits[static_cast<size_t>(best)]))
      best = static_cast<int32_t>(i);
  return best;
}

}  // namespace braid
