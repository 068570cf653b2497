#include "base/number.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <type_traits>

namespace braid {
namespace {

// "1.5M" as 1,500,000; nothing if the text does not end in a power of 1000 or is not a whole number.
std::optional<int64_t> with_suffix(std::string_view text) {
  constexpr std::string_view kSuffixes = "kKMGBT";
  constexpr double kPowers[] = {1e3, 1e3, 1e6, 1e9, 1e9, 1e12};
  const size_t suffix = text.empty() ? std::string_view::npos : kSuffixes.find(text.back());
  if (suffix == std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size() - 1, value, std::chars_format::fixed);
  value = std::round(value * kPowers[suffix] * 1e3) / 1e3;
  if (error != std::errc{} || end != text.data() + text.size() - 1) return std::nullopt;
  if (!(std::abs(value) < 9e15) || value != std::floor(value)) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace

template <class T>
std::string bounds_text(Bounds<T> bounds) {
  const Bounds<T> all;
  const bool low = bounds.low > all.low, high = bounds.high < all.high;
  if (bounds.above)
    return fmt::format("above {}{}", bounds.low, high ? fmt::format(", up to {}", bounds.high) : "");
  if (low && high) return fmt::format("from {} to {}", bounds.low, bounds.high);
  if (low) return fmt::format("of at least {}", bounds.low);
  return high ? fmt::format("of at most {}", bounds.high) : "";
}

template <class T>
Result<T> parse_number(std::string_view text, std::string_view name, Bounds<T> bounds) {
  const auto refuse = [&] {
    const std::string ends = bounds_text(bounds);
    return Error{fmt::format("{}: is '{}'", name, text),
                 fmt::format("give a {}number{}{}", std::is_integral_v<T> ? "whole " : "",
                             ends.empty() ? "" : " ", ends)};
  };
  std::string_view digits = text;
  if (digits.starts_with('+') && digits.size() > 1 && digits[1] != '-') digits.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  // "nan" compares false with every range; "inf" lies outside of all of them.
  if (error != std::errc{} || end != digits.data() + digits.size()) {
    const std::optional<int64_t> large = std::is_integral_v<T> ? with_suffix(digits) : std::nullopt;
    if (!large) return refuse();
    value = static_cast<T>(*large);
  }
  if (!(value >= bounds.low && value <= bounds.high) || (bounds.above && value == bounds.low))
    return refuse();
  return value;
}

template std::string bounds_text(Bounds<int64_t>);
template std::string bounds_text(Bounds<double>);
template Result<int64_t> parse_number(std::string_view, std::string_view, Bounds<int64_t>);
template Result<double> parse_number(std::string_view, std::string_view, Bounds<double>);

}  // namespace braid
