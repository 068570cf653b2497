// UTF-8, byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace braid {

struct Utf8Char {
  enum Kind : uint8_t { kValid, kInvalid, kCut };  // kCut: the text ends inside what may be a character
  uint32_t code = 0;
  uint8_t bytes = 0;  // for kInvalid and kCut: what one U+FFFD stands for (a maximal subpart, as Unicode and
                      // Python have it)
  Kind kind = kInvalid;
};
Utf8Char read_utf8(std::string_view text, size_t at);

// The code point at `at` of valid text; `at` moves behind it.
inline uint32_t next_code(std::string_view text, size_t& at) {
  const auto b = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const uint32_t first = b(0);
  uint32_t code;
  if (first < 0x80) return ++at, first;
  if (first < 0xE0) return code = (first & 31) << 6 | (b(1) & 63), at += 2, code;
  if (first < 0xF0) return code = (first & 15) << 12 | (b(1) & 63) << 6 | (b(2) & 63), at += 3, code;
  return code = (first & 7) << 18 | (b(1) & 63) << 12 | (b(2) & 63) << 6 | (b(3) & 63), at += 4, code;
}

inline size_t utf8_length(char first) {
  const auto b = static_cast<uint8_t>(first);
  return b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
}

void append_utf8(std::string& out, uint32_t code);
std::string to_utf8(uint32_t code);

inline constexpr std::string_view kReplacementChar = "\xEF\xBF\xBD";

// The text with each maximal invalid part replaced by U+FFFD: `text` itself if there is none, else `scratch`.
std::string_view valid_utf8(std::string_view text, std::string& scratch);

// Moves whole characters from the front of `pending` to `out`; what may still become one stays, unless
// `last`.
void move_valid_utf8(std::string& pending, std::string& out, bool last);

}  // namespace braid
