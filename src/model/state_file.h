// A state in a file, to go on later or elsewhere: safetensors with what each layer remembers,
//   layers.0.k, layers.0.v [tokens held, width]     layers.0.fast, .normaliser, .conv, .scan, .delayed
//   [numbers]
// and as metadata the position, the model's config and a hash of its weights. Going on from it gives the bits
// of never having stopped.
#pragma once

#include <string>

#include "model/model.h"

namespace braid {

// Positions that a file may hold: tables for the positions are made when a model goes on from there.
inline constexpr int64_t kMaxSavedPosition = int64_t{1} << 24;

Status save_state(const State& state, const Model& model, const std::string& path);  // atomic
// Only what fits this model: another config, other weights, missing, unknown or misshapen tensors are errors.
Result<State> load_state(Model& model, const std::string& path);

}  // namespace braid
