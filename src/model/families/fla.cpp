// Transformer, DeltaNet and Gated DeltaNet of flash-linear-attention, the latter two with softmax attention
// in the layers that "attn" lists. fla counts heads by keys, Braid by values.
#include <fmt/format.h>

#include <cmath>

#include "model/families/shared.h"
#include "model/config_json.h"

namespace braid {
namespace {

// What both configs share.
Translated read_common(HfConfig& hf, int64_t layers) {
  Translated c;
  c.vocab_size = hf.size("vocab_size", 32000);
  c.d_model = hf.size("hidden_size", 2048);
  c.n_layers = hf.layers("num_hidden_layers", layers);
  c.norm_eps = hf.number("norm_eps", 1e-6);
  c.init_std = hf.number("initializer_range", 0.02);
  c.tie_embeddings = hf.flag("tie_word_embeddings", false);
  hf.one_of("hidden_act", {"swish", "silu"}, "the MLP is a SwiGLU");
  hf.must_be("norm_first", false, "norms stand before mixer and MLP, in the layer");
  hf.must_be("attnres_block_size", nullptr, "Braid adds residuals");
  hf.no_effect({"attn_mode", "fuse_norm", "fuse_swiglu", "fuse_cross_entropy", "fuse_linear_cross_entropy",
                "use_l2warp", "use_output_norm", "elementwise_affine"});
  return c;
}

int64_t inner_width(HfConfig& hf, const ModelConfig& c) {
  const auto ratio = static_cast<double>(hf.whole("hidden_ratio", 4));
  const int64_t by_ratio = whole_part(static_cast<double>(c.d_model) * ratio * 2 / 3);
  return hf.size("intermediate_size", std::max<int64_t>(1, (by_ratio + 255) / 256 * 256));
}

int64_t conv_taps(HfConfig& hf) {
  const int64_t taps = hf.size("conv_size", 4);
  return hf.flag("use_short_conv", true) ? taps : 0;
}

// The layers that are softmax attention.
void read_attention(HfConfig& hf, Translated& c) {
  const Json* attn = hf.raw("attn");
  if (!attn || attn->is_null()) return;
  const Json specs = attn->is_array() ? *attn : Json::array({*attn});
  for (size_t s = 0; s < specs.size(); ++s) {
    std::vector<Problem> problems;
    HfConfig spec(specs[s], attn->is_array() ? fmt::format("attn[{}]", s) : "attn", problems);
    const int64_t heads = spec.size("num_heads", 1);
    const Json mixer{{"type", "attention"},
                     {"heads", heads},
                     {"kv_heads", spec.size("num_kv_heads", heads)},
                     {"window", spec.whole("window_size", 0)},
                     {"rope_theta", spec.number("rope_theta", 10000)},
                     {"bias", spec.flag("qkv_bias", false) ? "qkv" : "none"}};
    const Json* layers = spec.raw("layers");
    if (!layers || !layers->is_array())
      spec.problem("layers", "is not a list", "give layer numbers");
    else
      for (const Json& l : *layers) {
        if (l.is_number_integer() && l >= 0 && l < c.layers.size())
          c.layers[l.get<size_t>()].mixer = mixer;
        else
          spec.problem("layers", "has " + l.dump(), fmt::format("give numbers below {}", c.layers.size()));
      }
    spec.finish();
    for (const Problem& p : problems) hf.problem(p.where, p.what, p.fix);
  }
}

Json write_attention(const ModelConfig& c) {
  Json specs = Json::array();
  for (int64_t i = 0; i < c.n_layers; ++i) {
    if (mixer_kind(c.layer(i)) != MixerKind::kAttention) continue;
    const Json a = MixerJson::complete(c.layer(i).mixer, c);
    Json spec{{"layers", {i}},
              {"num_heads", a["heads"]},
              {"num_kv_heads", a["kv_heads"]},
              {"qkv_bias", a["bias"] != "none"},
              {"window_size", a["window"] == 0 ? Json(nullptr) : a["window"]},
              {"rope_theta", a["rope_theta"] == 0 ? Json(10000.0) : a["rope_theta"]}};
    for (Json& other : specs) {  // one entry for all layers that are alike
      Json alike = other;
      alike["layers"] = spec["layers"];
      if (alike != spec) continue;
      other["layers"].push_back(i);
      spec = nullptr;
      break;
    }
    if (!spec.is_null()) specs.push_back(spec);
  }
  return specs.empty() ? Json(nullptr) : specs.size() == 1 ? specs[0] : specs;
}

Json write_common(const Family& family, const ModelConfig& c, const Json& m) {
  Json j = hf_header(family, c);
  j.update({{"intermediate_size", first_mlp(c, "swiglu")["d_ff"]},
            {"hidden_act", "swish"},
            {"norm_eps", c.norm_eps},
            {"use_short_conv", m["conv"] != 0},
            {"conv_size", m["conv"] == 0 ? Json(4) : m["conv"]},
            {"use_gate", m["gate"] != "none"},
            {"allow_neg_eigval", m["negative_eigenvalues"]},
            {"attn", write_attention(c)},
            {"attn_mode", "chunk"},
            {"max_position_embeddings", max_positions(c)}});
  return j;
}

void fill(Translated& c, const Json& mixer, int64_t d_ff) {
  c.layers.assign(c.n_layers, {mixer, {{"type", "swiglu"}, {"d_ff", d_ff}}});
}

void tensors(const ModelConfig& c, TensorTable& t) {
  add_embeddings(c, t, "model.embeddings.weight", "model.norm.weight");
  for (int64_t i = 0; i < c.n_layers; ++i) {
    const std::string hf = hf_layer(i), ours = our_layer(i), attn = hf + "attn.", mixer = ours + "mixer.";
    t.add(t.same(hf + "attn_norm.weight", ours + "mixer_norm.weight"));
    t.add(t.same(hf + "mlp_norm.weight", ours + "mlp_norm.weight"));
    // Before February 2025 the two halves of the MLP's first product were one tensor.
    t.add_either({{t.same(hf + "mlp.gate_proj.weight", ours + "mlp.gate_proj.weight"),
                   t.same(hf + "mlp.up_proj.weight", ours + "mlp.up_proj.weight")},
                  {t.stacked(hf + "mlp.gate_proj.weight",
                             {ours + "mlp.gate_proj.weight", ours + "mlp.up_proj.weight"})}});
    t.add(t.same(hf + "mlp.down_proj.weight", ours + "mlp.down_proj.weight"));
    const Json m = MixerJson::complete(c.layer(i).mixer, c);
    if (mixer_kind(c.layer(i)) == MixerKind::kAttention) {
      add_attention(t, attn, mixer, m);
      continue;
    }
    std::vector<std::string> names{"q_proj.weight", "k_proj.weight", "v_proj.weight",
                                   "b_proj.weight", "o_norm.weight", "o_proj.weight"};
    if (m["decay"] == "token") names.insert(names.end(), {"a_proj.weight", "A_log", "dt_bias"});
    if (m["gate"] != "none") names.emplace_back("g_proj.weight");
    for (const std::string& name : names) t.add(t.same(attn + name, mixer + name));
    if (m["conv"] == 0) continue;
    const int64_t keys = t.rows(mixer + "q_proj.weight"), values = t.rows(mixer + "v_proj.weight");
    t.add(t.conv(attn + "q_conv1d.weight", mixer + "conv1d.weight", 0, keys));
    t.add(t.conv(attn + "k_conv1d.weight", mixer + "conv1d.weight", keys, keys));
    t.add(t.conv(attn + "v_conv1d.weight", mixer + "conv1d.weight", 2 * keys, values));
  }
}

// ---- Transformer

constexpr double kQkEps = 1e-5;  // of the norms of queries and keys, whatever norm_eps says

Translated read_transformer(HfConfig& hf) {
  Translated c = read_common(hf, 24);
  const int64_t heads = hf.size("num_heads", 32);
  const HfConfig::Rope rope = hf.rope(1);  // transformers may move rope_theta into rope_parameters
  if (rope.theta == 0) hf.problem("rope_theta", "is null", "give the base of the rotation");
  if (rope.partial != 1) hf.problem("partial_rotary_factor", "is not 1", "this family rotates whole heads");
  if (!rope.scaling.empty()) hf.problem("rope_parameters.rope_type", "is not default", "fla does not scale");
  fill(c,
       {{"type", "attention"},
        {"heads", heads},
        {"kv_heads", hf.size("num_kv_heads", heads)},
        {"window", hf.whole("window_size", 0)},
        {"rope_theta", rope.theta},
        {"bias", hf.flag("qkv_bias", false) ? "qkv" : "none"},
        {"qk_norm", hf.flag("qk_norm", false) ? "head" : "none"},
        {"qk_eps", kQkEps}},
       inner_width(hf, c));
  return c;
}

Json write_transformer(const ModelConfig& c) {
  const Json a = first_mixer(c, MixerKind::kAttention);
  Json j = hf_header(fla_transformer_family(), c);
  j.update({{"intermediate_size", first_mlp(c, "swiglu")["d_ff"]},
            {"hidden_act", "swish"},
            {"norm_eps", c.norm_eps},
            {"num_heads", a["heads"]},
            {"num_kv_heads", a["kv_heads"]},
            {"window_size", a["window"] == 0 ? Json(nullptr) : a["window"]},
            {"rope_theta", a["rope_theta"] == 0 ? Json(10000.0) : a["rope_theta"]},
            {"qkv_bias", a["bias"] != "none"},
            {"qk_norm", a["qk_norm"] != "none"},
            {"max_position_embeddings", max_positions(c)}});
  return j;
}

// ---- DeltaNet

Translated read_delta_net(HfConfig& hf) {
  Translated c = read_common(hf, 24);
  const int64_t heads = hf.size("num_heads", 16);
  const auto per_head = [&](const char* name) {
    const double width = static_cast<double>(c.d_model) * hf.number(name, 1);
    return hf.positive(name, whole_part(std::round(width)) / heads);
  };
  const std::string activation = hf.word("qk_activation", "silu");
  hf.one_of("qk_activation", {"silu", "relu", "elu", "identity"}, "the feature maps there are");
  const std::string norm = hf.word("qk_norm", "l2");
  hf.one_of("qk_norm", {"l2", "sum"}, "the norms there are");
  hf.must_be("use_beta", true, "the write strength comes from the input");
  fill(c,
       {{"type", "deltanet"},
        {"heads", heads},
        {"head_dim", per_head("expand_k")},
        {"value_dim", per_head("expand_v")},
        {"conv", conv_taps(hf)},
        {"feature", activation == "elu" ? "elu1" : activation},
        {"feature_norm", norm == "sum" ? "l1" : "l2"},
        {"gate", hf.flag("use_gate", false) ? "silu" : "none"},
        {"negative_eigenvalues", hf.flag("allow_neg_eigval", false)}},
       inner_width(hf, c));
  read_attention(hf, c);
  return c;
}

Json write_delta_net(const ModelConfig& c) {
  const Json m = first_mixer(c, MixerKind::kFastWeight);
  const int64_t heads = m["heads"], dk = m["head_dim"], dv = m["value_dim"];
  const std::string feature = m["feature"];
  Json j = write_common(delta_net_family(), c, m);
  j.update({{"num_heads", heads},
            {"expand_k", static_cast<double>(heads * dk) / static_cast<double>(c.d_model)},
            {"expand_v", static_cast<double>(heads * dv) / static_cast<double>(c.d_model)},
            {"qk_activation", feature == "elu1" ? "elu" : feature},
            {"qk_norm", m["feature_norm"] == "l1" ? "sum" : "l2"},
            {"use_beta", true}});
  return j;
}

// ---- Gated DeltaNet

Translated read_gated_deltanet(HfConfig& hf) {
  Translated c = read_common(hf, 21);
  const int64_t key_heads = hf.size("num_heads", 6), dk = hf.size("head_dim", 256);
  const std::string gate = hf.word("output_gate_activation", "swish");
  hf.one_of("output_gate_activation", {"swish", "silu", "sigmoid"}, "the gates there are");
  fill(
      c,
      {{"type", "gated_deltanet"},
       {"heads", hf.size("num_v_heads", key_heads)},
       {"key_heads", key_heads},
       {"head_dim", dk},
       {"value_dim", hf.positive("expand_v", whole_part(static_cast<double>(dk) * hf.number("expand_v", 2)))},
       {"conv", conv_taps(hf)},
       {"gate", !hf.flag("use_gate", true) ? "none"
                : gate == "sigmoid"        ? "sigmoid"
                                           : "silu"},
       {"negative_eigenvalues", hf.flag("allow_neg_eigval", false)}},
      inner_width(hf, c));
  read_attention(hf, c);
  return c;
}

Json write_gated_deltanet(const ModelConfig& c) {
  const Json m = first_mixer(c, MixerKind::kFastWeight);
  Json j = write_common(gated_deltanet_family(), c, m);
  j.update({{"num_heads", m["key_heads"]},
            {"num_v_heads", m["heads"]},
            {"head_dim", m["head_dim"]},
            {"expand_v", ratio(m["value_dim"], m["head_dim"])},
            {"output_gate_activation", m["gate"] == "sigmoid" ? "sigmoid" : "swish"}});
  return j;
}

const char* left_out(std::string_view name) {
  return name.ends_with(".attn.D") ? "not used since March 2025" : nullptr;
}

const char* needs_fla(const ModelConfig&) {
  return "transformers loads this folder only with the package flash-linear-attention: `import fla` before "
         "AutoModelForCausalLM.from_pretrained";
}

}  // namespace

Family fla_transformer_family() {
  return {"transformer",
          "TransformerForCausalLM",
          "fla's Transformer",
          "arXiv:2302.13971",
          {},
          read_transformer,
          write_transformer,
          tensors,
          "",
          "",
          nullptr,
          nullptr,
          needs_fla};
}

Family delta_net_family() {
  return {"delta_net",
          "DeltaNetForCausalLM",
          "fla's DeltaNet",
          "arXiv:2406.06484",
          {},
          read_delta_net,
          write_delta_net,
          tensors,
          "",
          "",
          nullptr,
          nullptr,
          needs_fla};
}

Family gated_deltanet_family() {
  return {"gated_deltanet",
          "GatedDeltaNetForCausalLM",
          "fla's Gated DeltaNet",
          "arXiv:2412.06464",
          {},
          read_gated_deltanet,
          write_gated_deltanet,
          tensors,
          "",
          "",
          left_out,
          nullptr,
          needs_fla};
}

}  // namespace braid
