// Deterministic parallel loops.
//
// Work is cut into blocks whose borders depend only on the problem, never on the number of threads; a block
// is run by one thread from start to end. As long as blocks write to disjoint places, results are
// bit-identical for any thread count.
//
//   ThreadPool pool(2);
//   Par par(pool);                                   // or Par{} to run in the calling thread
//   par.blocks(rows, 64, [&](size_t begin, size_t end) { ... });
//
// Pool and Par also carry which kernels run (base/kernel_choice.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>

#include "base/kernel_choice.h"

namespace braid {

template <class T>
class Result;  // error.h

class ThreadPool {
 public:
  // `threads` counts the calling thread. If the system does not give so many, there are fewer: results are
  // the same.
  explicit ThreadPool(int threads, KernelChoice kernels = {});
  // So many, or an error.
  static Result<ThreadPool> start(int threads, KernelChoice kernels = {});
  ~ThreadPool();
  ThreadPool(ThreadPool&&) noexcept;
  ThreadPool& operator=(ThreadPool&&) = delete;

  int threads() const;
  const KernelChoice& kernels() const { return kernels_; }

  // Runs task(0) .. task(count-1) and returns when all are done. Thread i takes the i-th contiguous share, in
  // order, and then unstarted tasks of other shares (work stealing), so that a busy core does not delay the
  // rest. Calls from inside a task run in that task's thread. What a task throws (it found no memory) is
  // thrown again here once no task is running; those not begun by then are left out.
  void run(size_t count, const std::function<void(size_t)>& task);

 private:
  struct Shared;
  KernelChoice kernels_;
  std::unique_ptr<Shared> shared_;
};

// A pool, or nothing: then loops run in the calling thread. The pool and the choice must outlive it.
class Par {
 public:
  Par() = default;  // the best kernels of this machine
  explicit Par(ThreadPool& pool) : Par(&pool, pool.kernels()) {}

  Par with(const KernelChoice& kernels) const { return {pool_, kernels}; }  // other kernels
  Par with(const KernelChoice&&) const = delete;
  Par alone() const {  // the same kernels, in the calling thread
    Par p = *this;
    p.pool_ = nullptr;
    return p;
  }

  int threads() const { return pool_ ? pool_->threads() : 1; }
  const KernelChoice* kernels() const { return kernels_; }  // null: the best of this machine
  Isa isa() const { return kernels_ ? kernels_->isa() : detected_isa(); }

  template <class F>  // f(begin, end) for each block of [0, n)
  void blocks(size_t n, size_t block, const F& f) const {
    const size_t count = (n + block - 1) / block;
    const auto one = [&](size_t i) { f(i * block, std::min(n, (i + 1) * block)); };
    tasks(count, one);
  }

  template <class F>  // f(i) for each i < count
  void tasks(size_t count, const F& f) const {
    if (pool_ && count > 1 && pool_->threads() > 1) {
      pool_->run(count, f);
    } else {
      for (size_t i = 0; i < count; ++i) f(i);
    }
  }

 private:
  Par(ThreadPool* pool, const KernelChoice& kernels)
      : pool_(pool), kernels_(kernels.is_default() ? nullptr : &kernels) {}

  ThreadPool* pool_ = nullptr;
  const KernelChoice* kernels_ = nullptr;
};

}  // namespace braid
