// The extents of a tensor, slowest first.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"

namespace braid {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) {
    for (int64_t e : extents) push(e);
  }

  void push(int64_t extent) {
    check(rank_ < kMaxRank && extent >= 0, "Shape: too many or negative extents");
    extent_[rank_++] = extent;
  }
  int rank() const { return rank_; }
  int64_t operator[](int i) const { return extent_[i]; }
  int64_t count() const {  // 1 for rank 0
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= extent_[i];
    return n;
  }
  std::string text() const {  // "[2, 3]"
    std::string s = "[";
    for (int i = 0; i < rank_; ++i) s += (i ? ", " : "") + std::to_string(extent_[i]);
    return s + "]";
  }
  bool operator==(const Shape&) const = default;

 private:
  std::array<int64_t, kMaxRank> extent_{};
  int rank_ = 0;
};

}  // namespace braid
