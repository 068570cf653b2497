// DeltaFormer: kernels on swap tracking (Fig. 4), curriculum (Fig. 5), reachability (Fig. 6).
#include <fmt/format.h>

#include "lab/makers.h"

namespace braid {
namespace {

constexpr const char* kDeltaFormerPaper =
    "Understanding Transformer from the perspective of associative memory (DeltaFormer, arXiv:2505.19488)";

TrainOptions swaps(Effort e) {
  TrainOptions o;
  o.task = "swap-tracking", o.batch = at<int64_t>(e, 128, 128, 256);
  o.steps = at<int64_t>(e, 300, 2000, 20000), o.warmup = o.steps / 20, o.weight_decay = 0;
  o.eval_every = o.steps / 20, o.eval_size = at<int64_t>(e, 256, 1024, 1024);
  o.checkpoint_every = o.eval_every, o.keep = 1;
  if (e != Effort::kPaper) o.stop_at = 0.9999;
  return o;
}

// Keys keep their length: a swap is the reflection 1 - k k^T of a key of length sqrt(2), which keys scaled to
// length one cannot make (they reach 60 %).
std::vector<std::string> kernel(const std::string& kappa1) {
  std::vector<std::string> set{"pattern.0.mixer.kappa1=" + kappa1};
  if (kappa1 == "round")
    set.push_back("pattern.0.mixer.round=2dp"), set.push_back("pattern.0.mixer.straight_through=true");
  return set;
}

std::vector<Trial> kernels(Effort e) {
  std::vector<Trial> out;
  const int64_t seeds = e == Effort::kQuick ? 1 : 3;
  for (const char* kappa1 : {"round", "linear", "relu", "exp", "softmax"}) {
    TrainOptions o = swaps(e);
    o.arch = "deltaformer", o.size = "d128-l1-h4-f512", o.set = kernel(kappa1);
    add_trials(out, fmt::format("DeltaFormer {}", kappa1), "accuracy", o, {1e-3}, seeds);
  }
  for (const int depth : {1, 2, 3, 4}) {
    TrainOptions o = swaps(e);
    o.arch = "transformer", o.size = fmt::format("d128-l{}-h4-f512", depth);
    add_trials(out, fmt::format("Transformer, {} layer{}", depth, depth > 1 ? "s" : ""), "accuracy", o,
               {1e-3}, seeds);
  }
  return out;
}

std::vector<PaperFigure> kernels_figures() { return {{"DeltaFormer round", "accuracy", 100}}; }
std::vector<Expectation> kernels_expected(Effort e) {
  std::vector<Expectation> out{
      {.row = "DeltaFormer round", .column = "accuracy", .at_least = e == Effort::kQuick ? 90.0 : 99.9}};
  for (const char* row :
       {"Transformer, 1 layer", "Transformer, 2 layers", "Transformer, 3 layers", "Transformer, 4 layers"})
    out.push_back({.row = row, .column = "accuracy", .at_most = 99});
  return out;
}

// In the paper these kernels are above all Transformers.
std::vector<PaperOrder> kernels_orders(Effort) {
  std::vector<PaperOrder> out;
  for (const char* kappa1 : {"linear", "relu", "exp"})
    out.push_back({fmt::format("DeltaFormer {}", kappa1), PaperOrder::Kind::kBetter, "Transformer, 4 layers",
                   "accuracy"});
  return out;
}

int64_t longest_swaps(Effort e) { return at<int64_t>(e, 64, 256, 256); }
int64_t first_swaps(Effort e) { return at<int64_t>(e, 8, 32, 32); }
std::string curriculum_row(Effort e, bool grows) {
  return grows ? fmt::format("{} to {} swaps", first_swaps(e), longest_swaps(e))
               : fmt::format("{} swaps from the start", longest_swaps(e));
}
constexpr const char* kPositions[] = {"no positions", "RoPE"};

std::vector<Trial> curriculum(Effort e) {
  std::vector<Trial> out;
  for (const bool rope : {true, false})
    for (const bool grows : {true, false}) {
      TrainOptions o = swaps(e);
      // One head: its keys are longer than sqrt(2) at the start, so that what a long sequence remembers grows
      // beyond all numbers before anything is learned. (Four heads of 32 learn 256 swaps either way.)
      o.arch = "deltaformer", o.size = "d128-l1-h1-f512", o.set = kernel("round");
      o.set.push_back(fmt::format("pattern.0.mixer.rope_theta={}", rope ? 10000 : 0));
      o.task_set = {fmt::format("train_length={}", grows ? first_swaps(e) : longest_swaps(e)),
                    fmt::format("test_length={}", longest_swaps(e))};
      o.grow_at = grows ? 0.99 : 0;
      o.batch = at<int64_t>(e, 64, 32, 256), o.steps = at<int64_t>(e, 600, 2000, 20000);
      o.eval_every = o.steps / 20, o.checkpoint_every = o.eval_every;
      add_trials(out, curriculum_row(e, grows), kPositions[rope], o, {1e-3}, e == Effort::kPaper ? 3 : 1);
    }
  return out;
}

std::vector<Expectation> curriculum_expected(Effort e) {
  std::vector<Expectation> out;
  for (const char* positions : kPositions) {
    out.push_back({.row = curriculum_row(e, true), .column = positions, .at_least = 99});
    out.push_back({.row = curriculum_row(e, false), .column = positions, .at_most = 60});
  }
  return out;
}

std::vector<Trial> reach(Effort e) {
  std::vector<Trial> out;
  const int64_t seeds = e == Effort::kQuick ? 1 : 3;
  const auto base = [&] {
    TrainOptions o = swaps(e);
    o.task = "reachability", o.fixed_embedding = true;
    // Chains are followed late: with 2000 steps in all DeltaFormer ends at 88 %, still rising.
    o.steps = at<int64_t>(e, 300, 6000, 20000), o.warmup = o.steps / 20;
    o.eval_every = o.steps / 20, o.checkpoint_every = o.eval_every;
    return o;
  };
  for (const char* kappa1 : {"round", "softmax"}) {
    TrainOptions o = base();
    o.arch = "deltaformer", o.size = "d128-l1-h4-f512", o.set = kernel(kappa1);
    add_trials(out, fmt::format("DeltaFormer {}, 1 layer", kappa1), "accuracy", o, {1e-3}, seeds);
  }
  for (const int depth : {1, 2, 4}) {
    TrainOptions o = base();
    o.arch = "transformer", o.size = fmt::format("d128-l{}-h4-f512", depth);
    add_trials(out, fmt::format("Transformer, {} layer{}", depth, depth > 1 ? "s" : ""), "accuracy", o,
               {1e-3}, seeds);
  }
  return out;
}

// "Nearly perfectly" with one layer, not with any number of layers of a Transformer.
std::vector<Expectation> reach_expected(Effort) {
  return {{.row = "DeltaFormer round, 1 layer", .column = "accuracy", .at_least = 95}};
}
std::vector<PaperOrder> reach_orders(Effort) {
  std::vector<PaperOrder> out;
  for (const char* row : {"Transformer, 4 layers", "Transformer, 2 layers", "Transformer, 1 layer"})
    out.push_back({"DeltaFormer round, 1 layer", PaperOrder::Kind::kBetter, row, "accuracy"});
  return out;
}

// Keys, values and the query are the task's own: the projections only pick them out of the input, and no norm
// changes their length. The model learns to read.
std::vector<Trial> stress(Effort e) {
  std::vector<Trial> out;
  const std::vector<int64_t> sizes =
      e == Effort::kQuick ? std::vector<int64_t>{128, 256} : std::vector<int64_t>{128, 256, 512};
  constexpr int64_t kWidth = 128;
  for (const int64_t n : sizes)
    for (const char* kappa : {"linear", "round"}) {
      TrainOptions o;
      o.arch = "deltaformer", o.size = fmt::format("d{}-l1-h1-f384", 3 * kWidth), o.task = "stress";
      o.task_set = {fmt::format("objects={}", n), fmt::format("train_length={}", 2 * n),
                    fmt::format("test_length={}", 2 * n)};
      o.fixed_embedding = true;
      const std::string m = "pattern.0.mixer.";
      const auto picked = [](const char* name, int64_t column) {
        return fmt::format(
            R"("layers.0.mixer.{}_proj.weight":{{"init":"identity","column":{},"train":false}})", name,
            column);
      };
      o.set = {m + "kappa1=" + kappa,
               m + "kappa2=" + kappa,
               m + "round=int",
               m + "rope_theta=0",
               fmt::format("{}head_dim={}", m, kWidth),
               R"(pattern.0.mlp={"type":"none"})",
               "pattern.0.norm=none",
               fmt::format("outputs={}", n),
               "params={" + picked("k", 0) + "," + picked("v", kWidth) + "," + picked("q", 2 * kWidth) + "}"};
      o.batch = 16, o.steps = at<int64_t>(e, 200, 400, 2000), o.warmup = 20, o.weight_decay = 0;
      o.eval_every = o.steps / 8, o.eval_size = 64, o.checkpoint_every = o.steps, o.keep = 1;
      add_trials(out, kappa, fmt::format("{} objects", n), o, {1e-2}, e == Effort::kPaper ? 3 : 1);
    }
  return out;
}
std::vector<Expectation> stress_expected(Effort e) {
  const std::string most = e == Effort::kQuick ? "256 objects" : "512 objects";
  return {{.row = "round", .column = most, .at_least = 99},
          {.row = "linear", .column = most, .at_most = e == Effort::kQuick ? 50.0 : 10.0}};
}

}  // namespace

std::span<const Experiment> deltaformer_experiments() {
  static const Experiment all[] = {
      {.name = "deltaformer-kernels",
       .title = "Which kernel tracks swaps",
       .paper = kDeltaFormerPaper,
       .shows = "Five objects are swapped; at each step the model says which object is in the first place. "
                "One layer of DeltaFormer with each "
                "kernel of writing, against Transformers of one to four layers.",
       .place = "DeltaFormer, Fig. 4",
       .quick_seconds = 163,
       .measure = {},
       .trials = kernels,
       .figures = kernels_figures,
       .expected = kernels_expected,
       .orders = kernels_orders,
       .length_metric = "accuracy, swaps"},
      {.name = "deltaformer-curriculum",
       .title = "Long swap sequences need a curriculum",
       .paper = kDeltaFormerPaper,
       .shows = "The rounding kernel trained on long sequences from the start, or on short ones that double "
                "in length whenever 99 % are right.",
       .place = "DeltaFormer, Fig. 5",
       .quick_seconds = 86,
       .measure = {},
       .trials = curriculum,
       .expected = curriculum_expected,
       .length_metric = "accuracy, swaps"},
      {.name = "deltaformer-reach",
       .title = "Reachability in two trees",
       .paper = kDeltaFormerPaper,
       .shows = "32 nodes in two trees, each given with its parent: which are in the first node's tree? One "
                "layer of DeltaFormer follows a chain of any length.",
       .place = "DeltaFormer, Fig. 6",
       .quick_seconds = 311,
       .measure = {},
       .trials = reach,
       .expected = reach_expected,
       .orders = reach_orders},
      {.name = "deltaformer-stress",
       .title = "More objects than dimensions",
       .paper = kDeltaFormerPaper,
       .shows =
           "128 to 512 objects at keys of 128 dimensions are swapped again and again; which is at the "
           "first place, where it is no longer the first one? Keys and values are fixed, the read-out is "
           "learned. Rounding the similarity to whole numbers keeps the memory exact beyond its width.",
       .place = "DeltaFormer, stress test",
       .quick_seconds = 194,
       .measure = {Measure::Kind::kShare, "accuracy, changed", "accuracy, %"},
       .trials = stress,
       .expected = stress_expected,
       .length_metric = "accuracy, swaps"}};
  return all;
}

}  // namespace braid
