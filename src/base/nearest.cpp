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

std::string listed(const std::vector<std::string>& names) {
  std::string all;
  for (const std::string& n : names) all += (all.empty() ? "" : ", ") + n;
  return all;
}

// What was typed of a longer name says more than letters in common with another name.
std::vector<std::string> close_to(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kLeast = 2;  // letters
  std::vector<std::string> found;
  if (word.find_first_not_of('-') != std::string_view::npos && word.size() >= kLeast)
    for (const std::string& c : candidates)
      if (c.starts_with(word)) found.push_back(c);
  if (found.empty())
    if (const std::string near = nearest(word, candidates); !near.empty()) found.push_back(near);
  return found;
}

std::string use(const std::vector<std::string>& names) {
  return names.size() == 1 ? "use '" + names[0] + "'" : "use one of: " + listed(names);
}

}  // namespace

std::string suggest(std::string_view word, const std::vector<std::string>& candidates) {
  const std::vector<std::string> close = close_to(word, candidates);
  return use(close.empty() ? candidates : close);
}

std::string suggest_with_all(std::string_view word, const std::vector<std::string>& candidates) {
  const std::vector<std::string> close = close_to(word, candidates);
  return close.empty() ? use(candidates) : use(close) + "; known: " + listed(candidates);
}

}  // namespace braid
