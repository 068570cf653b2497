// braid convert as a user meets it. That the numbers are right is shown by src/model/families, by
// fixtures_test.cpp and, against transformers itself, by bench/peers/hf_check.py.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "process.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

void expect_error(const Finished& f, int code, const std::vector<std::string>& parts) {
  EXPECT_EQ(f.code, code) << f.err;
  EXPECT_TRUE(f.err.starts_with("braid: ")) << f.err;
  for (const std::string& p : parts)
    EXPECT_NE(f.err.find(p), std::string::npos) << "'" << p << "' is not in: " << f.err;
}

double number_after(const std::string& text, const std::string& key) {
  const size_t at = text.find(key);
  return at == std::string::npos ? NAN : std::stod(text.substr(at + key.size()));
}

// A tiny trained model and what convert made of it.
struct Models {
  TempDir dir;
  std::string ours = dir / "ours", theirs = dir / "theirs", text = dir / "text";
  std::string train(const std::string& name, const std::vector<std::string>& extra) {
    std::vector<std::string> args{"train", "--text",  text, "--length", "32",       "--steps",
                                  "2",     "--batch", "2",  "--run",    dir / name, "--quiet"};
    args.insert(args.end(), extra.begin(), extra.end());
    const Finished f = run_braid(args);
    EXPECT_EQ(f.code, 0) << f.err;
    return dir / name;
  }
  Models() {
    std::string words;
    for (int i = 0; i < 200; ++i) words += "the cat sat on mat " + std::to_string(i % 10) + "\n";
    spit(text, words);
    train("ours", {});
    const Finished f = run_braid({"convert", "--model", ours, "--to", "hf", "--out", theirs});
    EXPECT_EQ(f.code, 0) << f.err;
    EXPECT_NE(f.out.find("llama: "), std::string::npos) << f.out;
  }
};

Models& models() {
  static Models m;
  return m;
}

// Fine-tuning of the run's folder and of the family's: without a learning rate the loss stays, with one it
// falls.
TEST(Convert, TrainingStartsFromEitherFolder) {
  const Models& m = models();
  const TempDir dir;
  const auto loss = [&](const std::string& name, const std::string& from, const std::string& lr,
                        const std::string& steps) {
    const Finished f =
        run_braid({"train", "--model", from,       "--text", m.text, "--length", "32", "--steps",
                   steps,   "--batch", "2",        "--lr",   lr,     "--warmup", "0",  "--weight-decay",
                   "0",     "--run",   dir / name, "--quiet"});
    EXPECT_EQ(f.code, 0) << f.err;
    return number_after(slurp(dir / name + "/result.json"), "\"eval_loss\": ");
  };
  const double before = number_after(slurp(m.ours + "/result.json"), "\"eval_loss\": ");
  EXPECT_NEAR(loss("same", m.ours, "0", "1"), before, 1e-6);
  EXPECT_NEAR(loss("same-hf", m.theirs, "0", "1"), before, 1e-5);
  EXPECT_LT(loss("better", m.theirs, "1e-2", "20"), 0.8 * before);
  EXPECT_EQ(number_after(slurp(dir / "same/config.json"), "\"train_length\": "), 32);
  const Finished longer = run_braid({"train", "--model", m.ours, "--text", m.text, "--length", "48",
                                     "--steps", "1", "--batch", "2", "--run", dir / "longer", "--quiet"});
  EXPECT_EQ(longer.code, 0) << longer.err;
  EXPECT_EQ(number_after(slurp(dir / "longer/config.json"), "\"train_length\": "), 48);
  expect_error(
      run_braid({"train", "--model", m.ours, "--arch", "mamba", "--text", m.text, "--run", dir / "x"}), 2,
      {"--model", "--arch"});
  expect_error(run_braid({"train", "--model", dir / "none", "--text", m.text, "--run", dir / "x"}), 1,
               {"--model", "none"});
}

