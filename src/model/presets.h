// Ready-made configs: the architectures by name, each at several sizes.
#pragma once

#include <span>
#include <string_view>

#include "model/config.h"

namespace braid {

struct Dims {
  int64_t d_model, n_layers, heads;
  int64_t d_ff = 0;  // 0: 8/3 of the width, rounded up to a multiple of 256
};

struct Preset {
  std::string_view name, summary;
  Json (*config)(const Dims& dims, int64_t vocab_size);
};
std::span<const Preset> all_presets();
const Preset* find_preset(std::string_view name);
std::vector<std::string> preset_names();

struct Size {
  std::string_view name;
  Dims dims;
};
std::span<const Size> all_sizes();
const Size* find_size(std::string_view name);
std::vector<std::string> size_names();

// The config of an architecture at a size, as JSON that overrides can still change.
Result<Json> preset_config(const std::string& arch, const std::string& size, int64_t vocab_size);

}  // namespace braid
