// The table of all mixers: config, command line, documentation and tests iterate over it.
#pragma once

#include <span>

#include "model/mixers/mixer.h"

namespace braid {

struct MixerEntry {
  std::string_view name, summary;
  void (*validate)(const Json& settings, const std::string& where, const ModelConfig& model,
                   std::vector<Problem>& problems);
  std::unique_ptr<Mixer> (*make)(const Json& settings, const ModelConfig& model, Declare declare);
  std::vector<FieldDoc> (*fields)();
};

std::span<const MixerEntry> all_mixers();
const MixerEntry* find_mixer(std::string_view name);
std::string mixer_names();  // "attention, ..."

}  // namespace braid