TEST(Convert, EveryVerbReadsTheFamilysFolder) {
  const Models& m = models();
  const auto said = [](const std::string& dir) {
    return run_braid({"generate", "--model", dir, "--prompt", "the cat", "--max-tokens", "20", "--greedy"})
        .out;
  };
  EXPECT_EQ(said(m.ours), said(m.theirs));
  const TempDir dir;
  for (const std::string& from : {m.ours, m.theirs}) {
    const Finished f =
        run_braid({"logits", "--model", from, "--text", "the cat sat", "--out", dir / "logits"});
    EXPECT_EQ(f.code, 0) << f.err;
    fs::rename(dir / "logits", dir / (from == m.ours ? "a" : "b"));
  }
  EXPECT_EQ(slurp(dir / "a"), slurp(dir / "b"));
  const Finished a = run_braid({"info", "--model", m.ours, "--json"}),
                 b = run_braid({"info", "--model", m.theirs, "--json"});
  const auto count = [](const std::string& s) { return s.substr(0, s.find("\"config\"")); };
  EXPECT_EQ(b.code, 0) << b.err;
  EXPECT_EQ(count(a.out), count(b.out));
  EXPECT_EQ(run_braid({"verify", "--model", m.theirs}).code, 0);
  EXPECT_EQ(
      run_braid({"convert", "--model", m.theirs, "--to", "braid", "--out", dir / "back", "--json"}).code, 0);
  EXPECT_EQ(slurp(dir / "back/model.safetensors"), slurp(m.ours + "/model.safetensors"));
  // The same options give the same bytes.
  EXPECT_EQ(run_braid({"convert", "--model", m.ours, "--to", "hf", "--out", dir / "again"}).code, 0);
  for (const char* name : {"/config.json", "/model.safetensors"})
    EXPECT_EQ(slurp(dir / "again" + name), slurp(m.theirs + name)) << name;
}

TEST(Convert, WrongUseIsExplained) {
  const Models& m = models();
  expect_error(run_braid({"convert"}), 2, {"--model"});
  expect_error(run_braid({"convert", "--model", m.ours, "--out", "x"}), 2, {"Braid already", "--to hf"});
  expect_error(run_braid({"convert", "--model", m.ours, "--out", "x", "--to", "gguf"}), 2,
               {"gguf", "hf or braid"});
  expect_error(run_braid({"convert", "--model", m.ours, "--to", "hf"}), 2, {"--out"});
  expect_error(run_braid({"convert", "--model", m.ours, "--to", "hf", "--out", "x", "--dtype", "f8"}), 2,
               {"f8", "bf16"});
  expect_error(run_braid({"convert", "--model", m.ours, "--to", "braid", "--check"}), 2,
               {"already", "--to hf"});
  expect_error(run_braid({"convert", "--model", m.theirs, "--to", "hf", "--check"}), 2,
               {"LlamaForCausalLM", "already", "--to braid"});
  expect_error(run_braid({"convert", "--model", m.ours, "--to", "hf", "--check", "--family", "lama"}), 2,
               {"lama", "llama"});
  expect_error(run_braid({"convert", "--model", m.ours, "--to", "hf", "--out", m.theirs}), 1,
               {"exists", "--force"});
  expect_error(run_braid({"convert", "--model", m.ours, "--to", "hf", "--out", m.ours, "--force"}), 1,
               {"itself"});
  expect_error(run_braid({"convert", "--model", "/nonexistent", "--to", "hf", "--check"}), 1,
               {"--model /nonexistent: does not exist"});
  expect_error(run_braid({"convert", "--model", m.ours, "--to", "hf", "--out", m.text + "/x"}), 1, {m.text});
}

TEST(Convert, AModelThatNoFamilyHasIsWrongUse) {
  const std::string run = models().train("mamba2", {"--arch", "mamba2"});
  expect_error(run_braid({"convert", "--model", run, "--to", "hf", "--check", "--family", "mamba2"}), 2,
               {"pattern[0].mlp.type: is swiglu; Mamba2ForCausalLM has none"});
  expect_error(run_braid({"convert", "--model", run, "--to", "hf", "--check"}), 2,
               {"cannot be written as Mamba2ForCausalLM, the nearest"});
}

