// A family of released models: its config.json and tensor names <-> Braid's, both ways from one table. No
// maths: every tensor of a family consists of whole rows of Braid's parameters, under another name and in
// another order.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/families/hf_config.h"
#include "model/families/tensor_table.h"
#include "model/model.h"

namespace braid {

struct Family {
  std::string_view model_type, architecture;  // as config.json names them
  std::string_view summary;
  std::vector<std::string_view> also_reads;  // model_types that are the same model in another wrapping

  // config.json -> layers and settings; what Braid cannot express is a problem of the reader.
  ModelConfig (*read)(HfConfig& hf);
  // Braid -> config.json, as far as it goes: whoever calls reads the result again and compares.
  Json (*write)(const ModelConfig& config);
  void (*tensors)(const ModelConfig& config, TensorTable& table);

  // Names of another wrapping: this prefix stands for the second.
  std::string_view prefix_in_file = "", prefix_here = "";
  // Why a tensor that the table does not have may be left out, or null: it may not.
  const char* (*left_out)(std::string_view name) = nullptr;
  // What to tell of a model that was read, or written, whose numbers depend on the version of the family's
  // code; null: nothing.
  const char* (*read_note)(const ModelConfig& config) = nullptr;
  const char* (*write_note)(const ModelConfig& config) = nullptr;
};

// One per file in this folder, and more where a file holds variants.
Family llama_family();
Family mistral_family();
Family qwen3_family();
Family qwen2_family();
Family olmo2_family();
Family olmo3_family();
Family mamba2_family();
Family fla_transformer_family();
Family delta_net_family();
Family gated_deltanet_family();
Family qwen3_next_family();
Family qwen3_5_family();
Family qwen3_5_moe_family();
Family olmo_hybrid_family();

// ---- What the families share

// A layer's mixer with every setting filled in, and its kind.
enum class MixerKind { kAttention, kFastWeight, kMamba2, kOther };
MixerKind mixer_kind(const LayerConfig& layer);
Json complete_mixer(const LayerConfig& layer, const ModelConfig& model);
// Of the first layer of this kind; of the kind's defaults if there is none.
Json first_mixer(const ModelConfig& model, MixerKind kind);
// The same for MLPs of a type, e.g. "swiglu".
Json first_mlp(const ModelConfig& model, std::string_view type);

// What every config.json begins with. Braid has no special tokens and no longest sequence.
Json hf_header(const Family& family, const ModelConfig& model);
constexpr int64_t kMaxPositions = 32768;  // written where a family wants a number; nothing depends on it

// `part` of `whole`, so that whole_part(whole * ratio) is `part` again.
double ratio(int64_t part, int64_t whole);
int64_t whole_part(double x);  // Python's int(); 0 for what no size can be

// The shortest list of layers that repeats to `layers`.
std::vector<LayerConfig> repeating(std::vector<LayerConfig> layers);

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
