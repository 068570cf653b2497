#include "base/parallel.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/check.h"
#include "base/error.h"

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

// What is left of one thread's share of a round: its number in the upper half, tasks not yet taken in the
// lower. A task that was taken keeps its round from ending, so that count and task may be read then, not
// before.
struct alignas(64) Share {
  std::atomic<uint64_t> left{0};
};
constexpr uint64_t kTasks = 0xffffffff;

struct ThreadPool::Shared {
  std::vector<std::thread> workers;
  std::unique_ptr<Share[]> shares;  // by thread
  std::atomic<uint32_t> round{0};   // a new value tells the workers that there is work
  std::atomic<uint32_t> undone{0};  // tasks of this round
  std::atomic<bool> busy{false};
  std::atomic<size_t> count{0};
  std::atomic<const std::function<void(size_t)>*> task{nullptr};
  std::atomic<bool> stop{false}, failed{false};
  std::exception_ptr failure;  // the first of a round
  std::mutex failure_mutex;
  int threads = 1;

  size_t end_of(size_t share, size_t n) const { return n * (share + 1) / static_cast<size_t>(threads); }

  void run_one(size_t i) {
    if (failed.load(std::memory_order_relaxed)) return;
    try {
      (*task.load(std::memory_order_relaxed))(i);
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  }

  // Runs tasks of one share until none is left.
  uint32_t take_all(size_t share, uint32_t now) {
    uint32_t done = 0;
    std::atomic<uint64_t>& left = shares[share].left;
    for (uint64_t seen = left.load(std::memory_order_acquire);;) {
      if (seen >> 32 != now || (seen & kTasks) == 0) return done;
      if (!left.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel)) continue;
      const size_t end = end_of(share, count.load(std::memory_order_relaxed));
      run_one(end - (seen & kTasks));
      ++done, --seen;
    }
  }

  // A thread's own share, in order; then what others have not come to, as on a machine that has other work.
  void work(size_t thread, uint32_t now) {
    inside_task = true;
    uint32_t done = 0;
    for (size_t i = 0; i < static_cast<size_t>(threads); ++i)
      done += take_all((thread + i) % static_cast<size_t>(threads), now);
    inside_task = false;
    if (done && undone.fetch_sub(done, std::memory_order_acq_rel) == done) undone.notify_one();
  }
};

ThreadPool::ThreadPool(int threads, KernelChoice kernels)
    : kernels_(std::move(kernels)), shared_(std::make_unique<Shared>()) {
  check(threads >= 1, "ThreadPool needs at least one thread");
  shared_->shares = std::make_unique<Share[]>(static_cast<size_t>(threads));
  shared_->workers.reserve(static_cast<size_t>(threads - 1));
  const auto worker = [s = shared_.get()](int i) {
    for (uint32_t seen = 0;;) {
      wait_while_equal(s->round, seen);
      seen = s->round.load(std::memory_order_acquire);
      if (s->stop.load(std::memory_order_relaxed)) return;
      s->work(static_cast<size_t>(i), seen);
    }
  };
  try {
    for (int i = 1; i < threads; ++i) shared_->workers.emplace_back(worker, i);
  } catch (const std::exception&) {  // a limit on processes or on memory
  }
  shared_->threads = static_cast<int>(shared_->workers.size()) + 1;
}

Result<ThreadPool> ThreadPool::start(int threads, KernelChoice kernels) {
  ThreadPool pool(threads, std::move(kernels));
  if (pool.threads() < threads)
    return Error{"cannot start " + std::to_string(threads) + " threads: the system gives " +
                     std::to_string(pool.threads()),
                 "use fewer threads, or raise the limit on processes (ulimit -u) or memory (ulimit -v)"};
  return pool;
}

ThreadPool::ThreadPool(ThreadPool&&) noexcept = default;

ThreadPool::~ThreadPool() {
  if (!shared_) return;
  shared_->stop.store(true, std::memory_order_relaxed);
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
  if (count == 0) return;
  check(count <= kTasks, "ThreadPool::run: too many tasks");
  check(!shared_->busy.exchange(true), "ThreadPool::run called from two threads at once");
  const uint32_t now = shared_->round.load(std::memory_order_relaxed) + 1;
  shared_->count.store(count, std::memory_order_relaxed);
  shared_->task.store(&task, std::memory_order_relaxed);
  shared_->undone.store(static_cast<uint32_t>(count), std::memory_order_relaxed);
  size_t begin = 0;
  for (size_t i = 0; i < static_cast<size_t>(shared_->threads); ++i) {
    const size_t end = shared_->end_of(i, count);
    shared_->shares[i].left.store(uint64_t{now} << 32 | (end - begin), std::memory_order_release);
    begin = end;
  }
  shared_->round.store(now, std::memory_order_release);
  shared_->round.notify_all();
  shared_->work(0, now);
  for (uint32_t left = shared_->undone.load(std::memory_order_acquire); left != 0;
       left = shared_->undone.load(std::memory_order_acquire))
    wait_while_equal(shared_->undone, left);
  const std::exception_ptr failure = std::exchange(shared_->failure, nullptr);
  shared_->failed.store(false, std::memory_order_relaxed);
  shared_->busy.store(false);
  if (failure) std::rethrow_exception(failure);
}

}  // namespace braid
