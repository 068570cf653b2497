// A state in a file, to be resumed: safetensors with the state of each layer,
//   layers.0.k, layers.0.v [tokens held, width]     layers.0.fast, .normaliser, .conv, .scan, .delayed
//   [numbers]     tokens [position], what was read, if the writer knew it
// and as metadata the position, the model's config, a hash of its weights and one of all the rest of the
// file. A resumed run is bit-identical to an uninterrupted one. A file that was cut or changed anywhere, or
// that another model wrote, is refused.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/state.h"

namespace braid {

class Model;

// Positions that a file may hold: tables for the positions are made when a model goes on from there.
inline constexpr int64_t kMaxSavedPosition = int64_t{1} << 24;

// Atomic. tokens: all that was read; fewer (who went on from a file without tokens has not got them all) are
// not saved.
Status save_state(const State& state, const Model& model, const std::string& path,
                  std::span<const int32_t> tokens = {});

struct SavedState {
  State state;
  std::vector<int32_t> tokens;  // all that it has read; empty if the writer did not know
};
// Only what fits this model: another config, other weights, missing, unknown or misshapen tensors are errors.
Result<SavedState> load_saved(const Model& model, const std::string& path);
Result<State> load_state(const Model& model, const std::string& path);

// All of load_saved but the comparison of the hashes, which no change would get past: for fuzzing.
Result<SavedState> read_saved(const Model& model, const std::string& path);

}  // namespace braid
