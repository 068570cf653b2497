// Every family: there and back bit for bit, each way of storing, and every kind of misfit told.
#include "io/json.h"
#include "model/config_json.h"
#include "model/families/families.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "io/file.h"
#include "support/test_dir.h"
#include "model/families/convert.h"
#include "model/families/shared.h"
#include "model/presets.h"

namespace braid {
namespace {

struct Case {
  const char *arch, *family;
  std::vector<std::string> set = {};
  std::string as = {};  // --family
};

const char* kNoMlp = "pattern.*.mlp={\"type\":\"none\"}";
const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"transformer", "llama"},
      {"transformer",
       "llama",
       {"tie_embeddings=true", "pattern.0.mixer.kv_heads=2", "pattern.0.mixer.head_dim=20"}},
      {"transformer", "mistral", {"pattern.0.mixer.window=7"}},
      {"transformer", "qwen3", {"pattern.0.mixer.qk_norm=head"}},
      {"transformer",
       "llama",
       {"pattern.0.mixer.bias=all", "pattern.0.mlp.bias=true", "pattern.0.mixer.rope_scaling=llama3",
        "pattern.0.mixer.rope_factor=8", "pattern.0.mixer.rope_original=64"}},
      {"transformer",
       "qwen2",
       {"pattern.0.mixer.bias=qkv", "pattern.0.mixer.rope_scaling=yarn", "pattern.0.mixer.rope_factor=4",
        "pattern.0.mixer.rope_original=32", "pattern.0.mixer.kv_heads=2"}},
      {"transformer", "qwen3", {"pattern.0.mixer.qk_norm=head", "pattern.0.mixer.bias=all"}},
      {"transformer",
       "olmo2",
       {"pattern.0.norm=post", "pattern.0.mixer.qk_norm=full", "pattern.0.mixer.rope_scaling=linear",
        "pattern.0.mixer.rope_factor=3"}},
      {"transformer",
       "olmo3",
       {"pattern.0.norm=post", "pattern.0.mixer.qk_norm=full", "pattern.0.mixer.window=9"}},
      {"transformer",
       "transformer",
       {"pattern.0.mixer.qk_norm=head", "pattern.0.mixer.qk_eps=1e-5", "norm_eps=1e-6",
        "pattern.0.mixer.bias=qkv"}},
      {"mamba2", "mamba2", {kNoMlp}},
      {"mamba2", "mamba2", {kNoMlp, "pattern.*.mixer.bias=true", "pattern.*.mixer.conv_bias=false"}},
      {"mamba2", "mamba2", {kNoMlp, "pattern.*.mixer.conv=3", "tie_embeddings=true"}},
      {"mamba2", "mamba2", {kNoMlp, "pattern.*.mixer.groups=2"}},
      {"deltanet", "delta_net"},
      {"deltanet",
       "delta_net",
       {"pattern.*.mixer.gate=silu", "pattern.*.mixer.feature=relu", "pattern.*.mixer.conv=0"}},
      {"deltanet", "delta_net", {"pattern.*.mixer.feature_norm=l1", "pattern.*.mixer.feature=elu1"}},
      {"deltanet", "delta_net", {"pattern.*.mixer.value_dim=6", "pattern.*.mixer.head_dim=10"}},
      {"gated-deltanet", "gated_deltanet"},
      {"gated-deltanet", "gated_deltanet", {"pattern.*.mixer.key_heads=2", "pattern.*.mixer.value_dim=23"}},
      {"gdn-h1", "gated_deltanet"},
      {"gdn-h1", "gated_deltanet", {"pattern.1.mixer.bias=qkv"}},
      {"qwen3-next", "qwen3_next"},
      {"qwen3-next", "qwen3_5_moe_text", {}, "qwen3_5_moe"},
      {"qwen3.5", "qwen3_5_text"},
      {"qwen3.5", "qwen3_next", {}, "qwen3_next"},
      {"olmo-hybrid", "olmo_hybrid"},
      {"olmo-hybrid", "olmo_hybrid", {"pattern.3.mixer.rope_theta=5000", "pattern.3.mixer.kv_heads=2"}},
  };
  return all;
}

std::string name_of(const Case& c) {
  std::string s = std::string(c.arch) + " as " + c.family;
  for (const std::string& x : c.set) s += " " + x;
  return s;
}

ModelConfig config_of(const Case& c, const char* size = "tiny") {
  Result<Json> json = preset_config(c.arch, size, 32);
  for (const std::string& s : c.set) EXPECT_TRUE(apply_override(*json, s));
  return *parse_config(*json, c.arch);
}