TEST(Convert, DamagedFoldersAreNamed) {
  const Models& m = models();
  const TempDir dir;
  const std::string weights = slurp(m.theirs + "/model.safetensors"),
                    config = slurp(m.theirs + "/config.json");
  int n = 0;
  const auto with = [&](const std::string& json, const std::string& tensors) {
    const std::string d = dir / ("m" + std::to_string(n++));
    fs::create_directory(d);
    if (!json.empty()) spit(d + "/config.json", json);
    if (!tensors.empty()) spit(d + "/model.safetensors", tensors);
    const Finished f = run_braid({"convert", "--model", d, "--to", "braid", "--out", dir / "out"});
    EXPECT_FALSE(f.code != 0 && fs::exists(dir / "out")) << "something was left behind";
    return f;
  };
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string c = config;
    const size_t at = c.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return c.replace(at, from.size(), to);
  };
  expect_error(with("", weights), 1, {"config.json"});
  expect_error(with(config, ""), 1, {"neither model.safetensors nor model.safetensors.index.json"});
  expect_error(with(config, weights.substr(0, weights.size() / 2)), 1, {"model.safetensors", "cut"});
  expect_error(with(changed("\"model_type\": \"llama\"", "\"model_type\": \"lamma\""), weights), 1,
               {"lamma", "'llama'"});
  expect_error(with("{\"model_type\": ", weights), 1, {"config.json"});
  expect_error(with("[1]", weights), 1, {"model_type is missing"});
  expect_error(with(changed("\"attention_bias\": false", "\"attention_bias\": true"), weights), 1,
               {"model.layers.0.self_attn.q_proj.bias: is missing; expected [64]"});
  expect_error(with(changed("\"hidden_act\": \"silu\"", "\"hidden_act\": \"relu\""), weights), 1,
               {"config.json", "hidden_act: is \"relu\"", "only silu"});
  expect_error(with(changed("\"hidden_size\"",
                            "\"quantization_config\": {\"quant_method\": \"gptq\"}, \"hidden_size\""),
                    weights),
               1, {"quantization_config: says the numbers are quantised: \"gptq\"", "BF16"});
  expect_error(with(changed("\"hidden_size\"", "\"logit_scale\": 2, \"hidden_size\""), weights), 1,
               {"logit_scale: is 2, which Braid does not know", "take it out"});
  const auto header = [&](const std::string& from, const std::string& to) {  // of equal lengths
    std::string w = weights;
    const size_t at = w.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return w.replace(at, from.size(), to);
  };
  expect_error(with(config, header("\"model.norm.weight\"", "\"model.nerm.weight\"")), 1,
               {"model.norm.weight: is missing; expected [64]", "model.nerm.weight: is not a parameter"});
  expect_error(with(config, header("\"dtype\":\"F32\"", "\"dtype\":\"I32\"")), 1,
               {"has dtype I32; expected F32, BF16, F16 or F64"});
  expect_error(with(config, header("\"dtype\":\"F32\",", "\"dtype\":\"F8_\",")), 1,
               {"model.safetensors", "lm_head.weight", "\"F8_\" is not supported", "BF16"});
  expect_error(with(changed("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"), weights), 1,
               {"model.layers.2.self_attn.q_proj.weight: is missing"});
  expect_error(with(changed("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"), weights), 1,
               {"model.layers.1.mlp.down_proj.weight: is not a parameter", "and 6 more: is not a parameter"});
  expect_error(
      with(changed("\"vocab_size\": 256", "\"vocab_size\": 255"), weights), 1,
      {"model.embed_tokens.weight: has shape [256, 64]; expected [255, 64]", "lm_head.weight: has shape"});
  EXPECT_EQ(with(config, weights).code, 0);
}

TEST(Convert, DamagedShardsAreNamed) {
  const std::string from = BRAID_SOURCE "/tests/data/families/llama-bf16-shards",
                    index = "/model.safetensors.index.json";
  int n = 0;
  const TempDir dir;
  const auto after = [&](auto damage) {
    const std::string d = dir / ("m" + std::to_string(n++));
    fs::copy(from, d);
    damage(d);
    return run_braid({"info", "--model", d});
  };
  std::string shard;  // the first
  for (const auto& e : fs::directory_iterator(from))
    if (const std::string name = e.path().filename(); name.starts_with("model-00001")) shard = "/" + name;
  ASSERT_FALSE(shard.empty());
  EXPECT_EQ(after([](const std::string&) {}).code, 0);
  expect_error(after([&](const std::string& d) { fs::remove(d + shard); }), 1,
               {shard, "named by", "model.safetensors.index.json"});
  expect_error(after([&](const std::string& d) { fs::resize_file(d + shard, fs::file_size(d + shard) - 9); }),
               1, {shard, "the file is cut, 9 bytes are missing"});
  expect_error(after([&](const std::string& d) {
                 std::string text = slurp(d + index);
                 const size_t at = text.find("model.norm.weight");
                 spit(d + index, text.replace(at, 17, "model.nerm.weight"));
               }),
               1, {"model.safetensors.index.json", "1 tensor is missing", "model.nerm.weight"});
  expect_error(after([&](const std::string& d) { fs::remove(d + index); }), 1,
               {"neither model.safetensors nor model.safetensors.index.json"});
  expect_error(after([&](const std::string& d) { fs::remove(d + "/config.json"); }), 1, {"config.json"});
}

