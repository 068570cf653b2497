// The splits of well-known patterns by hand. Each alternative of the expression is a numbered comment.
#include <array>

#include "tokenizer/pipeline.h"
#include "tokenizer/utf8.h"

namespace braid {

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kCl100kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

class Cursor {
 public:
  Cursor(std::string_view text, size_t at) : text_(text), at_(at), end_(at) { advance(); }
  bool done() const { return at_ == text_.size(); }
  uint32_t code() const { return code_; }
  bool is(uint8_t classes) const { return class_ & classes; }  // false at the end
  size_t at() const { return at_; }
  void next() {
    at_ = end_;
    advance();
  }
  void skip(uint8_t classes) {
    while (is(classes)) next();
  }

 private:
  void advance() {
    code_ = class_ = 0;
    if (at_ == text_.size()) return;
    code_ = next_code(text_, end_);
    class_ = classes_[code_];
  }
  const uint8_t* classes_ = char_classes();
  std::string_view text_;
  size_t at_, end_;
  uint32_t code_ = 0;
  uint8_t class_ = 0;
};

// The end of 's 't 'm 'd 're 've 'll at an apostrophe, or 0. Regardless of case, U+017F is an s.
size_t contraction(std::string_view text, size_t at, bool any_case) {
  const auto letter = [&](size_t i) -> char {
    if (i >= text.size()) return 0;
    const char c = text[i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  };
  const char a = letter(at + 1), b = letter(at + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
  if (any_case && text.substr(at + 1).starts_with("\xC5\xBF")) return at + 3;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
  return 0;
}

// \s+(?!\S)|\s+ : all spaces but the last, if something follows and there are two.
size_t spaces(Cursor c) {
  size_t last = c.at();
  const size_t first = last;
  while (c.is(kSpace)) {
    last = c.at();
    c.next();
  }
  return c.done() || last == first ? c.at() : last;
}

size_t scan_gpt2(std::string_view text, size_t at) {
  Cursor c(text, at);
  if (c.code() == '\'')
    if (const size_t end = contraction(text, at, false)) return end;
  const Cursor start = c;
  if (c.code() == ' ') c.next();  // the blank of " ?"
  if (c.is(kLetter)) return c.skip(kLetter), c.at();
  if (c.is(kNumber)) return c.skip(kNumber), c.at();
  if (!c.done() && !c.is(kSpace)) {
    while (!c.done() && !c.is(kSpace | kLetter | kNumber)) c.next();
    return c.at();
  }
  return spaces(start);
}

template <uint8_t kLetters, int kDigits>
size_t scan_cl100k(std::string_view text, size_t at) {
  Cursor c(text, at);
  if (c.code() == '\'')  // 1
    if (const size_t end = contraction(text, at, true)) return end;
  const Cursor start = c;
  const bool newline = c.code() == '\r' || c.code() == '\n';
  if (c.is(kLetters)) return c.skip(kLetters), c.at();  // 2 without its first part
  if (c.is(kNumber)) {                                  // 3
    for (int i = 0; i < kDigits && c.is(kNumber); ++i) c.next();
    return c.at();
  }
  if (!newline) {
    c.next();
    if (c.is(kLetters)) return c.skip(kLetters), c.at();  // 2 with it
    if (start.code() != ' ') c = start;
    if (!c.done() && !c.is(kSpace | kLetters | kNumber)) {  // 4
      while (!c.done() && !c.is(kSpace | kLetters | kNumber)) c.next();
      while (c.code() == '\r' || c.code() == '\n') c.next();
      return c.at();
    }
  }
  size_t after_newline = 0;  // 5
  for (c = start; c.is(kSpace);) {
    const bool is_newline = c.code() == '\r' || c.code() == '\n';
    c.next();
    if (is_newline) after_newline = c.at();
  }
  return after_newline ? after_newline : spaces(start);  // 6, 7
}

}  // namespace

Scanner known_scanner(std::string_view pattern) {
  if (pattern == kGpt2Pattern) return scan_gpt2;
  if (pattern == kQwen2Pattern) return scan_cl100k<kLetter, 1>;
  if (pattern == kQwen35Pattern) return scan_cl100k<kLetter | kMark, 1>;
  if (pattern == kCl100kPattern) return scan_cl100k<kLetter, 3>;
  return nullptr;
}

Result<SplitStep> isolate_step(std::string_view pattern) {
  SplitStep step{.kind = SplitStep::kScan};
  step.scan = known_scanner(pattern);
  if (step.scan) return step;
  Result<Regex> regex = Regex::compile(pattern);
  if (!regex) return regex.error();
  step.kind = SplitStep::kRegex;
  step.regex = *regex;
  return step;
}

}  // namespace braid
