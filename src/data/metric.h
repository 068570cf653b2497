// Named shares of right answers: what a source of data counts besides positions and sequences.
#pragma once

#include <cstddef>
#include <string>

namespace braid {

inline double share(size_t part, size_t whole) {
  return whole ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// A share with a name: right of total. What it counts is up to the source.
struct Metric {
  std::string name;
  double chance =
      0;  // what normalised() takes as 0: the paper's figure where it gives one, else a blind guess
  size_t right = 0, total = 0;

  void add(bool is_right) { right += is_right, ++total; }
  double value() const { return share(right, total); }
  double normalised() const { return (value() - chance) / (1 - chance); }
};

}  // namespace braid