// All numbers differ, also in norms and biases.
std::unique_ptr<Model> random_model(const ModelConfig& config) {
  std::unique_ptr<Model> model = Model::create(config);
  model->init(1);
  Rng rng(3, "numbers");
  for (float& x : model->params().block()) x = static_cast<float>(rng.normal());
  return model;
}

std::string save(const Model& model, const std::string& dir) {
  EXPECT_TRUE(make_dirs(dir));
  EXPECT_TRUE(save_json(dir + "/config.json", to_json(model.config())));
  EXPECT_TRUE(model.save_weights(dir + "/model.safetensors"));
  return dir;
}

bool same_bits(const Model& a, const Model& b) {
  for (const Param& p : a.params().all()) {
    bool found = false;
    for (const Param& q : b.params().all())
      if (q.name == p.name && q.shape == p.shape)
        found = std::memcmp(a.params().block().data() + p.offset, b.params().block().data() + q.offset,
                            p.count() * sizeof(float)) == 0;
    if (!found) return false;
  }
  return a.params().count() == b.params().count();
}

std::string bytes(const std::string& path) { return *read_text(path, size_t{1} << 30); }

// ---- There and back

TEST(Families, ThereAndBackIsTheSameBitForBit) {
  for (const Case& c : cases()) {
    const TestDir dir;
    const std::unique_ptr<Model> model = random_model(config_of(c));
    const std::string ours = save(*model, dir / "ours"), theirs = dir / "theirs", back = dir / "back";
    const Result<HfConfigFile> hf = hf_config(model->config(), c.as);
    ASSERT_TRUE(hf) << name_of(c) << ": " << hf.error().what;
    EXPECT_EQ(hf->family->model_type, c.family) << name_of(c);
    const Result<Converted> there = convert_to_hf({.in = ours, .out = theirs}, *model, *hf);
    ASSERT_TRUE(there) << name_of(c) << ": " << there.error().what;

    const Result<std::unique_ptr<Model>> direct = Model::load(theirs);
    ASSERT_TRUE(direct) << name_of(c) << ": " << direct.error().what;
    EXPECT_TRUE(same_bits(*model, **direct)) << name_of(c);
    const Result<Converted> again = convert_to_braid({.in = theirs, .out = back}, **direct, *hf->family);
    ASSERT_TRUE(again) << name_of(c) << ": " << again.error().what;
    EXPECT_EQ(bytes(ours + "/model.safetensors"), bytes(back + "/model.safetensors")) << name_of(c);
    // And the config means the same: it gives the same config.json once more.
    const Result<HfConfigFile> second = hf_config((*direct)->config(), c.as);
    ASSERT_TRUE(second) << second.error().what;
    EXPECT_EQ(*second->json, *hf->json) << name_of(c);
  }
}

TEST(Families, EveryWayOfStoringIsRead) {
  size_t other_ways = 0;
  for (const Case& c : cases()) {
    const std::unique_ptr<Model> model = random_model(config_of(c));
    const Result<HfConfigFile> hf = hf_config(model->config(), c.as);
    ASSERT_TRUE(hf);
    TensorTable table(model->params());
    hf->family->tensors(model->config(), table);
    size_t ways = 1;
    for (const auto& part : table.parts()) ways = std::max(ways, part.size());
    other_ways += ways - 1;
    for (size_t k = 0; k < ways; ++k) {
      const TestDir dir;
      ASSERT_TRUE(make_dirs(dir / "m"));
      std::vector<std::vector<float>> numbers;
      std::vector<NamedTensor> tensors;
      for (const auto& part : table.parts())
        for (const HfTensor& t : part[std::min(k, part.size() - 1)]) {
          std::vector<float> x;
          for (const ParamRows& r : t.rows)
            for (const Param& p : model->params().all())
              if (p.name == r.param) {
                const float* from = model->params().block().data() + p.offset + r.first * row_length(p.shape);
                x.insert(x.end(), from, from + r.count * row_length(p.shape));
              }
          ASSERT_EQ(static_cast<int64_t>(x.size()), t.shape.count()) << t.name;
          numbers.push_back(std::move(x));
          tensors.push_back({t.name, {nullptr, DType::kF32, t.shape}});
        }
      for (size_t i = 0; i < tensors.size(); ++i) tensors[i].view.data = numbers[i].data();
      ASSERT_TRUE(write_safetensors(dir / "m/model.safetensors", tensors));
      ASSERT_TRUE(save_json(dir / "m/config.json", *hf->json));
      const Result<std::unique_ptr<Model>> read = Model::load(dir / "m");
      ASSERT_TRUE(read) << name_of(c) << ", way " << k << ": " << read.error().what;
      EXPECT_TRUE(same_bits(*model, **read)) << name_of(c) << ", way " << k;
    }
  }
  EXPECT_GE(other_ways, 10u);
}

