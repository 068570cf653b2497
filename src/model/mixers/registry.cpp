#include "model/mixers/registry.h"

namespace braid {
namespace {

std::vector<MixerEntry>& table() {
  static std::vector<MixerEntry> mixers{
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
  return mixers;
}

}  // namespace

std::span<const MixerEntry> all_mixers() { return table(); }

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

Status register_mixer(const MixerEntry& entry) {
  check(entry.validate && entry.make && entry.fields, "register_mixer: a function is missing");
  if (entry.name.empty()) return Error{"a mixer needs a name", "it is the \"type\" in a config"};
  if (find_mixer(entry.name))
    return Error{fmt::format("there is already a mixer '{}'", entry.name),
                 "choose a name besides: " + mixer_names()};
  table().push_back(entry);
  return {};
}

}  // namespace braid
