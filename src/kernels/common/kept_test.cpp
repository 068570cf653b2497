#include "kernels/common/kept.h"

#include <gtest/gtest.h>

#include <set>

namespace braid {
namespace {

struct Key {
  int x = 0;
  bool operator==(const Key&) const = default;
  size_t hash() const { return static_cast<size_t>(x); }
};

int alive = 0;
struct Counted {
  int x = -1;
  Counted() noexcept = default;
  explicit Counted(int n) noexcept : x(n) { ++alive; }
  Counted(Counted&& o) noexcept : x(std::exchange(o.x, -1)) {}
  Counted& operator=(Counted&& o) noexcept {
    if (x >= 0) --alive;
    x = std::exchange(o.x, -1);
    return *this;
  }
  ~Counted() {
    if (x >= 0) --alive;
  }
};

TEST(Kept, MakesOnceAndHoldsAFixedNumber) {
  {
    Kept<Key, Counted, 64> kept;
    int made = 0;
    const auto get = [&](int x) {
      return kept.get(Key{x}, [&](Counted& to) noexcept {
        ++made;
        to = Counted(x);
        return true;
      });
    };
    for (int round = 0; round < 3; ++round)
      for (int x = 0; x < 64; ++x) EXPECT_EQ(get(x)->x, x);
    EXPECT_EQ(made, 64);
    for (int x = 0; x < 10000; ++x) {
      EXPECT_EQ(get(x)->x, x);
      EXPECT_LE(alive, 64);
    }
    EXPECT_EQ(alive, 64);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Kept, TheLeastRecentlyUsedMakesRoom) {
  Kept<Key, Counted, 8> kept;
  std::multiset<int> made;
  const auto get = [&](int x) {
    kept.get(Key{x}, [&](Counted& to) noexcept {
      made.insert(x);
      to = Counted(x);
      return true;
    });
  };
  for (int x = 0; x < 8; ++x) get(x);
  get(0);  // now 1 is the oldest
  get(8);
  get(0);
  EXPECT_EQ(made.count(0), 1u);
  get(1);
  EXPECT_EQ(made.count(1), 2u);
}

TEST(Kept, WhatCannotBeMadeIsTriedOnce) {
  Kept<Key, Counted, 8> kept;
  int tried = 0;
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(kept.get(Key{3}, [&](Counted&) noexcept { return ++tried, false; }), nullptr);
  EXPECT_EQ(tried, 1);
  EXPECT_NE(kept.get(Key{4}, [](Counted&) noexcept { return true; }), nullptr);
}

}  // namespace
}  // namespace braid
