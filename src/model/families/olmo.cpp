// Olmo 2 and 3: norms on what attention and MLP give, norms of queries and keys over the whole projection.
// Olmo 3 has windows in three of four layers, and scaled frequencies in the others only.
#include "model/families/shared.h"
#include "model/config_json.h"

namespace braid {
namespace {

constexpr const char *kFull = "full_attention", *kSliding = "sliding_attention";

template <bool windows>
Translated read(HfConfig& hf) {
  Translated c;
  c.vocab_size = hf.size("vocab_size", 50304);
  c.d_model = hf.size("hidden_size", 4096);
  c.n_layers = hf.layers("num_hidden_layers", 32);
  c.norm_eps = hf.number("rms_norm_eps", 1e-5);
  c.init_std = hf.number("initializer_range", 0.02);
  c.tie_embeddings = hf.flag("tie_word_embeddings", false);
  const int64_t heads = hf.size("num_attention_heads", 32);
  const Json attention{{"type", "attention"},
                       {"heads", heads},
                       {"kv_heads", hf.size("num_key_value_heads", heads)},
                       {"head_dim", hf.given("head_dim") ? hf.size("head_dim", 1) : 0},
                       {"qk_norm", "full"},
                       {"bias", hf.flag("attention_bias", false) ? "all" : "none"}};
  const Json mlp{{"type", "swiglu"}, {"d_ff", hf.size("intermediate_size", 11008)}};
  hf.one_of("hidden_act", {"silu"}, "the MLP is a SwiGLU");

  std::vector<std::string> types;
  for (int64_t i = 0; i < c.n_layers; ++i) types.emplace_back(windows && (i + 1) % 4 ? kSliding : kFull);
  if (windows) types = hf.layer_types(c.n_layers, {kFull, kSliding}, types);
  const auto layer = [&](const char* type, int64_t window) {
    const HfConfig::Rope rope = windows ? hf.rope_of(type, 500000, type == kFull) : hf.rope(1);
    if (rope.theta == 0) hf.problem("rope_theta", "is null", "give the base of the rotation");
    if (rope.partial != 1) hf.problem("partial_rotary_factor", "is not 1", "this family rotates whole heads");
    Json mixer = attention;
    mixer.update({{"rope_theta", rope.theta}, {"window", window}});
    mixer.update(rope.scaling);
    return LayerWords{mixer, mlp, "post"};
  };
  const Json* window = windows ? hf.raw("sliding_window") : nullptr;  // null means none, missing the default
  const LayerWords full = layer(kFull, 0),
                   sliding = windows
                                 ? layer(kSliding,
                                         window && window->is_null() ? 0 : hf.whole("sliding_window", 4096))
                                 : full;
  for (const std::string& type : types) c.layers.push_back(type == kFull ? full : sliding);
  return c;
}

template <bool windows, Family (*family)()>
Json write(const ModelConfig& c) {
  Json full, sliding, types = Json::array();  // the first attention without and with a window
  for (int64_t i = 0; i < c.n_layers; ++i) {
    const Json a = mixer_kind(c.layer(i)) == MixerKind::kAttention ? MixerJson::complete(c.layer(i).mixer, c)
                                                                   : first_mixer(c, MixerKind::kAttention);
    types.push_back(a["window"] == 0 ? kFull : kSliding);
    Json& here = a["window"] == 0 ? full : sliding;
    if (here.is_null()) here = a;
  }
  if (full.is_null()) full = sliding;
  if (sliding.is_null()) sliding = full;
  Json j = hf_header(family(), c);
  j.update({{"intermediate_size", first_mlp(c, "swiglu")["d_ff"]},
            {"num_attention_heads", full["heads"]},
            {"num_key_value_heads", full["kv_heads"]},
            {"hidden_act", "silu"},
            {"max_position_embeddings", max_positions(c)},
            {"rms_norm_eps", c.norm_eps},
            {"rope_parameters", hf_rope(full)},
            {"attention_bias", full["bias"] == "all"},
            {"attention_dropout", 0.0}});
  if (full["head_dim"].get<int64_t>() * full["heads"].get<int64_t>() != c.d_model)
    j["head_dim"] = full["head_dim"];
  if (!windows) return j;
  j["rope_parameters"] = {{kFull, hf_rope(full)}, {kSliding, hf_rope(sliding)}};
  j["sliding_window"] = sliding["window"] == 0 ? Json(4096) : sliding["window"];
  j["layer_types"] = types;
  return j;
}

void tensors(const ModelConfig& c, TensorTable& t) {
  add_embeddings(c, t, "model.embed_tokens.weight", "model.norm.weight");
  for (int64_t i = 0; i < c.n_layers; ++i) {
    const std::string hf = hf_layer(i), ours = our_layer(i);
    t.add(t.same(hf + "post_attention_layernorm.weight", ours + "mixer_norm.weight"));
    t.add(t.same(hf + "post_feedforward_layernorm.weight", ours + "mlp_norm.weight"));
    add_attention(t, hf + "self_attn.", ours + "mixer.", MixerJson::complete(c.layer(i).mixer, c));
    add_swiglu(t, hf + "mlp.", ours + "mlp.");
  }
}

}  // namespace

Family olmo2_family() {
  return {"olmo2",
          "Olmo2ForCausalLM",
          "Olmo 2: norms on the output of attention and MLP",
          "arXiv:2501.00656",
          {},
          read<false>,
          write<false, olmo2_family>,
          tensors};
}

Family olmo3_family() {
  return {"olmo3", "Olmo3ForCausalLM", "Olmo 2 with windows by layer", "arXiv:2512.13961",
          {},      read<true>,         write<true, olmo3_family>,      tensors};
}

}  // namespace braid
