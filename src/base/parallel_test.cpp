#include "base/parallel.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <new>
#include <numeric>
#include <thread>
#include <vector>

#include "base/error.h"

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

TEST(ThreadPool, WhatATaskThrowsReachesTheCaller) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    EXPECT_THROW(pool.run(100, [&](size_t i) { i == 57 ? throw std::bad_alloc() : void(); }), std::bad_alloc);
    std::atomic<int> sum{0};
    pool.run(100, [&](size_t) { ++sum; });
    EXPECT_EQ(sum, 100);
  }
}

// In a process of its own: ends with 0 if all is well.
[[noreturn]] void start_under_a_limit() {
  rlimit memory{};
  memory.rlim_cur = memory.rlim_max = rlim_t{256} << 20;  // stacks of 8 MB
  setrlimit(RLIMIT_AS, &memory);
  const Result<ThreadPool> pool = ThreadPool::start(1000);
  if (pool) _exit(1);
  if (pool.error().what.find("cannot start 1000 threads") == std::string::npos) _exit(2);
  ThreadPool fewer(1000);
  if (fewer.threads() < 1 || fewer.threads() > 100) _exit(3);
  std::atomic<int> sum{0};
  fewer.run(1000, [&](size_t) { ++sum; });
  _exit(sum == 1000 ? 0 : 4);
}

// Under a limit the threads that could be started are joined again, and start() says how many there were.
TEST(ThreadPoolDeathTest, StartsNoMoreThreadsThanTheSystemGives) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's memory does not fit into a limit";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(start_under_a_limit(), testing::ExitedWithCode(0), "");
  const Result<ThreadPool> pool = ThreadPool::start(2);
  ASSERT_TRUE(pool);
  EXPECT_EQ(pool->threads(), 2);
}

}  // namespace
}  // namespace braid
