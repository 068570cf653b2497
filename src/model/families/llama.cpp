// Llama, and what differs from it by one thing: Mistral by a window, Qwen3 by norms of queries and keys,
// Qwen2 by biases.
#include "model/families/shared.h"
#include "model/config_json.h"

namespace braid {
namespace {

struct Llama {
  bool window, by_layer;  // a window; in some layers only
  bool qk_norm;
  const char* bias;  // always; null: "all" or "none", by attention_bias
  int64_t vocab_size, intermediate_size, kv_heads, head_dim;  // the class's defaults; 0: from others
};
constexpr Llama kLlama{false, false, false, nullptr, 32000, 11008, 0, 0},
    kMistral{true, false, false, "none", 32000, 14336, 8, 0},
    kQwen3{true, true, true, nullptr, 151936, 22016, 32, 128},
    kQwen2{true, true, false, "qkv", 151936, 22016, 32, 0};

constexpr const char *kFull = "full_attention", *kSliding = "sliding_attention";

// Which layers have the window.
std::vector<std::string> window_layers(HfConfig& hf, int64_t layers, int64_t window) {
  const int64_t first = hf.whole("max_window_layers", 28);
  std::vector<std::string> types;
  for (int64_t i = 0; i < layers; ++i) types.emplace_back(window && i >= first ? kSliding : kFull);
  return hf.layer_types(layers, {kFull, kSliding}, types);
}

template <const Llama& kind>
Translated read(HfConfig& hf) {
  Translated c;
  c.vocab_size = hf.size("vocab_size", kind.vocab_size);
  c.d_model = hf.size("hidden_size", 4096);
  c.n_layers = hf.layers("num_hidden_layers", 32);
  c.norm_eps = hf.number("rms_norm_eps", 1e-6);
  c.init_std = hf.number("initializer_range", 0.02);
  c.tie_embeddings = hf.flag("tie_word_embeddings", false);
  const int64_t heads = hf.size("num_attention_heads", 32);
  const int64_t kv_heads = hf.size("num_key_value_heads", kind.kv_heads ? kind.kv_heads : heads);
  const HfConfig::Rope rope = hf.rope(1);
  if (rope.theta == 0) hf.problem("rope_theta", "is null", "give the base of the rotation");
  if (rope.partial != 1) hf.problem("partial_rotary_factor", "is not 1", "this family rotates whole heads");
  Json mixer{
      {"type", "attention"},      {"heads", heads},
      {"kv_heads", kv_heads},     {"head_dim", hf.given("head_dim") ? hf.size("head_dim", 1) : kind.head_dim},
      {"rope_theta", rope.theta}, {"qk_norm", kind.qk_norm ? "head" : "none"}};
  mixer.update(rope.scaling);
  const bool all = hf.flag("attention_bias", false);
  mixer["bias"] = kind.bias ? kind.bias : all ? "all" : "none";
  if (kind.bias && all) hf.problem("attention_bias", "is true", "this family has no such setting");
  int64_t window = 0;
  if (kind.window) {
    const bool used = !kind.by_layer || hf.flag("use_sliding_window", false);
    const Json* given = hf.raw("sliding_window");  // null means none, missing means the class's default
    if (used) window = given && given->is_null() ? 0 : hf.whole("sliding_window", 4096);
  }
  Json mlp{{"type", "swiglu"}, {"d_ff", hf.size("intermediate_size", kind.intermediate_size)}};
  if (!kind.window) mlp["bias"] = hf.flag("mlp_bias", false);
  hf.must_be("mlp_bias", mlp.value("bias", false), "this family's MLP has no biases");
  hf.one_of("hidden_act", {"silu"}, "the MLP is a SwiGLU");
  hf.no_effect({"pretraining_tp"});
  const std::vector<std::string> types =
      kind.by_layer ? window_layers(hf, c.n_layers, window) : std::vector<std::string>(c.n_layers, kSliding);
  for (const std::string& type : types) {
    mixer["window"] = type == kSliding ? window : 0;
    c.layers.push_back({mixer, mlp});
  }
  return c;
}

template <const Llama& kind, Family (*family)()>
Json write(const ModelConfig& c) {
  const Json a = first_mixer(c, MixerKind::kAttention);
  Json j = hf_header(family(), c);
  j.update({{"intermediate_size", first_mlp(c, "swiglu")["d_ff"]},
            {"num_attention_heads", a["heads"]},
            {"num_key_value_heads", a["kv_heads"]},
            {"head_dim", a["head_dim"]},
            {"hidden_act", "silu"},
            {"max_position_embeddings", max_positions(c)},
            {"rms_norm_eps", c.norm_eps},
            {"rope_theta", a["rope_theta"]},  // for releases before rope_parameters
            {"rope_parameters", hf_rope(a)},
            {"attention_dropout", 0.0}});
  if (!kind.bias) j["attention_bias"] = a["bias"] == "all";
  if (!kind.window) j["mlp_bias"] = first_mlp(c, "swiglu")["bias"];
  if (!kind.window) return j;
  Json types = Json::array();
  int64_t window = 0;
  for (int64_t i = 0; i < c.n_layers; ++i) {
    const int64_t w = mixer_kind(c.layer(i)) == MixerKind::kAttention
                          ? MixerJson::complete(c.layer(i).mixer, c)["window"].get<int64_t>()
                          : 0;
    window = std::max(window, w);
    types.push_back(w ? kSliding : kFull);
  }
  if (kind.by_layer) j["use_sliding_window"] = window > 0, j["layer_types"] = types;
  j["sliding_window"] = window ? Json(window) : Json(nullptr);
  return j;
}

void tensors(const ModelConfig& c, TensorTable& t) {
  add_embeddings(c, t, "model.embed_tokens.weight", "model.norm.weight");
  for (int64_t i = 0; i < c.n_layers; ++i) {
    const std::string hf = hf_layer(i), ours = our_layer(i);
    t.add(t.same(hf + "input_layernorm.weight", ours + "mixer_norm.weight"));
    t.add(t.same(hf + "post_attention_layernorm.weight", ours + "mlp_norm.weight"));
    add_attention(t, hf + "self_attn.", ours + "mixer.", MixerJson::complete(c.layer(i).mixer, c));
    add_swiglu(t, hf + "mlp.", ours + "mlp.", MlpJson::complete(c.layer(i).mlp)["bias"]);
  }
}

const char* left_out(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") ? "follows from rope_theta" : nullptr;
}

}  // namespace

Family llama_family() {
  return {"llama",
          "LlamaForCausalLM",
          "softmax attention with RoPE, SwiGLU",
          "arXiv:2302.13971",
          {},
          read<kLlama>,
          write<kLlama, llama_family>,
          tensors,
          "",
          "",
          left_out};
}

Family mistral_family() {
  return {"mistral",
          "MistralForCausalLM",
          "Llama with windowed attention",
          "arXiv:2310.06825",
          {},
          read<kMistral>,
          write<kMistral, mistral_family>,
          tensors,
          "",
          "",
          left_out};
}

Family qwen3_family() {
  return {"qwen3",
          "Qwen3ForCausalLM",
          "Llama with norms of queries and keys, windows by layer",
          "arXiv:2505.09388",
          {},
          read<kQwen3>,
          write<kQwen3, qwen3_family>,
          tensors,
          "",
          "",
          left_out};
}

Family qwen2_family() {
  return {"qwen2",
          "Qwen2ForCausalLM",
          "Llama with biases of queries, keys and values, windows by layer",
          "arXiv:2407.10671",
          {},
          read<kQwen2>,
          write<kQwen2, qwen2_family>,
          tensors,
          "",
          "",
          left_out};
}

}  // namespace braid
