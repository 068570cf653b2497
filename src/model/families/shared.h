// What the families share. JSON begins and ends here: for the .cpp files of this folder alone.
#pragma once

#include "io/json.h"
#include "model/families/family.h"
#include "model/families/hf_config.h"

namespace braid {

enum class MixerKind { kAttention, kFastWeight, kMamba2, kOther };
MixerKind mixer_kind(const LayerConfig& layer);
// Of the first layer of this kind; of the kind's defaults if there is none.
Json first_mixer(const ModelConfig& model, MixerKind kind);
// The same for MLPs of a type, e.g. "swiglu".
Json first_mlp(const ModelConfig& model, std::string_view type);

// What every config.json begins with. Braid has no special tokens.
Json hf_header(const Family& family, const ModelConfig& model);
// max_position_embeddings: the length of training, else a usual value; without effect in Braid.
int64_t max_positions(const ModelConfig& model);

// `part` of `whole`, so that whole_part(whole * ratio) is `part` again.
double ratio(int64_t part, int64_t whole);
int64_t whole_part(double x);  // Python's int(); 0 for what no size can be

// What a config.json says in Braid's words, before it is checked: layers as in Braid's config.json.
struct LayerWords {
  Json mixer, mlp;
  const char* norm = "pre";
};
struct Translated : ModelConfig {
  std::vector<LayerWords> layers;  // in the place of `pattern`, which is empty
};
// The shortest list of layers that repeats to `layers`.
std::vector<LayerWords> repeating(std::vector<LayerWords> layers);

// "model.layers.3." + ...: what most families call their parts.
std::string hf_layer(int64_t i);
std::string our_layer(int64_t i);
void add_embeddings(const ModelConfig& model, TensorTable& t, const std::string& embedding,
                    const std::string& norm);
void add_swiglu(TensorTable& t, const std::string& hf, const std::string& ours, bool bias = false);
// What the settings of the layer's attention ask for: projections, biases, norms.
void add_attention(TensorTable& t, const std::string& hf, const std::string& ours, const Json& attention);

// rope_parameters of a config.json from the settings of an attention mixer.
Json hf_rope(const Json& attention);

}  // namespace braid
