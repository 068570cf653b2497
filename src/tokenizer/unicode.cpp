#include "tokenizer/unicode.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "tokenizer/unicode_delta.h"
#include "tokenizer/utf8.h"

namespace braid {
namespace {

uint8_t class_of(std::string_view category) {
  switch (category[0]) {
    case 'L':
      return kLetter | kWord;
    case 'M':
      return kMark | kWord;
    case 'N':
      return static_cast<uint8_t>(kNumber | (category == "Nd" || category == "Nl" ? kWord : 0));
    case 'P':
      return static_cast<uint8_t>(kPunctuation | (category == "Pc" ? kWord : 0));
    case 'Z':
      return kSpace;
    default:
      return 0;
  }
}

std::vector<uint8_t> make_classes() {
  std::vector<uint8_t> classes(kCodePoints);
  for (uint32_t c = 0; c < kCodePoints; ++c)
    classes[c] = class_of(utf8proc_category_string(static_cast<utf8proc_int32_t>(c)));
  for (const UnicodeDelta& d : kUnicodeDelta)
    std::fill(&classes[d.first], &classes[d.last] + 1, class_of(d.category));
  for (const uint32_t c : {0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x85}) classes[c] |= kSpace;
  for (const char c : std::string_view("$+<=>^`|~")) classes[static_cast<uint8_t>(c)] |= kPunctuation;
  // Other_Alphabetic symbols are word characters: circled and squared Latin letters.
  for (uint32_t c = 0x24B6; c <= 0x24E9; ++c) classes[c] |= kWord;
  for (const auto& [first, last] : {std::pair{0x1F130, 0x1F149}, {0x1F150, 0x1F169}, {0x1F170, 0x1F189}})
    for (int c = first; c <= last; ++c) classes[static_cast<size_t>(c)] |= kWord;
  for (const uint32_t c : {0x200C, 0x200D}) classes[c] |= kWord;  // joiners
  return classes;
}

}  // namespace

const uint8_t* char_classes() {
  static const std::vector<uint8_t> kClasses = make_classes();
  return kClasses.data();
}

std::string missing_ranges(std::string_view category) {
  std::string ranges;
  for (const UnicodeDelta& d : kUnicodeDelta)
    if (std::string_view(d.category).starts_with(category))
      ranges += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", d.first, d.last);
  return ranges;
}

std::string lowercase(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = next_code(text, at);
    if (c == 0x130)
      out += "i\xCC\x87";  // the one character whose lower case is two
    else
      append_utf8(out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
  return out;
}

std::string normal_form(std::string_view text, NormalForm form) {
  const bool compose = form == NormalForm::kC || form == NormalForm::kKC;
  const bool compat = form == NormalForm::kKC || form == NormalForm::kKD;
  // No character below U+0300 changes in form C, and none below U+00A0 in any.
  const auto plain = [&](char b) { return static_cast<uint8_t>(b) < (form == NormalForm::kC ? 0xCC : 0x80); };
  if (std::all_of(text.begin(), text.end(), plain)) return std::string(text);

  const auto option = [](int o) { return static_cast<utf8proc_option_t>(o); };
  const utf8proc_option_t decompose =
      option(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t parts[32];
    const auto c = static_cast<utf8proc_int32_t>(next_code(text, at));
    int boundary = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char(c, parts, 32, decompose, &boundary);
    check(n >= 0 && n <= 32, "no character has more than 18 parts");
    codes.insert(codes.end(), parts, parts + n);
  }
  // Marks in canonical order. utf8proc's own sorting takes quadratic time on long runs.
  const auto combining = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (size_t i = 0; i < codes.size();) {
    size_t end = i + 1;
    if (combining(codes[i]) != 0) {
      while (end < codes.size() && combining(codes[end]) != 0) ++end;
      std::stable_sort(codes.begin() + static_cast<ptrdiff_t>(i), codes.begin() + static_cast<ptrdiff_t>(end),
                       [&](auto a, auto b) { return combining(a) < combining(b); });
    }
    i = end;
  }
  if (compose) {
    const utf8proc_ssize_t n =
        utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                                 option(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    check(n >= 0, "composing cannot fail");
    codes.resize(static_cast<size_t>(n));
  }
  std::string out;
  out.reserve(text.size());
  for (const utf8proc_int32_t c : codes) append_utf8(out, static_cast<uint32_t>(c));
  return out;
}

}  // namespace braid
