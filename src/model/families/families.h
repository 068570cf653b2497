// Model folders of any known family: read as they are and translated once.
//
//   Result<ModelConfig> config = read_config(json, "config.json");         // Braid's or a family's
//   Result<HfConfigFile> hf = hf_config(*config, "");                      // as the family that fits
#pragma once

#include "io/json_fwd.h"
#include "io/safetensors.h"
#include "model/families/family.h"

namespace braid {

std::span<const Family> all_families();
const Family* find_family(std::string_view model_type);  // with the model_types that it reads besides its own
std::vector<std::string> family_names();

// config.json; Python's Infinity, which is not JSON, becomes a string.
Result<Json> load_config_json(const std::string& path);
// The family a config.json names; null: it is Braid's own. An unknown one is an error that names the nearest.
Result<const Family*> family_of(const Json& json, const std::string& name_for_errors);
// Any config.json as Braid's config. Every field that Braid cannot express is in the error; keys without
// effect are in `ignored`.
Result<ModelConfig> read_config(const Json& json, const std::string& name_for_errors,
                                std::vector<std::string>* ignored = nullptr,
                                const MixerTable& mixers = built_in_mixers());

struct HfConfigFile {
  const Family* family;
  std::shared_ptr<const Json> json;
};
// The config.json of the first family that computes the same, or of the named one. What no family can
// express is an error: of the named or nearest one, setting by setting.
Result<HfConfigFile> hf_config(const ModelConfig& config, const std::string& family_name);

// A tensor, and where its numbers lie in a file: one after the other in these pieces. Nothing is copied.
struct Assembled {
  std::string name;
  Shape shape;
  std::vector<View> pieces;
};
struct LeftOut {
  std::string tensor, why;
};
// Braid's parameters, in their order, from a family's file. Missing, unexpected and wrongly shaped tensors
// are all in the error.
Result<std::vector<Assembled>> assemble_params(const Family& family, const Model& model,
                                               const SafeTensors& file, const std::string& path,
                                               std::vector<LeftOut>& left_out);
// "3 tensors left out: reads images; Braid reads tokens", a line for each reason.
std::vector<std::string> summary_of(const std::vector<LeftOut>& left_out);
// The tensors of a family's file for this model, in the first way where there are several.
std::vector<HfTensor> hf_tensors(const Family& family, const Model& model);
// A family's tensors from a file of Braid's parameters, which must fit the model.
std::vector<Assembled> assemble_hf(const Family& family, const Model& model, const SafeTensors& file);

}  // namespace braid
