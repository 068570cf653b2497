// Ready-made configs: the architectures by name, each at several sizes.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "io/json_fwd.h"
#include "model/config.h"

namespace braid {

struct Dims {
  int64_t d_model, n_layers, heads;
  int64_t d_ff = 0;  // 0: 8/3 of the width, rounded up to a multiple of 256
  int64_t head_dim() const { return d_model / heads; }
};

struct OwnSize {  // of a released model, which fits no general table
  std::string_view name;
  Json (*config)();
};

struct Preset {
  std::string_view name, summary, paper;
  Json (*pattern)(const Dims& dims);              // its layers; those without an "mlp" get a SwiGLU
  Json (*settings)() = nullptr;                   // further settings of the model
  std::vector<OwnSize> (*own_sizes)() = nullptr;  // besides the general ones
};
std::span<const Preset> all_presets();
const Preset* find_preset(std::string_view name);
std::vector<std::string> preset_names();

struct Size {
  std::string_view name;
  Dims dims;
  int64_t vocab_size = 0;  // of the papers; 0: whatever the data has
};
std::span<const Size> all_sizes();
const Size* find_size(std::string_view name);
std::vector<std::string> size_names(const Preset* of = nullptr);  // with the preset's own

// Exactly these dimensions.
Json config_of(const Preset& preset, const Dims& dims, int64_t vocab_size);

// "d128-l2-h4" or "d128-l2-h4-f512": width, layers, heads and the MLPs' inner width.
std::optional<Dims> parse_dims(std::string_view size);

// The config of an architecture at a size, as JSON that overrides can still change. At one size all
// architectures have as many parameters as the Transformer, within 3 %: the pattern is repeated a whole
// number of times, and the inner width of the MLPs makes up for what the mixers differ in. A size like
// d128-l2-h4 is taken as it is.
Result<Json> preset_config(const std::string& arch, const std::string& size, int64_t vocab_size);

}  // namespace braid
