// Filters and tests, with jinja2's parameters; `tojson` is the one of transformers.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "chat/renderer.h"
#include "chat/text.h"
#include "io/html.h"

namespace braid::chat {
namespace {

void no_arguments(const char* name, const Arguments& a) { Parameters(name, a, {}); }

const std::string& wanted_text(const char* filter, const Value& v) {
  if (v.is_undefined()) fail(v.as<UndefinedInfo>().message);
  if (!v.is_string()) fail(fmt::format("{} needs a string, not {}", filter, type_name(v)));
  return v.text();
}

// Strings are compared without case unless asked otherwise.
Value sort_key(Renderer& r, const Value& v, bool case_sensitive) {
  return v.is_string() && !case_sensitive ? r.made(to_lower(v.text())) : v;
}

// Stable, by keys that are lists of values as long as each other.
std::vector<size_t> sorted_order(Renderer& r, const std::vector<Values>& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  const auto before = [&](size_t a, size_t b) {
    for (size_t k = 0; k < keys[a].size(); ++k)
      if (!r.same(keys[a][k], keys[b][k])) return r.compare("<", keys[a][k], keys[b][k]);
    return false;
  };
  if (reverse)  // equal ones stay in their order
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return before(b, a); });
  else
    std::ranges::stable_sort(order, before);
  return order;
}

// ---- text

Value f_upper(Renderer& r, const Value& v, const Arguments& a) {
  no_arguments("upper", a);
  return r.made(to_upper(r.text(v)), v.markup());
}
Value f_lower(Renderer& r, const Value& v, const Arguments& a) {
  no_arguments("lower", a);
  return r.made(to_lower(r.text(v)), v.markup());
}
Value f_capitalize(Renderer& r, const Value& v, const Arguments& a) {
  no_arguments("capitalize", a);
  return r.made(to_capitalized(r.text(v)), v.markup());
}

Value f_title(Renderer& r, const Value& v,
              const Arguments& a) {  // words begin at spaces and opening brackets
  no_arguments("title", a);
  const std::string s = r.text(v);
  std::string out, word;
  const auto flush = [&] {
    if (word.empty()) return;
    size_t first = 0;
    next_point(word, first);
    out += to_upper(std::string_view(word).substr(0, first)) + to_lower(std::string_view(word).substr(first));
    word.clear();
  };
  for (size_t at = 0; at < s.size();) {
    const size_t start = at;
    const char32_t c = next_point(s, at);
    const bool between = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    if (between) flush();
    (between ? out : word) += s.substr(start, at - start);
  }
  flush();
  return r.made(std::move(out), v.markup());
}

Value f_trim(Renderer& r, const Value& v, const Arguments& a) {
  const Parameters p("trim", a, {"chars"});
  const std::string s = r.text(v);
  if (!p.given(0)) return r.made(std::string(strip(s)), v.markup());
  return r.made(std::string(strip_right(strip_left(s, p.text(0)), p.text(0))), v.markup());
}

Value f_replace(Renderer& r, const Value& v, const Arguments& a) {
  const Parameters p("replace", a, {"old", "new", "count"}, 2);
  return r.made(replace_all(r, r.text(v), r.text(p.value(0)), r.text(p.value(1)), p.integer(2, -1)));
}

Value f_indent(Renderer& r, const Value& v, const Arguments& a) {
  const Parameters p("indent", a, {"width", "first", "blank"});
  const std::string s = wanted_text("indent", v) + "\n";
  std::string indent;
  if (p[0] && p.value(0).is_string()) {
    indent = p.text(0);
  } else {
    const int64_t width = p.integer(0, 4);
    r.budget.text(static_cast<size_t>(std::max<int64_t>(0, width)));
    indent.assign(static_cast<size_t>(std::max<int64_t>(0, width)), ' ');
  }
  std::string out = p.flag(1, false) ? indent : "";
  bool first = true;
  for (const std::string_view line : split_lines(s, false)) {
    if (!first) {
      r.budget.text(out.size() / 64 + indent.size());
      if (out.size() + indent.size() > r.budget.longest) fail("the template makes a string that is too long");
      out += '\n';
      if (p.flag(2, false) || !line.empty()) out += indent;
    }
    out += line;
    first = false;
  }
  return r.made(std::move(out), v.markup());
}

