// How well predictions match: over supervised positions, and over whole sequences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "data/batch.h"

namespace braid {

struct Score {
  size_t positions = 0, right_positions = 0;  // supervised ones
  size_t sequences = 0, right_sequences = 0;  // a sequence is right if all its answers are

  double accuracy() const { return share(right_positions, positions); }
  double exact_match() const { return share(right_sequences, sequences); }
  // 0 for guessing, 1 for always right; below 0 is worse than guessing.
  double normalised(double chance) const { return (accuracy() - chance) / (1 - chance); }

  Score& operator+=(const Score& other);

 private:
  static double share(size_t part, size_t whole) {
    return whole ? static_cast<double>(part) / static_cast<double>(whole) : 0;
  }
};

// `predicted`: one token per token of the batch; those at unsupervised positions do not matter. Sequences
// without a supervised position do not count.
Score score(const BatchView& batch, std::span<const int32_t> predicted);

// The first of the largest; NaN never wins, and -1, no token, is returned if there is nothing else.
int32_t argmax(std::span<const float> logits);

}  // namespace braid
