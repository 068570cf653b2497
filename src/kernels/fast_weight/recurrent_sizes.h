// Sizes and memory of the recurrent form.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/fast_weight/fast_weight.h"

namespace braid {

// A panel is the slice of a state that one pass over the tokens carries: dk rows of up to 64 value columns.
// Four vectors of columns give the FMA ports enough sums; above 160 rows two, so that dk = 512 is 64 KB.
constexpr size_t kWideRows = 160, kPanelFloats = 16 * 1024;

constexpr size_t panel_columns(const FastWeightShape& s) {
  return std::min(kFastWeightBlock, (s.dv + 15) / 16 * 16);
}
// Tokens whose states backward keeps at once: at most 512 KB of them, 128 KB with AVX2, whose panels are
// narrower: inside L2.
constexpr size_t bwd_chunk(const FastWeightShape& s) {
  return std::clamp<size_t>(128 * 1024 / (s.dk * panel_columns(s)), 8, 128);
}

// Backward's memory for one task: start states of the chunks, states inside a chunk, e of its tokens, dS, and
// sums over a row of the state.
struct BwdScratch {
  size_t panel, chunk, chunks, starts, states, errors, dS, sums, floats;
  BwdScratch(const FastWeightShape& s, size_t tokens)
      : panel(s.dk * panel_columns(s)),
        chunk(bwd_chunk(s)),
        chunks((tokens + chunk - 1) / chunk),
        starts(0),
        states(starts + chunks * panel),
        errors(states + (std::min(chunk, tokens) + 1) * panel),
        dS(errors + std::min(chunk, tokens) * panel_columns(s)),
        sums(dS + panel),
        floats((sums + 3 * s.dk + 15) / 16 * 16) {}
};

}  // namespace braid
