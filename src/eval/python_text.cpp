#include "eval/python_text.h"

#include <algorithm>
#include <cstdint>

#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace braid {

bool is_python_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

size_t code_points(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string_view strip_left(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (!is_python_space(next_code(text, at))) return text.substr(begin);
  }
  return {};
}

std::string_view strip_right(std::string_view text) {
  size_t end = 0;  // behind the last character that is not white space
  for (size_t at = 0; at < text.size();)
    if (!is_python_space(next_code(text, at))) end = at;
  return text.substr(0, end);
}

std::string_view strip(std::string_view text) { return strip_left(strip_right(text)); }

std::string_view strip_chars(std::string_view text, std::string_view ascii) {
  const size_t first = text.find_first_not_of(ascii);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(ascii) + 1 - first);
}

std::string replace_all(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  for (size_t at = 0;;) {
    const size_t found = text.find(what, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) return out;
    out += by;
    at = found + what.size();
  }
}

std::string capitalized(std::string_view text) {
  std::string out = lowercase(text);
  if (!out.empty() && out[0] >= 'a' && out[0] <= 'z') out[0] = static_cast<char>(out[0] - 'a' + 'A');
  return out;
}

namespace {

// Calls word(text) and space(text) for the runs of a text, in order.
template <class Word, class Space>
void each_run(std::string_view text, const Word& word, const Space& space) {
  size_t begin = 0;
  bool in_space = false;
  const auto end_run = [&](size_t end) {
    if (end == begin) return;
    in_space ? space(text.substr(begin, end - begin)) : word(text.substr(begin, end - begin));
    begin = end;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t here = at;
    if (is_python_space(next_code(text, at)) != in_space) end_run(here), in_space = !in_space;
  }
  end_run(text.size());
}

}  // namespace

std::vector<std::string> split_spaces(std::string_view text) {
  std::vector<std::string> out;
  each_run(
      text, [&](std::string_view word) { out.emplace_back(word); }, [](std::string_view) {});
  return out;
}

size_t pieces_between_spaces(std::string_view text) {
  size_t n = 1;
  each_run(
      text, [](std::string_view) {}, [&](std::string_view) { ++n; });
  return n;
}

std::vector<std::string> split_at(std::string_view text, char c) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(c, at), text.size());
    out.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) out += (i ? std::string(between) : std::string()) + words[i];
  return out;
}

std::string without_punctuation(std::string_view text) {
  constexpr std::string_view kPunctuation = R"(!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~)";
  std::string out;
  for (const char c : text)
    if (kPunctuation.find(c) == std::string_view::npos) out += c;
  return out;
}

size_t find_ignoring_case(std::string_view text, std::string_view what) {
  const std::string low = lowercase(text), part = lowercase(what);
  if (low.size() == text.size()) return low.find(part);
  // A character changes its length: positions are those of the text as it was.
  for (size_t at = 0; at <= text.size();) {
    if (lowercase(text.substr(at)).starts_with(part)) return at;
    if (at == text.size()) break;
    next_code(text, at);
  }
  return std::string_view::npos;
}

}  // namespace braid
