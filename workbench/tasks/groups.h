// Small groups as tables. Elements are numbers; 0 is the identity.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

// Permutations are numbered in lexicographic order of their images; the product a * b is "b first, then a":
// (a * b)(i) = a(b(i)). Z60 adds.
inline constexpr std::array<std::string_view, 5> kGroups{"S3", "S4", "A5", "S5", "Z60"};

struct Group {
  size_t order = 0;
  std::vector<uint16_t> table;     // [order, order], a * b at [a, b]
  std::vector<size_t> moved;       // points an element moves; empty if these are no permutations
  std::vector<std::string> names;  // "21345": the images of 1 .. 5; "59" in Z60

  size_t product(size_t a, size_t b) const { return table[a * order + b]; }
};
Group make_group(std::string_view name);  // one of kGroups

}  // namespace braid
