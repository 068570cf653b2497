// Python's two ways to fill in a string: "%s" % values and "{}".format(values).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "chat/renderer.h"
#include "chat/text.h"

namespace braid::chat {
namespace {

constexpr int kMaxWidth = 100'000;

struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternate = false, grouped = false;
  int width = 0, precision = -1;
  char type = 0;
};

std::string pad(const Spec& s, const std::string& sign, const std::string& body, char usual) {
  const int gap = s.width - static_cast<int>(count_points(sign) + count_points(body));
  if (gap <= 0) return sign + body;
  const auto fill = [&](int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += s.fill;
    return out;
  };
  switch (s.align ? s.align : usual) {
    case '<':
      return sign + body + fill(gap);
    case '=':
      return sign + fill(gap) + body;
    case '^':
      return fill(gap / 2) + sign + body + fill(gap - gap / 2);
    default:
      return fill(gap) + sign + body;
  }
}

std::string grouped(const std::string& digits) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string formatted_float(const Spec& s, double x) {
  const std::string sign = std::signbit(x) && !std::isnan(x) ? "-"
                           : s.sign == '-'                   ? ""
                                                             : std::string(1, s.sign);
  const double a = std::fabs(x);
  const int precision = s.precision < 0 ? 6 : s.precision;
  std::string body;
  if (!std::isfinite(x)) {
    body = std::isnan(x) ? "nan" : "inf";
    if (s.type == 'F' || s.type == 'E' || s.type == 'G') body = to_upper(body);
  } else {
    switch (s.type) {
      case 'f':
      case 'F':
        body = fmt::format("{:.{}f}", a, precision);
        break;
      case 'e':
        body = fmt::format("{:.{}e}", a, precision);
        break;
      case 'E':
        body = fmt::format("{:.{}E}", a, precision);
        break;
      case 'g':
        body = fmt::format("{:.{}g}", a, precision);
        break;
      case 'G':
        body = fmt::format("{:.{}G}", a, precision);
        break;
      case '%':
        body = fmt::format("{:.{}f}%", 100 * a, precision);
        break;
      default:
        if (s.precision < 0) {
          body = float_text(a);
        } else {  // like g, but a whole number keeps ".0"
          body = fmt::format("{:.{}g}", a, std::max(1, s.precision));
          if (body.find_first_not_of("0123456789") == body.npos) body += ".0";
        }
    }
  }
  if (s.grouped) body = grouped(body);
  return pad(s, sign, body, '>');
}

std::string formatted_int(const Spec& s, int64_t n) {
  const bool negative = n < 0;
  const uint64_t a = negative ? uint64_t{0} - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);
  std::string sign = negative ? "-" : s.sign == '-' ? "" : std::string(1, s.sign), body;
  switch (s.type) {
    case 'x':
      body = fmt::format("{:x}", a);
      sign += s.alternate ? "0x" : "";
      break;
    case 'X':
      body = fmt::format("{:X}", a);
      sign += s.alternate ? "0X" : "";
      break;
    case 'o':
      body = fmt::format("{:o}", a);
      sign += s.alternate ? "0o" : "";
      break;
    case 'b':
      body = fmt::format("{:b}", a);
      sign += s.alternate ? "0b" : "";
      break;
    default:
      body = std::to_string(a);
  }
  if (s.grouped) body = grouped(body);
  return pad(s, sign, body, '>');
}

std::string formatted_text(const Spec& s, const std::string& text, char usual) {
  std::string body = text;
  if (s.precision >= 0) {
    const std::vector<std::string_view> points = split_points(text);
    if (points.size() > static_cast<size_t>(s.precision)) {
      body.clear();
      for (int i = 0; i < s.precision; ++i) body += points[static_cast<size_t>(i)];
    }
  }
  return pad(s, "", body, usual);
}

int read_number(std::string_view text, size_t& at) {
  int n = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    n = n * 10 + (text[at++] - '0');
    if (n > kMaxWidth) fail("a width or precision in a format is too large");
  }
  return n;
}

