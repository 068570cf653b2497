#include "cli/cli.h"
#include "model/mixers/registry.h"
#include "model/model.h"
#include "model/presets.h"

namespace braid {
namespace {

Result<size_t> parameters(const Preset& p, const Size& s) {
  const Result<Json> json = preset_config(std::string(p.name), std::string(s.name), 256);
  if (!json) return json.error();
  const Result<ModelConfig> config = parse_config(*json, std::string(p.name));
  if (!config) return config.error();
  return Model::create(*config)->params().count();
}

}  // namespace

std::function<int()> define_archs(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  app.add_flag("--json", *json, "one JSON line per architecture and per mixer");
  return [json] {
    if (!*json) fmt::print("Architectures (--arch), parameters by --size with a vocabulary of 256\n");
    for (const Preset& p : all_presets()) {
      Json sizes = Json::object();
      std::string line;
      for (const Size& s : all_sizes()) {
        const Result<size_t> n = parameters(p, s);
        if (!n) return fail(n.error());
        sizes[std::string(s.name)] = *n;
        line += fmt::format("  {} {:.2f} M", s.name, static_cast<double>(*n) * 1e-6);
      }
      if (*json)
        print_json({{"arch", p.name}, {"summary", p.summary}, {"parameters", sizes}});
      else
        fmt::print("  {:<20} {}\n  {:<20}{}\n", p.name, p.summary, "", line);
    }
    if (!*json) fmt::print("\nMixers and their settings (--set pattern.*.mixer.NAME=VALUE)\n");
    for (const MixerEntry& m : all_mixers()) {
      Json fields = Json::array();
      if (!*json) fmt::print("  {:<20} {}\n", m.name, m.summary);
      for (const FieldDoc& f : m.fields()) {
        fields.push_back({{"name", f.name}, {"default", f.value}, {"help", f.help}});
        if (!*json) fmt::print("    {:<14} {:<8} {}\n", f.name, f.value, f.help);
      }
      if (*json) print_json({{"mixer", m.name}, {"summary", m.summary}, {"settings", fields}});
    }
    return static_cast<int>(kOk);
  };
}

}  // namespace braid
