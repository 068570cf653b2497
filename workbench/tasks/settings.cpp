#include "tasks/settings.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/nearest.h"

namespace braid {
namespace {

template <class T>
bool parse_number(std::string_view text, T* out) {  // the whole text must be the number
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return ec == std::errc{} && end == text.data() + text.size();
}

// "" or what is wrong. A value that does not fit is not stored.
template <class T>
std::string store(const Setting& s, std::string_view text, T* out) {
  T v{};
  if constexpr (std::is_same_v<T, bool>) {
    if (text != "true" && text != "false") return fmt::format("is '{}'", text);
    v = text == "true";
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (std::ranges::find(s.choices, text) == s.choices.end()) return fmt::format("is '{}'", text);
    v = text;
  } else {
    if (!parse_number(text, &v))
      return fmt::format("is '{}', not a {}number", text, std::is_same_v<T, int64_t> ? "whole " : "");
    const auto x = static_cast<double>(v);
    if (!(x >= s.low && x <= s.high)) return fmt::format("is {}", text);  // NaN is outside, too
  }
  *out = v;
  return "";
}

}  // namespace

std::string value_text(const Setting& setting) {
  return std::visit([](const auto* v) { return fmt::format("{}", *v); }, setting.value);
}

std::string range_text(const Setting& setting) {
  if (std::holds_alternative<bool*>(setting.value)) return "true or false";
  if (std::holds_alternative<std::string*>(setting.value)) {
    const auto rest = setting.choices.first(setting.choices.size() - 1);
    return fmt::format("{} or {}", fmt::join(rest, ", "), setting.choices.back());
  }
  return fmt::format("{} .. {}", setting.low, setting.high);
}

std::vector<Problem> apply_settings(const std::vector<Setting>& settings,
                                    const std::vector<std::string>& assignments) {
  std::vector<std::string> names, seen;
  for (const Setting& s : settings) names.emplace_back(s.name);
  std::vector<Problem> problems;
  for (const std::string& a : assignments) {
    const size_t equals = a.find('=');
    const std::string name = a.substr(0, equals);
    if (equals == std::string::npos || name.empty()) {
      problems.push_back(
          {"'" + a + "'", "is not name=value",
           settings.empty() ? "" : "write for example " + names[0] + "=" + value_text(settings[0])});
      continue;
    }
    const auto s = std::ranges::find(settings, name, &Setting::name);
    if (s == settings.end()) {
      problems.push_back({name, "is not a setting of this task", suggest(name, names)});
    } else if (std::ranges::count(seen, name)) {
      problems.push_back({name, "is given twice", "keep one"});
    } else {
      seen.push_back(name);
      const std::string wrong = std::visit(
          [&](auto* out) { return store(*s, std::string_view(a).substr(equals + 1), out); }, s->value);
      if (!wrong.empty()) problems.push_back({name, wrong, "use " + range_text(*s)});
    }
  }
  return problems;
}

}  // namespace braid