// The rows of Qwen3-Next's projections, counted out by hand: group by group q, k, then the values of the
// group's heads, then their gates; b before a.
TEST(Families, Qwen3NextInterleavesByGroupsOfHeads) {
  const Case c{"qwen3-next", "qwen3_next", {"pattern.*.mlp={\"type\":\"swiglu\",\"d_ff\":8}"}};
  const ModelConfig config = config_of(c);
  const std::unique_ptr<Model> model = random_model(config);
  const Json g = MixerJson::complete(config.layer(0).mixer, config);
  const int64_t Hk = g["key_heads"], Hv = g["heads"], dk = g["head_dim"], dv = g["value_dim"], r = Hv / Hk;
  ASSERT_GT(r, 1);
  const TestDir dir;
  const std::string ours = save(*model, dir / "ours");
  const Result<HfConfigFile> hf = hf_config(config, "qwen3_next");
  ASSERT_TRUE(hf);
  ASSERT_TRUE(convert_to_hf({.in = ours, .out = dir / "theirs"}, *model, *hf));
  const Result<SafeTensors> file = SafeTensors::open(dir / "theirs/model.safetensors");
  ASSERT_TRUE(file);
  const auto row = [&](const char* tensor, int64_t i) {
    const View* v = file->find(tensor);
    return std::span(v->as<float>()).subspan(i * v->shape[1], v->shape[1]);
  };
  const auto is = [&](std::span<const float> got, const char* param, int64_t i) {
    for (size_t p = 0; p < model->params().all().size(); ++p)
      if (model->params()[p].name == std::string("layers.0.mixer.") + param)
        return std::memcmp(got.data(), model->params().mat(p).row(i), got.size_bytes()) == 0;
    return false;
  };
  const char *qkvz = "model.layers.0.linear_attn.in_proj_qkvz.weight",
             *ba = "model.layers.0.linear_attn.in_proj_ba.weight";
  for (int64_t kh = 0; kh < Hk; ++kh) {
    const int64_t at = kh * (2 * dk + 2 * r * dv);
    for (int64_t d = 0; d < dk; ++d) {
      EXPECT_TRUE(is(row(qkvz, at + d), "q_proj.weight", kh * dk + d));
      EXPECT_TRUE(is(row(qkvz, at + dk + d), "k_proj.weight", kh * dk + d));
    }
    for (int64_t j = 0; j < r; ++j) {
      for (int64_t d = 0; d < dv; ++d) {
        EXPECT_TRUE(is(row(qkvz, at + 2 * dk + j * dv + d), "v_proj.weight", (kh * r + j) * dv + d));
        EXPECT_TRUE(is(row(qkvz, at + 2 * dk + r * dv + j * dv + d), "g_proj.weight", (kh * r + j) * dv + d));
      }
      EXPECT_TRUE(is(row(ba, kh * 2 * r + j), "b_proj.weight", kh * r + j));
      EXPECT_TRUE(is(row(ba, kh * 2 * r + r + j), "a_proj.weight", kh * r + j));
      EXPECT_FALSE(is(row(ba, kh * 2 * r + j), "a_proj.weight", kh * r + j));  // the mutant
    }
  }
}

TEST(Families, Bf16RoundsEachNumberOnce) {
  const std::unique_ptr<Model> model = random_model(config_of({"transformer", "llama"}));
  const TestDir dir;
  const std::string ours = save(*model, dir / "ours");
  const Result<HfConfigFile> hf = hf_config(model->config(), "");
  ASSERT_TRUE(convert_to_hf({.in = ours, .out = dir / "theirs", .format = WeightFormat::kBf16}, *model, *hf));
  EXPECT_EQ((*load_json(dir / "theirs/config.json"))["dtype"], "bfloat16");
  const Result<std::unique_ptr<Model>> read = Model::load(dir / "theirs");
  ASSERT_TRUE(read) << read.error().what;
  for (float& x : model->params().block()) x = to_f32(to_bf16(x));
  EXPECT_TRUE(same_bits(*model, **read));
}

// ---- Configs

TEST(Families, SizesOfReleasedModelsAreTheirFamilies) {
  for (const auto& [arch, size, family] : {std::array{"qwen3-next", "80B", "qwen3_next"},
                                           {"qwen3.5", "0.8B", "qwen3_5_text"},
                                           {"qwen3.5", "27B", "qwen3_5_text"},
                                           {"olmo-hybrid", "7B", "olmo_hybrid"}}) {
    const Result<HfConfigFile> hf = hf_config(config_of({arch, family}, size), "");
    ASSERT_TRUE(hf) << arch << ": " << hf.error().what;
    EXPECT_EQ(hf->family->model_type, family);
  }
  const Json olmo = *hf_config(config_of({"olmo-hybrid", ""}, "7B"), "")->json;
  EXPECT_TRUE(olmo["rope_parameters"]["rope_theta"].is_null());
  // What the class's defaults say is the released model, so nothing else needs to be there.
  const Result<ModelConfig> defaults = read_config(
      {{"model_type", "olmo_hybrid"}, {"rope_parameters", {{"rope_theta", nullptr}}}}, "defaults");
  ASSERT_TRUE(defaults) << defaults.error().what;
  EXPECT_EQ(*hf_config(*defaults, "")->json, olmo);
}

