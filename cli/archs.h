// Sizes of presets and mixers, as `braid archs` and the pages of the reference show them.
#pragma once

#include <string>

#include "base/error.h"
#include "model/mixers/registry.h"
#include "model/presets.h"

namespace braid {

// Parameters of a preset at a size with a vocabulary of 256; nothing is allocated.
Result<size_t> preset_parameters(const Preset& preset, const std::string& size);

// Parameters and state elements of one layer of a mixer: d_model 1024, 8 heads, 2048 tokens.
struct PerLayer {
  size_t parameters, state;
};
PerLayer per_layer(const MixerEntry& mixer);

}  // namespace braid
