#include "base/error.h"

#include <map>

namespace braid {

void no_value(std::string_view why, Where at) { die(why, at); }

Error to_error(const std::string& title, const std::vector<Problem>& problems) {
  constexpr size_t kAlike = 3, kMost = 16;
  std::string text = title;
  std::map<std::string_view, size_t> alike;  // by what is wrong
  size_t shown = 0, others = 0;
  for (const Problem& p : problems) {
    if (++alike[p.what] > kAlike) continue;
    if (shown == kMost) {
      ++others;
      continue;
    }
    ++shown;
    text += "\n  " + p.where + ": " + p.what;
    if (!p.fix.empty()) text += "; " + p.fix;
  }
  for (const auto& [what, count] : alike)
    if (count > kAlike) text += "\n  and " + std::to_string(count - kAlike) + " more: " + std::string(what);
  if (others > 0) text += "\n  and " + std::to_string(others) + " others";
  return {text, problems.size() == 1 ? "correct this value" : "correct these values"};
}

Error wrong_options(const std::vector<Problem>& problems) {
  if (problems.size() == 1) return {problems[0].where + ": " + problems[0].what, problems[0].fix};
  std::string names;
  for (const Problem& p : problems) names += (names.empty() ? "" : ", ") + p.where;
  return to_error(names + ": cannot be used", problems);
}

}  // namespace braid
