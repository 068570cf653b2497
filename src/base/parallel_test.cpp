#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
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

// A thread that is kept waiting holds nobody up: while it sleeps in its first task the rest of its share is
// done by the other.
TEST(ThreadPool, OthersTakeWhatAThreadHasNotBegun) {
  ThreadPool pool(2);
  std::atomic<int> done{0};
  pool.run(8, [&](size_t i) {
    if (i == 4) {  // the first of the second share
      for (int waited = 0; done < 7 && waited < 5000; ++waited)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_EQ(done, 7);
    }
    ++done;
  });
  EXPECT_EQ(done, 8);
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
