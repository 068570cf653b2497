#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

namespace braid {
namespace {

TEST(ThreadPool, RunsEveryTaskOnceAtAnyThreadCount) {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    for (size_t count : {0, 1, 2, 5, 64, 1000}) {
      std::vector<int> hits(count, 0);
      pool.run(count, [&](size_t i) { ++hits[i]; });
      for (int h : hits) EXPECT_EQ(h, 1);
    }
  }
}

TEST(ThreadPool, ManySmallRoundsDoNotLoseAny) {
  ThreadPool pool(3);
  std::atomic<int> sum{0};
  for (int round = 0; round < 5000; ++round) pool.run(3, [&](size_t) { ++sum; });
  EXPECT_EQ(sum, 15000);
}

TEST(ThreadPool, NestedCallsRunInTheirOwnThread) {
  ThreadPool pool(2);
  std::vector<int> hits(16, 0);
  pool.run(4, [&](size_t i) { pool.run(4, [&](size_t j) { ++hits[4 * i + j]; }); });
  for (int h : hits) EXPECT_EQ(h, 1);
}

TEST(Par, BlockBordersDoNotDependOnThreads) {
  const auto borders = [](Par par) {
    std::vector<size_t> ends(10, 0);
    par.blocks(37, 4, [&](size_t begin, size_t end) { ends[begin / 4] = end; });
    return ends;
  };
  ThreadPool pool(3);
  EXPECT_EQ(borders(Par{}), borders(Par(pool)));
  EXPECT_EQ(borders(Par{}).back(), 37u);
}

}  // namespace
}  // namespace braid
