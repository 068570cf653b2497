// How well predictions match: over supervised positions, over whole sequences, and by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/metric.h"

namespace braid {

struct Score {
  size_t positions = 0, right_positions = 0;  // supervised ones
  size_t sequences = 0, right_sequences = 0;  // a sequence is right if all its answers are

  double accuracy() const { return share(right_positions, positions); }
  double exact_match() const { return share(right_sequences, sequences); }
  // 0 for guessing, 1 for always right; below 0 is worse than guessing.
  double normalised(double chance) const { return (accuracy() - chance) / (1 - chance); }

  Score& operator+=(const Score& other);
};

// One sequence and what was predicted for it: a token per position, those at unsupervised ones do not matter.
struct Answered {
  std::span<const int32_t> tokens, targets, predicted;

  bool supervised(size_t t) const { return targets[t] != kUnsupervised; }
  bool right(size_t t) const { return predicted[t] == targets[t]; }
};
Score score(const Answered& sequence);

// `predicted`: one token per token of the batch. Sequences without a supervised position do not count.
Score score(const BatchView& batch, std::span<const int32_t> predicted);
Answered answered(const BatchView& batch, std::span<const int32_t> predicted, size_t sequence);

// Lengths and positions are counted together between powers of two: 1, 2, 3-4, 5-8, 9-16 ...
size_t doubling(size_t n);                // 1 -> 0, 2 -> 1, 3 and 4 -> 2; n > 0
std::string doubling_text(size_t index);  // "5-8"

// The first of the largest; NaN never wins, and -1, no token, is returned if there is nothing else.
int32_t argmax(std::span<const float> logits);

}  // namespace braid
