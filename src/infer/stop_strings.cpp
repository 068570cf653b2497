#include "infer/stop_strings.h"

#include <algorithm>
#include <utility>

namespace braid {
namespace {

// Length of the text without an unfinished UTF-8 character at its end. Bytes that cannot become a character
// pass: waiting for more would not mend them.
size_t whole_characters(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;  // inside a character: look for its first byte
    const size_t needs = byte >= 0xF0 && byte <= 0xF4   ? 4
                         : byte >= 0xE0 && byte <= 0xEF ? 3
                         : byte >= 0xC2 && byte <= 0xDF ? 2
                                                        : 1;
    return needs > back ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace

Result<StopStrings> StopStrings::make(std::vector<std::string> stops) {
  if (std::ranges::any_of(stops, &std::string::empty))
    return Error{"--stop: is empty", "leave it out, or give the text to stop at"};
  std::ranges::sort(stops, std::ranges::greater{}, &std::string::size);  // the longest match comes first
  return StopStrings(std::move(stops));
}

std::string StopStrings::feed(std::string_view bytes) {
  if (stopped()) return "";
  for (const char c : bytes) {
    held_ += c;
    for (const std::string& stop : stops_) {
      if (!held_.ends_with(stop)) continue;
      match_ = stop;
      held_.resize(held_.size() - stop.size());
      return std::exchange(held_, "");
    }
  }
  const size_t n = safe();
  std::string out = held_.substr(0, n);
  held_.erase(0, n);
  return out;
}

std::string StopStrings::finish() { return std::exchange(held_, ""); }

size_t StopStrings::safe() const {
  const std::string_view held = held_;
  size_t n = held.size();
  for (const std::string& stop : stops_)
    for (size_t part = std::min(stop.size() - 1, held.size()); part > held.size() - n; --part)
      if (held.ends_with(std::string_view(stop).substr(0, part))) {
        n = held.size() - part;
        break;
      }
  return whole_characters(held.substr(0, n));
}

}  // namespace braid
