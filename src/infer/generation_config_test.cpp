#include "infer/read_generation_config.h"

#include "io/json.h"

#include <gtest/gtest.h>

#include "io/file.h"
#include "support/test_dir.h"

namespace braid {
namespace {

TEST(GenerationConfig, ReadsWhatReleasedModelsSay) {
  const Json file{{"bos_token_id", 151643},
                  {"do_sample", true},
                  {"eos_token_id", {151645, 151643}},
                  {"pad_token_id", 151643},
                  {"temperature", 0.7},
                  {"top_k", 20},
                  {"top_p", 0.8},
                  {"min_p", 0.05},
                  {"repetition_penalty", 1.05},
                  {"max_new_tokens", 2048},
                  {"transformers_version", "4.57.0"}};
  const Result<GenerationConfig> g = read_generation_config(file, {{"eos_token_id", 7}}, "m");
  ASSERT_TRUE(g) << g.error().what;
  EXPECT_EQ(g->eos, (std::vector<int32_t>{151643, 151645}));
  EXPECT_EQ(g->max_new_tokens, 2048);
  EXPECT_FLOAT_EQ(g->sampling().temperature, 0.7f);
  EXPECT_EQ(g->sampling().top_k, 20);
  EXPECT_FLOAT_EQ(g->sampling().top_p, 0.8f);
  EXPECT_FLOAT_EQ(g->sampling().min_p, 0.05f);
  EXPECT_FLOAT_EQ(g->sampling().repetition_penalty, 1.05f);
  EXPECT_EQ(filters_text(g->sampling().filters),
            "penalties,temperature,top_n_sigma,top_k,top_p,min_p,typical,xtc");
  EXPECT_TRUE(g->ignored.empty());
}

TEST(GenerationConfig, FallsBackToConfigAndTakesTheLikeliest) {
  const Result<GenerationConfig> g =
      read_generation_config(Json(), {{"eos_token_id", 2}, {"bos_token_id", nullptr}}, "m");
  ASSERT_TRUE(g);
  EXPECT_EQ(g->eos, std::vector<int32_t>{2});
  EXPECT_EQ(g->sampling().temperature, 0);  // no do_sample
  const Result<GenerationConfig> wrapped =
      read_generation_config(Json::object(), {{"text_config", {{"eos_token_id", 248044}}}}, "m");
  ASSERT_TRUE(wrapped);
  EXPECT_EQ(wrapped->eos, std::vector<int32_t>{248044});
  EXPECT_TRUE(read_generation_config(Json(), Json(), "m")->eos.empty());
}

TEST(GenerationConfig, SettingsOfASamplerMeanSampling) {
  const auto read = [](const char* text) { return *read_generation_config(Json::parse(text), Json(), "m"); };
  EXPECT_FALSE(read(R"({"eos_token_id": 1})").says_how);
  EXPECT_TRUE(read(R"({"temperature": 0.6})").says_how);
  EXPECT_FLOAT_EQ(read(R"({"temperature": 0.6})").sampling().temperature, 0.6f);
  EXPECT_EQ(read(R"({"temperature": 0.6, "do_sample": false})").sampling().temperature, 0);
  EXPECT_TRUE(read(R"({"do_sample": false})").says_how);
}

TEST(GenerationConfig, WhatTheSamplerDoesNotHaveIsListed) {
  const Json file{{"num_beams", 4},           {"no_repeat_ngram_size", 0}, {"suppress_tokens", {1}},
                  {"bad_words_ids", nullptr}, {"epsilon_cutoff", 0.1},     {"_from_model_config", true}};
  EXPECT_EQ(read_generation_config(file, Json(), "m")->ignored,
            (std::vector<std::string>{"num_beams", "suppress_tokens", "epsilon_cutoff"}));
}

TEST(GenerationConfig, EveryWrongValueIsNamed) {
  const Json file{{"temperature", -1}, {"top_k", "many"},         {"top_p", 1.5},
                  {"do_sample", 1},    {"eos_token_id", {1, -2}}, {"max_new_tokens", 0}};
  const Result<GenerationConfig> g = read_generation_config(file, {{"eos_token_id", "</s>"}}, "m");
  ASSERT_FALSE(g);
  for (const char* part :
       {"generation_config.json: temperature", "generation_config.json: top_k: is \"many\"",
        "generation_config.json: top_p", "do_sample: is 1", "eos_token_id: is -2", "max_new_tokens: is 0",
        "config.json: eos_token_id: is \"</s>\""})
    EXPECT_NE(g.error().what.find(part), std::string::npos) << part << " is not in: " << g.error().what;
}

TEST(GenerationConfig, Folders) {
  const TestDir dir;
  EXPECT_TRUE(load_generation_config(dir / ""));
  ASSERT_TRUE(write_atomic(dir / "config.json", R"({"eos_token_id": [5, 3], "x": Infinity})"));
  EXPECT_EQ(load_generation_config(dir / "")->eos, (std::vector<int32_t>{3, 5}));
  ASSERT_TRUE(write_atomic(dir / "generation_config.json", "{"));
  const Result<GenerationConfig> g = load_generation_config(dir / "");
  ASSERT_FALSE(g);
  EXPECT_NE(g.error().what.find("generation_config.json"), std::string::npos) << g.error().what;
}

}  // namespace
}  // namespace braid
