#include "chat/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "chat/text.h"

namespace braid::chat {
namespace {

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }

// "\r\n" and "\r" become "\n"; one newline at the very end goes.
std::string normal_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

// The text between the quotes of a literal. Python's detour is kept: all but ASCII is escaped first and
// unescaped with the rest, so a backslash before an umlaut gives what it gives there.
std::string unescape(std::string_view raw, int line) {
  std::string escaped;
  for (size_t at = 0; at < raw.size();) {
    const char32_t c = next_point(raw, at);
    const auto n = static_cast<uint32_t>(c);
    if (c < 0x80)
      escaped += static_cast<char>(c);
    else
      escaped += n < 0x100     ? fmt::format("\\x{:02x}", n)
                 : n < 0x10000 ? fmt::format("\\u{:04x}", n)
                               : fmt::format("\\U{:08x}", n);
  }
  std::string out;
  for (size_t i = 0; i < escaped.size(); ++i) {
    if (escaped[i] != '\\') {
      out += escaped[i];
      continue;
    }
    const char c = ++i < escaped.size() ? escaped[i] : '\\';
    constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    if (const size_t k = kFrom.find(c); k != kFrom.npos) {
      out += kTo[k];
    } else if (c == '\n') {
      continue;  // a line goes on
    } else if (c >= '0' && c <= '7') {
      uint32_t n = 0;
      size_t digits = 0;
      for (; digits < 3 && i + digits < escaped.size() && escaped[i + digits] >= '0' &&
             escaped[i + digits] <= '7';
           ++digits)
        n = n * 8 + static_cast<uint32_t>(escaped[i + digits] - '0');
      i += digits - 1;
      append_point(out, n);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      uint32_t n = 0;
      const char* begin = escaped.data() + i + 1;
      const char* end = escaped.data() + std::min(escaped.size(), i + 1 + digits);
      const auto [stop, error] = std::from_chars(begin, end, n, 16);
      if (error != std::errc() || stop != begin + digits || n > 0x10FFFF || (n >= 0xD800 && n <= 0xDFFF))
        throw Failure{fmt::format("a string has a bad \\{} escape", c), line};
      i += digits;
      append_point(out, n);
    } else if (c == 'N') {
      throw Failure{"\\N{...} in strings is not supported", line};
    } else {
      out += '\\';
      out += c;
    }
  }
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, const LexerOptions& options)
      : source_(normal_lines(source)), s_(source_), options_(options) {}

