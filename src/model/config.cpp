#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/json.h"
#include "model/config_json.h"
#include "model/mixers/registry.h"
#include "model/model.h"

namespace braid {
namespace {

constexpr const char* kModelType = "braid";
constexpr Choice<NormPlace> kNorms[] = {
    {"pre", NormPlace::kPre}, {"post", NormPlace::kPost}, {"none", NormPlace::kNone}};

std::optional<NormPlace> parse_norm(const Json& layer, const std::string& where,
                                    std::vector<Problem>& problems) {
  const auto norm = layer.find("norm");
  if (norm == layer.end()) return NormPlace::kPre;
  for (const Choice<NormPlace>& c : kNorms)
    if (*norm == Json(c.word)) return c.value;
  problems.push_back({where + ".norm", "is " + norm->dump(), "give \"pre\", \"post\" or \"none\""});
  return {};
}

std::optional<MixerSpec> parse_layer_mixer(const Json& layer, const std::string& where, const ModelConfig& c,
                                           const MixerTable& mixers, std::vector<Problem>& problems) {
  const auto mixer = layer.find("mixer");
  if (mixer == layer.end() || !mixer->is_object() || !mixer->contains("type") ||
      !(*mixer)["type"].is_string()) {
    problems.push_back({where, "has no type", "use one of: " + mixers.names()});
    return {};
  }
  const std::string type = (*mixer)["type"];
  if (const MixerEntry* entry = mixers.find(type)) return parse_mixer(*entry, *mixer, where, c, problems);
  problems.push_back({where + ".type", "is '" + type + "'", "use one of: " + mixers.names()});
  return {};
}

// What is wrong goes to problems; then there may be no result.
std::optional<LayerConfig> parse_layer(const Json& layer, const std::string& where, const ModelConfig& c,
                                       const MixerTable& mixers, std::vector<Problem>& problems) {
  if (!layer.is_object()) {
    problems.push_back({where, "is not an object", "give {\"mixer\": {...}, \"mlp\": {...}}"});
    return {};
  }
  for (const auto& [key, unused] : layer.items())
    if (key != "mixer" && key != "mlp" && key != "norm")
      problems.push_back(
          {where + "." + key, "is not a setting here", suggest(key, {"mixer", "mlp", "norm"})});
  const std::optional<NormPlace> norm = parse_norm(layer, where, problems);
  const std::optional<MixerSpec> mixer = parse_layer_mixer(layer, where + ".mixer", c, mixers, problems);
  const std::optional<MlpConfig> mlp = parse_mlp(layer.value("mlp", Json()), where + ".mlp", problems);
  if (!norm || !mixer || !mlp) return {};
  return LayerConfig{*mixer, *mlp, *norm};
}

// Names that no parameter of the model has.
void check_params(const ModelConfig& c, std::vector<Problem>& problems) {
  const std::unique_ptr<Model> model = Model::create(c);
  std::vector<std::string> names;
  for (const Param& p : model->params().all()) names.push_back(p.name);
  for (const auto& [name, unused] : c.params)
    if (std::ranges::none_of(names, [&name = name](const std::string& n) { return n.starts_with(name); }))
      problems.push_back({"params." + name, "begins no parameter's name", suggest(name, names)});
}

}  // namespace

Result<ModelConfig> parse_config(const Json& json, const std::string& name, const MixerTable& mixers) {
  std::vector<Problem> problems;
  ModelConfig c;
  const FieldReader::Source source{json};
  FieldReader r(source, "", problems);
  r.allow("model_type");
  r.allow("pattern");
  r.allow("params");
  c.visit(r);
  r.finish();
  if (json.is_object()) {
    if (!json.contains("model_type") || json["model_type"] != kModelType)
      r.problem("model_type", json.contains("model_type") ? "is " + json["model_type"].dump() : "is missing",
                "only \"braid\" is known");
    const auto pattern = json.find("pattern");
    if (pattern == json.end() || !pattern->is_array() || pattern->empty()) {
      r.problem("pattern", "is not a list of layers", "give at least one {\"mixer\": ..., \"mlp\": ...}");
    } else {
      for (size_t i = 0; i < pattern->size(); ++i) {
        std::optional<LayerConfig> layer =
            parse_layer((*pattern)[i], fmt::format("pattern[{}]", i), c, mixers, problems);
        if (layer) c.pattern.push_back(*std::move(layer));
      }
    }
    if (c.outputs > 0 && c.tie_embeddings)
      r.problem("outputs", "cannot be given with tie_embeddings", "set tie_embeddings to false");
    if (c.outputs > c.vocab_size)
      r.problem("outputs", fmt::format("is {}, more than the {} tokens", c.outputs, c.vocab_size),
                "set it to 0");
    if (const auto params = json.find("params"); params != json.end()) {
      if (!params->is_object())
        r.problem("params", "is not an object", "give {\"embedding.weight\": {\"train\": false}}");
      else
        for (const auto& [param, settings] : params->items())
          read_fields(c.params[param], settings, "params." + param, problems);
      if (problems.empty()) check_params(c, problems);
    }
  }
  if (!problems.empty())
    return to_error(fmt::format("{}: {} problem{}", name, problems.size(), problems.size() > 1 ? "s" : ""),
                    problems);
  return c;
}

Result<ModelConfig> config_from_text(std::string_view json, const std::string& name,
                                     const MixerTable& mixers) {
  const Result<Json> parsed = parse_ordered_json(json, name);
  if (!parsed) return parsed.error();
  return parse_config(*parsed, name, mixers);
}

Result<ModelConfig> load_config(const std::string& path, const MixerTable& mixers) {
  const Result<Json> json = load_json(path);
  if (!json) return json.error();
  return parse_config(*json, path, mixers);
}

Json to_json(const ModelConfig& config) {
  Json j;
  j["model_type"] = kModelType;
  write_fields(config, j);
  j["pattern"] = Json::array();
  for (const LayerConfig& l : config.pattern) {
    j["pattern"].push_back({{"mixer", MixerJson::written(l.mixer)},
                            {"mlp", MlpJson::written(l.mlp)},
                            {"norm", norm_word(l.norm)}});
  }
  for (const auto& [param, settings] : config.params) write_fields(settings, j["params"][param]);
  return j;
}

std::string to_text(const ModelConfig& config) { return to_json(config).dump(2) + "\n"; }

std::string_view norm_word(NormPlace norm) {
  return std::ranges::find(kNorms, norm, &Choice<NormPlace>::value)->word;
}

bool has_dropout(const ModelConfig& config) {
  return has_dropout_field(config) ||
         std::ranges::any_of(config.pattern, [](const LayerConfig& l) { return l.mixer.has_dropout(); });
}

namespace {

Status set_path(Json& at, std::string_view path, const Json& value, const std::string& whole) {
  const size_t dot = path.find('.');
  const std::string key(path.substr(0, dot));
  const bool last = dot == std::string_view::npos;
  const std::string_view rest = last ? "" : path.substr(dot + 1);
  const auto descend = [&](Json& next) -> Status {
    if (!last) return set_path(next, rest, value, whole);
    next = value;
    return {};
  };
  if (at.is_array()) {
    if (key == "*") {
      for (Json& element : at)
        if (Status s = descend(element); !s) return s;
      return {};
    }
    const bool number =
        !key.empty() && key.size() < 8 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!number || std::stoul(key) >= at.size())
      return Error{fmt::format("--set {}: '{}' is not an index of a list of {}", whole, key, at.size()),
                   fmt::format("use 0 to {} or *", at.size() - 1)};
    return descend(at[std::stoul(key)]);
  }
  if (at.is_object()) {
    if (last || at.contains(key)) return descend(at[key]);  // a new last key is checked by parse_config
    std::vector<std::string> keys;
    for (const auto& [k, unused] : at.items()) keys.push_back(k);
    return Error{fmt::format("--set {}: there is no '{}'", whole, key), suggest(key, keys)};
  }
  return Error{fmt::format("--set {}: cannot descend to '{}', its parent is a scalar", whole, key),
               "remove the last part of the path"};
}

}  // namespace

Status apply_override(Json& config, const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    return Error{"--set " + text + ": has no value",
                 "write it as path=value, e.g. --set pattern.0.mixer.window=64"};
  const std::string plain = text.substr(equals + 1);
  const Result<Json> parsed = parse_ordered_json(plain, "value");
  const Json value = parsed ? *parsed : Json(plain);
  return set_path(config, std::string_view(text).substr(0, equals), value, text.substr(0, equals));
}

}  // namespace braid
