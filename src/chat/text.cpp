#include "chat/text.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace braid::chat {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_letter(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

char32_t upper_point(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}
char32_t lower_point(char32_t c) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}
char32_t title_point(char32_t c) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}
bool is_cased(char32_t c) {
  return is_upper_case(c) || is_lower_case(c) || category(c) == UTF8PROC_CATEGORY_LT;
}

constexpr char32_t kSharpS = 0xDF;  // the one common letter whose capital is two

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t c;
    const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
                                    static_cast<utf8proc_ssize_t>(text.size() - at), &c);
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

char32_t next_point(std::string_view text, size_t& at) {
  const auto first = static_cast<unsigned char>(text[at++]);
  if (first < 0x80) return first;
  const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
  char32_t c = first & (0x3F >> more);
  for (int i = 0; i < more && at < text.size(); ++i)
    c = c << 6 | (static_cast<unsigned char>(text[at++]) & 0x3F);
  return c;
}

void append_point(std::string& text, char32_t point) {
  utf8proc_uint8_t bytes[4];
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(point), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(n));
}

size_t count_points(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::vector<std::string_view> split_points(std::string_view text) {
  std::vector<std::string_view> points;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    next_point(text, at);
    points.push_back(text.substr(start, at - start));
  }
  return points;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_word(char32_t c) {
  if (c < 0x80) return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
  const auto k = category(c);
  return is_letter(c) || k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool is_alpha(char32_t c) { return is_letter(c); }
bool is_digit(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089);
}

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  const auto k = category(c);
  return k != UTF8PROC_CATEGORY_CN &&
         k < UTF8PROC_CATEGORY_ZS;  // separators, controls and unassigned are not
}

bool is_upper_case(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower_case(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }

std::string to_upper(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_point(text, at);
    if (c == kSharpS)
      out += "SS";
    else
      append_point(out, upper_point(c));
  }
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) append_point(out, lower_point(next_point(text, at)));
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_point(text, at);
    if (!inside && c == kSharpS)
      out += "Ss";
    else
      append_point(out, inside ? lower_point(c) : title_point(c));
    inside = is_cased(c);
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  if (text.empty()) return "";
  std::string out;
  size_t at = 0;
  const char32_t first = next_point(text, at);
  if (first == kSharpS)
    out = "Ss";
  else
    append_point(out, title_point(first));
  return out + to_lower(text.substr(at));
}

std::string_view strip_left(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    if (!is_space(next_point(text, at))) return text.substr(start);
  }
  return text.substr(text.size());
}

std::string_view strip_right(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();)
    if (!is_space(next_point(text, at))) end = at;
  return text.substr(0, end);
}

std::string_view strip(std::string_view text) { return strip_right(strip_left(text)); }

namespace {
bool contains_point(std::string_view chars, std::string_view point) {
  for (size_t at = 0; at < chars.size();) {
    const size_t start = at;
    next_point(chars, at);
    if (chars.substr(start, at - start) == point) return true;
  }
  return false;
}
}  // namespace

std::string_view strip_left(std::string_view text, std::string_view chars) {
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    next_point(text, at);
    if (!contains_point(chars, text.substr(start, at - start))) return text.substr(start);
  }
  return text.substr(text.size());
}

std::string_view strip_right(std::string_view text, std::string_view chars) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    next_point(text, at);
    if (!contains_point(chars, text.substr(start, at - start))) end = at;
  }
  return text.substr(0, end);
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t line = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t c = next_point(text, at);
    if (!is_line_end(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(line, (keep_ends ? at : start) - line));
    line = at;
  }
  if (line < text.size()) lines.push_back(text.substr(line));
  return lines;
}

std::vector<std::string_view> split_words(std::string_view text, int64_t max_splits, bool from_right) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    if (is_space(next_point(text, at))) continue;
    size_t end = at;
    while (end < text.size()) {
      const size_t before = end;
      if (is_space(next_point(text, end))) {
        end = before;
        break;
      }
    }
    words.push_back(text.substr(start, end - start));
    at = end;
  }
  if (max_splits < 0 || words.size() <= static_cast<size_t>(max_splits)) return words;
  const auto n = static_cast<size_t>(max_splits);
  // What is not split stays as it is, without the white space at its outer end.
  if (from_right) {
    const size_t first = words.size() - n;
    const std::string_view last_kept = words[first - 1];
    const auto end = static_cast<size_t>(last_kept.data() + last_kept.size() - text.data());
    words.erase(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(first));
    words.insert(words.begin(), text.substr(0, end));
  } else if (n < words.size()) {
    const auto start = static_cast<size_t>(words[n].data() - text.data());
    words.resize(n);
    words.push_back(text.substr(start));
  }
  return words;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, int64_t max_splits,
                                       bool from_right) {
  std::vector<std::string_view> parts;
  const auto more = [&] { return max_splits < 0 || static_cast<int64_t>(parts.size()) < max_splits; };
  if (from_right) {
    for (size_t at; more() && (at = text.rfind(separator)) != text.npos; text = text.substr(0, at))
      parts.push_back(text.substr(at + separator.size()));
    parts.push_back(text);
    std::ranges::reverse(parts);
    return parts;
  }
  for (size_t at; more() && (at = text.find(separator)) != text.npos;
       text.remove_prefix(at + separator.size()))
    parts.push_back(text.substr(0, at));
  parts.push_back(text);
  return parts;
}

std::string repr_text(std::string_view text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const char32_t c = next_point(text, at);
    if (c == '\\' || c == static_cast<char32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      append_point(out, c);
    } else {
      const auto n = static_cast<uint32_t>(c);
      out += n < 0x100     ? fmt::format("\\x{:02x}", n)
             : n < 0x10000 ? fmt::format("\\u{:04x}", n)
                           : fmt::format("\\U{:08x}", n);
    }
  }
  return out + quote;
}

std::string float_text(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x, std::chars_format::scientific).ptr;
  const std::string_view all(buffer, static_cast<size_t>(end - buffer));
  const size_t e = all.find('e');
  int exponent = 0;
  std::from_chars(all.data() + e + (all[e + 1] == '+' ? 2 : 1), end, exponent);
  std::string digits, sign;
  for (const char c : all.substr(0, e))
    if (c == '-')
      sign = "-";
    else if (c != '.')
      digits += c;
  if (exponent < -4 || exponent >= 16) {
    if (digits.size() > 1) digits.insert(1, ".");
    return fmt::format("{}{}e{}{:02}", sign, digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

}  // namespace braid::chat
