#include "model/mixers/registry.h"

#include <array>

#include "model/mixers/attention.h"

namespace braid {

std::span<const MixerEntry> all_mixers() {
  static const std::array kMixers{
      attention_entry(),
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
