// Draws that several tasks share.
#pragma once

#include <cstddef>
#include <vector>

#include "base/rng.h"

namespace braid {

// `count` different numbers of 0 .. n - 1 in random order, every choice and order equally likely.
inline std::vector<size_t> draw_distinct(Rng& rng, size_t count, size_t n) {
  std::vector<size_t> drawn;
  drawn.reserve(count);
  std::vector<bool> taken(n);
  for (size_t top = n - count; top < n; ++top) {  // Floyd's sampling: one draw each, no second attempts
    size_t x = rng.below(top + 1);
    if (taken[x]) x = top;
    taken[x] = true;
    drawn.push_back(x);
  }
  for (size_t i = count; i > 1; --i) std::swap(drawn[i - 1], drawn[rng.below(i)]);
  return drawn;
}

}  // namespace braid
