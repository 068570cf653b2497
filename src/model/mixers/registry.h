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
  Json (*complete)(const Json& settings, const ModelConfig& model) = nullptr;
};

std::span<const MixerEntry> all_mixers();
const MixerEntry* find_mixer(std::string_view name);
std::string mixer_names();  // "attention, ..."

// Adds a mixer that is defined elsewhere; from then on configs may name it. An error if the name is taken.
// Name and summary must live as long as the program. Call it before other threads use models: what
// all_mixers() and find_mixer() gave before is no longer valid.
Status register_mixer(const MixerEntry& entry);

// The entry of a class M, for mixers whose settings need nothing else: M::Config has a visit() (fields.h), M
// is made from (const M::Config&, const ModelConfig&, Declare). What single values cannot say may be checked
// by static void M::validate(const M::Config&, const std::string& where, const ModelConfig&,
// std::vector<Problem>&).
template <class M>
MixerEntry mixer_entry(std::string_view name, std::string_view summary) {
  using Config = typename M::Config;
  return {name,
          summary,
          [](const Json& settings, const std::string& where, const ModelConfig& model,
             std::vector<Problem>& problems) {
            const size_t before = problems.size();
            const Config c = parse_fields<Config>(settings, where, problems);
            if constexpr (requires { M::validate(c, where, model, problems); })
              if (problems.size() == before) M::validate(c, where, model, problems);
          },
          [](const Json& settings, const ModelConfig& model, Declare declare) -> std::unique_ptr<Mixer> {
            std::vector<Problem> none;
            return std::make_unique<M>(parse_fields<Config>(settings, "", none), model, declare);
          },
          [] { return list_fields(Config()); },
          [](const Json& settings, const ModelConfig&) {
            std::vector<Problem> none;
            return write_fields(parse_fields<Config>(settings, "", none));
          }};
}

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
