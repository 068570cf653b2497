// Numbers as a user writes them: the whole text, in a range, or an error that names the option.
//
//   Result<int64_t> k = parse_number<int64_t>("40", "--top-k", {0, 1000});
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/error.h"

namespace braid {

template <class T>  // both ends belong to it, unless it starts `above` low; infinity never does
struct Bounds {
  T low = std::numeric_limits<T>::lowest(), high = std::numeric_limits<T>::max();
  bool above = false;
};

// T is int64_t or double; decimal digits, for double also a fraction and an exponent. A whole number may end
// in k, M, G (or B) or T, powers of 1000: 100M, 1.5G. `name` is the option as it is typed.
template <class T>
Result<T> parse_number(std::string_view text, std::string_view name, Bounds<T> bounds = {});

// "from 1 to 1024", "above 0, up to 1", "of at least 0", or empty if every number will do.
template <class T>
std::string bounds_text(Bounds<T> bounds);

}  // namespace braid
