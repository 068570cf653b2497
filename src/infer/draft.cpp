#include "infer/draft.h"

#include <algorithm>

namespace braid {

std::span<const int32_t> look_up_draft(std::span<const int32_t> history, size_t most) {
  constexpr size_t kLongest = 4, kShortest = 2;
  if (most == 0 || history.size() <= kShortest) return {};
  size_t best = 0, at = 0;  // length of the match, and where it ends
  // From the end: of matches of the same length the latest wins.
  for (size_t end = history.size() - 1; end >= kShortest && best < kLongest; --end) {
    size_t n = 0;
    while (n < std::min(kLongest, end) && history[end - 1 - n] == history[history.size() - 1 - n]) ++n;
    if (n > best) best = n, at = end;
  }
  if (best < kShortest) return {};
  return history.subspan(at, std::min(most, history.size() - at));
}

}  // namespace braid
