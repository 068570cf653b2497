#include "tasks/groups.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/check.h"

namespace braid {
namespace {

using Images = std::vector<size_t>;

bool even(const Images& p) {
  size_t inversions = 0;
  for (size_t i = 0; i < p.size(); ++i)
    for (size_t j = i + 1; j < p.size(); ++j) inversions += p[i] > p[j];
  return inversions % 2 == 0;
}

Group permutations(size_t points, bool only_even) {
  std::vector<Images> elements;
  std::map<Images, size_t> number;
  Images p(points);
  std::iota(p.begin(), p.end(), size_t{0});
  Group g;
  do {
    if (only_even && !even(p)) continue;
    number[p] = elements.size();
    elements.push_back(p);
    std::string name;
    size_t moved = 0;
    for (size_t i = 0; i < points; ++i) name += std::to_string(p[i] + 1), moved += p[i] != i;
    g.names.push_back(name);
    g.moved.push_back(moved);
  } while (std::ranges::next_permutation(p).found);
  g.order = elements.size();
  for (const Images& a : elements)
    for (const Images& b : elements) {
      for (size_t i = 0; i < points; ++i) p[i] = a[b[i]];
      g.table.push_back(static_cast<uint16_t>(number.at(p)));
    }
  return g;
}

Group cyclic(size_t order) {
  Group g{.order = order, .table = {}, .moved = {}, .names = {}};
  for (size_t a = 0; a < order; ++a) {
    g.names.push_back(std::to_string(a));
    for (size_t b = 0; b < order; ++b) g.table.push_back(static_cast<uint16_t>((a + b) % order));
  }
  return g;
}

}  // namespace

Group make_group(std::string_view name) {
  if (name == "S3") return permutations(3, false);
  if (name == "S4") return permutations(4, false);
  if (name == "A5") return permutations(5, true);
  if (name == "S5") return permutations(5, false);
  check(name == "Z60", "make_group: unknown group");
  return cyclic(60);
}

}  // namespace braid
