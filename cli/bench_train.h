// `braid bench train`: whole optimiser steps of any architectures at any lengths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/number.h"
#include "base/parallel.h"

namespace braid {

struct TrainBench {
  std::string arch = "transformer", size = "tiny", config, length = "256", precision = "f32";
  std::string task;
  std::vector<std::string> set, task_set;
  int64_t batch = 32, tokens = 0, vocab = 256, d_model = 0, layers = 0, heads = 0, d_ff = 0, rounds = 5;
  bool recompute = false;

  template <class V>
  void visit(V& v) {
    v("--arch", arch, "train: architecture, or several, e.g. transformer,gdn-h1, or all");
    v("--size", size, "train: its size");
    v("--config", config, "train: a config.json instead");
    v("--set", set, "train: change one value of the config; may be repeated");
    v("--d-model", d_model, "train: width instead of the size's; 0 = the size's",
      Bounds<int64_t>{0, 1 << 20});
    v("--layers", layers, "train: layers instead of the size's", Bounds<int64_t>{0, 10'000});
    v("--heads", heads, "train: heads instead of the size's", Bounds<int64_t>{0, 4096});
    v("--d-ff", d_ff, "train: inner width of the MLP; 0 = the size's, or 8/3 of --d-model",
      Bounds<int64_t>{0, 1 << 24});
    v("--batch", batch, "train: sequences per step", Bounds<int64_t>{1, 1'000'000});
    v("--tokens", tokens,
      "train: tokens per step, instead of --batch: tokens / length sequences, at least one",
      Bounds<int64_t>{0, 4'000'000'000});
    v("--length", length, "train: tokens per sequence, or several lengths, e.g. 512,2048");
    v("--vocab", vocab, "train: vocabulary", Bounds<int64_t>{1, 1 << 24});
    v("--task", task,
      "train: a batch of this task with its lengths and targets, in the place of --length and --vocab");
    v("--task-set", task_set, "train: change one setting of the task; may be repeated");
    v("--precision", precision, "train: f32, bf16 or f32,bf16");
    v("--recompute", recompute, "train: keep only the input of each layer and run it again for the gradient");
    v("--rounds", rounds, "train: steps to time", Bounds<int64_t>{1, 100'000});
  }
};

int bench_train(const TrainBench& o, ThreadPool& pool, bool json);

}  // namespace braid
