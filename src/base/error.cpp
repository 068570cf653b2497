#include "base/error.h"

namespace braid {

Error to_error(const std::string& title, const std::vector<Problem>& problems) {
  std::string text = title;
  for (const Problem& p : problems) {
    text += "\n  " + p.where + ": " + p.what;
    if (!p.fix.empty()) text += "; " + p.fix;
  }
  return {text};
}

}  // namespace braid