Value f_center(Renderer& r, const Value& v, const Arguments& a) {
  const Parameters p("center", a, {"width"});
  const std::string s = r.text(v);
  const auto size = static_cast<int64_t>(count_points(s)), width = p.integer(0, 80), pad = width - size;
  if (pad <= 0) return r.made(s);
  r.budget.text(static_cast<size_t>(width));
  const int64_t left = pad / 2 + (pad & width & 1);  // as CPython splits it
  return r.made(std::string(static_cast<size_t>(left), ' ') + s +
                std::string(static_cast<size_t>(pad - left), ' '));
}

Value f_truncate(Renderer& r, const Value& v, const Arguments& a) {
  const Parameters p("truncate", a, {"length", "killwords", "end", "leeway"});
  const std::string& s = wanted_text("truncate", v);
  const std::string end = p[2] ? p.text(2) : "...";
  const int64_t length = p.integer(0, 255), leeway = p.integer(3, 5),
                kept = length - static_cast<int64_t>(count_points(end));
  if (kept < 0 || leeway < 0) fail("truncate: length must be at least that of the end, leeway not negative");
  const std::vector<std::string_view> points = split_points(s);
  if (static_cast<int64_t>(points.size()) <= length + leeway) return v;
  std::string out;
  for (int64_t i = 0; i < kept; ++i) out += points[static_cast<size_t>(i)];
  if (!p.flag(1, false)) out = out.substr(0, std::min(out.rfind(' '), out.size()));
  return r.made(out + end);
}

Value f_wordcount(Renderer& r, const Value& v, const Arguments& a) {
  no_arguments("wordcount", a);
  const std::string s = r.text(v);
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < s.size();) {
    const bool word = is_word(next_point(s, at));
    words += word && !inside;
    inside = word;
  }
  return words;
}

Value f_string(Renderer& r, const Value& v, const Arguments& a) {
  no_arguments("string", a);
  return v.is_string() ? v : r.made(r.text(v));
}
Value f_safe(Renderer& r, const Value& v, const Arguments& a) {
  no_arguments("safe", a);
  return r.made(r.text(v), true);
}
Value f_escape(Renderer& r, const Value& v, const Arguments& a) {
  no_arguments("escape", a);
  return v.markup() ? v : r.made(escape_html(r.text(v)), true);
}
Value f_forceescape(Renderer& r, const Value& v, const Arguments& a) {
  no_arguments("forceescape", a);
  return r.made(escape_html(r.text(v)), true);
}

Value f_format(Renderer& r, const Value& v, const Arguments& a) {
  if (!a.list.empty() && !a.named.empty()) fail("format cannot take positional and named arguments together");
  if (a.named.empty()) return r.made(format_percent(r, r.text(v), make_tuple(a.list)));
  auto d = std::make_shared<Dict>();
  for (const auto& [k, x] : a.named) d->set(r.made(k), x);
  return r.made(format_percent(r, r.text(v), make_dict(std::move(d))));
}

Value f_join(Renderer& r, const Value& v, const Arguments& a) {
  const Parameters p("join", a, {"d", "attribute"});
  const std::string between = p[0] ? r.text(p.value(0)) : "";
  std::string out;
  bool first = true;
  Cursor cursor(v);
  for (Value item; cursor.next(item); first = false) {
    r.budget.step();
    const std::string part = r.text(p.given(1) ? r.path(item, p.value(1)) : item);
    if (out.size() + part.size() + between.size() > r.budget.longest)
      fail("the template makes a string that is too long");
    if (!first) out += between;
    out += part;
  }
  return r.made(std::move(out));
}

