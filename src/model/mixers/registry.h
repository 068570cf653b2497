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
  // Every setting but the type: defaults filled in, and zeros that stand for values that follow from others
  // replaced by these. Two mixers with the same settings compute the same.
  Json (*complete)(const Json& settings, const ModelConfig& model);
};

std::span<const MixerEntry> all_mixers();
const MixerEntry* find_mixer(std::string_view name);
std::string mixer_names();  // "attention, ..."

// One per file in this folder.
MixerEntry attention_entry();
MixerEntry linear_attention_entry();
MixerEntry retnet_entry();
MixerEntry gla_entry();
MixerEntry hgrn2_entry();
MixerEntry mamba_entry();
MixerEntry mamba2_entry();
MixerEntry deltanet_entry();
MixerEntry gated_deltanet_entry();
MixerEntry kda_entry();
MixerEntry gated_deltaproduct_entry();
MixerEntry deltaformer_entry();
MixerEntry hqlt_entry();

}  // namespace braid
