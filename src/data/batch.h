// What one training or evaluation step consumes: sequences of different lengths, packed end to end, no
// padding.
//
//   tokens   [total]   the model's input
//   targets  [total]   the token to predict at each position, kUnsupervised where there is no loss
//   offsets  [n + 1]   sequence i is positions offsets[i] .. offsets[i + 1] - 1
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/check.h"

namespace braid {

inline constexpr int32_t kUnsupervised = -1;

inline size_t count_supervised(std::span<const int32_t> targets) {
  return targets.size() - static_cast<size_t>(std::ranges::count(targets, kUnsupervised));
}

// Consecutive sequences of a batch. Offsets stay those of the whole batch, so they need no copy: subtract
// base().
struct BatchView {
  std::span<const int32_t> tokens, targets;
  std::span<const uint32_t> offsets;

  size_t sequences() const { return offsets.size() - 1; }
  size_t supervised() const { return count_supervised(targets); }
  uint32_t base() const { return offsets[0]; }
  size_t begin(size_t i) const { return offsets[i] - base(); }
  size_t length(size_t i) const { return offsets[i + 1] - offsets[i]; }
  std::span<const int32_t> tokens_of(size_t i) const { return tokens.subspan(begin(i), length(i)); }
  std::span<const int32_t> targets_of(size_t i) const { return targets.subspan(begin(i), length(i)); }
};

struct Batch {
  std::vector<int32_t> tokens, targets;
  std::vector<uint32_t> offsets{0};

  size_t sequences() const { return offsets.size() - 1; }
  size_t supervised() const { return count_supervised(targets); }

  void append(std::span<const int32_t> more_tokens, std::span<const int32_t> more_targets) {
    tokens.insert(tokens.end(), more_tokens.begin(), more_tokens.end());
    targets.insert(targets.end(), more_targets.begin(), more_targets.end());
    close();
  }

  // Ends a sequence whose tokens and targets were pushed one by one.
  void close() {
    check(tokens.size() == targets.size(), "a sequence needs one target per token");
    check(tokens.size() > offsets.back(), "a sequence has at least one token");
    check(tokens.size() <= std::numeric_limits<uint32_t>::max(), "a batch holds fewer than 2^32 tokens");
    offsets.push_back(static_cast<uint32_t>(tokens.size()));
  }

  BatchView slice(size_t begin_seq, size_t end_seq) const {
    check(begin_seq <= end_seq && end_seq <= sequences(), "Batch::slice out of range");
    const size_t first = offsets[begin_seq], count = offsets[end_seq] - first;
    return {std::span(tokens).subspan(first, count), std::span(targets).subspan(first, count),
            std::span(offsets).subspan(begin_seq, end_seq - begin_seq + 1)};
  }
  BatchView view() const { return slice(0, sequences()); }
};

}  // namespace braid
