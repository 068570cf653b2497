// The table of all mixers: config, command line, documentation and tests iterate over it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/mixers/mixer.h"
#include "model/mixers/spec.h"

namespace braid {

struct MixerEntry {
  std::string name, summary, paper;  // paper: "arXiv:NUMBER", several with commas between
  std::shared_ptr<const MixerSettings> defaults;

  std::vector<FieldDoc> fields() const;
  MixerSpec with_defaults() const;
};

// What the layers of a config may name: the built-in mixers, and whatever is added.
class MixerTable {
 public:
  MixerTable();
  Status add(MixerEntry entry);  // an error if the name is taken
  std::span<const MixerEntry> all() const { return entries_; }
  const MixerEntry* find(std::string_view name) const;  // valid until the next add()
  std::string names() const;                            // "attention, ..."

 private:
  std::vector<MixerEntry> entries_;
};
const MixerTable& built_in_mixers();

// The entry of a class M: M::Config has a visit() (fields.h), and M is made from (const M::Config&, const
// ModelConfig&, Declare). What single values cannot say may be checked by
//   static void M::validate(const M::Config&, const std::string& where, const ModelConfig&,
//                           std::vector<Problem>&)
// and zeros that stand for values that follow from others be replaced, before M is made, by
//   static M::Config M::resolve(M::Config, const ModelConfig&)
template <class M>
class SettingsOf final : public MixerSettings {
 public:
  using Config = typename M::Config;
  explicit SettingsOf(Config c) : c_(std::move(c)) {}
  std::unique_ptr<MixerSettings> copy() const override { return std::make_unique<SettingsOf>(c_); }
  void visit(FieldReader& v) override { c_.visit(v); }
  void visit(FieldWriter& v) override { c_.visit(v); }
  void visit(FieldLister& v) override { c_.visit(v); }
  void visit(DropoutFinder& v) override { c_.visit(v); }
  void resolve([[maybe_unused]] const ModelConfig& model) override {
    if constexpr (requires { M::resolve(c_, model); }) c_ = M::resolve(c_, model);
  }
  void validate([[maybe_unused]] const std::string& where, [[maybe_unused]] const ModelConfig& model,
                [[maybe_unused]] std::vector<Problem>& problems) const override {
    if constexpr (requires { M::validate(c_, where, model, problems); })
      M::validate(c_, where, model, problems);
  }
  std::unique_ptr<Mixer> make(const ModelConfig& model, Declare declare) const override {
    return std::make_unique<M>(c_, model, declare);
  }
  const void* config(const std::type_info& type) const override {
    return type == typeid(Config) ? &c_ : nullptr;
  }

 private:
  Config c_;
};

template <class M>
MixerEntry mixer_entry(std::string name, std::string summary, typename M::Config defaults = {},
                       std::string paper = {}) {
  return {std::move(name), std::move(summary), std::move(paper),
          std::make_shared<const SettingsOf<M>>(std::move(defaults))};
}

// One per file in this folder; those of the fast weights are rows of fast_weight_table.cpp.
MixerEntry attention_entry();
MixerEntry mamba_entry();
MixerEntry mamba2_entry();
MixerEntry deltaformer_entry();
MixerEntry hqlt_entry();

}  // namespace braid
