#include "model/mixers/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/json.h"
#include "model/config_json.h"
#include "model/mixers/fast_weight.h"

namespace braid {

std::vector<FieldDoc> MixerEntry::fields() const {
  FieldLister l;
  defaults->copy()->visit(l);
  return l.fields;
}

std::optional<MixerSpec> parse_mixer(const MixerEntry& entry, const Json& settings, const std::string& where,
                                     const ModelConfig& model, std::vector<Problem>& problems) {
  const size_t before = problems.size();
  std::unique_ptr<MixerSettings> s = entry.defaults->copy();
  const FieldReader::Source source{settings};
  FieldReader r(source, where, problems);
  r.allow("type");
  s->visit(r);
  r.finish();
  if (problems.size() == before) s->validate(where, model, problems);
  if (problems.size() > before) return {};
  return MixerJson::parsed(entry.name, std::move(s), settings);
}

MixerSpec MixerEntry::with_defaults() const { return {name, defaults->copy()}; }

MixerTable::MixerTable()
    : entries_{
          attention_entry(),
          fast_weight_entry(FastRule::kLinearAttention),
          fast_weight_entry(FastRule::kRetnet),
          fast_weight_entry(FastRule::kGla),
          fast_weight_entry(FastRule::kHgrn2),
          mamba_entry(),
          mamba2_entry(),
          fast_weight_entry(FastRule::kDeltanet),
          fast_weight_entry(FastRule::kGatedDeltanet),
          fast_weight_entry(FastRule::kKda),
          fast_weight_entry(FastRule::kGatedDeltaproduct),
          deltaformer_entry(),
          hqlt_entry(),
      } {}

Status MixerTable::add(MixerEntry entry) {
  check(entry.defaults != nullptr, "MixerTable::add: no settings; use mixer_entry()");
  if (entry.name.empty()) return Error{"a mixer needs a name", "it is the \"type\" in a config"};
  if (find(entry.name))
    return Error{fmt::format("there is already a mixer '{}'", entry.name),
                 "choose a name besides: " + names()};
  entries_.push_back(std::move(entry));
  return {};
}

const MixerEntry* MixerTable::find(std::string_view name) const {
  const auto at = std::ranges::find(entries_, name, &MixerEntry::name);
  return at == entries_.end() ? nullptr : &*at;
}

std::string MixerTable::names() const {
  std::string all;
  for (const MixerEntry& e : entries_) all += (all.empty() ? "" : ", ") + e.name;
  return all;
}

const MixerTable& built_in_mixers() {
  static const MixerTable kTable;
  return kTable;
}

}  // namespace braid
