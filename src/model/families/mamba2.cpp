// Mamba2 of transformers and of fla, whose config has the same model_type, but norm_eps and other defaults:
// layers without an MLP. With several groups of heads the authors' code, fla's and Braid's norm each group by
// itself. The PyTorch code of transformers does so since 5.23; up to 5.22.2 it norms the whole width, though
// the kernels it uses for training on a GPU do not. A written config with groups names the version it needs.
#include <fmt/format.h>

#include "model/families/shared.h"
#include "model/config_json.h"

namespace braid {
namespace {

Translated read(HfConfig& hf) {
  Translated c;
  const bool fla = hf.given("norm_eps") && !hf.given("layer_norm_epsilon");
  c.vocab_size = hf.size("vocab_size", fla ? 32000 : 32768);
  c.d_model = hf.size("hidden_size", fla ? 2048 : 4096);
  c.n_layers = hf.layers("num_hidden_layers", fla ? 48 : 64);
  c.norm_eps = hf.number(fla ? "norm_eps" : "layer_norm_epsilon", 1e-5);
  c.init_std = hf.number("initializer_range", fla ? 0.02 : 0.1);
  c.tie_embeddings = hf.flag("tie_word_embeddings", false);
  const int64_t head_dim = hf.size("head_dim", 64), inner = hf.size("expand", 2) * c.d_model,
                heads = hf.size("num_heads", fla ? inner / head_dim : 128);
  if (heads * head_dim != inner)
    hf.problem("num_heads", fmt::format("x head_dim is {}", heads * head_dim),
               fmt::format("expected expand x hidden_size = {}", inner));
  c.layers = {{{{"type", "mamba2"},
                {"d_inner", inner},
                {"head_dim", head_dim},
                {"state", hf.size("state_size", 128)},
                {"groups", hf.size("n_groups", fla ? 1 : 8)},
                {"conv", hf.size("conv_kernel", 4)},
                {"conv_bias", hf.flag("use_conv_bias", true)},
                {"bias", hf.flag("use_bias", false)}},
               {{"type", "none"}}}};
  hf.one_of("hidden_act", {"silu"}, "Mamba2's convolution and gate use silu");
  hf.must_be("rmsnorm", true, "the output has a norm");
  hf.must_be("norm_before_gate", false, "the gate comes before the norm");
  hf.must_be("D_has_hdim", false, "the skip has one number per head");
  hf.must_be("norm_eps", c.norm_eps, "layer_norm_epsilon says so");
  for (const char* key : {"time_step_limit", "dt_limit"}) {
    if (!hf.given(key)) continue;  // infinity has no word in JSON: transformers spells it in its own ways
    const Json& limit = *hf.raw(key);
    const bool open = limit.is_array() && limit.size() == 2 && limit[0].is_number() && limit[0] <= 0 &&
                      (limit[1] == "Infinity" || limit[1] == Json{{"__float__", "Infinity"}});
    if (!open) hf.problem(key, "is " + limit.dump(), "Braid does not limit step lengths");
  }
  hf.no_effect({"residual_in_fp32", "rescale_prenorm_residual", "chunk_size", "time_step_rank",
                "time_step_min", "time_step_max", "time_step_floor", "layer_types", "conv_init",
                "A_init_range", "dt_min", "dt_max", "dt_init_floor", "fuse_norm", "fuse_cross_entropy",
                "fuse_linear_cross_entropy", "use_l2warp"});
  return c;
}

Json write(const ModelConfig& c) {
  const Json m = first_mixer(c, MixerKind::kMamba2);
  const int64_t inner = m["d_inner"], head_dim = m["head_dim"];
  Json j = hf_header(mamba2_family(), c);
  j.update({{"num_heads", inner / head_dim},
            {"head_dim", head_dim},
            {"state_size", m["state"]},
            {"expand", inner / c.d_model},
            {"conv_kernel", m["conv"]},
            {"n_groups", m["groups"]},
            {"layer_norm_epsilon", c.norm_eps},
            {"norm_eps", c.norm_eps},  // fla's name of it
            {"hidden_act", "silu"},
            {"use_bias", m["bias"]},
            {"use_conv_bias", m["conv_bias"]},
            {"residual_in_fp32", true},
            {"chunk_size", 256}});
  if (m["groups"] != 1) j["transformers_version"] = "5.23.0";
  return j;
}

void tensors(const ModelConfig& c, TensorTable& t) {
  t.add_either({{t.same("backbone.embeddings.weight", "embedding.weight")},
                {t.same("backbone.embedding.weight", "embedding.weight")}});  // older files
  t.add(t.same("backbone.norm_f.weight", "final_norm.weight"));
  if (!c.tie_embeddings) t.add(t.same("lm_head.weight", "head.weight"));
  for (int64_t i = 0; i < c.n_layers; ++i) {
    const std::string hf = fmt::format("backbone.layers.{}.", i), ours = our_layer(i);
    t.add(t.same(hf + "norm.weight", ours + "mixer_norm.weight"));
    t.add(t.conv(hf + "mixer.conv1d.weight", ours + "mixer.conv1d.weight"));
    const Json m = MixerJson::complete(c.layer(i).mixer, c);
    std::vector<std::string> names{"in_proj.weight", "dt_bias",        "A_log", "D",
                                   "norm.weight",    "out_proj.weight"};
    if (m["conv_bias"] == true) names.emplace_back("conv1d.bias");
    if (m["bias"] == true) names.insert(names.end(), {"in_proj.bias", "out_proj.bias"});
    for (const std::string& name : names) t.add(t.same(hf + "mixer." + name, ours + "mixer." + name));
  }
}

bool has_groups(const ModelConfig& c) { return first_mixer(c, MixerKind::kMamba2)["groups"] != 1; }

const char* read_note(const ModelConfig& c) {
  return has_groups(c)
             ? "each group of heads has its own norm, as in mamba_ssm and in transformers since 5.23; "
               "transformers up to 5.22.2 norms all groups together on CPUs"
             : nullptr;
}

const char* write_note(const ModelConfig& c) {
  return has_groups(c) ? "several groups of heads: read it with transformers 5.23 or newer, or fla; "
                         "transformers up to 5.22.2 norms all groups together on CPUs"
                       : nullptr;
}

}  // namespace

Family mamba2_family() {
  return {"mamba2",
          "Mamba2ForCausalLM",
          "Mamba2 layers without an MLP",
          "arXiv:2405.21060",
          {},
          read,
          write,
          tensors,
          "",
          "",
          nullptr,
          read_note,
          write_note};
}

}  // namespace braid
