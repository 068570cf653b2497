// A model's config.json: a stack of layers, each a mixer and an MLP, given as a pattern that repeats.
//
//   {"model_type": "braid", "vocab_size": 256, "d_model": 128, "n_layers": 4,
//    "pattern": [{"mixer": {"type": "attention", "heads": 4}, "mlp": {"type": "swiglu", "d_ff": 512}, "norm":
//    "pre"}],
//    "params": {"embedding.weight": {"train": false}}}
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/fields.h"
#include "model/mixers/spec.h"
#include "model/mlp_config.h"

namespace braid {

class MixerTable;
const MixerTable& built_in_mixers();

enum class NormPlace : uint8_t { kPre, kPost, kNone };  // before mixer and MLP; on what they give (Olmo)
std::string_view norm_word(NormPlace norm);
struct LayerConfig {
  MixerSpec mixer;
  MlpConfig mlp;
  NormPlace norm = NormPlace::kPre;
};

enum class ParamInit : uint8_t { kFamily, kZeros, kOnes, kIdentity };
// A parameter that is not as its family has it.
struct ParamConfig {
  ParamInit init = ParamInit::kFamily;
  int64_t column = 0;
  bool train = true;

  template <class V>
  void visit(V& v) {
    v("init", init,
      {{"family", ParamInit::kFamily},
       {"zeros", ParamInit::kZeros},
       {"ones", ParamInit::kOnes},
       {"identity", ParamInit::kIdentity}},
      "initial value: of the model family, 0, 1, or the identity");
    v("column", column, {0, 1 << 20}, "identity: element (i, column + i) is 1");
    v("train", train, "false: the parameter keeps its initial value");
  }
};

enum class InitScheme : uint8_t { kScaled, kFla };

struct ModelConfig {
  int64_t vocab_size = 256, outputs = 0, d_model = 128, n_layers = 2, train_length = 0;
  double norm_eps = 1e-6, init_std = 0.02;
  Dropout dropout, embedding_dropout;
  InitScheme init = InitScheme::kScaled;
  bool tie_embeddings = false, zero_centred_norms = false;
  std::vector<LayerConfig> pattern;
  std::map<std::string, ParamConfig> params;  // by name or its beginning

  template <class V>
  void visit(V& v) {
    v("vocab_size", vocab_size, {1, 1 << 24}, "number of tokens");
    v("outputs", outputs, {0, 1 << 24},
      "number of tokens that can be predicted, the first of the vocabulary; 0 = all");
    v("d_model", d_model, {1, 1 << 20}, "width of the residual stream");
    v("n_layers", n_layers, {1, 10000}, "number of layers; the pattern repeats until it is reached");
    v("train_length", train_length, {0, 1 << 30},
      "tokens per sequence of the text the model was trained on: the context of `braid eval`, and an "
      "export's `max_position_embeddings`; 0 = unknown");
    v("norm_eps", norm_eps, {0, 1}, "added to the mean square in every RMSNorm");
    v("init", init, {{"scaled", InitScheme::kScaled}, {"fla", InitScheme::kFla}},
      "initial weights: normal with init_std, except matrices that write to the residual stream and "
      "convolutions; scaled = the former divided by sqrt(2 layers), the latter uniform; fla = as in fla's "
      "models");
    v("init_std", init_std, {0, 100}, "standard deviation of initial weights");
    v("dropout", dropout, "dropout of the outputs of mixer and MLP in training");
    v("embedding_dropout", embedding_dropout, "dropout of the first layer's input in training");
    v("zero_centred_norms", zero_centred_norms,
      "norms multiply with 1 + weight and start at weight 0 (Qwen3-Next)");
    v("tie_embeddings", tie_embeddings, "use the embedding as the output head");
  }

  int64_t answers() const { return outputs > 0 ? outputs : vocab_size; }
  const LayerConfig& layer(size_t i) const { return pattern[i % pattern.size()]; }
};
bool has_dropout(const ModelConfig& config);  // anywhere

// From the text of a config.json, or from the file. Every problem is reported, with its place and a fix.
// `mixers`: what layers may name.
Result<ModelConfig> config_from_text(std::string_view json, const std::string& name_for_errors,
                                     const MixerTable& mixers = built_in_mixers());
Result<ModelConfig> load_config(const std::string& path, const MixerTable& mixers = built_in_mixers());
std::string to_text(const ModelConfig& config);  // the text of its config.json

}  // namespace braid
