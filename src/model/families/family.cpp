#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/families/shared.h"
#include "model/config_json.h"
#include "model/mixers/fast_weight.h"

namespace braid {

MixerKind mixer_kind(const LayerConfig& layer) {
  if (layer.mixer.type() == "attention") return MixerKind::kAttention;
  if (layer.mixer.type() == "mamba2") return MixerKind::kMamba2;
  return layer.mixer.has<FastWeightConfig>() ? MixerKind::kFastWeight : MixerKind::kOther;
}

Json first_mixer(const ModelConfig& model, MixerKind kind) {
  for (const LayerConfig& l : model.pattern)
    if (mixer_kind(l) == kind) return MixerJson::complete(l.mixer, model);
  const char* type = kind == MixerKind::kAttention ? "attention"
                     : kind == MixerKind::kMamba2  ? "mamba2"
                                                   : "gated_deltanet";
  return MixerJson::complete(built_in_mixers().find(type)->with_defaults(), model);
}

Json first_mlp(const ModelConfig& model, std::string_view type) {
  for (const LayerConfig& l : model.pattern)
    if (l.mlp.type() == type) return MlpJson::complete(l.mlp);
  return type == "moe" ? MlpJson::complete(MlpConfig(MoeConfig{.d_ff = model.d_model}))
                       : MlpJson::complete(MlpConfig(SwigluConfig{{.d_ff = model.d_model}}));
}

Json hf_header(const Family& family, const ModelConfig& model) {
  return {{"architectures", {family.architecture}},
          {"model_type", family.model_type},
          {"vocab_size", model.vocab_size},
          {"hidden_size", model.d_model},
          {"num_hidden_layers", model.n_layers},
          {"initializer_range", model.init_std},
          {"tie_word_embeddings", model.tie_embeddings},
          {"bos_token_id", nullptr},
          {"eos_token_id", nullptr},
          {"pad_token_id", nullptr}};
}

int64_t max_positions(const ModelConfig& model) {
  constexpr int64_t kUsual = 32768;
  return model.train_length > 0 ? model.train_length : kUsual;
}

double ratio(int64_t part, int64_t whole) {
  double r = static_cast<double>(part) / static_cast<double>(whole);
  while (whole_part(static_cast<double>(whole) * r) < part) r = std::nextafter(r, HUGE_VAL);
  return r;
}

int64_t whole_part(double x) { return std::fabs(x) < 1e15 ? static_cast<int64_t>(x) : 0; }

std::vector<LayerWords> repeating(std::vector<LayerWords> layers) {
  const auto same = [](const LayerWords& a, const LayerWords& b) {
    return std::string_view(a.norm) == b.norm && a.mixer == b.mixer && a.mlp == b.mlp;
  };
  for (size_t period = 1; period < layers.size(); ++period) {
    size_t i = period;
    while (i < layers.size() && same(layers[i], layers[i - period])) ++i;
    if (i == layers.size()) {
      layers.resize(period);
      break;
    }
  }
  return layers;
}

std::string hf_layer(int64_t i) { return fmt::format("model.layers.{}.", i); }
std::string our_layer(int64_t i) { return fmt::format("layers.{}.", i); }

void add_embeddings(const ModelConfig& model, TensorTable& t, const std::string& embedding,
                    const std::string& norm) {
  t.add(t.same(embedding, "embedding.weight"));
  t.add(t.same(norm, "final_norm.weight"));
  if (!model.tie_embeddings) t.add(t.same("lm_head.weight", "head.weight"));
}

void add_swiglu(TensorTable& t, const std::string& hf, const std::string& ours, bool bias) {
  for (const char* name : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"})
    t.add(t.same(hf + name, ours + name));
  if (!bias) return;
  const std::string both = ours + "gate_up.bias";
  const int64_t width = t.rows(both) / 2;
  t.add(t.part(hf + "gate_proj.bias", both, 0, width));
  t.add(t.part(hf + "up_proj.bias", both, width, width));
  t.add(t.same(hf + "down_proj.bias", ours + "down_proj.bias"));
}

void add_attention(TensorTable& t, const std::string& hf, const std::string& ours, const Json& attention) {
  const std::string q = "q_proj.weight";
  t.add(attention["gate"] != "none"
            ? t.grouped(hf + q, attention["heads"],
                        {ours + q, ours + "g_proj.weight"})  // per head: query, then gate
            : t.same(hf + q, ours + q));
  for (const char* name : {"k_proj.weight", "v_proj.weight", "o_proj.weight"})
    t.add(t.same(hf + name, ours + name));
  if (attention["qk_norm"] != "none")
    for (const char* name : {"q_norm.weight", "k_norm.weight"}) t.add(t.same(hf + name, ours + name));
  if (attention["bias"] != "none") {
    const std::string all = ours + "qkv_proj.bias";
    const int64_t queries = t.rows(ours + q), keys = t.rows(ours + "k_proj.weight");
    t.add(t.part(hf + "q_proj.bias", all, 0, queries));
    t.add(t.part(hf + "k_proj.bias", all, queries, keys));
    t.add(t.part(hf + "v_proj.bias", all, queries + keys, keys));
  }
  if (attention["bias"] == "all") t.add(t.same(hf + "o_proj.bias", ours + "o_proj.bias"));
}

Json hf_rope(const Json& a) {
  const std::string type = a["rope_scaling"];
  Json j{{"rope_type", type == "none" ? "default" : type}, {"rope_theta", a["rope_theta"]}};
  if (type != "none") j["factor"] = a["rope_factor"];
  if (type == "llama3" || type == "yarn") j["original_max_position_embeddings"] = a["rope_original"];
  if (type == "llama3") j["low_freq_factor"] = a["rope_low"], j["high_freq_factor"] = a["rope_high"];
  if (type == "yarn")
    j["beta_slow"] = a["rope_low"], j["beta_fast"] = a["rope_high"],
    j["attention_factor"] = a["rope_amplitude"];
  return j;
}

}  // namespace braid