void put(Renderer& r, std::string& out, std::string_view part) {
  r.budget.text(part.size());
  if (out.size() + part.size() > r.budget.longest) fail("the template makes a string that is too long");
  out += part;
}

int64_t whole_number(const Value& v, char type) {
  if (v.is_undefined()) fail(v.as<UndefinedInfo>().message);
  if (v.is_integer()) return v.integer();
  if (!v.is(Kind::kFloat))
    fail(fmt::format("%{} format: a real number is required, not {}", type, type_name(v)));
  if (!(std::fabs(v.number()) < 9.2e18)) fail("a number does not fit into 64 bits");
  return static_cast<int64_t>(v.number());
}

// ---- "{}".format()

Spec parse_spec(std::string_view text) {
  Spec s;
  size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  const auto here = [&](char c) { return at < text.size() && text[at] == c ? ++at, true : false; };
  if (!text.empty()) {
    size_t behind = 0;
    next_point(text, behind);
    if (behind < text.size() && is_align(text[behind])) {
      s.fill = text.substr(0, behind);
      s.align = text[behind];
      at = behind + 1;
    } else if (is_align(text[0])) {
      s.align = text[0];
      at = 1;
    }
  }
  for (const char c : {'+', '-', ' '})
    if (here(c)) s.sign = c;
  if (here('#')) s.alternate = true;
  if (here('0') && !s.align) s.fill = "0", s.align = '=';
  s.width = read_number(text, at);
  if (here(',')) s.grouped = true;
  if (here('.')) {
    const size_t before = at;
    s.precision = read_number(text, at);
    if (at == before) fail("Format specifier missing precision");
  }
  if (at < text.size()) s.type = text[at++];
  if (at != text.size() ||
      (s.type && std::string_view("sdfFeEgGxXob%").find(s.type) == std::string_view::npos))
    fail(fmt::format("the format '{}' is not supported", text));
  return s;
}

std::string formatted(Renderer& r, const Value& v, const std::string& spec_text) {
  if (spec_text.empty()) return r.text(v);
  Spec s = parse_spec(spec_text);
  const bool float_type = s.type && std::string_view("fFeEgG%").find(s.type) != std::string_view::npos;
  if (v.is(Kind::kFloat) || (v.is_number() && float_type)) {
    if (s.type && !float_type)
      fail(fmt::format("Unknown format code '{}' for object of type 'float'", s.type));
    return formatted_float(s, v.number());
  }
  if (v.is_integer() && (s.type != 's')) return formatted_int(s, v.integer());
  if (s.type && s.type != 's')
    fail(fmt::format("Unknown format code '{}' for object of type '{}'", s.type, type_name(v)));
  if (!v.is_string()) fail(fmt::format("unsupported format string passed to {}.__format__", type_name(v)));
  if (s.align == '=') s.align = '<';
  return formatted_text(s, r.text(v), '<');
}

class Braces {
 public:
  Braces(Renderer& r, const Arguments& values) : r_(r), values_(values) {}

  std::string run(std::string_view format, int depth) {
    std::string out;
    for (size_t at = 0; at < format.size(); ++at) {
      const char c = format[at];
      if (c != '{' && c != '}') {
        const size_t end = std::min(format.find_first_of("{}", at), format.size());
        put(r_, out, format.substr(at, end - at));
        at = end - 1;
        continue;
      }
      if (at + 1 < format.size() && format[at + 1] == c && depth == 0) {
        put(r_, out, std::string_view(&c, 1));
        ++at;
        continue;
      }
      if (c == '}') fail("Single '}' encountered in format string");
      int open = 1;
      size_t end = at + 1;
      for (; end < format.size() && open > 0; ++end)
        open += format[end] == '{' ? 1 : format[end] == '}' ? -1 : 0;
      if (open > 0) fail("expected '}' before end of string");
      put(r_, out, field(format.substr(at + 1, end - at - 2), depth));
      at = end - 1;
    }
    return out;
  }

