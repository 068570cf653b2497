// Lists as a user writes them: "a,b,c".
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace braid {

inline std::vector<std::string> split_at_commas(const std::string& list) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    words.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

}  // namespace braid
