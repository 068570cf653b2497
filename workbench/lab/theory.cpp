#include "lab/theory.h"

#include <algorithm>

#include "train/trainer.h"

namespace braid {

namespace {
constexpr const char* kScratchpads = "Provably shorter scratchpads (Steifer, arXiv:2605.16640)";
}

std::span<const Experiment> theory_experiments() {
  static const Experiment all[] = {
      {.name = "pcr-construction",
       .title = "Both memories, two scratch tokens, two bits of precision",
       .paper = kScratchpads,
       .shows =
           "The parity of a long string of bits says which of two addresses to look up in a table. A hybrid "
           "of one "
           "layer of Gated DeltaNet and one of gated attention, with weights that are written down and not "
           "learned, does it in arithmetic of constant precision for any number of bits and pairs, and "
           "writes "
           "two tokens on the way.",
       .place = "Scratchpads, hybrid",
       .quick_seconds = 161,
       .compute = pcr_construction},
      {.name = "pcr-collision",
       .title = "A recurrent model alone: two tables, one state",
       .paper = kScratchpads,
       .shows = "The state of a recurrent model at constant precision is a fixed number of bits. More tables "
                "than states: "
                "two of them must lead to the same state, and then one question is answered wrongly after "
                "one of them. "
                "Here are two such tables for given models, found by search and run to the end.",
       .place = "Scratchpads, recurrent model",
       .quick_seconds = 24,
       .compute = pcr_collision,
       .takes_model = true},
      {.name = "pcr-attention",
       .title = "Attention alone: parity needs a scratchpad that grows",
       .paper = kScratchpads,
       .shows =
           "At constant precision attention can count only a few bits. Its error on parity as the string "
           "grows, "
           "written down and trained, without a scratchpad and with one: how many tokens it has to write.",
       .place = "Scratchpads, attention",
       .quick_seconds = 43,
       .compute = pcr_attention},
      {.name = "deltaformer-theorem1",
       .title = "A million exact swaps in fewer dimensions than slots",
       .paper = "Understanding Transformer from the perspective of associative memory (DeltaFormer, "
                "arXiv:2505.19488)",
       .shows = "n slots have keys in d < n dimensions that are nearly orthogonal. Rounding their inner "
                "products to whole "
                "numbers makes writing, swapping and reading exact, for ever; the linear kernel loses track.",
       .place = "DeltaFormer, Theorem 1",
       .quick_seconds = 15,
       .compute = deltaformer_theorem1}};
  return all;
}

std::vector<Arithmetic> claimed_arithmetics() {
  std::vector<Arithmetic> all;
  for (const int s : {2, 3, 4})
    for (const Tie tie : kTies) all.push_back({s, tie});
  return all;
}

void add_item(std::string& list, std::string_view item, std::string_view separator) {
  if (!list.empty()) list += separator;
  list += item;
}

size_t count_in_parallel(ThreadPool& pool, size_t n, const std::function<bool(size_t)>& is) {
  std::vector<char> yes(n);
  pool.run(n, [&](size_t i) { yes[i] = is(i); });
  return static_cast<size_t>(std::ranges::count(yes, 1));
}

Status train_in_stage(const Stages& stages, Model& model, Source& source, TrainOptions options) {
  options.run = "";
  Trainer trainer(model, source, stages.pool(), options);
  const Result<TrainSummary> r = trainer.run({.quiet = stages.quiet()});
  if (!r) return r.error();
  if (r->interrupted()) return Stages::interruption();
  return {};
}

}  // namespace braid