 private:
  std::string field(std::string_view text, int depth) {
    if (depth > 1) fail("Max string recursion exceeded");
    size_t end = 0;
    for (bool inside = false; end < text.size() && (inside || (text[end] != ':' && text[end] != '!')); ++end)
      inside = text[end] == '[' || (inside && text[end] != ']');
    const std::string_view path = text.substr(0, end);
    char conversion = 0;
    if (end < text.size() && text[end] == '!') {
      if (end + 1 >= text.size()) fail("unmatched '{' in format spec");
      conversion = text[end + 1];
      end += 2;
      if (conversion != 'r' && conversion != 's')
        fail("only the conversions !r and !s are supported in a format");
      if (end < text.size() && text[end] != ':') fail("expected ':' after conversion specifier");
    }
    Value v = lookup(path);  // before the spec: both may count fields
    const std::string spec = end < text.size() ? run(text.substr(end + 1), depth + 1) : "";
    if (conversion == 'r') {
      r_.budget.step(v.weight());
      v = r_.made(repr(v));
    } else if (conversion == 's') {
      v = r_.made(r_.text(v));
    }
    return formatted(r_, v, spec);
  }

  Value lookup(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    const std::string first(path.substr(0, end));
    Value v;
    if (first.empty() || first.find_first_not_of("0123456789") == first.npos) {
      size_t digits = 0;
      const size_t i = first.empty() ? next_++ : static_cast<size_t>(read_number(first, digits));
      if (i >= values_.list.size())
        fail(fmt::format("Replacement index {} out of range for positional args tuple", i));
      v = values_.list[i];
    } else {
      const auto at = std::ranges::find_if(values_.named, [&](const auto& n) { return n.first == first; });
      if (at == values_.named.end()) fail(fmt::format("the format names '{}', which is not given", first));
      v = at->second;
    }
    for (path.remove_prefix(end); !path.empty();) {
      if (path[0] == '.') {
        const size_t stop = std::min(path.find_first_of(".[", 1), path.size());
        v = r_.attribute(v, std::string(path.substr(1, stop - 1)));
        path.remove_prefix(stop);
      } else if (const size_t stop = path.find(']'); path[0] == '[' && stop != path.npos) {
        const std::string key(path.substr(1, stop - 1));
        size_t digits = 0;
        const bool number = !key.empty() && key.find_first_not_of("0123456789") == key.npos;
        v = r_.item(v, number ? Value(int64_t{read_number(key, digits)}) : Value(key));
        path.remove_prefix(stop + 1);
      } else {
        fail("a format has a bad field name");
      }
    }
    return v;
  }

  Renderer& r_;
  const Arguments& values_;
  size_t next_ = 0;
};

// Python's "%" operator.
class Percent {
 public:
  Percent(Renderer& r, const std::string& format, const Value& values)
      : r_(r), format_(format), values_(values) {}

  std::string run() {
    for (; at_ < format_.size(); ++at_) {
      if (format_[at_] == '%') {
        field();
        continue;
      }
      const size_t end = std::min(format_.find('%', at_), format_.size());
      put(r_, out_, std::string_view(format_).substr(at_, end - at_));
      at_ = end - 1;
    }
    if (!by_name_ && !values_.is(Kind::kDict) && !values_.is(Kind::kList)) {
      const size_t given = values_.is(Kind::kTuple) ? values_.items().size() : 1;
      if (used_ < given) fail("not all arguments converted during string formatting");
    }
    return std::move(out_);
  }

 private:
  Value next() {
    if (!values_.is(Kind::kTuple)) {
      if (used_++ > 0) fail("not enough arguments for format string");
      return values_;
    }
    if (used_ >= values_.items().size()) fail("not enough arguments for format string");
    return values_.items()[used_++];
  }

  // (name), if it is there.
  std::optional<Value> named() {
    if (at_ >= format_.size() || format_[at_] != '(') return std::nullopt;
    const size_t close = format_.find(')', at_);
    if (close == format_.npos) fail("incomplete format key");
    if (!values_.is(Kind::kDict)) fail("format requires a mapping");
    const std::string key = format_.substr(at_ + 1, close - at_ - 1);
    const Value* v = values_.as<Dict>().find(std::string_view(key));
    if (!v) fail(fmt::format("the format names '{}', which is not given", key));
    by_name_ = true;
    at_ = close + 1;
    return *v;
  }