Value f_tojson(Renderer& r, const Value& v, const Arguments& a) {
  const Parameters p("tojson", a, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = p.flag(0, false);
  style.sort_keys = p.flag(3, false);
  if (p.given(1)) {
    style.multiline = true;
    style.item_separator = ",";
    if (p.value(1).is_string()) {
      style.indent = p.text(1);
    } else {
      const int64_t n = std::max<int64_t>(0, p.integer(1, 0));
      if (n > 1000) fail("tojson: indent is too large");
      style.indent.assign(static_cast<size_t>(n), ' ');
    }
  }
  if (p.given(2)) {
    const Values both = r.list(p.value(2));
    if (both.size() != 2 || !both[0].is_string() || !both[1].is_string())
      fail("tojson: separators must be two strings");
    style.item_separator = both[0].text();
    style.key_separator = both[1].text();
  }
  return Value(json_text(v, style, r.budget));
}

// ---- numbers

std::string number_text(
    const Value& v) {  // as int() and float() read strings: spaces around, _ between digits
  std::string s(strip(v.text()));
  for (size_t i = 0; i < s.size(); ++i)
    if (s[i] == '_' && (i == 0 || i + 1 == s.size() || !std::isalnum(static_cast<unsigned char>(s[i - 1])) ||
                        !std::isalnum(static_cast<unsigned char>(s[i + 1]))))
      return "";
  std::erase(s, '_');
  return s;
}

std::optional<double> parse_float(const Value& v) {
  if (v.is_number()) return v.number();
  if (!v.is_string()) return {};
  std::string s = to_lower(number_text(v));
  const bool negative = s.starts_with('-');
  if (s.starts_with('+') || negative) s.erase(0, 1);
  if (s == "inf" || s == "infinity") return negative ? -INFINITY : INFINITY;
  if (s == "nan") return std::nan("");
  if (s.empty() || s.find_first_not_of("0123456789.e+-") != s.npos || s[0] == '-' || s[0] == '+') return {};
  if (s.back() == '.' && s.size() > 1) s += '0';  // from_chars wants digits
  char* end = nullptr;
  const double x = std::strtod(s.c_str(), &end);
  if (end != s.c_str() + s.size()) return {};
  return negative ? -x : x;
}

std::optional<int64_t> parse_int(const Value& v, int64_t base) {
  if (v.is_integer()) return v.integer();
  if (v.is(Kind::kFloat)) {
    if (std::isnan(v.number())) return {};
    if (std::isinf(v.number())) fail("cannot convert float infinity to integer");
    if (!(std::fabs(v.number()) < 9.2e18)) fail("a number does not fit into 64 bits");
    return static_cast<int64_t>(v.number());
  }
  if (!v.is_string() || (base != 0 && (base < 2 || base > 36))) return {};
  std::string s = number_text(v);
  const bool negative = s.starts_with('-');
  if (s.starts_with('+') || negative) s.erase(0, 1);
  if (s.size() > 2 && s[0] == '0') {
    const char kind = static_cast<char>(s[1] | 32);
    const int64_t own = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (own && (base == own || base == 0)) s.erase(0, 2), base = own;
  }
  if (base == 0) base = 10;
  int64_t n = 0;
  if (s.empty() || s[0] == '-') return {};
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n, static_cast<int>(base));
  if (end != s.data() + s.size()) return {};
  if (error != std::errc()) fail("a number does not fit into 64 bits");
  return negative ? -n : n;
}

Value f_int(Renderer&, const Value& v, const Arguments& a) {
  const Parameters p("int", a, {"default", "base"});
  if (v.is_undefined()) fail(v.as<UndefinedInfo>().message);
  if (const auto n = parse_int(v, p.integer(1, 10))) return *n;
  const auto x = parse_float(v);
  if (x && std::fabs(*x) < 9.2e18) return static_cast<int64_t>(*x);
  return p[0] ? p.value(0) : Value(int64_t{0});
}

Value f_float(Renderer&, const Value& v, const Arguments& a) {
  const Parameters p("float", a, {"default"});
  if (v.is_undefined()) fail(v.as<UndefinedInfo>().message);
  if (const auto x = parse_float(v)) return *x;
  return p[0] ? p.value(0) : Value(0.0);
}

const Value& wanted_number(const char* filter, const Value& v) {
  if (v.is_undefined()) fail(v.as<UndefinedInfo>().message);
  if (!v.is_number()) fail(fmt::format("{} needs a number, not {}", filter, type_name(v)));
  return v;
}

Value f_abs(Renderer&, const Value& v, const Arguments& a) {
  no_arguments("abs", a);
  if (wanted_number("abs", v).is(Kind::kFloat)) return std::fabs(v.number());
  if (v.integer() == INT64_MIN) fail("a number does not fit into 64 bits");
  return std::abs(v.integer());
}

Value f_round(Renderer& r, const Value& v, const Arguments& a) {
  const Parameters p("round", a, {"precision", "method"});
  const int64_t precision = p.integer(0, 0);
  const std::string method = p[1] ? p.text(1) : "common";
  wanted_number("round", v);
  if (method == "ceil" || method == "floor") {
    const Value scale = r.binary("**", int64_t{10}, precision), scaled = r.binary("*", v, scale);
    const double x = scaled.number(), rounded = method == "ceil" ? std::ceil(x) : std::floor(x);
    return r.binary("/", scaled.is_integer() ? scaled : Value(rounded), scale);
  }
  if (method != "common") fail("round: method must be common, ceil or floor");
  if (v.is_integer()) {
    if (precision >= 0) return v.integer();
    if (precision < -18) return int64_t{0};
    const int64_t unit = r.binary("**", int64_t{10}, -precision).integer(), n = v.integer();
    int64_t down = n / unit * unit, rest = n - down;
    if (rest < 0) rest += unit, down -= unit;
    const bool up = rest * 2 > unit || (rest * 2 == unit && (down / unit) % 2 != 0);
    return r.binary("+", down, up ? unit : int64_t{0});
  }
  if (precision > 320 || !std::isfinite(v.number())) return v;
  if (precision < -320) return std::copysign(0.0, v.number());
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(v.number() / unit) * unit;
  }
  // The decimal text of the exact value, rounded half to even, as Python does it.
  return std::strtod(fmt::format("{:.{}f}", v.number(), precision).c_str(), nullptr);
}

