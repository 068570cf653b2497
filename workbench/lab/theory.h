// The computations about theorems, one file each; theory.cpp lists them.
#pragma once

#include "lab/compute.h"
#include "lab/makers.h"
#include "theory/number_model.h"

namespace braid {

Result<Findings> pcr_construction(Stages& stages);
Result<Findings> pcr_collision(Stages& stages);
Result<Findings> pcr_attention(Stages& stages);
Result<Findings> deltaformer_theorem1(Stages& stages);

inline Json arithmetic_json(const Arithmetic& a) {
  return {{"s", a.s}, {"ties", a.fixed() ? tie_name(a.tie) : ""}, {"text", a.text()}};
}

// F_2, F_3 and F_4 with every tie rule: what the claims about constant precision are tested in.
std::vector<Arithmetic> claimed_arithmetics();

inline PageCell verdict(bool good, std::string text) {
  return {std::move(text), good ? PageCell::Mark::kGood : PageCell::Mark::kBad};
}
inline PageCell zero_verdict(uint64_t n) { return verdict(n == 0, fmt::format("{}", n)); }

// "a; b; c", item by item.
void add_item(std::string& list, std::string_view item, std::string_view separator = "; ");

// For how many of 0 .. n - 1 the predicate is true; the threads of the pool share them.
size_t count_in_parallel(ThreadPool& pool, size_t n, const std::function<bool(size_t)>& is);

// Trains a small model inside a stage, without a run folder.
Status train_in_stage(const Stages& stages, Model& model, Source& source, TrainOptions options);

}  // namespace braid
