#include "model/mixers/registry.h"

#include <array>

namespace braid {

std::span<const MixerEntry> all_mixers() {
  static const std::array kMixers{
      attention_entry(),
      linear_attention_entry(),
      retnet_entry(),
      gla_entry(),
      hgrn2_entry(),
      mamba_entry(),
      mamba2_entry(),
      deltanet_entry(),
      gated_deltanet_entry(),
      kda_entry(),
      gated_deltaproduct_entry(),
      deltaformer_entry(),
      hqlt_entry(),
  };
  return kMixers;
}

const MixerEntry* find_mixer(std::string_view name) {
  for (const MixerEntry& e : all_mixers())
    if (e.name == name) return &e;
  return nullptr;
}

std::string mixer_names() {
  std::string all;
  for (const MixerEntry& e : all_mixers()) all += (all.empty() ? "" : ", ") + std::string(e.name);
  return all;
}

}  // namespace braid