TEST(Families, WhatNoFamilyExpressesIsToldSettingBySetting) {
  const auto error = [](const Case& c) {
    const Result<HfConfigFile> hf = hf_config(config_of(c), c.as);
    EXPECT_FALSE(hf) << name_of(c);
    return hf ? std::string() : hf.error().what;
  };
  const std::string mamba = error({"mamba2", "", {}, "mamba2"});
  EXPECT_NE(mamba.find("pattern[0].mlp.type: is swiglu; Mamba2ForCausalLM has none"), std::string::npos)
      << mamba;
  // The family with the same mixers is nearer than one with the same MLPs.
  for (const std::vector<std::string>& set :
       {std::vector<std::string>{}, {"pattern.*.mixer.groups=2"}, {"norm_eps=0.1", "pattern.*.norm=post"}}) {
    const std::string nearest = error({"mamba2", "", set});
    EXPECT_NE(nearest.find("as Mamba2ForCausalLM, the nearest"), std::string::npos) << nearest;
  }
  const std::string llama =
      error({"transformer",
             "",
             {"pattern.0.mixer.window=9", "pattern.0.mixer.gate=sigmoid", "norm_eps=0.1"},
             "llama"});
  EXPECT_NE(llama.find("pattern[0].mixer.window: is 9; LlamaForCausalLM has 0"), std::string::npos) << llama;
  EXPECT_NE(llama.find("pattern[0].mixer.gate: is sigmoid; LlamaForCausalLM has none"), std::string::npos)
      << llama;
  EXPECT_EQ(llama.find("norm_eps"), std::string::npos) << llama;
  // Dropout is only in training, so it does not stand in the way.
  EXPECT_TRUE(hf_config(config_of({"deltanet", "", {"dropout=0.1", "pattern.*.mixer.qkv_dropout=0.1"}}), ""));
  for (const Preset& p : all_presets()) {
    bool known = false;
    for (const Case& c : cases()) known |= p.name == c.arch && c.set.empty();
    if (!known) error({p.name.data(), ""});
  }
  EXPECT_NE(hf_config(config_of({"transformer", ""}), "lama").error().fix.find("llama"), std::string::npos);
}

TEST(Families, GroupsOfMamba2NameTheVersionTheyNeed) {
  for (const bool groups : {false, true}) {
    std::vector<std::string> set{kNoMlp};
    if (groups) set.emplace_back("pattern.*.mixer.groups=2");
    const std::unique_ptr<Model> model = random_model(config_of({"mamba2", "", set}));
    const TestDir dir;
    const std::string ours = save(*model, dir / "ours");
    const Result<HfConfigFile> hf = hf_config(model->config(), "");
    ASSERT_TRUE(hf) << hf.error().what;
    const Result<Converted> out = convert_to_hf({.in = ours, .out = dir / "theirs"}, *model, *hf);
    ASSERT_TRUE(out) << out.error().what;
    const auto tells = [](const std::vector<std::string>& notes) {
      return std::ranges::count_if(notes, [](const std::string& n) {
        return n.find("transformers up to 5.22.2 norms all groups together") != n.npos;
      });
    };
    EXPECT_EQ(tells(out->notes), groups);
    const Json json = *load_json(dir / "theirs/config.json");
    EXPECT_EQ(json.value("transformers_version", ""), groups ? "5.23.0" : "");
    const Result<std::unique_ptr<Model>> back = Model::load(dir / "theirs");
    ASSERT_TRUE(back) << back.error().what;
    EXPECT_TRUE(same_bits(*model, **back));
    const Result<Converted> again =
        convert_to_braid({.in = dir / "theirs", .out = dir / "again"}, **back, *find_family("mamba2"));
    ASSERT_TRUE(again) << again.error().what;
    EXPECT_EQ(tells(again->notes), groups);
  }
}