// ---- sequences

Value f_length(Renderer&, const Value& v, const Arguments& a) {
  no_arguments("length", a);
  const int64_t n = length(v);
  if (n < 0) fail(fmt::format("object of type '{}' has no len()", type_name(v)));
  return n;
}

Value f_default(Renderer&, const Value& v, const Arguments& a) {
  const Parameters p("default", a, {"default_value", "boolean"});
  if (!v.is_undefined() && !(p.flag(1, false) && !truth(v))) return v;
  return p[0] ? p.value(0) : Value("");
}

Value f_first(Renderer&, const Value& v, const Arguments& a) {
  no_arguments("first", a);
  Value item;
  return Cursor(v).next(item) ? item : undefined("No first item, sequence was empty.");
}

Values reversible(Renderer& r, const char* filter, const Value& v) {
  if (v.is(Kind::kIterator)) fail(fmt::format("{}: 'generator' object is not reversible", filter));
  if (v.is_undefined()) fail(fmt::format("{}: 'Undefined' object is not reversible", filter));
  return r.list(v);
}

Value f_last(Renderer& r, const Value& v, const Arguments& a) {
  no_arguments("last", a);
  Values items = reversible(r, "last", v);
  return items.empty() ? undefined("No last item, sequence was empty.") : items.back();
}

Value f_reverse(Renderer& r, const Value& v, const Arguments& a) {
  no_arguments("reverse", a);
  if (v.is_string()) {
    std::string out;
    std::vector<std::string_view> points = split_points(v.text());
    std::ranges::reverse(points);
    for (const std::string_view c : points) out += c;
    return r.made(std::move(out), v.markup());
  }
  Values items = r.list(v);
  std::ranges::reverse(items);
  return v.is(Kind::kIterator) || v.is_undefined() ? make_list(std::move(items))
                                                   : make_iterator(std::move(items));
}

Value f_list(Renderer& r, const Value& v, const Arguments& a) {
  no_arguments("list", a);
  return make_list(r.list(v));
}

Value f_items(Renderer& r, const Value& v, const Arguments& a) {
  no_arguments("items", a);
  if (v.is_undefined()) return make_iterator({});
  if (!v.is(Kind::kDict)) fail("Can only get item pairs from a mapping.");
  Values items;
  for (const auto& [k, x] : v.as<Dict>().items) r.budget.step(), items.push_back(make_tuple({k, x}));
  return make_iterator(std::move(items));
}

Value f_dictsort(Renderer& r, const Value& v, const Arguments& a) {
  const Parameters p("dictsort", a, {"case_sensitive", "by", "reverse"});
  const std::string by = p[1] ? p.text(1) : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (v.is_undefined()) fail(v.as<UndefinedInfo>().message);
  if (!v.is(Kind::kDict)) fail(fmt::format("dictsort needs a mapping, not {}", type_name(v)));
  std::vector<Values> keys;
  const auto& items = v.as<Dict>().items;
  for (const auto& [k, x] : items) keys.push_back({sort_key(r, by == "key" ? k : x, p.flag(0, false))});
  Values out;
  for (const size_t i : sorted_order(r, keys, p.flag(2, false)))
    out.push_back(make_tuple({items[i].first, items[i].second}));
  return make_list(std::move(out));
}

Value f_sort(Renderer& r, const Value& v, const Arguments& a) {
  const Parameters p("sort", a, {"reverse", "case_sensitive", "attribute"});
  const Values items = r.list(v);
  std::vector<Value> paths(1);
  if (p.given(2)) {
    paths = {p.value(2)};
    if (p.value(2).is_string()) {
      paths.clear();
      for (const std::string_view part : split_at(p.text(2), ",", -1, false))
        paths.emplace_back(std::string(part));
    }
  }
  std::vector<Values> keys;
  for (const Value& item : items) {
    keys.emplace_back();
    for (const Value& path : paths) keys.back().push_back(sort_key(r, r.path(item, path), p.flag(1, false)));
  }
  Values out;
  for (const size_t i : sorted_order(r, keys, p.flag(0, false))) out.push_back(items[i]);
  return make_list(std::move(out));
}