  std::vector<Token> run() {
    while (at_ < s_.size()) text();
    add(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  void add(TokenType type, std::string text, Value value = {}) {
    if (type == TokenType::kData && text.empty()) return;
    tokens_.push_back({type, std::move(text), std::move(value), line_});
  }
  [[noreturn]] void fail(const std::string& what) const { throw Failure{what, line_}; }
  bool here(std::string_view word) const { return s_.substr(at_).starts_with(word); }
  void advance(size_t to) {
    line_ += static_cast<int>(std::count(s_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         s_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
    at_ = to;
  }
  size_t behind_space(size_t at) const {
    const std::string_view rest = strip_left(s_.substr(at));
    return s_.size() - rest.size();
  }

  // What is left of the text from `at_` to the tag at `tag` whose sign is '-', '+' or none.
  std::string_view before_tag(size_t tag, char sign, bool variable) const {
    const std::string_view text = s_.substr(at_, tag - at_);
    if (sign == '-') return strip_right(text);
    if (sign == '+' || !options_.lstrip_blocks || variable) return text;
    const size_t newline = text.rfind('\n');
    const size_t start = newline == text.npos ? 0 : newline + 1;
    const bool line_start = newline != text.npos || at_ == 0 || s_[at_ - 1] == '\n';
    return line_start && strip(text.substr(start)).empty() ? text.substr(0, start) : text;
  }
  char sign_at(size_t at) const { return at < s_.size() && (s_[at] == '-' || s_[at] == '+') ? s_[at] : 0; }

  // Where a tag that closes with `close` ends if it does so at `at`; 0 if not.
  size_t tag_end(size_t at, std::string_view close, bool block) const {
    const std::string_view rest = s_.substr(at);
    if (rest.starts_with('-') && rest.substr(1).starts_with(close))
      return behind_space(at + 1 + close.size());
    if (block && rest.starts_with('+') && rest.substr(1).starts_with(close)) return at + 1 + close.size();
    if (!rest.starts_with(close)) return 0;
    const size_t end = at + close.size();
    return block && options_.trim_blocks && end < s_.size() && s_[end] == '\n' ? end + 1 : end;
  }

  void text() {
    size_t tag = at_;
    while ((tag = s_.find('{', tag)) != s_.npos) {
      if (tag + 1 < s_.size() && (s_[tag + 1] == '{' || s_[tag + 1] == '%' || s_[tag + 1] == '#')) break;
      ++tag;
    }
    if (tag == s_.npos) {
      add(TokenType::kData, std::string(s_.substr(at_)));
      return advance(s_.size());
    }
    const char kind = s_[tag + 1], sign = sign_at(tag + 2);
    add(TokenType::kData, std::string(before_tag(tag, sign, kind == '{')));
    const size_t inside = tag + 2 + (sign != 0);
    if (kind == '#') return comment(inside);
    if (kind == '%')
      if (const size_t raw = raw_begin(inside)) return raw_text(raw);
    advance(inside);
    add(kind == '%' ? TokenType::kBlockBegin : TokenType::kVariableBegin, "");
    inside_tag(kind == '%');
  }

  void comment(size_t at) {
    for (size_t i = at; i < s_.size(); ++i)
      if (const size_t end = tag_end(i, "#}", true)) return advance(end);
    fail("a comment is not closed by #}");
  }

  size_t raw_begin(size_t at) const {
    at = behind_space(at);
    if (!s_.substr(at).starts_with("raw")) return 0;
    at = behind_space(at + 3);
    const std::string_view rest = s_.substr(at);
    return rest.starts_with("-%}") ? behind_space(at + 3) : rest.starts_with("%}") ? at + 2 : 0;
  }

  void raw_text(size_t start) {
    const int opened = line_;
    advance(start);
    for (size_t tag = at_; (tag = s_.find("{%", tag)) != s_.npos; ++tag) {
      const char sign = sign_at(tag + 2);
      size_t at = behind_space(tag + 2 + (sign != 0));
      if (!s_.substr(at).starts_with("endraw")) continue;
      at = behind_space(at + 6);
      const size_t end = tag_end(at, "%}", true);
      if (end == 0) continue;
      add(TokenType::kData, std::string(before_tag(tag, sign, false)));
      return advance(end);
    }
    throw Failure{"{% raw %} is not closed by {% endraw %}", opened};
  }

  void inside_tag(bool block) {
    std::string open;  // brackets waiting for their partner
    const int opened = line_;
    while (at_ < s_.size()) {
      if (open.empty())
        if (const size_t end = tag_end(at_, block ? "%}" : "}}", block)) {
          add(block ? TokenType::kBlockEnd : TokenType::kVariableEnd, "");
          return advance(end);
        }
      if (const size_t next = behind_space(at_); next != at_) {
        advance(next);
        continue;
      }
      const char c = s_[at_];
      size_t peek = at_;
      const char32_t point = next_point(s_, peek);
      if (is_ascii_digit(c)) {
        number();
      } else if (is_word(point)) {
        name();
      } else if (c == '"' || c == '\'') {
        string(c);
      } else {
        const std::string_view op = operator_at();
        if (op.empty()) fail("unexpected character " + repr_text(s_.substr(at_, peek - at_)));
        if (op == "(") open += ')';
        if (op == "[") open += ']';
        if (op == "{") open += '}';
        if (op == ")" || op == "]" || op == "}") {
          if (open.empty()) fail(fmt::format("unexpected '{}'", op));
          if (open.back() != op[0]) fail(fmt::format("unexpected '{}', expected '{}'", op, open.back()));
          open.pop_back();
        }
        add(TokenType::kOperator, std::string(op));
        at_ += op.size();
      }
    }
    throw Failure{block ? "a tag is not closed by %}" : "an expression is not closed by }}", opened};
  }

  std::string_view operator_at() const {
    static constexpr std::array<std::string_view, 26> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view op : kOperators)
      if (here(op)) return op;
    return {};
  }

  void name() {
    size_t end = at_;
    while (end < s_.size()) {
      size_t next = end;
      if (!is_word(next_point(s_, next))) break;
      end = next;
    }
    add(TokenType::kName, std::string(s_.substr(at_, end - at_)));
    at_ = end;
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < s_.size() && s_[end] != quote) end += s_[end] == '\\' ? 2 : 1;
    if (end >= s_.size()) fail("a string is not closed");
    add(TokenType::kString, unescape(s_.substr(at_ + 1, end - at_ - 1), line_));
    advance(end + 1);
  }

  // Digits from `at`, with single underscores between them.
  size_t digits_end(size_t at) const {
    while (at < s_.size() &&
           (is_ascii_digit(s_[at]) || (s_[at] == '_' && at + 1 < s_.size() && is_ascii_digit(s_[at + 1]) &&
                                       is_ascii_digit(s_[at - 1]))))
      ++at;
    return at;
  }

  void number() {
    const auto digit_at = [&](size_t i) { return i < s_.size() && is_ascii_digit(s_[i]); };
    const size_t whole = digits_end(at_);
    size_t end = whole;
    if (at_ == 0 || s_[at_ - 1] != '.') {  // "x.0.1" are two indices
      if (end < s_.size() && s_[end] == '.' && digit_at(end + 1)) end = digits_end(end + 1);
      if (end < s_.size() && (s_[end] == 'e' || s_[end] == 'E')) {
        const size_t signed_at =
            end + 1 + (end + 1 < s_.size() && (s_[end + 1] == '+' || s_[end + 1] == '-'));
        if (digit_at(signed_at)) end = digits_end(signed_at);
      }
    }
    if (end != whole) {
      const std::string text = without_underscores(at_, end);
      double value = 0;
      std::from_chars(text.data(), text.data() + text.size(), value);
      if (std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc::result_out_of_range)
        fail("the number " + text + " is out of range");
      add(TokenType::kFloat, "", Value(value));
    } else {
      end = integer_end(whole);
      std::string text = without_underscores(at_, end);
      int base = 10;
      if (text.size() > 1 && text[0] == '0' && !is_ascii_digit(text[1])) {
        base = (text[1] | 32) == 'x' ? 16 : (text[1] | 32) == 'o' ? 8 : 2;
        text = text.substr(2);
      }
      int64_t value = 0;
      if (std::from_chars(text.data(), text.data() + text.size(), value, base).ec != std::errc())
        fail("the number " + text + " does not fit into 64 bits");
      add(TokenType::kInteger, "", Value(value));
    }
    at_ = end;
  }

  // A number that starts with 0 is hexadecimal, octal, binary, or zeros.
  size_t integer_end(size_t decimal_end) const {
    if (s_[at_] != '0') return decimal_end;
    if (at_ + 2 < s_.size()) {
      const char kind = static_cast<char>(s_[at_ + 1] | 32);
      const std::string_view digits = kind == 'x'   ? "0123456789abcdefABCDEF"
                                      : kind == 'o' ? "01234567"
                                      : kind == 'b' ? "01"
                                                    : "";
      size_t end = at_ + 2;
      while (!digits.empty() && end < s_.size()) {
        const size_t digit = end + (s_[end] == '_');
        if (digit >= s_.size() || digits.find(s_[digit]) == digits.npos) break;
        end = digit + 1;
      }
      if (end > at_ + 2) return end;
    }
    size_t end = at_;
    while (end < decimal_end && (s_[end] == '0' || s_[end] == '_')) ++end;
    return end;
  }

  std::string without_underscores(size_t from, size_t to) const {
    std::string text(s_.substr(from, to - from));
    std::erase(text, '_');
    return text;
  }

  const std::string source_;
  const std::string_view s_;
  const LexerOptions& options_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::string Token::shown() const {
  switch (type) {
    case TokenType::kData:
      return "text";
    case TokenType::kVariableBegin:
      return "{{";
    case TokenType::kVariableEnd:
      return "}}";
    case TokenType::kBlockBegin:
      return "{%";
    case TokenType::kBlockEnd:
      return "%}";
    case TokenType::kInteger:
    case TokenType::kFloat:
      return repr(value);
    case TokenType::kEnd:
      return "the end of the template";
    default:
      return text;
  }
}

std::vector<Token> tokenize(std::string_view source, const LexerOptions& options) {
  if (!is_utf8(source)) throw Failure{"the template is not UTF-8"};
  return Lexer(source, options).run();
}

}  // namespace braid::chat
