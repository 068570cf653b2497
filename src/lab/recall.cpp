// Tasks that need a memory of keys, a memory of state, or both: MQAR, group words, state-based recall and
// parity-conditioned retrieval.
#include <fmt/format.h>

#include "lab/makers.h"

namespace braid {
namespace {

void usual(TrainOptions& o, Effort e, int64_t quick, int64_t usual, int64_t paper) {
  o.steps = at<int64_t>(e, quick, usual, paper), o.warmup = o.steps / 10;
  o.eval_every = o.steps / 20, o.eval_size = at<int64_t>(e, 512, 1024, 4096);
  o.checkpoint_every = o.eval_every, o.keep = 1;
}

// Delta rules may turn the sign of what they hold: counting needs it.
std::vector<std::string> turning(std::initializer_list<int> layers) {
  std::vector<std::string> out;
  for (const int i : layers) out.push_back(fmt::format("pattern.{}.mixer.negative_eigenvalues=true", i));
  return out;
}

std::vector<Trial> mqar(Effort e) {
  std::vector<Trial> out;
  const std::pair<int, int> sizes[] = {{64, 4}, {128, 8}, {256, 16}};
  for (const auto& [length, pairs] : sizes)
    for (const char* arch : {"transformer", "mamba", "mamba2", "retnet", "gla", "hgrn2", "deltanet",
                             "gated-deltanet", "kda", "gdn-h1", "hqlt-sync"}) {
      TrainOptions o;
      o.arch = arch, o.size = "d64-l2-h2-f128", o.task = "mqar", o.batch = 64;
      o.task_set = {fmt::format("train_length={}", length), fmt::format("test_length={}", length),
                    fmt::format("train_pairs={}", pairs), fmt::format("test_pairs={}", pairs),
                    "vocabulary=512"};
      usual(o, e, 300, 3000, 20000);
      o.stop_at = 0.99;
      add_trials(
          out, arch, fmt::format("{} pairs in {}", pairs, length), o,
          e == Effort::kPaper ? std::vector<double>{1e-4, 4.6e-4, 2.2e-3, 1e-2} : std::vector<double>{3e-3},
          e == Effort::kQuick ? 1 : 2);
    }
  return out;
}

std::vector<Trial> words(Effort e) {
  std::vector<Trial> out;
  const std::vector<ModelChoice> models{
      {"Transformer", "transformer"},
      {"Mamba2", "mamba2"},
      {"DeltaNet", "deltanet"},
      {"DeltaNet, eigenvalues to -1", "deltanet", turning({0})},
      {"DeltaProduct, eigenvalues to -1", "gated-deltaproduct", turning({0})}};
  const std::vector<std::pair<std::string, std::vector<std::string>>> groups{
      {"S3", {"group=S3"}}, {"S5, swaps", {"group=S5", "elements=swaps"}}, {"S5", {"group=S5"}}};
  for (const auto& [column, set] : groups)
    for (const ModelChoice& m : models) {
      TrainOptions o;
      o.arch = m.arch, o.set = m.set, o.size = "d128-l1-h4-f256", o.task = "word-problem", o.task_set = set;
      o.batch = at<int64_t>(e, 64, 256, 512), o.weight_decay = 0.01;
      usual(o, e, 400, 4000, 60000);
      add_trials(out, m.row, column, o, {e == Effort::kPaper ? 1e-4 : 1e-3}, e == Effort::kQuick ? 1 : 3);
    }
  return out;
}

std::vector<ModelChoice> three_kinds() {
  return {{"Transformer", "transformer"},
          {"Gated DeltaNet", "gated-deltanet", turning({0})},
          {"hybrid", "gdn-h1", [] {
             std::vector<std::string> set = turning({0});
             set.push_back("pattern.1.mixer.window=0");
             return set;
           }()}};
}

std::vector<Trial> state_recall(Effort e) {
  std::vector<Trial> out;
  for (const ModelChoice& m : three_kinds()) {
    TrainOptions o;
    o.arch = m.arch, o.set = m.set, o.size = "d128-l4-h4-f256", o.task = "state-recall";
    o.batch = at<int64_t>(e, 64, 128, 256);
    usual(o, e, 1000, 10000, 50000);
    o.stop_at = 0.995;
    add_trials(out, m.row, "answer", o, {1e-3}, e == Effort::kQuick ? 1 : 3);
  }
  return out;
}

std::vector<Trial> pcr(Effort e) {
  std::vector<Trial> out;
  for (const bool scratchpad : {false, true})
    for (const ModelChoice& m : three_kinds()) {
      TrainOptions o;
      o.arch = m.arch, o.set = m.set, o.size = "d128-l4-h4-f256", o.task = "pcr";
      o.task_set = {fmt::format("scratchpad={}", scratchpad ? "true" : "false")};
      o.batch = at<int64_t>(e, 64, 128, 256);
      usual(o, e, 1000, 10000, 50000);
      add_trials(out, m.row, scratchpad ? "scratchpad supervised" : "answer alone", o, {1e-3},
                 e == Effort::kQuick ? 1 : 3);
    }
  return out;
}

}  // namespace

std::span<const Experiment> recall_experiments() {
  static const Experiment all[] = {
      {.name = "mqar",
       .title = "Associative recall against state size",
       .paper = "Zoology and Based (multi-query associative recall)",
       .shows = "Every family with the same width remembers key-value pairs. Attention holds all of them, a "
                "recurrent state as many as fit.",
       .measure = {},
       .trials = mqar},
      {.name = "words",
       .title = "Words of groups",
       .paper = "Grazzi and others; DeltaProduct",
       .shows = "The product of all elements so far. Eigenvalues down to -1 let one layer of the delta rule "
                "follow swaps far beyond the training length.",
       .measure = {},
       .trials = words,
       .length_metric = "first "},
      {.name = "state-recall",
       .title = "State-based recall: what only a hybrid can do",
       .paper = "Olmo Hybrid",
       .shows = "Five pointers into a list of bits are swapped again and again; then the bit under one of "
                "them is asked for. Following the pointers needs a "
                "state, reading the bit needs recall.",
       .measure = {},
       .trials = state_recall},
      {.name = "pcr-learn",
       .title = "Parity-conditioned retrieval, learned",
       .paper = "Shorter scratchpads for Qwen-style hybrids",
       .shows = "The parity of n bits decides which of two addresses is looked up in a table. The parity "
                "needs a state, the table needs recall.",
       .measure = {Measure::Kind::kShare, "answer", "answer right, %"},
       .trials = pcr,
       .length_metric = "answer, "}};
  return all;
}

}  // namespace braid
