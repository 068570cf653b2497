// Tasks that need a memory of keys, a memory of state, or both: MQAR, group words, state-based recall and
// parity-conditioned retrieval.
#include <fmt/format.h>

#include "lab/makers.h"

namespace braid {
namespace {

constexpr const char *kPairs64 = "64 pairs", *kPairs128 = "128 pairs",
                     *kAnswerAlone = "64 pairs, no scratchpad";

void usual(TrainOptions& o, Effort e, int64_t quick, int64_t usual, int64_t paper) {
  o.steps = at<int64_t>(e, quick, usual, paper), o.warmup = o.steps / 10;
  o.eval_every = o.steps / 20, o.eval_size = at<int64_t>(e, 512, 1024, 4096);
  o.checkpoint_every = o.eval_every, o.keep = 1;
}

// With a short convolution in every layer that may have one, as in Zoology: binding a value to the key before
// it is then no matter of the mixer, and a Transformer learns the task in hundreds of steps. Half of a
// sequence are pairs, so that many answers are asked for; a step has as many of them whatever a sequence
// holds. Recurrent models need large initial weights: with 0.02 Gated DeltaNet has 8 % of 8 pairs after 600
// steps, with 0.08 27 %. Which of the two learning rates is better differs from model to model.
std::vector<Trial> mqar(Effort e) {
  std::vector<Trial> out;
  const std::string conv0 = "pattern.0.mixer.conv=4", conv1 = "pattern.1.mixer.conv=4";
  const std::vector<ModelChoice> models{{"Transformer", "transformer", {conv0}},
                                        {"Mamba", "mamba"},
                                        {"Mamba2", "mamba2"},
                                        {"linear attention", "linear-attention", {conv0}},
                                        {"RetNet", "retnet", {conv0}},
                                        {"GLA", "gla", {conv0}},
                                        {"HGRN2", "hgrn2"},
                                        {"DeltaNet", "deltanet"},
                                        {"Gated DeltaNet", "gated-deltanet"},
                                        {"KDA", "kda"},
                                        {"Gated DeltaNet H1", "gdn-h1", {conv1}},
                                        {"HQLT", "hqlt-sync", {conv0}}};
  const std::vector<int> sizes = e == Effort::kQuick ? std::vector{8, 32} : std::vector{8, 32, 64, 128};
  for (const int pairs : sizes)
    for (const ModelChoice& m : models) {
      TrainOptions o;
      o.arch = m.arch, o.set = m.set, o.size = "d64-l2-h2-f128", o.task = "mqar";
      o.set.push_back("init_std=0.08");
      o.task_set = {fmt::format("train_length={}", 4 * pairs), fmt::format("test_length={}", 4 * pairs),
                    fmt::format("train_pairs={}", pairs), fmt::format("test_pairs={}", pairs),
                    fmt::format("vocabulary={}", at(e, 128, 512, 8192))};
      o.batch = at<int64_t>(e, 512, 1024, 4096) / pairs;
      usual(o, e, 1500, 4000, 20000);
      o.eval_every = o.steps / 5, o.eval_size = at<int64_t>(e, 64, 256, 1024);
      o.checkpoint_every = o.eval_every, o.stop_at = 0.99;
      add_trials(out, m.row, fmt::format("{} pairs", pairs), o,
                 e == Effort::kPaper ? std::vector<double>{1e-4, 4.6e-4, 2.2e-3, 1e-2}
                                     : std::vector<double>{3e-3, 8e-3},
                 1);
    }
  return out;
}

// Zoology: attention is right at every length; recurrent models need a width that grows with the pairs, but
// delta rules are right as long as their state has more elements than there are pairs, as here.
std::string most_pairs(Effort e) { return e == Effort::kQuick ? "32 pairs" : "128 pairs"; }
std::vector<Expectation> mqar_expected(Effort e) {
  std::vector<Expectation> out;
  for (const char* row : {"Transformer", "DeltaNet", "Gated DeltaNet"})
    out.push_back({.row = row, .column = most_pairs(e), .at_least = 95});
  return out;
}
std::vector<PaperOrder> mqar_orders(Effort e) {
  std::vector<PaperOrder> out;
  for (const char* row : {"Mamba", "RetNet"})
    out.push_back({"Transformer", PaperOrder::Kind::kBetter, row, most_pairs(e)});
  return out;
}

std::vector<Trial> words(Effort e) {
  std::vector<Trial> out;
  const std::vector<std::string> turning{"pattern.0.mixer.negative_eigenvalues=true"};
  const std::vector<ModelChoice> models{{"Transformer", "transformer"},
                                        {"Mamba2", "mamba2"},
                                        {"DeltaNet", "deltanet"},
                                        {"DeltaNet, eigenvalues to -1", "deltanet", turning},
                                        {"DeltaProduct, eigenvalues to -1", "gated-deltaproduct", turning}};
  const std::vector<std::pair<std::string, std::vector<std::string>>> groups{
      {"S3", {"group=S3"}}, {"S5, swaps", {"group=S5", "elements=swaps"}}, {"S5", {"group=S5"}}};
  for (const auto& [column, set] : groups)
    for (const ModelChoice& m : models) {
      TrainOptions o;
      o.arch = m.arch, o.set = m.set, o.size = "d128-l1-h4-f256", o.task = "word-problem", o.task_set = set;
      o.batch = at<int64_t>(e, 64, 256, 512), o.weight_decay = 0.01;
      usual(o, e, 1500, 4000, 60000);
      // A test of 500 letters costs as much as 16 samples of training.
      o.eval_every = o.steps / 5, o.eval_size = at<int64_t>(e, 64, 256, 4096);
      o.checkpoint_every = o.eval_every;
      add_trials(out, m.row, column, o, {e == Effort::kPaper ? 1e-4 : 1e-3}, e == Effort::kQuick ? 1 : 3);
    }
  return out;
}

// Swaps are reflections, which need eigenvalues of -1; rotations are two of them; all of S5 needs four.
constexpr const char* kReflecting = "DeltaNet, eigenvalues to -1";
std::vector<PaperOrder> words_orders(Effort) {
  return {{kReflecting, PaperOrder::Kind::kBetter, "DeltaNet", "S5, swaps"},
          {"DeltaProduct, eigenvalues to -1", PaperOrder::Kind::kBetter, kReflecting, "S3"}};
}
std::vector<Expectation> words_expected(Effort) {
  std::vector<Expectation> out{{.row = kReflecting, .column = "S5, swaps", .at_least = 95}};
  for (const char* row : {"Transformer", "Mamba2", "DeltaNet"})
    out.push_back({.row = row, .column = "S5, swaps", .at_most = 10});
  for (const char* row : {kReflecting, "DeltaProduct, eigenvalues to -1"})
    out.push_back({.row = row, .column = "S5", .at_most = 10});
  return out;
}

// A hybrid of a delta rule and an attention layer, and two layers of either kind, all with the same number of
// parameters: the delta rule has smaller matrices, so its MLPs are wider. The delta rule does not forget, may
// turn the sign of what it holds, and has a small memory, so that a large table does not fit in. What the
// attention of a hybrid looks for is told by its content, so it has no positions. Large initial weights and
// no weight decay make all of it learn sooner.
struct Kind {
  const char* row;
  std::vector<std::string> mixers;
  int inner;  // width of the MLPs
};

TrainOptions of_kind(const Kind& kind) {
  TrainOptions o;
  o.arch = "gdn-h1", o.size = fmt::format("d128-l2-h4-f{}", kind.inner);
  for (size_t i = 0; i < kind.mixers.size(); ++i)
    o.set.push_back(fmt::format("pattern.{}.mixer={}", i, kind.mixers[i]));
  o.set.push_back("init_std=0.08");
  o.weight_decay = 0;
  return o;
}

// Four heads of key_dim x value_dim numbers: with fewer heads swaps and parities are learned later or not at
// all.
std::vector<Kind> three_kinds(int key_dim, int value_dim, int wider) {
  const std::string delta_rule = fmt::format(
      R"({{"type":"deltanet","heads":4,"head_dim":{},"value_dim":{},"conv":0,"feature":"identity",)"
      R"("value_feature":"identity","negative_eigenvalues":true}})",
      key_dim, value_dim);
  const std::string attention = R"({"type":"attention","heads":4})",
                    by_content = R"({"type":"attention","heads":4,"rope_theta":0})";
  return {{"attention alone", {attention, attention}, 256},
          {"DeltaNet alone", {delta_rule, delta_rule}, 256 + 2 * wider},
          {"hybrid", {delta_rule, by_content}, 256 + wider}};
}

// A memory of 4 x 8 x 8 numbers for a table of 256 values. What decides whether the hybrid learns it: targets
// at the swaps that tell where pointers are (tracked), probably because a look-up that is sharp and wrong
// tells a pointer nothing; addresses that come as bits, so that none has to be learned by itself; and 16
// addresses to begin with, because four bits are soon found in what the memory gives, and seven at once
// took twice as long or were not found.
std::vector<Trial> state_recall(Effort e) {
  std::vector<Trial> out;
  const int64_t swaps = at<int64_t>(e, 16, 32, 32), table = at<int64_t>(e, 64, 256, 256);
  for (const Kind& kind : three_kinds(8, 8, 63)) {
    TrainOptions o = of_kind(kind);
    o.task = "state-recall", o.fixed_embedding = true;
    o.grow_at = 0.97;
    o.task_set = {"train_length=8", fmt::format("test_length={}", swaps),
                  "train_table=16", fmt::format("table={}", table),
                  "values=8",       "all_pointers=true",
                  "compact=true",   "gradual=true",
                  "tracked=true"};
    o.batch = 128;
    usual(o, e, 1500, 2000, 50000);
    o.warmup = 100, o.stop_at = 0.995;
    add_trials(out, kind.row, fmt::format("{} addresses, {} swaps", table, swaps), o, {2e-3},
               e == Effort::kQuick ? 1 : 3);
  }
  return out;
}

// Chance is one in eight; who finds the five values but not which of them is right in a third.
std::vector<Expectation> state_recall_expected(Effort e) {
  const std::string column = state_recall(e).front().column;
  return {{.row = "hybrid", .column = column, .at_least = 95},
          {.row = "attention alone", .column = column, .at_most = 25},
          {.row = "DeltaNet alone", .column = column, .at_most = 25}};
}

// Begins with 10 bits and 4 pairs. The delta rule has 32 numbers of memory in a layer: enough for a parity,
// not for a table. With 4 heads of 4 x 4 it alone is right in 80 % of 64 pairs, with 2 of 4 x 2 the parity is
// sometimes not learned.
std::vector<Trial> pcr_learn(Effort e) {
  struct Column {
    std::string name;
    int address_bits;
    bool scratchpad;
  };
  std::vector<Column> columns{{kPairs64, 6, true}};
  if (e != Effort::kQuick) columns.insert(columns.end(), {{kPairs128, 7, true}, {kAnswerAlone, 6, false}});
  std::vector<Trial> out;
  for (const Column& c : columns)
    for (const Kind& kind : three_kinds(4, 2, 78)) {
      TrainOptions o = of_kind(kind);
      o.task = "pcr";
      o.task_set = {fmt::format("address_bits={}", c.address_bits),
                    fmt::format("test_pairs={}", 1 << c.address_bits),
                    fmt::format("scratchpad={}", c.scratchpad ? "true" : "false"),
                    "compact=true",
                    "train_max=10",
                    "train_pairs=4",
                    "test_max=100"};
      o.grow_at = 0.97;
      o.batch = 128;
      usual(o, e, 600, 1000, 50000);
      o.warmup = 100, o.stop_at = 0.995;
      add_trials(out, kind.row, c.name, o, {2e-3}, e == Effort::kQuick ? 1 : 3);
    }
  return out;
}

// Who finds both values but not the parity, or the parity but no value, is right in half.
std::vector<Expectation> pcr_expected(Effort e) {
  std::vector<Expectation> out;
  std::vector<const char*> columns{kPairs64};
  if (e != Effort::kQuick) columns.push_back(kPairs128);
  for (const char* column : columns) {
    out.push_back({.row = "hybrid", .column = column, .at_least = 95});
    out.push_back({.row = "attention alone", .column = column, .at_most = 60});
    out.push_back({.row = "DeltaNet alone", .column = column, .at_most = 60});
  }
  return out;
}

}  // namespace

std::span<const Experiment> recall_experiments() {
  static const Experiment all[] = {
      {.name = "mqar",
       .title = "Associative recall against state size",
       .paper = "Zoology (arXiv:2312.04927) and Based (arXiv:2402.18668)",
       .shows =
           "Recall of 8 to 128 key-value pairs, with every mixer at the same width. Attention recalls all of "
           "them, a recurrent state as many as it has room for.",
       .place = "Zoology, Fig. 2",
       .quick_seconds = 1200,
       .measure = {},
       .trials = mqar,
       .expected = mqar_expected,
       .orders = mqar_orders},
      {.name = "words",
       .title = "Words of groups",
       .paper = "Negative eigenvalues (Grazzi and others, arXiv:2411.12537); DeltaProduct (arXiv:2502.10297)",
       .shows = "The product of all elements so far. Eigenvalues down to -1 let one layer of the delta rule "
                "follow swaps far beyond the training length.",
       .place = "Grazzi et al., group words",
       .quick_seconds = 900,
       .measure = {},
       .trials = words,
       .expected = words_expected,
       .orders = words_orders,
       .length_metric = "first "},
      {.name = "state-recall",
       .title = "State-based recall: what only a hybrid can do",
       .paper = "Olmo Hybrid (arXiv:2604.03444)",
       .shows = "Five pointers into a table are swapped again and again; the answer is the value under one "
                "of them. Following the pointers needs a state, reading the value needs recall. All models "
                "have the same number of parameters; the delta rule's memory is too small for the table.",
       .place = "Olmo Hybrid, state-based recall",
       .quick_seconds = 593,
       .measure = {},
       .trials = state_recall,
       .expected = state_recall_expected},
      {.name = "pcr-learn",
       .title = "Parity-conditioned retrieval, learned",
       .paper = "Provably shorter scratchpads (Steifer, arXiv:2605.16640)",
       .shows = "The parity of n bits decides which of two addresses is looked up in a table. The parity "
                "needs a state, the table needs recall. All models have the same number of parameters; the "
                "delta rule's memory is too small for the table.",
       .place = "Scratchpads, the task, learned",
       .quick_seconds = 108,
       .measure = {Measure::Kind::kShare, "sequences", "answer right, and the scratchpad before it, %"},
       .trials = pcr_learn,
       .expected = pcr_expected,
       .length_metric = "sequences, "}};
  return all;
}

}  // namespace braid