Value f_unique(Renderer& r, const Value& v, const Arguments& a) {
  const Parameters p("unique", a, {"case_sensitive", "attribute"});
  Values out, seen;
  for (const Value& item : r.list(v)) {
    const Value key = sort_key(r, r.path(item, p[1] ? p.value(1) : Value()), p.flag(0, false));
    check_hashable(key);
    if (std::ranges::any_of(seen, [&](const Value& s) { return r.same(s, key); })) continue;
    seen.push_back(key);
    out.push_back(item);
  }
  return make_iterator(std::move(out));
}

Value extreme(Renderer& r, const char* name, const char* better, const Value& v, const Arguments& a) {
  const Parameters p(name, a, {"case_sensitive", "attribute"});
  Value best, best_key;
  bool any = false;
  for (const Value& item : r.list(v)) {
    Value key = sort_key(r, r.path(item, p[1] ? p.value(1) : Value()), p.flag(0, false));
    if (any && !r.compare(better, key, best_key)) continue;
    best = item;
    best_key = std::move(key);
    any = true;
  }
  return any ? best : undefined("No aggregated item, sequence was empty.");
}
Value f_min(Renderer& r, const Value& v, const Arguments& a) { return extreme(r, "min", "<", v, a); }
Value f_max(Renderer& r, const Value& v, const Arguments& a) { return extreme(r, "max", ">", v, a); }

Value f_sum(Renderer& r, const Value& v, const Arguments& a) {
  const Parameters p("sum", a, {"attribute", "start"});
  Value total = p[1] ? p.value(1) : Value(int64_t{0});
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : r.list(v))
    total = r.binary("+", total, p.given(0) ? r.path(item, p.value(0)) : item);
  return total;
}

