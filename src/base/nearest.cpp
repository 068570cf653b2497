#include "base/nearest.h"

#include <algorithm>
#include <numeric>

namespace braid {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t up = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = up;
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& candidates) {
  size_t best = std::max<size_t>(2, word.size() / 3) + 1;
  std::string found;
  for (const std::string& c : candidates) {
    if (std::max(c.size(), word.size()) - std::min(c.size(), word.size()) >= best) continue;
    const size_t d = edit_distance(word, c);
    if (d < best && d < word.size()) best = d, found = c;  // not one with every letter changed
  }
  return found;
}

namespace {

std::string all_of(const std::vector<std::string>& candidates) {
  std::string all = "known: ";
  for (size_t i = 0; i < candidates.size(); ++i) all += (i ? ", " : "") + candidates[i];
  return all;
}

}  // namespace

std::string suggest(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? all_of(candidates) : "did you mean '" + near + "'?";
}

std::string suggest_with_all(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string near = nearest(word, candidates);
  return near.empty() ? all_of(candidates) : "did you mean '" + near + "'? " + all_of(candidates);
}

}  // namespace braid
