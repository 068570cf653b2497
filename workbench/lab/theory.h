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

inline PageCell verdict(bool good, std::string text) {
  return {std::move(text), good ? PageCell::Mark::kGood : PageCell::Mark::kBad};
}

}  // namespace braid
