// What characters are: general categories as of Unicode 16, which the `tokenizers` package uses in its
// regular expressions. PCRE2 and utf8proc know older versions; unicode_delta.h has what is missing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace braid {

inline constexpr uint32_t kCodePoints = 0x110000;

enum CharClass : uint8_t { kLetter = 1, kNumber = 2, kMark = 4, kSpace = 8, kPunctuation = 16, kWord = 32 };
const uint8_t* char_classes();  // CharClass bits by code point; made on first use

// Ranges for a character class of a regular expression that PCRE2 lacks in \p{category}; one or two letters.
std::string missing_ranges(std::string_view category);

std::string lowercase(std::string_view text);  // character by character
enum class NormalForm : uint8_t { kC, kD, kKC, kKD };
std::string normal_form(std::string_view text, NormalForm form);

}  // namespace braid
