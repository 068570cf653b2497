#include "base/number.h"

#include <fmt/format.h>

#include <charconv>
#include <type_traits>

namespace braid {

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
    return Error{fmt::format("{} is '{}'", name, text),
                 fmt::format("give a {}number{}{}", std::is_integral_v<T> ? "whole " : "",
                             ends.empty() ? "" : " ", ends)};
  };
  std::string_view digits = text;
  if (digits.starts_with('+') && digits.size() > 1 && digits[1] != '-') digits.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  // "nan" compares false with every range; "inf" lies outside of all of them.
  if (error != std::errc{} || end != digits.data() + digits.size()) return refuse();
  if (!(value >= bounds.low && value <= bounds.high) || (bounds.above && value == bounds.low))
    return refuse();
  return value;
}

template std::string bounds_text(Bounds<int64_t>);
template std::string bounds_text(Bounds<double>);
template Result<int64_t> parse_number(std::string_view, std::string_view, Bounds<int64_t>);
template Result<double> parse_number(std::string_view, std::string_view, Bounds<double>);

}  // namespace braid
