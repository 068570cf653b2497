#include "base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace braid {
namespace {

TEST(Rng, PhiloxGivesThePublishedVectors) {  // known answers of the Random123 distribution
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Philox{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Philox{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Philox{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, StreamsDifferByPurposeSeedAndIndex) {
  std::set<uint64_t> seen;
  for (const char* purpose : {"init", "data"})
    for (uint64_t seed : {0, 1, 2})
      for (uint64_t index : {0, 1, 2}) {
        Rng rng(seed, purpose);
        rng.seek(index);
        seen.insert(rng.next64());
      }
  EXPECT_EQ(seen.size(), 18u);
}

TEST(Rng, SeekReturnsToTheSameDraws) {
  Rng rng(7, "x");
  rng.seek(5);
  const uint64_t first = rng.next64();
  for (int i = 0; i < 100; ++i) rng.next();
  rng.seek(5);
  EXPECT_EQ(rng.next64(), first);
}

TEST(Rng, MomentsAreRight) {
  Rng rng(1, "moments");
  const int n = 200000;
  double sum = 0, square = 0, uniform = 0;
  for (int i = 0; i < n; ++i) {
    const double x = rng.normal();
    sum += x, square += x * x, uniform += rng.uniform();
  }
  EXPECT_NEAR(sum / n, 0, 0.01);
  EXPECT_NEAR(square / n, 1, 0.02);
  EXPECT_NEAR(uniform / n, 0.5, 0.005);
}

TEST(Rng, BelowCoversItsRangeEvenly) {
  Rng rng(2, "below");
  int count[7] = {};
  for (int i = 0; i < 70000; ++i) ++count[rng.below(7)];
  for (int c : count) EXPECT_NEAR(c, 10000, 500);
}

TEST(Permutation, VisitsEverythingOnceAndDiffersByEpoch) {
  for (uint64_t n : {1, 2, 3, 10, 64, 1000}) {
    const Permutation p(n, 3, 0), q(n, 3, 1);
    std::set<uint64_t> seen;
    int same = 0;
    for (uint64_t i = 0; i < n; ++i) {
      seen.insert(p(i));
      same += p(i) == q(i);
    }
    EXPECT_EQ(seen.size(), n);
    EXPECT_EQ(*seen.rbegin(), n - 1);
    if (n >= 64) {
      EXPECT_LT(same, static_cast<int>(n / 8));
    }
  }
}

}  // namespace
}  // namespace braid