Value f_batch(Renderer& r, const Value& v, const Arguments& a) {
  const Parameters p("batch", a, {"linecount", "fill_with"}, 1);
  const int64_t n = p.integer(0, 0);
  Values out, row;
  for (const Value& item : r.list(v)) {
    if (static_cast<int64_t>(row.size()) == n) out.push_back(make_list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    if (p.given(1) && static_cast<int64_t>(row.size()) < n) {
      r.budget.step(static_cast<size_t>(n));
      r.budget.take(sizeof(Value) * static_cast<size_t>(n));
      row.resize(static_cast<size_t>(n), p.value(1));
    }
    out.push_back(make_list(std::move(row)));
  }
  return make_iterator(std::move(out));
}

Value f_slice(Renderer& r, const Value& v, const Arguments& a) {
  const Parameters p("slice", a, {"slices", "fill_with"}, 1);
  const Values all = r.list(v);
  const int64_t slices = p.integer(0, 0), size = static_cast<int64_t>(all.size());
  if (slices == 0) fail("slice: division by zero");
  Values out;
  if (slices > 0) {
    const int64_t each = size / slices, longer = size % slices;
    r.budget.step(static_cast<size_t>(slices));
    int64_t at = 0;
    for (int64_t i = 0; i < slices; ++i) {
      const int64_t n = each + (i < longer);
      Values part(all.begin() + at, all.begin() + at + n);
      if (p.given(1) && i >= longer) part.push_back(p.value(1));
      out.push_back(make_list(std::move(part)));
      at += n;
    }
  }
  return make_iterator(std::move(out));
}

Value f_groupby(Renderer& r, const Value& v, const Arguments& a) {
  const Parameters p("groupby", a, {"attribute", "default", "case_sensitive"}, 1);
  const Values items = r.list(v);
  const auto key_of = [&](const Value& item) {
    Value key = r.path(item, p.value(0));
    return key.is_undefined() && p.given(1) ? p.value(1) : key;
  };
  std::vector<Values> keys;
  for (const Value& item : items) keys.push_back({sort_key(r, key_of(item), p.flag(2, false))});
  Values out, group;
  const Values* group_key = nullptr;
  const auto flush = [&] {
    if (!group.empty()) {
      Value first = key_of(group[0]);
      out.push_back(make_tuple({std::move(first), make_list(std::exchange(group, {}))}, true));
    }
  };
  for (const size_t i : sorted_order(r, keys, false)) {
    if (!group_key || !r.same((*group_key)[0], keys[i][0])) flush();
    group_key = &keys[i];
    group.push_back(items[i]);
  }
  flush();
  return make_list(std::move(out));
}

Value f_attr(Renderer& r, const Value& v, const Arguments& a) {
  const Parameters p("attr", a, {"name"}, 1);
  if (v.is(Kind::kDict) && !find_method(v, p.text(0)))  // keys are no attributes
    return undefined(fmt::format("'{}' has no attribute '{}'", described(v), p.text(0)));
  return r.attribute(v, p.text(0));
}

Value f_map(Renderer& r, const Value& v, const Arguments& a) {
  if (!truth(v)) return make_iterator({});
  Values out;
  if (a.list.empty() && std::ranges::any_of(a.named, [](const auto& n) { return n.first == "attribute"; })) {
    const Parameters p("map", a, {"attribute", "default"});
    for (const Value& item : r.list(v)) {
      Value x = r.path(item, p.value(0));
      out.push_back(x.is_undefined() && p.given(1) ? p.value(1) : std::move(x));
    }
    return make_iterator(std::move(out));
  }
  if (a.list.empty() || !a.list[0].is_string()) fail("map needs the name of a filter");
  const Arguments rest{Values(a.list.begin() + 1, a.list.end()), a.named};
  for (const Value& item : r.list(v)) out.push_back(r.filter(a.list[0].text(), item, rest));
  return make_iterator(std::move(out));
}

Value chosen(Renderer& r, const char* name, const Value& v, const Arguments& a, bool wanted,
             bool by_attribute) {
  if (!truth(v)) return make_iterator({});
  const size_t at = by_attribute;
  if (a.list.size() < at) fail(fmt::format("{} needs the name of an attribute", name));
  const bool tested = a.list.size() > at;
  if (tested && !a.list[at].is_string()) fail(fmt::format("{} needs the name of a test", name));
  Arguments rest;
  if (tested) rest = {Values(a.list.begin() + static_cast<std::ptrdiff_t>(at) + 1, a.list.end()), a.named};
  Values out;
  for (const Value& item : r.list(v)) {
    const Value x = by_attribute ? r.path(item, a.list[0]) : item;
    if ((tested ? r.test(a.list[at].text(), x, rest) : truth(x)) == wanted) out.push_back(item);
  }
  return make_iterator(std::move(out));
}
Value f_select(Renderer& r, const Value& v, const Arguments& a) {
  return chosen(r, "select", v, a, true, false);
}
Value f_reject(Renderer& r, const Value& v, const Arguments& a) {
  return chosen(r, "reject", v, a, false, false);
}
Value f_selectattr(Renderer& r, const Value& v, const Arguments& a) {
  return chosen(r, "selectattr", v, a, true, true);
}
Value f_rejectattr(Renderer& r, const Value& v, const Arguments& a) {
  return chosen(r, "rejectattr", v, a, false, true);
}

// ---- tests

const Value& operand(const char* test, const Arguments& a) {
  return Parameters(test, a, {"other"}, 1).value(0);
}

bool t_defined(Renderer&, const Value& v, const Arguments&) { return !v.is_undefined(); }
bool t_undefined(Renderer&, const Value& v, const Arguments&) { return v.is_undefined(); }
bool t_none(Renderer&, const Value& v, const Arguments&) { return v.is(Kind::kNone); }
bool t_boolean(Renderer&, const Value& v, const Arguments&) { return v.is(Kind::kBool); }
bool t_true(Renderer&, const Value& v, const Arguments&) { return v.is(Kind::kBool) && v.boolean(); }
bool t_false(Renderer&, const Value& v, const Arguments&) { return v.is(Kind::kBool) && !v.boolean(); }
bool t_integer(Renderer&, const Value& v, const Arguments&) { return v.is(Kind::kInt); }
bool t_float(Renderer&, const Value& v, const Arguments&) { return v.is(Kind::kFloat); }
bool t_number(Renderer&, const Value& v, const Arguments&) { return v.is_number(); }
bool t_string(Renderer&, const Value& v, const Arguments&) { return v.is_string(); }
bool t_mapping(Renderer&, const Value& v, const Arguments&) { return v.is(Kind::kDict); }
bool t_sequence(Renderer&, const Value& v, const Arguments&) { return length(v) >= 0 && !v.is(Kind::kView); }
bool t_iterable(Renderer&, const Value& v, const Arguments&) { return walkable(v) || v.is(Kind::kLoop); }
bool t_callable(Renderer&, const Value& v, const Arguments&) {
  return v.is(Kind::kFunction) || v.is(Kind::kLoop) || v.is_undefined();
}
bool t_escaped(Renderer&, const Value& v, const Arguments&) { return v.markup(); }
bool t_filter(Renderer&, const Value& v, const Arguments&) { return v.is_string() && find_filter(v.text()); }
bool t_test(Renderer&, const Value& v, const Arguments&) { return v.is_string() && find_test(v.text()); }
bool t_sameas(Renderer&, const Value& v, const Arguments& a) { return identical(v, operand("sameas", a)); }
bool t_in(Renderer& r, const Value& v, const Arguments& a) { return r.contains(operand("in", a), v); }
bool t_eq(Renderer& r, const Value& v, const Arguments& a) { return r.same(v, operand("eq", a)); }
bool t_ne(Renderer& r, const Value& v, const Arguments& a) { return !r.same(v, operand("ne", a)); }
bool t_lt(Renderer& r, const Value& v, const Arguments& a) { return r.compare("<", v, operand("lt", a)); }
bool t_le(Renderer& r, const Value& v, const Arguments& a) { return r.compare("<=", v, operand("le", a)); }
bool t_gt(Renderer& r, const Value& v, const Arguments& a) { return r.compare(">", v, operand("gt", a)); }
bool t_ge(Renderer& r, const Value& v, const Arguments& a) { return r.compare(">=", v, operand("ge", a)); }

double remainder_of(Renderer& r, const Value& v, const Value& n) {
  const Value m = r.binary("%", v, n);
  return m.is_number() ? m.number() : -1;
}
bool t_odd(Renderer& r, const Value& v, const Arguments&) { return remainder_of(r, v, int64_t{2}) == 1; }
bool t_even(Renderer& r, const Value& v, const Arguments&) { return remainder_of(r, v, int64_t{2}) == 0; }
bool t_divisibleby(Renderer& r, const Value& v, const Arguments& a) {
  return remainder_of(r, v, operand("divisibleby", a)) == 0;
}

bool one_case(const std::string& s, bool (*right)(char32_t), bool (*wrong)(char32_t)) {
  bool any = false;
  for (size_t at = 0; at < s.size();) {
    const char32_t c = next_point(s, at);
    if (wrong(c)) return false;
    any |= right(c);
  }
  return any;
}
bool t_lower(Renderer& r, const Value& v, const Arguments&) {
  return one_case(r.text(v), is_lower_case, is_upper_case);
}
bool t_upper(Renderer& r, const Value& v, const Arguments&) {
  return one_case(r.text(v), is_upper_case, is_lower_case);
}

}  // namespace