TEST(Convert, ShardsAreWrittenAndRead) {
  const Models& m = models();
  const TempDir dir;
  ASSERT_EQ(
      run_braid({"convert", "--model", m.ours, "--to", "hf", "--out", dir / "s", "--shard-size", "0.1"}).code,
      0);
  EXPECT_TRUE(fs::exists(dir / "s/model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(dir / "s/model.safetensors"));
  ASSERT_EQ(run_braid({"convert", "--model", dir / "s", "--to", "braid", "--out", dir / "back"}).code, 0);
  EXPECT_EQ(slurp(dir / "back/model.safetensors"), slurp(m.ours + "/model.safetensors"));
  expect_error(
      run_braid({"convert", "--model", m.theirs, "--to", "braid", "--out", dir / "x", "--shard-size", "1"}),
      2, {"--shard-size"});
}

TEST(Convert, WhatHasNoEffectIsListed) {
  const Finished f =
      run_braid({"info", "--verbose", "--model", BRAID_SOURCE "/tests/data/families/qwen3_5-vision"});
  EXPECT_EQ(f.code, 0) << f.err;
  for (const char* part : {"keys of config.json without effect", "  vision_config\n",
                           "text_config.use_cache\n", "model.visual.", "reads images; Braid reads tokens"})
    EXPECT_NE(f.out.find(part), std::string::npos) << "'" << part << "' is not in: " << f.out;
}

TEST(Convert, Llama2cFilesAreNamed) {
  const TempDir dir;
  spit(dir / "x.bin", std::string(40, 'x'));
  expect_error(run_braid({"convert", "--from", "llama2c", "--model", dir / "x.bin", "--out", dir / "out"}), 1,
               {"x.bin", "not one of llama2.c"});
  expect_error(run_braid({"convert", "--from", "gguf", "--model", dir / "x.bin", "--out", dir / "out"}), 2,
               {"gguf"});
  expect_error(run_braid({"convert", "--from", "llama2c", "--to", "hf", "--model", dir / "x.bin", "--out",
                          dir / "out"}),
               2, {"'hf' with --from llama2c", "--to braid"});
}

TEST(Convert, AFullDiskLeavesNothing) {
  const Models& m = models();
  const TempDir dir;
  const Finished f =
      run_braid({"convert", "--model", m.ours, "--to", "hf", "--out", dir / "out"}, {.file_limit = 20000});
  EXPECT_NE(f.code, 0);
  EXPECT_TRUE(fs::is_empty(dir / "")) << "something was left behind";
}

TEST(Convert, ForceReplacesWhatConvertWroteAndNothingElse) {
  const Models& m = models();
  const TempDir dir;
  const std::string out = dir / "out";
  const std::vector<std::string> convert{"convert", "--model", m.ours, "--to", "hf", "--out", out, "--force"};
  // A config.json makes a folder nobody's.
  fs::create_directory(out);
  spit(out + "/config.json", "{}"), spit(out + "/thesis", "years of work");
  expect_error(run_braid(convert), 1, {"--out " + out, "files that Braid did not write"});
  EXPECT_EQ(slurp(out + "/thesis") + slurp(out + "/config.json"), "years of work{}");
  fs::remove_all(out);
  ASSERT_EQ(run_braid(convert).code, 0);
  fs::create_directory(out + "/notes");
  spit(out + "/thesis", "years of work"), spit(out + "/notes/a", "a");
  const std::string config = slurp(out + "/config.json");
  spit(out + "/config.json", "changed");
  EXPECT_EQ(run_braid(convert).code, 0);
  EXPECT_EQ(slurp(out + "/config.json"), config);
  EXPECT_EQ(slurp(out + "/thesis") + slurp(out + "/notes/a"), "years of worka");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / ""), {}), 1) << "something was left beside it";
  // A run is not a converted model.
  const std::string run = models().train("other-run", {});
  expect_error(run_braid({"convert", "--model", m.ours, "--to", "hf", "--out", run, "--force"}), 1,
               {"holds a training run"});
  EXPECT_TRUE(fs::exists(run + "/state"));
}

// All that transformers reads beside the weights.
TEST(Convert, FilesBesideTheWeightsGoAlong) {
  const Models& m = models();
  const TempDir dir;
  const std::string from = dir / "from", out = dir / "out";
  fs::copy(m.theirs, from);
  const std::vector<std::string> names{"chat_template.json",
                                       "chat_template.jinja",
                                       "generation_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "tekken.json",
                                       "additional_chat_templates/tool.jinja"};
  fs::create_directory(from + "/additional_chat_templates");
  for (const std::string& n : names) spit(from + "/" + n, "{\"of\": \"" + n + "\"}");
  const Finished f = run_braid({"convert", "--model", from, "--to", "braid", "--out", out});
  ASSERT_EQ(f.code, 0) << f.err;
  for (const std::string& n : names) EXPECT_EQ(slurp(out + "/" + n), slurp(from + "/" + n)) << n;
}

}  // namespace
}  // namespace braid::test