  // Sets what the flags say; true if there is a 0.
  bool flags(Spec& s) {
    bool zero = false;
    for (; at_ < format_.size(); ++at_) {
      if (format_[at_] == '-')
        s.align = '<';
      else if (format_[at_] == '+')
        s.sign = '+';
      else if (format_[at_] == ' ')
        s.sign = s.sign == '+' ? '+' : ' ';
      else if (format_[at_] == '#')
        s.alternate = true;
      else if (format_[at_] == '0')
        zero = true;
      else
        break;
    }
    return zero;
  }

  int star_or_number() {
    if (at_ >= format_.size() || format_[at_] != '*') return read_number(format_, at_);
    ++at_;
    const int64_t n = whole_number(next(), 'd');
    if (n < -kMaxWidth || n > kMaxWidth) fail("a width or precision in a format is too large");
    return static_cast<int>(n);
  }

  // From a % to its type.
  void field() {
    ++at_;
    Spec s;
    const std::optional<Value> by_name = named();
    const bool zero = flags(s);
    s.width = star_or_number();
    if (s.width < 0) s.width = -s.width, s.align = '<';
    if (at_ < format_.size() && format_[at_] == '.') s.precision = (++at_, std::max(0, star_or_number()));
    if (at_ >= format_.size()) fail("incomplete format");
    if (format_[at_] == '%') return put(r_, out_, "%");
    const Value v = by_name ? *by_name : next();
    if (zero && s.align != '<') s.align = '=', s.fill = "0";
    convert(s, v, format_[at_]);
  }

  void convert(Spec s, const Value& v, char type) {
    switch (type) {
      case 's':
      case 'r':
        if (s.align == '=') s.align = 0, s.fill = " ";
        r_.budget.step(v.weight());
        return put(r_, out_, formatted_text(s, type == 's' ? r_.text(v) : repr(v), '>'));
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return convert_whole(s, v, type);
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
        if (v.is_undefined()) fail(v.as<UndefinedInfo>().message);
        if (!v.is_number()) fail(fmt::format("must be real number, not {}", type_name(v)));
        s.type = type;
        return put(r_, out_, formatted_float(s, v.number()));
      case 'c':
        if (!v.is_string() || count_points(v.text()) != 1) fail("%c is supported for one character only");
        s.precision = -1;
        if (s.align == '=') s.align = 0, s.fill = " ";
        return put(r_, out_, formatted_text(s, v.text(), '>'));
      default:
        fail(fmt::format("the format character {} is not supported",
                         repr_text(std::string_view(format_).substr(at_, 1))));
    }
  }

  void convert_whole(Spec s, const Value& v, char type) {
    s.type = type == 'x' || type == 'X' || type == 'o' ? type : 'd';
    if (s.type != 'd' && !v.is_integer())
      fail(fmt::format("%{} format: an integer is required, not {}", type, type_name(v)));
    const int digits = std::exchange(s.precision, -1);
    if (digits < 0) return put(r_, out_, formatted_int(s, whole_number(v, type)));
    Spec inner = s;  // at least so many digits
    inner.width = 0;
    std::string body = formatted_int(inner, whole_number(v, type));
    const size_t sign = std::min(body.find_first_not_of("+- "), body.size());
    const size_t have = body.size() - sign;
    if (have < static_cast<size_t>(digits))
      body.insert(sign, std::string(static_cast<size_t>(digits) - have, '0'));
    put(r_, out_, pad(s, body.substr(0, sign), body.substr(sign), '>'));
  }

  Renderer& r_;
  const std::string& format_;
  const Value& values_;
  std::string out_;
  size_t at_ = 0, used_ = 0;
  bool by_name_ = false;
};

}  // namespace

std::string format_braces(Renderer& r, const std::string& format, const Arguments& values) {
  return Braces(r, values).run(format, 0);
}

std::string format_percent(Renderer& r, const std::string& format, const Value& values) {
  return Percent(r, format, values).run();
}

}  // namespace braid::chat
