#include <algorithm>

#include "cli/archs.h"
#include "cli/cli.h"
#include "model/config_json.h"
#include "model/model.h"

namespace braid {

Result<size_t> preset_parameters(const Preset& p, const std::string& size) {
  const Result<Json> json = preset_config(std::string(p.name), size, 256);
  if (!json) return json.error();
  const Result<ModelConfig> config = parse_config(*json, std::string(p.name));
  if (!config) return config.error();
  return Model::create(*config)->params().count();
}

PerLayer per_layer(const MixerEntry& m) {
  ModelConfig c;
  c.d_model = 1024;
  Json settings{{"type", m.name}};
  const std::vector<FieldDoc> fields = m.fields();
  if (std::ranges::find(fields, "heads", &FieldDoc::name) != fields.end()) settings["heads"] = 8;
  std::vector<Problem> problems;
  const std::optional<MixerSpec> spec = parse_mixer(m, settings, m.name, c, problems);
  check(spec.has_value(), "archs: a mixer refuses 8 heads");
  ParamSet params;
  std::vector<Init> inits;
  const std::unique_ptr<Mixer> mixer = spec->make(c, Declare(params, inits, ""));
  const StateSize s = mixer->state_size(2048);
  return {params.count(), s.memory + s.tails};
}

namespace {

void print_fields(const std::vector<FieldDoc>& fields) {
  for (const FieldDoc& f : fields) say("    {:<20} {:<9} {}\n", f.name, f.value, f.help);
}

Json to_json(const std::vector<FieldDoc>& fields) {
  Json j = Json::array();
  for (const FieldDoc& f : fields) j.push_back({{"name", f.name}, {"default", f.value}, {"help", f.help}});
  return j;
}

int run(const std::string& arch, bool json) {
  if (!arch.empty() && !find_preset(arch))
    return wrong_use({"--arch " + arch + ": is not an architecture", suggest(arch, preset_names())});
  if (!json) say("Architectures (--arch), parameters by --size with a vocabulary of 256\n");
  for (const Preset& p : all_presets()) {
    if (!arch.empty() && p.name != arch) continue;
    Json sizes = Json::object();
    std::string line;
    for (const std::string& name : size_names(&p)) {
      const Result<size_t> n = preset_parameters(p, name);
      if (!n) return fail(n.error());
      sizes[name] = *n;
      line += *n >= 1000000000 ? fmt::format("  {} {:.2f} B", name, static_cast<double>(*n) * 1e-9)
                               : fmt::format("  {} {:.2f} M", name, static_cast<double>(*n) * 1e-6);
    }
    if (json)
      print_json({{"arch", p.name}, {"summary", p.summary}, {"paper", p.paper}, {"parameters", sizes}});
    else
      say("  {:<20} {}; {}\n  {:<20}{}\n", p.name, p.summary, p.paper, "", line);
  }
  if (!arch.empty()) return kOk;
  if (!json)
    say("\nMixers and their settings (--set pattern.*.mixer.NAME=VALUE); parameters and state elements per "
        "layer with d_model 1024, 8 heads, 2048 tokens\n");
  for (const MixerEntry& m : built_in_mixers().all()) {
    const PerLayer size = per_layer(m);
    if (json) {
      print_json({{"mixer", m.name},
                  {"summary", m.summary},
                  {"paper", m.paper},
                  {"parameters_per_layer", size.parameters},
                  {"state_per_layer", size.state},
                  {"settings", to_json(m.fields())}});
      continue;
    }
    say("  {:<20} {}; {} ({:.2f} M, {:.3g} K)\n", m.name, m.summary, m.paper,
        static_cast<double>(size.parameters) * 1e-6, static_cast<double>(size.state) * 1e-3);
    print_fields(m.fields());
  }
  if (!json) say("\nMLPs and their settings (--set pattern.*.mlp.NAME=VALUE)\n");
  for (const MlpDoc& m : all_mlps()) {
    if (json) {
      print_json(
          {{"mlp", m.name}, {"summary", m.summary}, {"paper", m.paper}, {"settings", to_json(m.fields)}});
      continue;
    }
    say("  {:<20} {}{}{}\n", m.name, m.summary, m.paper.empty() ? "" : "; ", m.paper);
    print_fields(m.fields);
  }
  return kOk;
}

}  // namespace

std::function<int()> define_archs(CLI::App& app) {
  struct Options {
    std::string arch;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  add("--arch", o->arch, "this architecture only, without mixers and MLPs");
  add("--json", o->json, "one JSON line per architecture, mixer and MLP");
  return [o] { return run(o->arch, o->json); };
}

}  // namespace braid
