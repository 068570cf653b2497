#include "base/parallel.h"

#include <atomic>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"

namespace braid {
namespace {

thread_local bool inside_task = false;

// A worker spins this often before it sleeps: regions of one forward pass follow each other within
// microseconds, and waking a sleeping thread costs about as much as a small matrix product.
constexpr int kSpins = 4000;

void wait_while_equal(const std::atomic<uint32_t>& a, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (a.load(std::memory_order_acquire) != old) return;
#if defined(__x86_64__)
    _mm_pause();
#endif
  }
  while (a.load(std::memory_order_acquire) == old) a.wait(old, std::memory_order_acquire);
}

}  // namespace

struct ThreadPool::Shared {
  std::vector<std::thread> workers;
  std::atomic<uint32_t> round{0};    // a new value tells the workers that there is work
  std::atomic<uint32_t> running{0};  // workers that have not finished this round
  std::atomic<bool> busy{false};
  size_t count = 0;
  const std::function<void(size_t)>* task = nullptr;
  bool stop = false;
  int threads = 1;

  void share(int thread) const {
    inside_task = true;
    const size_t begin = count * thread / threads, end = count * (thread + 1) / threads;
    for (size_t i = begin; i < end; ++i) (*task)(i);
    inside_task = false;
  }
};

ThreadPool::ThreadPool(int threads, std::function<void()> on_start) : shared_(std::make_unique<Shared>()) {
  check(threads >= 1, "ThreadPool needs at least one thread");
  shared_->threads = threads;
  if (on_start) on_start();
  for (int i = 1; i < threads; ++i)
    shared_->workers.emplace_back([s = shared_.get(), i, on_start] {
      if (on_start) on_start();
      for (uint32_t seen = 0;;) {
        wait_while_equal(s->round, seen);
        seen = s->round.load(std::memory_order_acquire);
        if (s->stop) return;
        s->share(i);
        if (s->running.fetch_sub(1, std::memory_order_acq_rel) == 1) s->running.notify_one();
      }
    });
}

ThreadPool::~ThreadPool() {
  shared_->stop = true;
  shared_->round.fetch_add(1, std::memory_order_release);
  shared_->round.notify_all();
  for (std::thread& t : shared_->workers) t.join();
}

int ThreadPool::threads() const { return shared_->threads; }

void ThreadPool::run(size_t count, const std::function<void(size_t)>& task) {
  if (inside_task || shared_->threads == 1) {
    for (size_t i = 0; i < count; ++i) task(i);
    return;
  }
  check(!shared_->busy.exchange(true), "ThreadPool::run called from two threads at once");
  shared_->count = count;
  shared_->task = &task;
  shared_->running.store(shared_->threads - 1, std::memory_order_relaxed);
  shared_->round.fetch_add(1, std::memory_order_release);
  shared_->round.notify_all();
  shared_->share(0);
  for (uint32_t left = shared_->running.load(std::memory_order_acquire); left != 0;
       left = shared_->running.load(std::memory_order_acquire))
    wait_while_equal(shared_->running, left);
  shared_->busy.store(false);
}

}  // namespace braid
