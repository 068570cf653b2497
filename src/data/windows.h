// How training visits a long sequence of tokens: each epoch cuts it into windows that do not overlap, from an
// offset drawn for the epoch, and visits each once in a shuffled order. The offset makes every token serve in
// every place of a window sooner or later.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/rng.h"

namespace braid {

class EpochWindows {
 public:
  EpochWindows() = default;
  EpochWindows(uint64_t tokens, uint64_t window, uint64_t seed)  // window <= tokens
      : tokens_(tokens),
        window_(window),
        seed_(seed),
        // As many as fit behind every offset below one window, so that each epoch has the same number. What
        // is shorter than two windows gets one, and fewer offsets.
        count_(std::max<uint64_t>(1, (tokens - (window - 1)) / window)) {}

  uint64_t count() const { return count_; }  // per epoch
  uint64_t tokens() const { return tokens_; }
  uint64_t first_token(uint64_t sample) const {
    const uint64_t epoch = sample / count_;
    Rng rng(seed_, "text offset");
    rng.seek(epoch);
    const uint64_t offset = rng.below(tokens_ - count_ * window_ + 1);
    return offset + window_ * Permutation(count_, seed_, epoch)(sample % count_);
  }

 private:
  uint64_t tokens_ = 0, window_ = 1, seed_ = 0, count_ = 0;
};

}  // namespace braid
