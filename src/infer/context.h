// Who computes and how: threads, which kernels, the precision of activations, memory for temporaries. All
// that may change from call to call is here; a Model is const.
//
//   Context context({.threads = 2, .activations = Activations::kAuto});
//   Session a(model, context), b(model, context);
//
// For one thread at a time. Threads that compute at the same time have a context each; contexts of one thread
// may share a pool.
#pragma once

#include <memory>

#include "base/parallel.h"
#include "kernels/weight_matmul/activations.h"
#include "tensor/arena.h"

namespace braid {

struct ContextOptions {
  int threads = 0;  // 0: as many as processors
  Activations activations = Activations::kF32;
  KernelChoice kernels = {};
};

class Context {
 public:
  explicit Context(const ContextOptions& options = {});
  // With threads and kernels of a pool, which must outlive it.
  explicit Context(ThreadPool& pool, Activations activations = Activations::kF32)
      : pool_(pool), activations_(activations) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  ThreadPool& pool() const { return pool_; }
  Par par() const { return Par(pool_); }
  Activations activations() const { return activations_; }
  Arena& arena() { return arena_; }  // of the call that runs; the next one begins by giving all of it back

 private:
  std::unique_ptr<ThreadPool> own_;
  ThreadPool& pool_;
  Activations activations_;
  Arena arena_;
};

}  // namespace braid
