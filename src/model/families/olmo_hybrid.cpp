// Olmo Hybrid: norms before Gated DeltaNet layers, but on what attention layers give. A rope_theta of null
// means no positions.
#include "model/families/shared.h"
#include "model/config_json.h"

namespace braid {
namespace {

constexpr const char *kLinear = "linear_attention", *kFull = "full_attention";
constexpr double kGateEps = 1e-5;  // of the gated norm, whatever rms_norm_eps says

Translated read(HfConfig& hf) {
  Translated c;
  c.vocab_size = hf.size("vocab_size", 100352);
  c.d_model = hf.size("hidden_size", 3840);
  c.n_layers = hf.layers("num_hidden_layers", 32);
  c.norm_eps = hf.number("rms_norm_eps", 1e-6);
  c.init_std = hf.number("initializer_range", 0.02);
  c.tie_embeddings = hf.flag("tie_word_embeddings", false);

  const int64_t heads = hf.size("num_attention_heads", 30),
                key_heads = hf.size("linear_num_key_heads", heads),
                dk = hf.size("linear_key_head_dim",
                             static_cast<int64_t>(0.75 * static_cast<double>(c.d_model) /
                                                  static_cast<double>(key_heads)));
  const HfConfig::Rope rope = hf.rope(1);
  if (rope.partial != 1) hf.problem("partial_rotary_factor", "is not 1", "this family rotates whole heads");
  Json attention{{"type", "attention"},
                 {"heads", heads},
                 {"kv_heads", hf.size("num_key_value_heads", heads)},
                 {"head_dim", hf.given("head_dim") ? hf.size("head_dim", 1) : 0},
                 {"rope_theta", rope.theta},
                 {"qk_norm", "full"},
                 {"bias", hf.flag("attention_bias", false) ? "all" : "none"}};
  attention.update(rope.scaling);
  const Json linear{{"type", "gated_deltanet"},
                    {"heads", hf.size("linear_num_value_heads", heads)},
                    {"key_heads", key_heads},
                    {"head_dim", dk},
                    {"value_dim", hf.size("linear_value_head_dim", 2 * dk)},
                    {"conv", hf.size("linear_conv_kernel_dim", 4)},
                    {"negative_eigenvalues", hf.flag("linear_allow_neg_eigval", true)},
                    {"out_eps", kGateEps}};
  const Json mlp{{"type", "swiglu"}, {"d_ff", hf.size("intermediate_size", 11008)}};

  std::vector<std::string> types;
  for (int64_t i = 0; i < c.n_layers; ++i) types.emplace_back(i % 4 == 3 ? kFull : kLinear);
  if (c.n_layers > 0 && c.n_layers < 4) types.back() = kFull;
  for (const std::string& type : hf.layer_types(c.n_layers, {kLinear, kFull}, types))
    c.layers.push_back(type == kFull ? LayerWords{attention, mlp, "post"} : LayerWords{linear, mlp});

  hf.one_of("hidden_act", {"silu"}, "convolutions and MLPs use silu");
  hf.no_effect(
      {"linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor"});
  return c;
}

Json write(const ModelConfig& c) {
  const Json a = first_mixer(c, MixerKind::kAttention), g = first_mixer(c, MixerKind::kFastWeight);
  Json types = Json::array();
  for (int64_t i = 0; i < c.n_layers; ++i)
    types.push_back(mixer_kind(c.layer(i)) == MixerKind::kAttention ? kFull : kLinear);
  Json rope = hf_rope(a);
  if (a["rope_theta"] == 0) rope["rope_theta"] = nullptr;
  Json j = hf_header(olmo_hybrid_family(), c);
  j.update({{"intermediate_size", first_mlp(c, "swiglu")["d_ff"]},
            {"num_attention_heads", a["heads"]},
            {"num_key_value_heads", a["kv_heads"]},
            {"hidden_act", "silu"},
            {"max_position_embeddings", max_positions(c)},
            {"rms_norm_eps", c.norm_eps},
            {"rope_parameters", rope},
            {"attention_bias", a["bias"] == "all"},
            {"attention_dropout", 0.0},
            {"linear_conv_kernel_dim", g["conv"]},
            {"linear_key_head_dim", g["head_dim"]},
            {"linear_value_head_dim", g["value_dim"]},
            {"linear_num_key_heads", g["key_heads"]},
            {"linear_num_value_heads", g["heads"]},
            {"linear_allow_neg_eigval", g["negative_eigenvalues"]},
            {"layer_types", types}});
  if (a["head_dim"].get<int64_t>() * a["heads"].get<int64_t>() != c.d_model) j["head_dim"] = a["head_dim"];
  return j;
}

void tensors(const ModelConfig& c, TensorTable& t) {
  add_embeddings(c, t, "model.embed_tokens.weight", "model.norm.weight");
  for (int64_t i = 0; i < c.n_layers; ++i) {
    const std::string hf = hf_layer(i), ours = our_layer(i), mixer = ours + "mixer.",
                      linear = hf + "linear_attn.";
    // Names as released, then as transformers has them in memory and saves them.
    const auto norm = [&](const char* param, std::initializer_list<const char*> names) {
      std::vector<TensorTable::Way> ways;
      for (const char* n : names) ways.push_back({t.same(hf + n + ".weight", ours + param)});
      t.add_either(ways);
    };
    add_swiglu(t, hf + "mlp.", ours + "mlp.");
    if (mixer_kind(c.layer(i)) == MixerKind::kAttention) {
      norm("mixer_norm.weight", {"post_attention_layernorm", "feedforward_layer_norm"});
      norm("mlp_norm.weight", {"post_feedforward_layernorm"});
      add_attention(t, hf + "self_attn.", mixer, MixerJson::complete(c.layer(i).mixer, c));
      continue;
    }
    norm("mixer_norm.weight", {"attention_layer_norm", "input_layernorm"});
    norm("mlp_norm.weight", {"feedforward_layer_norm", "post_attention_layernorm"});
    for (const char* name :
         {"q_proj.weight", "k_proj.weight", "v_proj.weight", "g_proj.weight", "a_proj.weight",
          "b_proj.weight", "A_log", "dt_bias", "o_norm.weight", "o_proj.weight"})
      t.add(t.same(linear + name, mixer + name));
    const std::string taps = mixer + "conv1d.weight";
    const int64_t keys = t.rows(mixer + "q_proj.weight"), values = t.rows(mixer + "v_proj.weight");
    const auto three = [&](int64_t q, int64_t k, int64_t v) {
      return TensorTable::Way{t.conv(linear + "q_conv1d.weight", taps, 0, q),
                              t.conv(linear + "k_conv1d.weight", taps, q, k),
                              t.conv(linear + "v_conv1d.weight", taps, q + k, v)};
    };
    std::vector<TensorTable::Way> ways{three(keys, keys, values), {t.conv(linear + "conv1d.weight", taps)}};
    // transformers (seen in 5.22) saves its joined convolution in three parts, as equal as torch.chunk makes
    // them, whatever the widths.
    const int64_t all = t.rows(taps), third = (all + 2) / 3;
    if (third != keys && all > 2 * third) ways.push_back(three(third, third, all - 2 * third));
    t.add_either(std::move(ways));
  }
}

const char* left_out(std::string_view name) {
  return name.starts_with("mtp.") ? "predicts further tokens; Braid predicts one" : nullptr;
}

}  // namespace

Family olmo_hybrid_family() {
  return {"olmo_hybrid",
          "OlmoHybridForCausalLM",
          "Olmo Hybrid: Gated DeltaNet and attention with norms on its output",
          "arXiv:2604.03444",
          {},
          read,
          write,
          tensors,
          "",
          "",
          left_out};
}

}  // namespace braid