std::string replace_all(Renderer& r, const std::string& s, const std::string& from, const std::string& to,
                        int64_t count) {
  std::string out;
  const auto add = [&](std::string_view part) {
    if (out.size() + part.size() > r.budget.longest) fail("the template makes a string that is too long");
    out += part;
  };
  size_t at = 0;
  for (int64_t n = 0; count < 0 || n < count; ++n) {
    r.budget.step();
    if (from.empty()) {  // between all code points
      add(to);
      if (at >= s.size()) break;
      const size_t start = at;
      next_point(s, at);
      add(std::string_view(s).substr(start, at - start));
      continue;
    }
    const size_t found = s.find(from, at);
    if (found == s.npos) break;
    add(std::string_view(s).substr(at, found - at));
    add(to);
    at = found + from.size();
  }
  if (at < s.size()) add(std::string_view(s).substr(at));
  return out;
}

Filter find_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> kFilters = {{"abs", f_abs},
                                                                        {"attr", f_attr},
                                                                        {"batch", f_batch},
                                                                        {"capitalize", f_capitalize},
                                                                        {"center", f_center},
                                                                        {"count", f_length},
                                                                        {"d", f_default},
                                                                        {"default", f_default},
                                                                        {"dictsort", f_dictsort},
                                                                        {"e", f_escape},
                                                                        {"escape", f_escape},
                                                                        {"first", f_first},
                                                                        {"float", f_float},
                                                                        {"forceescape", f_forceescape},
                                                                        {"format", f_format},
                                                                        {"groupby", f_groupby},
                                                                        {"indent", f_indent},
                                                                        {"int", f_int},
                                                                        {"items", f_items},
                                                                        {"join", f_join},
                                                                        {"last", f_last},
                                                                        {"length", f_length},
                                                                        {"list", f_list},
                                                                        {"lower", f_lower},
                                                                        {"map", f_map},
                                                                        {"max", f_max},
                                                                        {"min", f_min},
                                                                        {"reject", f_reject},
                                                                        {"rejectattr", f_rejectattr},
                                                                        {"replace", f_replace},
                                                                        {"reverse", f_reverse},
                                                                        {"round", f_round},
                                                                        {"safe", f_safe},
                                                                        {"select", f_select},
                                                                        {"selectattr", f_selectattr},
                                                                        {"slice", f_slice},
                                                                        {"sort", f_sort},
                                                                        {"string", f_string},
                                                                        {"sum", f_sum},
                                                                        {"title", f_title},
                                                                        {"tojson", f_tojson},
                                                                        {"trim", f_trim},
                                                                        {"truncate", f_truncate},
                                                                        {"unique", f_unique},
                                                                        {"upper", f_upper},
                                                                        {"wordcount", f_wordcount}};
  const auto at = kFilters.find(name);
  return at == kFilters.end() ? nullptr : at->second;
}

