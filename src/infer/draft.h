// Guesses at what a text goes on with, for speculative decoding: text repeats itself.
#pragma once

#include <cstdint>
#include <span>

namespace braid {

// At most `most` tokens that followed the last few tokens of the history where they occurred before: the
// longest match of at most 4 and at least 2 tokens, of these the latest. Empty if there is none.
std::span<const int32_t> look_up_draft(std::span<const int32_t> history, size_t most);

}  // namespace braid
