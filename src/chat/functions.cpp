// Global functions, and the methods of strings, lists, tuples and dicts. transformers runs templates in
// jinja2's ImmutableSandboxedEnvironment, so methods that change a list or dict are refused.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "chat/renderer.h"
#include "chat/text.h"

namespace braid::chat {
namespace {

// ---- global functions

Value raise_exception(Renderer& r, const Value&, const Arguments& a) {
  const Parameters p("raise_exception", a, {"message"}, 1);
  fail(r.text(p.value(0)));
}

Value strftime_now(Renderer& r, const Value&, const Arguments& a) {
  const Parameters p("strftime_now", a, {"format"}, 1);
  return r.made(r.time_text(p.text(0)));
}

Value range(Renderer&, const Value&, const Arguments& a) {
  constexpr uint64_t kMaxRange = 100'000;  // the sandbox's
  const Parameters p("range", a, {"start", "stop", "step"}, 1);
  for (size_t i = 0; i < 3; ++i)
    if (p[i] && !p.value(i).is_integer()) {
      if (p.value(i).is_undefined()) fail(p.value(i).as<UndefinedInfo>().message);
      fail(fmt::format("'{}' object cannot be interpreted as an integer", type_name(p.value(i))));
    }
  auto r = std::make_shared<Range>();
  r->start = p[1] ? p.integer(0, 0) : 0;
  r->stop = p[1] ? p.integer(1, 0) : p.integer(0, 0);
  r->step = p.integer(2, 1);
  if (r->step == 0) fail("range() arg 3 must not be zero");
  // In unsigned numbers the distance of any two int64 fits.
  const auto start = static_cast<uint64_t>(r->start), stop = static_cast<uint64_t>(r->stop);
  const bool up = r->step > 0;
  const uint64_t stride = up ? static_cast<uint64_t>(r->step) : uint64_t{0} - static_cast<uint64_t>(r->step);
  const bool empty = up ? r->start >= r->stop : r->start <= r->stop;
  const uint64_t n = empty ? 0 : ((up ? stop - start : start - stop) - 1) / stride + 1;
  if (n > kMaxRange) fail(fmt::format("Range too big. The sandbox blocks ranges larger than {}.", kMaxRange));
  r->length = static_cast<int64_t>(n);
  return {Kind::kRange, std::move(r)};
}

// dict(pairs or mapping, name=value, ...)
std::shared_ptr<Dict> dict_from(Renderer& r, const char* function, const Arguments& a) {
  if (a.list.size() > 1) fail(fmt::format("{} expected at most 1 argument, got {}", function, a.list.size()));
  auto d = std::make_shared<Dict>();
  const auto put = [&](Value key, const Value& v) {
    check_hashable(key);
    r.budget.step(1 + d->items.size() / 8);
    r.budget.take(2 * sizeof(Value));
    d->set(std::move(key), v);
  };
  if (!a.list.empty()) {
    if (a.list[0].is(Kind::kDict)) {
      for (const auto& [k, v] : a.list[0].as<Dict>().items) put(k, v);
    } else {
      for (const Value& pair : r.list(a.list[0])) {
        const Values both = r.list(pair);
        if (both.size() != 2) fail(fmt::format("{}: each pair must have 2 items", function));
        put(both[0], both[1]);
      }
    }
  }
  for (const auto& [k, v] : a.named) put(r.made(k), v);
  return d;
}

Value dict(Renderer& r, const Value&, const Arguments& a) { return make_dict(dict_from(r, "dict", a)); }

Value make_namespace(Renderer& r, const Value&, const Arguments& a) {
  std::vector<std::pair<std::string, Value>> items;
  const std::shared_ptr<Dict> given = dict_from(r, "namespace", a);
  for (const auto& [k, v] : given->items) {
    if (!k.is_string()) fail("namespace: names must be strings");
    items.emplace_back(k.text(), v);
  }
  return r.make_namespace(std::move(items));
}

// ---- strings

Value s_upper(Renderer& r, const Value& s, const Arguments& a) {
  return Parameters("upper", a, {}), r.made(to_upper(s.text()));
}
Value s_lower(Renderer& r, const Value& s, const Arguments& a) {
  return Parameters("lower", a, {}), r.made(to_lower(s.text()));
}
Value s_title(Renderer& r, const Value& s, const Arguments& a) {
  return Parameters("title", a, {}), r.made(to_title(s.text()));
}
Value s_capitalize(Renderer& r, const Value& s, const Arguments& a) {
  return Parameters("capitalize", a, {}), r.made(to_capitalized(s.text()));
}
Value s_strip(Renderer& r, const Value& s, const Arguments& a) {
  const Parameters p("strip", a, {"chars"});
  return r.made(
      std::string(p.given(0) ? strip_right(strip_left(s.text(), p.text(0)), p.text(0)) : strip(s.text())));
}
Value s_lstrip(Renderer& r, const Value& s, const Arguments& a) {
  const Parameters p("lstrip", a, {"chars"});
  return r.made(std::string(p.given(0) ? strip_left(s.text(), p.text(0)) : strip_left(s.text())));
}
Value s_rstrip(Renderer& r, const Value& s, const Arguments& a) {
  const Parameters p("rstrip", a, {"chars"});
  return r.made(std::string(p.given(0) ? strip_right(s.text(), p.text(0)) : strip_right(s.text())));
}

Value split(Renderer& r, const char* name, const Value& s, const Arguments& a, bool from_right) {
  const Parameters p(name, a, {"sep", "maxsplit"});
  const int64_t most = p.integer(1, -1);
  if (p.given(0) && p.text(0).empty()) fail("empty separator");
  r.budget.step(s.weight());
  Values out;
  for (const std::string_view part : p.given(0) ? split_at(s.text(), p.text(0), most, from_right)
                                                : split_words(s.text(), most, from_right)) {
    r.budget.step();
    out.push_back(r.made(std::string(part)));
  }
  return make_list(std::move(out));
}
Value s_split(Renderer& r, const Value& s, const Arguments& a) { return split(r, "split", s, a, false); }
Value s_rsplit(Renderer& r, const Value& s, const Arguments& a) { return split(r, "rsplit", s, a, true); }

Value s_splitlines(Renderer& r, const Value& s, const Arguments& a) {
  const Parameters p("splitlines", a, {"keepends"});
  Values out;
  for (const std::string_view line : split_lines(s.text(), p.flag(0, false))) {
    r.budget.step();
    out.push_back(r.made(std::string(line)));
  }
  return make_list(std::move(out));
}

Value partition(Renderer& r, const char* name, const Value& s, const Arguments& a, bool from_right) {
  const Parameters p(name, a, {"sep"}, 1);
  const std::string &text = s.text(), &sep = p.text(0);
  if (sep.empty()) fail("empty separator");
  const size_t at = from_right ? text.rfind(sep) : text.find(sep);
  if (at == text.npos) return from_right ? make_tuple({"", "", s}) : make_tuple({s, "", ""});
  return make_tuple({r.made(text.substr(0, at)), p.value(0), r.made(text.substr(at + sep.size()))});
}
Value s_partition(Renderer& r, const Value& s, const Arguments& a) {
  return partition(r, "partition", s, a, false);
}
Value s_rpartition(Renderer& r, const Value& s, const Arguments& a) {
  return partition(r, "rpartition", s, a, true);
}

Value s_replace(Renderer& r, const Value& s, const Arguments& a) {
  const Parameters p("replace", a, {"old", "new", "count"}, 2);
  return r.made(replace_all(r, s.text(), p.text(0), p.text(1), p.integer(2, -1)));
}

Value s_join(Renderer& r, const Value& s, const Arguments& a) {
  const Parameters p("join", a, {"iterable"}, 1);
  std::string out;
  int64_t i = 0;
  Cursor cursor(p.value(0));
  for (Value item; cursor.next(item); ++i) {
    r.budget.step();
    if (!item.is_string())
      fail(fmt::format("sequence item {}: expected str instance, {} found", i, type_name(item)));
    if (out.size() + s.text().size() + item.text().size() > r.budget.longest)
      fail("the template makes a string that is too long");
    if (i > 0) out += s.text();
    out += item.text();
  }
  return r.made(std::move(out));
}

// The part of a string that start and end, counted in code points, leave; `from` is where it begins.
std::string_view part_of(Renderer& r, const Value& s, const Parameters& p, size_t first, int64_t& from) {
  const std::string_view text = s.text();
  r.budget.step(s.weight());
  const auto n = static_cast<int64_t>(count_points(text));
  const auto bound = [&](size_t i, int64_t otherwise) {
    const int64_t b = p.integer(i, otherwise);
    return b < 0 ? std::max<int64_t>(0, b + n) : b;
  };
  from = bound(first, 0);
  const int64_t to = std::min(bound(first + 1, n), n);
  if (from > to) return {};
  size_t at = 0;
  for (int64_t i = 0; i < from; ++i) next_point(text, at);
  size_t end = at;
  for (int64_t i = from; i < to; ++i) next_point(text, end);
  return text.substr(at, end - at);
}

bool has_affix(const char* name, Renderer& r, const Value& s, const Arguments& a, bool at_start) {
  const Parameters p(name, a, {"affix", "start", "end"}, 1);
  int64_t from = 0;
  const std::string_view text = part_of(r, s, p, 1, from);
  const auto matches = [&](const Value& affix) {
    if (affix.is_undefined()) fail(affix.as<UndefinedInfo>().message);
    if (!affix.is_string())
      fail(fmt::format("{} first arg must be str or a tuple of str, not {}", name, type_name(affix)));
    return text.data() && (at_start ? text.starts_with(affix.text()) : text.ends_with(affix.text()));
  };
  if (p.value(0).is(Kind::kTuple)) return std::ranges::any_of(p.value(0).items(), matches);
  return matches(p.value(0));
}
Value s_startswith(Renderer& r, const Value& s, const Arguments& a) {
  return has_affix("startswith", r, s, a, true);
}
Value s_endswith(Renderer& r, const Value& s, const Arguments& a) {
  return has_affix("endswith", r, s, a, false);
}

int64_t find_in(Renderer& r, const char* name, const Value& s, const Arguments& a, bool last) {
  const Parameters p(name, a, {"sub", "start", "end"}, 1);
  int64_t from = 0;
  const std::string_view text = part_of(r, s, p, 1, from);
  const std::string& sub = p.text(0);
  if (!text.data()) return -1;
  const size_t at = last ? text.rfind(sub) : text.find(sub);
  return at == text.npos ? -1 : from + static_cast<int64_t>(count_points(text.substr(0, at)));
}
Value s_find(Renderer& r, const Value& s, const Arguments& a) { return find_in(r, "find", s, a, false); }
Value s_rfind(Renderer& r, const Value& s, const Arguments& a) { return find_in(r, "rfind", s, a, true); }
Value s_index(Renderer& r, const Value& s, const Arguments& a) {
  const int64_t at = find_in(r, "index", s, a, false);
  if (at < 0) fail("substring not found");
  return at;
}

Value s_count(Renderer& r, const Value& s, const Arguments& a) {
  const Parameters p("count", a, {"sub", "start", "end"}, 1);
  int64_t from = 0, n = 0;
  const std::string_view text = part_of(r, s, p, 1, from);
  const std::string& sub = p.text(0);
  if (!text.data()) return n;
  if (sub.empty()) return static_cast<int64_t>(count_points(text)) + 1;
  for (size_t at = 0; (at = text.find(sub, at)) != text.npos; at += sub.size()) ++n;
  return n;
}

Value s_removeprefix(Renderer& r, const Value& s, const Arguments& a) {
  const Parameters p("removeprefix", a, {"prefix"}, 1);
  return s.text().starts_with(p.text(0)) ? r.made(s.text().substr(p.text(0).size())) : s;
}
Value s_removesuffix(Renderer& r, const Value& s, const Arguments& a) {
  const Parameters p("removesuffix", a, {"suffix"}, 1);
  return s.text().ends_with(p.text(0)) ? r.made(s.text().substr(0, s.text().size() - p.text(0).size())) : s;
}

Value s_format(Renderer& r, const Value& s, const Arguments& a) {
  return r.made(format_braces(r, s.text(), a));
}

bool all_points(const Value& s, bool (*good)(char32_t)) {
  const std::string& text = s.text();
  for (size_t at = 0; at < text.size();)
    if (!good(next_point(text, at))) return false;
  return !text.empty();
}
Value s_isdigit(Renderer&, const Value& s, const Arguments&) { return all_points(s, is_digit); }
Value s_isalpha(Renderer&, const Value& s, const Arguments&) { return all_points(s, is_alpha); }
Value s_isalnum(Renderer&, const Value& s, const Arguments&) {
  return all_points(s, [](char32_t c) { return c != '_' && is_word(c); });
}
Value s_isspace(Renderer&, const Value& s, const Arguments&) { return all_points(s, is_space); }
Value s_islower(Renderer& r, const Value& s, const Arguments&) { return r.test("lower", s, {}); }
Value s_isupper(Renderer& r, const Value& s, const Arguments&) { return r.test("upper", s, {}); }

Value padded(Renderer& r, const char* name, const Value& s, const Arguments& a, bool left) {
  const Parameters p(name, a, {"width", "fillchar"}, 1);
  const std::string fill = p[1] ? p.text(1) : " ";
  if (count_points(fill) != 1) fail("The fill character must be exactly one character long");
  const int64_t n = std::max<int64_t>(0, p.integer(0, 0) - static_cast<int64_t>(count_points(s.text())));
  if (static_cast<size_t>(n) > r.budget.longest / 4) fail("the template makes a string that is too long");
  std::string pad;
  for (int64_t i = 0; i < n; ++i) pad += fill;
  return r.made(left ? s.text() + pad : pad + s.text());
}
Value s_ljust(Renderer& r, const Value& s, const Arguments& a) { return padded(r, "ljust", s, a, true); }
Value s_rjust(Renderer& r, const Value& s, const Arguments& a) { return padded(r, "rjust", s, a, false); }
Value s_center(Renderer& r, const Value& s, const Arguments& a) {
  const Parameters p("center", a, {"width"}, 1);
  return r.filter("center", s, a);
}
Value s_zfill(Renderer& r, const Value& s, const Arguments& a) {
  const Parameters p("zfill", a, {"width"}, 1);
  const int64_t n = std::max<int64_t>(0, p.integer(0, 0) - static_cast<int64_t>(count_points(s.text())));
  if (static_cast<size_t>(n) > r.budget.longest) fail("the template makes a string that is too long");
  const size_t sign = s.text().starts_with('-') || s.text().starts_with('+');
  return r.made(s.text().substr(0, sign) + std::string(static_cast<size_t>(n), '0') + s.text().substr(sign));
}

// ---- lists, tuples, dicts

Value l_index(Renderer& r, const Value& l, const Arguments& a) {
  const Parameters p("index", a, {"value", "start", "stop"}, 1);
  const auto n = static_cast<int64_t>(l.items().size());
  const auto bound = [&](size_t i, int64_t otherwise) {
    const int64_t b = p.integer(i, otherwise);
    return b < 0 ? std::max<int64_t>(0, b + n) : std::min(b, n);
  };
  for (int64_t i = bound(1, 0); i < bound(2, n); ++i)
    if (r.same(l.items()[static_cast<size_t>(i)], p.value(0))) return i;
  r.budget.step(p.value(0).weight());
  fail("the value is not in the list");
}
Value l_count(Renderer& r, const Value& l, const Arguments& a) {
  const Parameters p("count", a, {"value"}, 1);
  return static_cast<int64_t>(
      std::ranges::count_if(l.items(), [&](const Value& v) { return r.same(v, p.value(0)); }));
}
Value copy(Renderer&, const Value& v, const Arguments& a) { return Parameters("copy", a, {}), v; }

Value d_get(Renderer& r, const Value& d, const Arguments& a) {
  if (!a.named.empty()) fail("dict.get() takes no keyword arguments");
  const Parameters p("get", a, {"key", "default"}, 1);
  r.budget.step(1 + d.as<Dict>().items.size() / 8);
  if (const Value* v = d.as<Dict>().find(p.value(0))) return *v;
  return p[1] ? p.value(1) : Value();
}
Value d_items(Renderer& r, const Value& d, const Arguments& a) {
  const Parameters p("items", a, {});
  Values out;
  for (const auto& [k, v] : d.as<Dict>().items) r.budget.step(), out.push_back(make_tuple({k, v}));
  return make_view(std::move(out), "dict_items");
}
Value d_keys(Renderer& r, const Value& d, const Arguments& a) {
  const Parameters p("keys", a, {});
  Values out;
  for (const auto& item : d.as<Dict>().items) r.budget.step(), out.push_back(item.first);
  return make_view(std::move(out), "dict_keys");
}
Value d_values(Renderer& r, const Value& d, const Arguments& a) {
  const Parameters p("values", a, {});
  Values out;
  for (const auto& item : d.as<Dict>().items) r.budget.step(), out.push_back(item.second);
  return make_view(std::move(out), "dict_values");
}

using Table = std::unordered_map<std::string_view, Native>;

}  // namespace

Native find_function(std::string_view name) {
  static const Table kFunctions = {{"raise_exception", raise_exception},
                                   {"strftime_now", strftime_now},
                                   {"range", range},
                                   {"dict", dict},
                                   {"namespace", make_namespace}};
  const auto at = kFunctions.find(name);
  return at == kFunctions.end() ? nullptr : at->second;
}

Native find_method(const Value& self, std::string_view name) {
  static const Table kNone;
  static const Table kString = {{"upper", s_upper},
                                {"lower", s_lower},
                                {"title", s_title},
                                {"capitalize", s_capitalize},
                                {"strip", s_strip},
                                {"lstrip", s_lstrip},
                                {"rstrip", s_rstrip},
                                {"split", s_split},
                                {"rsplit", s_rsplit},
                                {"splitlines", s_splitlines},
                                {"partition", s_partition},
                                {"rpartition", s_rpartition},
                                {"replace", s_replace},
                                {"join", s_join},
                                {"startswith", s_startswith},
                                {"endswith", s_endswith},
                                {"find", s_find},
                                {"rfind", s_rfind},
                                {"index", s_index},
                                {"count", s_count},
                                {"removeprefix", s_removeprefix},
                                {"removesuffix", s_removesuffix},
                                {"format", s_format},
                                {"isdigit", s_isdigit},
                                {"isalpha", s_isalpha},
                                {"isalnum", s_isalnum},
                                {"isspace", s_isspace},
                                {"islower", s_islower},
                                {"isupper", s_isupper},
                                {"ljust", s_ljust},
                                {"rjust", s_rjust},
                                {"center", s_center},
                                {"zfill", s_zfill}};
  static const Table kList = {{"index", l_index}, {"count", l_count}, {"copy", copy}};
  static const Table kTuple = {{"index", l_index}, {"count", l_count}};
  static const Table kDict = {
      {"get", d_get}, {"items", d_items}, {"keys", d_keys}, {"values", d_values}, {"copy", copy}};
  const Table& table = self.is_string()        ? kString
                       : self.is(Kind::kList)  ? kList
                       : self.is(Kind::kTuple) ? kTuple
                       : self.is(Kind::kDict)  ? kDict
                                               : kNone;
  const auto at = table.find(name);
  return at == table.end() ? nullptr : at->second;
}

AttributeUse attribute_use(const Value& self, std::string_view name) {
  const auto among = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, name) != names.end();
  };
  if (self.is(Kind::kList) &&
      among({"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}))
    return AttributeUse::kUnsafe;
  if (self.is(Kind::kDict)) {
    if (among({"clear", "pop", "popitem", "setdefault", "update"})) return AttributeUse::kUnsafe;
    if (name == "fromkeys") return AttributeUse::kUnsupported;
  }
  if (self.is_string() &&
      among({"casefold", "encode", "expandtabs", "format_map", "isascii", "isdecimal", "isidentifier",
             "isnumeric", "isprintable", "istitle", "maketrans", "rindex", "swapcase", "translate"}))
    return AttributeUse::kUnsupported;
  if (self.is_integer() && among({"as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
                                  "from_bytes", "imag", "numerator", "real", "to_bytes"}))
    return AttributeUse::kUnsupported;
  if (self.is(Kind::kFloat) &&
      among({"as_integer_ratio", "conjugate", "fromhex", "hex", "imag", "is_integer", "real"}))
    return AttributeUse::kUnsupported;
  if (self.is(Kind::kRange) && among({"count", "index", "start", "step", "stop"}))
    return AttributeUse::kUnsupported;
  return AttributeUse::kNone;
}

}  // namespace braid::chat