// A guess beside the list: most of these are near some name and mean another model.
TEST(Families, UnknownFamiliesAreToldWhichAreKnown) {
  for (const char* type : {"bamba", "jamba", "zamba", "zamba2", "mamba", "mixtral", "ministral3", "qwen4_exp",
                           "gpt2", "deepseek_v3"}) {
    const Result<ModelConfig> c = read_config({{"model_type", type}}, "config.json");
    ASSERT_FALSE(c);
    for (const std::string& name : family_names())
      EXPECT_NE(c.error().fix.find(name), std::string::npos) << type << ": " << c.error().fix;
  }
  const Result<ModelConfig> near = read_config({{"model_type", "lama"}}, "config.json");
  EXPECT_TRUE(near.error().fix.starts_with("use 'llama'; known: ")) << near.error().fix;
}

TEST(Families, EveryFieldThatCannotBeExpressedIsNamed) {
  Json json = *hf_config(config_of({"transformer", ""}), "")->json;
  ASSERT_TRUE(read_config(json, "c"));
  json["attention_bias"] = 1, json["hidden_act"] = "gelu", json["num_hidden_layers"] = "two";
  json["rope_parameters"] = {{"rope_type", "dynamic"}, {"rope_theta", 1e4}, {"factor", 4}},
  json["logit_scale"] = 2;
  json["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  const Result<ModelConfig> c = read_config(json, "c");
  ASSERT_FALSE(c);
  for (const char* part :
       {"attention_bias: is 1", "hidden_act: is \"gelu\"", "num_hidden_layers: is \"two\"",
        "rope_parameters.rope_type: is \"dynamic\"", "logit_scale: is 2", "quantised: \"fp8\""})
    EXPECT_NE(c.error().what.find(part), std::string::npos) << part << " is not in: " << c.error().what;
  const Result<ModelConfig> unknown = read_config({{"model_type", "lama"}}, "c");
  EXPECT_NE(unknown.error().fix.find("'llama'"), std::string::npos) << unknown.error().fix;
  EXPECT_FALSE(read_config({{"model_type", "llama"}, {"num_hidden_layers", int64_t{1} << 60}}, "c"));
  EXPECT_FALSE(read_config({{"model_type", "gated_deltanet"}, {"expand_v", 1e300}}, "c"));
  EXPECT_FALSE(read_config({{"model_type", "qwen3_5"}, {"text_config", 3}}, "c"));
  EXPECT_FALSE(
      read_config({{"model_type", "llama"}, {"num_key_value_heads", 0}}, "c"));  // not "as many as heads"
  EXPECT_FALSE(read_config(Json::array(), "c"));
}

Json hub_config(const char* type) {
  const std::string name = type;
  if (name == "llama")  // Llama 3.1 8B
    return {{"architectures", {"LlamaForCausalLM"}},
            {"attention_bias", false},
            {"attention_dropout", 0.0},
            {"bos_token_id", 128000},
            {"eos_token_id", 128001},
            {"hidden_act", "silu"},
            {"hidden_size", 4096},
            {"initializer_range", 0.02},
            {"intermediate_size", 14336},
            {"max_position_embeddings", 131072},
            {"mlp_bias", false},
            {"model_type", "llama"},
            {"num_attention_heads", 32},
            {"num_hidden_layers", 32},
            {"num_key_value_heads", 8},
            {"pretraining_tp", 1},
            {"rms_norm_eps", 1e-05},
            {"rope_scaling",
             {{"factor", 8.0},
              {"low_freq_factor", 1.0},
              {"high_freq_factor", 4.0},
              {"original_max_position_embeddings", 8192},
              {"rope_type", "llama3"}}},
            {"rope_theta", 500000.0},
            {"tie_word_embeddings", false},
            {"torch_dtype", "bfloat16"},
            {"transformers_version", "4.43.0.dev0"},
            {"use_cache", true},
            {"vocab_size", 128256}};
  if (name == "qwen2")  // Qwen2.5 0.5B
    return {{"architectures", {"Qwen2ForCausalLM"}},
            {"attention_dropout", 0.0},
            {"bos_token_id", 151643},
            {"eos_token_id", 151643},
            {"hidden_act", "silu"},
            {"hidden_size", 896},
            {"initializer_range", 0.02},
            {"intermediate_size", 4864},
            {"max_position_embeddings", 32768},
            {"max_window_layers", 24},
            {"model_type", "qwen2"},
            {"num_attention_heads", 14},
            {"num_hidden_layers", 24},
            {"num_key_value_heads", 2},
            {"rms_norm_eps", 1e-06},
            {"rope_theta", 1000000.0},
            {"sliding_window", 32768},
            {"tie_word_embeddings", true},
            {"torch_dtype", "bfloat16"},
            {"use_cache", true},
            {"use_mrope", nullptr},
            {"use_sliding_window", false},
            {"vocab_size", 151936}};
  return {{"architectures", {"MistralForCausalLM"}},
          {"bos_token_id", 1},
          {"eos_token_id", 2},
          {"hidden_act", "silu"},
          {"hidden_size", 4096},
          {"intermediate_size", 14336},
          {"max_position_embeddings", 32768},
          {"model_type", "mistral"},
          {"num_attention_heads", 32},
          {"num_hidden_layers", 32},
          {"num_key_value_heads", 8},
          {"rms_norm_eps", 1e-05},
          {"rope_theta", 10000.0},
          {"sliding_window", 4096},
          {"tie_word_embeddings", false},
          {"torch_dtype", "bfloat16"},
          {"use_cache", true},
          {"vocab_size", 32000},
          {"_name_or_path", "/tmp/x"}};
}

TEST(Families, ConfigsAsReleasedAreRead) {
  for (const auto& [type, count] :
       {std::pair{"llama", 8'030'261'248u}, {"qwen2", 494'032'768u}, {"mistral", 7'241'732'096u}}) {
    std::vector<std::string> ignored;
    const Result<ModelConfig> c = read_config(hub_config(type), type, &ignored);
    ASSERT_TRUE(c) << c.error().what;
    EXPECT_EQ(Model::create(*c)->params().count(), count) << type;
    EXPECT_NE(std::ranges::find(ignored, "torch_dtype"), ignored.end());
    EXPECT_EQ(std::ranges::find(ignored, "hidden_size"), ignored.end());
  }
}

TEST(Families, KeysThatCannotSayAnythingAreIgnoredAndTold) {
  Json json = hub_config("llama");
  json["use_mrope"] = nullptr, json["_commit_hash"] = "abc", json["extra_losses"] = Json::array(),
  json["note"] = "";
  std::vector<std::string> ignored;
  ASSERT_TRUE(read_config(json, "c", &ignored));
  for (const char* key : {"use_mrope", "_commit_hash", "extra_losses", "note"})
    EXPECT_NE(std::ranges::find(ignored, key), ignored.end()) << key;
  for (const Json& value :
       {Json(false), Json(0), Json(1.0), Json("x"), Json{{"a", 1}}}) {  // each of them could
    json["use_mrope"] = value;
    const Result<ModelConfig> c = read_config(json, "c");
    ASSERT_FALSE(c) << value;
    EXPECT_NE(c.error().what.find("use_mrope: is "), std::string::npos) << c.error().what;
  }
}

TEST(Families, RopeScalingIsReadInEveryWriting) {
  const auto mixer = [](const Json& rope, const Json& more = Json::object()) {
    Json json = hub_config("llama");
    json["rope_scaling"] = rope;
    json.update(more);
    const Result<ModelConfig> c = read_config(json, "c");
    return c ? MixerJson::complete(c->layer(0).mixer, *c) : Json(c.error().what);
  };
  EXPECT_EQ(mixer({{"type", "linear"}, {"factor", 2}})["rope_factor"], 2);
  const Json yarn =
      mixer({{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}});
  EXPECT_EQ(yarn["rope_high"], 32);
  EXPECT_NEAR(yarn["rope_amplitude"].get<double>(), 1 + 0.1 * std::log(4.0), 1e-15);
  EXPECT_EQ(mixer({{"type", "yarn"}, {"factor", 4.0}})["rope_original"], 131072);  // max_position_embeddings
  EXPECT_EQ(mixer({{"type", "yarn"},
                   {"factor", nullptr},
                   {"original_max_position_embeddings", 32768}})["rope_factor"],
            4);
  EXPECT_NEAR(
      mixer({{"type", "yarn"}, {"factor", 40}, {"mscale", 1.0}, {"mscale_all_dim", 0.5}})["rope_amplitude"]
          .get<double>(),
      (1 + 0.1 * std::log(40.0)) / (1 + 0.05 * std::log(40.0)), 1e-15);
  for (const auto& [rope, part] :
       {std::pair{Json{{"type", "linear"}}, "rope_scaling.factor: is missing"},
        {Json{{"type", "linear"}, {"factor", 0}}, "rope_scaling.factor: is 0"},
        {Json{{"type", "linear"}, {"factor", 2}, {"beta_fast", 2}}, "rope_scaling.beta_fast: is 2"},
        {Json{{"type", "dynamic"}, {"factor", 2}}, "rope_scaling.rope_type: is \"dynamic\""},
        {Json{{"type", "su"}, {"short_factor", {1}}}, "rope_scaling.rope_type: is \"su\""},
        {Json{{"type", "yarn"}, {"factor", 2}, {"truncate", false}}, "rope_scaling.truncate: is false"},
        {Json{{"rope_type", "llama3"}, {"factor", 2}}, "rope_scaling.low_freq_factor: is missing"},
        {Json{{"rope_type", "llama3"}, {"factor", 2}, {"low_freq_factor", 4}, {"high_freq_factor", 4}},
         "rope_high: is 4, not above rope_low 4"}}) {
    const Json got = mixer(rope);
    ASSERT_TRUE(got.is_string()) << rope;
    EXPECT_NE(got.get<std::string>().find(part), std::string::npos) << part << " is not in: " << got;
  }
  // Olmo 3 as released: the scaling is for layers without a window.
  const Result<ModelConfig> olmo =
      read_config({{"model_type", "olmo3"},
                   {"num_hidden_layers", 4},
                   {"rope_theta", 500000},
                   {"max_position_embeddings", 65536},
                   {"rope_scaling",
                    {{"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 8192}}}},
                  "c");
  ASSERT_TRUE(olmo) << olmo.error().what;
  EXPECT_EQ(MixerJson::complete(olmo->layer(0).mixer, *olmo)["rope_scaling"], "none");
  EXPECT_EQ(MixerJson::complete(olmo->layer(0).mixer, *olmo)["window"], 4096);
  EXPECT_EQ(MixerJson::complete(olmo->layer(3).mixer, *olmo)["rope_scaling"], "yarn");
}

TEST(Families, PythonsInfinityIsRead) {
  const TestDir dir;
  const std::string head =
      R"({"model_type": "mamba2", "hidden_size": 64, "num_heads": 16, "head_dim": 8, "time_step_limit": )";
  for (const auto& [limit, good] : {std::pair{"[0.0, Infinity]", true},
                                    {"[0.0, {\"__float__\": \"Infinity\"}]", true},
                                    {"[0.0, 0.1]", false},
                                    {"[0.01, Infinity]", false}}) {
    ASSERT_TRUE(write_atomic(dir / "c", head + limit + "}"));
    const Result<Json> json = load_config_json(dir / "c");
    ASSERT_TRUE(json) << json.error().what;
    EXPECT_EQ(static_cast<bool>(read_config(*json, "c")), good) << limit;
  }
  ASSERT_TRUE(write_atomic(dir / "c", head + "[Infinity"));
  EXPECT_FALSE(load_config_json(dir / "c"));
}

// ---- Folders

TEST(Families, AllMisfitsOfAFileAreTold) {
  const std::unique_ptr<Model> model = random_model(config_of({"transformer", "llama"}));
  const TestDir dir;
  ASSERT_TRUE(make_dirs(dir / "m"));
  ASSERT_TRUE(save_json(dir / "m/config.json", *hf_config(model->config(), "")->json));
  const float x[64] = {};
  ASSERT_TRUE(write_safetensors(dir / "m/model.safetensors",
                                {{"model.norm.weight", {x, DType::kF32, {63}}},
                                 {"model.layers.0.self_attn.rotary_emb.inv_freq", {x, DType::kF32, {8}}},
                                 {"model.extra", {x, DType::kF32, {2}}}}));
  const Result<std::unique_ptr<Model>> read = Model::load(dir / "m");
  ASSERT_FALSE(read);
  for (const char* part :
       {"model.norm.weight: has shape [63]; expected [64]", "model.extra: is not a parameter",
        "model.embed_tokens.weight: is missing; expected [32, 64]", "and 17 more: is missing"})
    EXPECT_NE(read.error().what.find(part), std::string::npos) << part << " is not in: " << read.error().what;
  EXPECT_EQ(read.error().what.find("inv_freq"), std::string::npos);
}

TEST(Families, ShardsHoldTheSameAndAreNoLargerThanAsked) {
  const std::unique_ptr<Model> model = random_model(config_of({"transformer", "llama"}));
  const TestDir dir;
  const std::string ours = save(*model, dir / "ours");
  const Result<HfConfigFile> hf = hf_config(model->config(), "");
  constexpr uint64_t kMost = 50'000;
  ASSERT_TRUE(convert_to_hf({.in = ours, .out = dir / "theirs", .shard_bytes = kMost}, *model, *hf));
  size_t files = 0;
  for (const auto& e : std::filesystem::directory_iterator(dir / "theirs"))
    if (e.path().extension() == ".safetensors") {
      ++files;
      EXPECT_LT(e.file_size(), kMost + 4000) << e.path();
    }
  EXPECT_GT(files, 2u);
  const Result<std::unique_ptr<Model>> read = Model::load(dir / "theirs");
  ASSERT_TRUE(read) << read.error().what;
  EXPECT_TRUE(same_bits(*model, **read));
}

// A file as llama2.c has it, written here from a model by the format's description.
TEST(Families, Llama2cIsReadWithNeighboursRotated) {
  for (const bool tied : {true, false}) {
    Case c{"transformer", "llama", {"pattern.0.mixer.kv_heads=2", "norm_eps=1e-5"}};
    c.set.push_back(tied ? "tie_embeddings=true" : "tie_embeddings=false");
    const std::unique_ptr<Model> model = random_model(config_of(c));
    const ModelConfig& config = model->config();
    const Json a = MixerJson::complete(config.layer(0).mixer, config);
    const int64_t dh = a["head_dim"], longest = 16;
    const int32_t vocab = static_cast<int32_t>(config.vocab_size);
    const std::vector<int32_t> head{static_cast<int32_t>(config.d_model),
                                    MlpJson::complete(config.layer(0).mlp)["d_ff"],
                                    static_cast<int32_t>(config.n_layers),
                                    a["heads"],
                                    a["kv_heads"],
                                    tied ? vocab : -vocab,
                                    static_cast<int32_t>(longest)};
    std::string file(reinterpret_cast<const char*>(head.data()), 28);
    const auto put = [&](const std::string& name, bool rotated) {
      for (const Param& p : model->params().all()) {
        if (p.name != name) continue;
        const float* x = model->params().block().data() + p.offset;
        const int64_t rows = p.shape[0], cols = row_length(p.shape);
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t i = r % dh, ours = rotated ? r - i + i / 2 + (i % 2) * dh / 2 : r;
          file.append(reinterpret_cast<const char*>(x + ours * cols), cols * sizeof(float));
        }
      }
    };
    const auto stack = [&](const char* name, bool rotated = false) {
      for (int64_t l = 0; l < config.n_layers; ++l) put(our_layer(l) + name, rotated);
    };
    put("embedding.weight", false);
    stack("mixer_norm.weight"), stack("mixer.q_proj.weight", true), stack("mixer.k_proj.weight", true);
    stack("mixer.v_proj.weight"), stack("mixer.o_proj.weight"), stack("mlp_norm.weight");
    stack("mlp.gate_proj.weight"), stack("mlp.down_proj.weight"), stack("mlp.up_proj.weight");
    put("final_norm.weight", false);
    file.append(longest * dh * sizeof(float), '\0');
    if (!tied) put("head.weight", false);

    const TestDir dir;
    ASSERT_TRUE(write_atomic(dir / "m.bin", file));
    const Result<Converted> done = convert_llama2c({.in = dir / "m.bin", .out = dir / "m"});
    ASSERT_TRUE(done) << done.error().what;
    const Result<std::unique_ptr<Model>> read = Model::load(dir / "m");
    ASSERT_TRUE(read) << read.error().what;
    EXPECT_TRUE(same_bits(*model, **read));
    // Cut, another file, a later version.
    const auto error = [&](const std::string& bytes) {
      EXPECT_TRUE(write_atomic(dir / "bad.bin", bytes));
      const Result<Converted> r = convert_llama2c({.in = dir / "bad.bin", .out = dir / "bad"});
      return r ? "" : r.error().what;
    };
    EXPECT_NE(error(file.substr(0, file.size() - 4)).find("but its header stands for"), std::string::npos);
    EXPECT_NE(error("abc").find("fewer than a header"), std::string::npos);
    EXPECT_NE(error("24ka" + file.substr(4)).find("later version"), std::string::npos);
    EXPECT_NE(error(std::string(100, '\0')).find("not one of llama2.c"), std::string::npos);
  }
}

TEST(Families, NothingIsLeftOfAConversionThatStops) {
  const std::unique_ptr<Model> model = random_model(config_of({"transformer", "llama"}));
  const TestDir dir;
  const std::string ours = save(*model, dir / "ours");
  const Result<HfConfigFile> hf = hf_config(model->config(), "");
  EXPECT_FALSE(
      convert_to_hf({.in = ours, .out = dir / "theirs", .progress = [](uint64_t, uint64_t) { return false; }},
                    *model, *hf));
  size_t entries = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(dir / "")) ++entries;
  EXPECT_EQ(entries, 1u);  // "ours"
  // Only a model's folder is replaced, and never the one that is read.
  ASSERT_TRUE(make_dirs(dir / "other"));
  ASSERT_TRUE(write_atomic(dir / "other/letter", "do not lose me"));
  EXPECT_FALSE(convert_to_hf({.in = ours, .out = dir / "other", .replace = true}, *model, *hf));
  EXPECT_FALSE(convert_to_hf({.in = ours, .out = ours, .replace = true}, *model, *hf));
  EXPECT_EQ(bytes(dir / "other/letter"), "do not lose me");
  ASSERT_TRUE(convert_to_hf({.in = ours, .out = dir / "theirs"}, *model, *hf));
  EXPECT_FALSE(convert_to_hf({.in = ours, .out = dir / "theirs"}, *model, *hf));
  EXPECT_TRUE(convert_to_hf({.in = ours, .out = dir / "theirs", .replace = true}, *model, *hf));
}

}  // namespace
}  // namespace braid
