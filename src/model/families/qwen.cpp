#include "model/families/qwen.h"
#include "model/config_json.h"

#include <fmt/format.h>

namespace braid {
namespace {

constexpr const char *kLinear = "linear_attention", *kFull = "full_attention";

// Which layers have one MLP instead of experts.
std::vector<bool> dense_layers(HfConfig& hf, int64_t layers) {
  std::vector<bool> dense(layers, false);
  const int64_t step = hf.whole("decoder_sparse_step", 1), experts = hf.whole("num_experts", 512);
  for (size_t i = 0; i < dense.size(); ++i)
    dense[i] = experts == 0 || step < 1 || (static_cast<int64_t>(i) + 1) % step != 0;
  if (!hf.given("mlp_only_layers")) return dense;
  const Json& listed = *hf.raw("mlp_only_layers");
  for (const Json& l : listed.is_array() ? listed : Json::array({listed})) {
    if (l.is_number_integer() && l >= 0 && l < dense.size())
      dense[l.get<size_t>()] = true;
    else
      hf.problem("mlp_only_layers", "has " + l.dump(), fmt::format("give numbers below {}", layers));
  }
  return dense;
}

void add_experts(TensorTable& t, const std::string& hf, const std::string& ours, int64_t experts) {
  t.add(t.same(hf + "gate.weight", ours + "gate.weight"));
  t.add(t.same(hf + "shared_expert_gate.weight", ours + "shared_expert_gate.weight"));
  add_swiglu(t, hf + "shared_expert.", ours + "shared_expert.");
  // Expert by expert, or all of them in one tensor: Qwen3.5 was released that way.
  TensorTable::Way apart;
  std::vector<std::string> gate_up, down;
  for (int64_t e = 0; e < experts; ++e) {
    const std::string name = fmt::format("experts.{}.", e);
    for (const char* w : {"gate_proj.weight", "up_proj.weight", "down_proj.weight"})
      apart.push_back(t.same(hf + name + w, ours + name + w));
    gate_up.insert(gate_up.end(), {ours + name + "gate_proj.weight", ours + name + "up_proj.weight"});
    down.push_back(ours + name + "down_proj.weight");
  }
  HfTensor fused_in = t.stacked(hf + "experts.gate_up_proj", gate_up),
           fused_out = t.stacked(hf + "experts.down_proj", down);
  fused_in.shape = {experts, fused_in.shape[0] / experts, fused_in.shape[1]};
  fused_out.shape = {experts, fused_out.shape[0] / experts, fused_out.shape[1]};
  t.add_either({std::move(apart), {std::move(fused_in), std::move(fused_out)}});
}

}  // namespace

Translated read_qwen(HfConfig& hf, const QwenDefaults& d, QwenMlps mlps) {
  const bool dense = mlps != QwenMlps::kExperts, experts = mlps != QwenMlps::kDense;
  Translated c;
  c.vocab_size = hf.size("vocab_size", d.vocab_size);
  c.d_model = hf.size("hidden_size", d.hidden_size);
  c.n_layers = hf.layers("num_hidden_layers", d.layers);
  c.norm_eps = hf.number("rms_norm_eps", 1e-6);
  c.init_std = hf.number("initializer_range", 0.02);
  c.tie_embeddings = hf.flag("tie_word_embeddings", false);
  c.zero_centred_norms = true;

  const int64_t head_dim = hf.size("head_dim", 256);
  const HfConfig::Rope rope = hf.rope(0.25);
  if (rope.theta == 0) hf.problem("rope_theta", "is null", "give the base of the rotation");
  Json attention{{"type", "attention"},
                 {"heads", hf.size("num_attention_heads", 16)},
                 {"kv_heads", hf.size("num_key_value_heads", d.kv_heads)},
                 {"head_dim", head_dim},
                 {"rope_theta", rope.theta},
                 {"rotary_dim", hf.positive("partial_rotary_factor",
                                            whole_part(static_cast<double>(head_dim) * rope.partial))},
                 {"qk_norm", "head"},
                 {"gate", "sigmoid"}};
  attention.update(rope.scaling);
  const Json linear{{"type", "gated_deltanet"},
                    {"heads", hf.size("linear_num_value_heads", 32)},
                    {"key_heads", hf.size("linear_num_key_heads", 16)},
                    {"head_dim", hf.size("linear_key_head_dim", 128)},
                    {"value_dim", hf.size("linear_value_head_dim", 128)},
                    {"conv", hf.size("linear_conv_kernel_dim", 4)}};
  Json one, many;
  if (dense) one = {{"type", "swiglu"}, {"d_ff", hf.size("intermediate_size", d.intermediate_size)}};
  if (experts)
    many = {{"type", "moe"},
            {"experts", hf.whole("num_experts", d.experts)},
            {"top_k", hf.size("num_experts_per_tok", d.top_k)},
            {"d_ff", hf.size("moe_intermediate_size", 512)},
            {"shared_d_ff", hf.size("shared_expert_intermediate_size", 512)}};
  const std::vector<bool> is_dense =
      dense && experts ? dense_layers(hf, c.n_layers) : std::vector<bool>(c.n_layers, dense);

  const int64_t interval = hf.size("full_attention_interval", 4);
  std::vector<std::string> types;
  for (int64_t i = 0; i < c.n_layers; ++i) types.emplace_back((i + 1) % interval ? kLinear : kFull);
  types = hf.layer_types(c.n_layers, {kLinear, kFull}, types);
  for (size_t i = 0; i < types.size(); ++i)
    c.layers.push_back({types[i] == kFull ? attention : linear, is_dense[i] ? one : many});

  hf.one_of("hidden_act", {"silu"}, "convolutions and MLPs use silu");
  hf.must_be("attention_bias", false, "Braid has no biases beside a gate");
  hf.must_be("norm_topk_prob", true, "the weights of the chosen experts add up to 1");
  hf.must_be("attn_output_gate", true, "attention has a gate");
  hf.one_of("output_gate_type", {"swish", "silu"}, "the gate of the fast weights is silu");
  hf.no_effect({"output_router_logits", "router_aux_loss_coef", "mamba_ssm_dtype", "mtp_num_hidden_layers",
                "mtp_use_dedicated_embeddings", "use_sliding_window", "max_window_layers"});
  return c;
}

Json write_qwen(const Family& family, const ModelConfig& c, QwenMlps mlps) {
  const bool dense = mlps != QwenMlps::kExperts, experts = mlps != QwenMlps::kDense;
  const Json a = first_mixer(c, MixerKind::kAttention), g = first_mixer(c, MixerKind::kFastWeight);
  const Json theta = a["rope_theta"];
  const double partial = ratio(a["rotary_dim"], a["head_dim"]);
  Json rope = hf_rope(a);
  rope["partial_rotary_factor"] = partial;
  Json types = Json::array(), dense_only = Json::array();
  for (int64_t i = 0; i < c.n_layers; ++i) {
    types.push_back(mixer_kind(c.layer(i)) == MixerKind::kAttention ? kFull : kLinear);
    if (c.layer(i).mlp.as<SwigluConfig>()) dense_only.push_back(i);
  }
  Json j = hf_header(family, c);
  j.update({{"num_attention_heads", a["heads"]},
            {"num_key_value_heads", a["kv_heads"]},
            {"head_dim", a["head_dim"]},
            {"hidden_act", "silu"},
            {"max_position_embeddings", max_positions(c)},
            {"rms_norm_eps", c.norm_eps},
            {"rope_theta", theta},  // for releases before rope_parameters
            {"partial_rotary_factor", partial},
            {"rope_parameters", rope},
            {"attention_bias", false},
            {"attention_dropout", 0.0},
            {"linear_conv_kernel_dim", g["conv"]},
            {"linear_key_head_dim", g["head_dim"]},
            {"linear_value_head_dim", g["value_dim"]},
            {"linear_num_key_heads", g["key_heads"]},
            {"linear_num_value_heads", g["heads"]},
            {"layer_types", types}});
  if (dense) j["intermediate_size"] = first_mlp(c, "swiglu")["d_ff"];
  if (!experts) return j;
  const Json m = first_mlp(c, "moe");
  j.update({{"num_experts", m["experts"]},
            {"num_experts_per_tok", m["top_k"]},
            {"moe_intermediate_size", m["d_ff"]},
            {"shared_expert_intermediate_size", m["shared_d_ff"]}});
  if (dense)
    j.update({{"decoder_sparse_step", 1}, {"mlp_only_layers", dense_only}, {"norm_topk_prob", true}});
  return j;
}

void qwen_tensors(const ModelConfig& c, TensorTable& t,
                  void (*projections)(TensorTable& t, const std::string& hf, const std::string& ours,
                                      int64_t key_heads)) {
  add_embeddings(c, t, "model.embed_tokens.weight", "model.norm.weight");
  for (int64_t i = 0; i < c.n_layers; ++i) {
    const std::string hf = hf_layer(i), ours = our_layer(i), mixer = ours + "mixer.";
    t.add(t.same(hf + "input_layernorm.weight", ours + "mixer_norm.weight"));
    t.add(t.same(hf + "post_attention_layernorm.weight", ours + "mlp_norm.weight"));
    const Json m = MixerJson::complete(c.layer(i).mixer, c), mlp = MlpJson::complete(c.layer(i).mlp);
    if (mixer_kind(c.layer(i)) == MixerKind::kAttention) {
      add_attention(t, hf + "self_attn.", mixer, m);
    } else {
      const std::string linear = hf + "linear_attn.";
      projections(t, linear, mixer, m["key_heads"]);
      t.add(t.conv(linear + "conv1d.weight", mixer + "conv1d.weight"));
      t.add(t.same(linear + "A_log", mixer + "A_log"));
      t.add(t.same(linear + "dt_bias", mixer + "dt_bias"));
      t.add(t.same(linear + "norm.weight", mixer + "o_norm.weight"));
      t.add(t.same(linear + "out_proj.weight", mixer + "o_proj.weight"));
    }
    if (mlp["type"] == "moe")
      add_experts(t, hf + "mlp.", ours + "mlp.", mlp["experts"]);
    else
      add_swiglu(t, hf + "mlp.", ours + "mlp.");
  }
}

const char* qwen_left_out(std::string_view name) {
  return name.starts_with("mtp.")            ? "predicts further tokens; Braid predicts one"
         : name.starts_with("model.visual.") ? "reads images; Braid reads tokens"
                                             : nullptr;
}

}  // namespace braid