Test find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, Test> kTests = {{"!=", t_ne},
                                                                    {"<", t_lt},
                                                                    {"<=", t_le},
                                                                    {"==", t_eq},
                                                                    {">", t_gt},
                                                                    {">=", t_ge},
                                                                    {"boolean", t_boolean},
                                                                    {"callable", t_callable},
                                                                    {"defined", t_defined},
                                                                    {"divisibleby", t_divisibleby},
                                                                    {"eq", t_eq},
                                                                    {"equalto", t_eq},
                                                                    {"escaped", t_escaped},
                                                                    {"even", t_even},
                                                                    {"false", t_false},
                                                                    {"filter", t_filter},
                                                                    {"float", t_float},
                                                                    {"ge", t_ge},
                                                                    {"greaterthan", t_gt},
                                                                    {"gt", t_gt},
                                                                    {"in", t_in},
                                                                    {"integer", t_integer},
                                                                    {"iterable", t_iterable},
                                                                    {"le", t_le},
                                                                    {"lessthan", t_lt},
                                                                    {"lower", t_lower},
                                                                    {"lt", t_lt},
                                                                    {"mapping", t_mapping},
                                                                    {"ne", t_ne},
                                                                    {"none", t_none},
                                                                    {"number", t_number},
                                                                    {"odd", t_odd},
                                                                    {"sameas", t_sameas},
                                                                    {"sequence", t_sequence},
                                                                    {"string", t_string},
                                                                    {"test", t_test},
                                                                    {"true", t_true},
                                                                    {"undefined", t_undefined},
                                                                    {"upper", t_upper}};
  const auto at = kTests.find(name);
  return at == kTests.end() ? nullptr : at->second;
}

Parameters::Parameters(const char* function, const Arguments& given, std::initializer_list<const char*> names,
                       size_t required)
    : function_(function), found_(names.size()), names_(names) {
  if (given.list.size() > names_.size())
    fail(fmt::format("{} takes at most {} argument(s), {} are given", function, names_.size(),
                     given.list.size()));
  for (size_t i = 0; i < given.list.size(); ++i) found_[i] = &given.list[i];
  for (const auto& [name, v] : given.named) {
    const auto at = std::ranges::find_if(names_, [&name = name](const char* n) { return name == n; });
    if (at == names_.end()) fail(fmt::format("{} has no argument '{}'", function, name));
    const Value*& slot = found_[static_cast<size_t>(at - names_.begin())];
    if (slot) fail(fmt::format("{}: the argument '{}' is given twice", function, name));
    slot = &v;
  }
  for (size_t i = 0; i < required; ++i)
    if (!found_[i]) fail(fmt::format("{} needs the argument '{}'", function, names_[i]));
}

int64_t Parameters::integer(size_t i, int64_t otherwise) const {
  if (!given(i)) return otherwise;
  if (found_[i]->is_undefined()) fail(found_[i]->as<UndefinedInfo>().message);
  if (!found_[i]->is_integer())
    fail(fmt::format("{}: '{}' must be an integer, not {}", function_, names_[i], type_name(*found_[i])));
  return found_[i]->integer();
}

const std::string& Parameters::text(size_t i) const {
  if (found_[i]->is_undefined()) fail(found_[i]->as<UndefinedInfo>().message);
  if (!found_[i]->is_string())
    fail(fmt::format("{}: '{}' must be a string, not {}", function_, names_[i], type_name(*found_[i])));
  return found_[i]->text();
}

}  // namespace braid::chat
