// Configs as JSON: what reads and writes config.json. Public headers name no JSON and do not include this
// one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/json_fwd.h"
#include "model/config.h"
#include "model/fields.h"

namespace braid {

struct MixerEntry;

// Every problem is reported, with its place and a fix. `mixers`: what layers may name.
Result<ModelConfig> parse_config(const Json& json, const std::string& name_for_errors,
                                 const MixerTable& mixers = built_in_mixers());
// As it was parsed: settings of mixers and MLPs that were not given are not written.
Json to_json(const ModelConfig& config);

// Changes one value by its path, e.g. "d_model=64" or "pattern.0.mixer.window=64"; '*' stands for every
// element of a list. The value is JSON, or else a string.
Status apply_override(Json& config, const std::string& path_equals_value);

// Settings of one mixer or MLP. Problems are appended to `problems`; then there is no result.
std::optional<MixerSpec> parse_mixer(const MixerEntry& entry, const Json& settings, const std::string& where,
                                     const ModelConfig& model, std::vector<Problem>& problems);
std::optional<MlpConfig> parse_mlp(const Json& settings, const std::string& where,
                                   std::vector<Problem>& problems);

struct MixerJson {
  // `written`: the settings as a file has them, with their type.
  static MixerSpec parsed(std::string type, std::unique_ptr<const MixerSettings> settings,
                          const Json& written);
  // Every setting but the type: defaults filled in, and zeros that stand for values that follow from others
  // replaced by these. Two mixers of a type with the same settings compute the same.
  static Json complete(const MixerSpec& mixer, const ModelConfig& model);
  static Json written(const MixerSpec& mixer);  // for config.json
};

struct MlpJson {
  static MlpConfig parsed(MlpConfig::Settings settings, const Json& written);
  static Json complete(const MlpConfig& mlp);  // type and every setting, zeros replaced as above
  static Json written(const MlpConfig& mlp);   // for config.json
};

struct FieldReader::Source {
  const Json& json;
};
struct FieldWriter::Target {
  Json& json;
};

// Changes what the object gives; the rest of `c` stays. `also`: a key that is read elsewhere.
template <class Config>
void read_fields(Config& c, const Json& object, const std::string& where, std::vector<Problem>& problems,
                 const char* also = "type") {
  const FieldReader::Source source{object};
  FieldReader r(source, where, problems);
  r.allow(also);
  c.visit(r);
  r.finish();
}

// Every field with its value, added to the object.
template <class Config>
void write_fields(Config c, Json& object) {
  const FieldWriter::Target target{object};
  FieldWriter w(target);
  c.visit(w);
}

}  // namespace braid
