// Unordered pairs i < j of 0 .. n - 1, numbered (0,1), (0,2) ... (0,n-1), (1,2) ...
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/rng.h"

namespace braid {

inline size_t pair_count(size_t n) { return n * (n - 1) / 2; }
inline size_t pair_number(size_t i, size_t j, size_t n) { return i * (2 * n - i - 1) / 2 + j - i - 1; }

inline std::pair<size_t, size_t> pair_of(size_t number, size_t n) {
  size_t i = 0;
  for (; number >= n - 1 - i; ++i) number -= n - 1 - i;
  return {i, i + 1 + number};
}

inline std::pair<size_t, size_t> draw_pair(Rng& rng, size_t n) {
  const size_t a = rng.below(n), b = rng.below(n - 1), other = b + (b >= a);
  return std::minmax({a, other});
}

// After t random swaps of n objects, the chance that the object which began at a place is there.
class StaysAfterSwaps {
 public:
  explicit StaysAfterSwaps(size_t n) : n_(static_cast<double>(n)) {}
  double next() { return p_ = p_ * (1 - 2 / n_) + (1 - p_) * 2 / n_ / (n_ - 1); }

 private:
  double n_, p_ = 1;
};

}  // namespace braid
