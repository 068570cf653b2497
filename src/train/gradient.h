// Loss and gradient of a batch, cut into slices that stay in cache.
//
// A slice is a few whole sequences (about `slice_tokens` tokens); it runs forward and backward in one thread,
// with all its activations in that core's cache. Slice i adds its gradient to lane i mod lanes; the lanes are
// added up in order. Slices and lanes depend on the batch and the model alone, never on the number of
// threads, so the gradient's bits do not either.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/parallel.h"
#include "data/batch.h"
#include "model/model.h"

namespace braid {

struct GradientOptions {
  Precision precision = Precision::kF32;
  size_t slice_tokens = 0;  // 0: as suits the model
  size_t lanes = 16;        // at most; fewer when their gradients would not fit kLaneBytes
  uint64_t seed = 0;        // of the dropout stream
  double z_loss = 0;        // times lse^2 is added to what the gradient is of; no loss shows it
  bool recompute = false;   // keep only the input of each layer; backward runs the layer again
};

struct Outcome {
  double loss = 0;  // mean over the supervised positions
  size_t tokens = 0, supervised = 0, correct = 0;
  size_t sequences = 0, all_correct = 0;  // sequences whose supervised positions are all right
  double accuracy() const { return supervised ? static_cast<double>(correct) / supervised : 0; }
  double sequence_accuracy() const { return sequences ? static_cast<double>(all_correct) / sequences : 0; }
};

// By token of a batch; only those at supervised positions mean something.
struct Answers {
  std::vector<int32_t> predicted;
  std::vector<float> loss;
};

class Gradient {
 public:
  Gradient(Model& model, ThreadPool& pool, const GradientOptions& options);
  ~Gradient();

  Outcome run(const Batch& batch, uint64_t step, Profile* profile = nullptr);  // gradient in grads()
  Outcome evaluate(const Batch& batch, Answers* answers = nullptr);            // no gradient, no dropout
  std::span<float> grads();    // of the last run; a block like the parameters'
  void params_changed();       // the optimiser has moved them
  size_t arena_bytes() const;  // the most the activations took

 private:
  struct Workspace;
  class Lease;
  struct Slice {
    size_t begin, end;  // sequences
  };
  std::vector<Slice> cut(const Batch& batch) const;
  Outcome run_slice(const Batch& batch, const Slice& slice, Workspace& memory, float* grads, Par par,
                    double scale, uint64_t step, size_t index, Profile* profile, Answers* answers);
  Exec executor(Workspace& memory, float* grads, Par par, uint64_t step, size_t slice,
                Profile* profile) const;
  Outcome run_all(const Batch& batch, bool record, uint64_t step, Profile* profile, Answers* answers);
  const bf16* params_bf16() const {  // null: products are of f32
    return options_.precision == Precision::kBf16 ? params_bf16_.as<bf16>().data() : nullptr;
  }

  Model& model_;
  ThreadPool& pool_;
  GradientOptions options_;
  std::vector<Tensor> lanes_;                           // gradient blocks; made when first used
  std::vector<std::unique_ptr<Workspace>> workspaces_;  // as many as threads were ever at work together
  std::vector<Workspace*> idle_;
  std::mutex idle_mutex_;
  Tensor params_bf16_;   // bf16: the parameters rounded
  PackedParams packed_;  // the parameters packed, f32 or bf16
  bool stale_ = true;    // both are made anew before the next pass
  Rng dropout_rng_;
};

}  // namespace braid
