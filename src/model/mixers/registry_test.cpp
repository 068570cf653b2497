#include "io/json.h"
#include "model/config_json.h"
#include "model/mixers/registry.h"

#include <gtest/gtest.h>

#include "support/test_dir.h"
#include "verify/compare.h"
#include "model/mixers/attention.h"
#include "model/mixers/fast_weight.h"
#include "model/mixers/remember.h"
#include "model/model.h"

namespace braid {
namespace {

// As a user would write it, outside the registry's folder: each token gets a learned share of an earlier one.
class Echo : public Mixer {
 public:
  struct Config {
    int64_t distance = 2;
    template <class V>
    void visit(V& v) {
      v("distance", distance, {1, 8}, "tokens to look back");
    }
  };
  static void validate(const Config& c, const std::string& where, const ModelConfig& model,
                       std::vector<Problem>& problems) {
    if (c.distance > model.d_model) problems.push_back({where + ".distance", "is above d_model", "lower it"});
  }
  Echo(const Config& c, const ModelConfig& model, Declare declare)
      : by_(c.distance), width_(model.d_model), w_(declare.matrix("w.weight", width_, width_)) {}
  Var forward(const MixerCall& call) const override {
    return linear(call.exec, remembered_delay(call, call.input, by_), w_, call.residual);
  }
  double flops_per_token(int64_t) const override { return 0; }
  StateSize state_size(int64_t) const override { return {.tails = by_ * width_}; }

 private:
  size_t by_, width_, w_;
};

Json echo_config(int64_t distance, int64_t d_model = 16) {
  return {
      {"model_type", "braid"},
      {"vocab_size", 7},
      {"d_model", d_model},
      {"n_layers", 2},
      {"pattern", {{{"mixer", {{"type", "echo"}, {"distance", distance}}}, {"mlp", {{"type", "none"}}}}}}};
}

std::vector<float> logits(Model& model, std::span<const int32_t> tokens, std::span<const size_t> pieces) {
  State state = model.new_state();
  State* const states[] = {&state};
  std::vector<float> all;
  for (size_t at = 0; const size_t n : pieces) {
    Arena arena;
    Exec exec({.arena = &arena, .params = &model.params()});
    const uint32_t offsets[] = {0, static_cast<uint32_t>(n)};
    std::vector<uint32_t> rows(n);
    for (size_t r = 0; r < n; ++r) rows[r] = static_cast<uint32_t>(r);
    const Mat<float> y = model.logits(
        exec,
        model.hidden(exec, {.tokens = tokens.subspan(at, n), .offsets = offsets, .states = states}, rows));
    all.insert(all.end(), y.data, y.data + y.count());
    at += n;
  }
  return all;
}

TEST(MixerTable, AConfigMayNameWhatItHas) {
  MixerTable mixers;
  const Status added = mixers.add(mixer_entry<Echo>("echo", "a share of an earlier token"));
  ASSERT_TRUE(added) << added.error().what;
  EXPECT_EQ(mixers.find("echo")->fields().front().name, "distance");
  EXPECT_NE(mixers.names().find("echo"), std::string::npos);
  EXPECT_FALSE(parse_config(echo_config(9), "out of range", mixers));
  EXPECT_FALSE(parse_config(echo_config(5, 4), "its own check", mixers));
  EXPECT_FALSE(parse_config(echo_config(2), "another table"));
  EXPECT_EQ(built_in_mixers().find("echo"), nullptr);

  const Result<ModelConfig> config = parse_config(echo_config(2), "mine", mixers);
  ASSERT_TRUE(config) << config.error().what;
  std::unique_ptr<Model> model = Model::create(*config);
  model->init(1);
  const std::vector<int32_t> tokens{1, 2, 3, 4, 5, 6, 0};
  const std::vector<float> whole = logits(*model, tokens, std::vector<size_t>{7});
  const std::vector<float> pieces = logits(*model, tokens, std::vector<size_t>{1, 4, 2});
  EXPECT_TRUE(within(compare<float, float>(pieces, whole), kTolF32)) << "state";

  const TestDir dir;
  const Status saved = model->save(dir / "model");
  ASSERT_TRUE(saved) << saved.error().what;
  Result<std::unique_ptr<Model>> loaded = Model::load(dir / "model", mixers);
  ASSERT_TRUE(loaded) << loaded.error().what;
  EXPECT_EQ(whole, logits(**loaded, tokens, std::vector<size_t>{7}));
  Result<std::unique_ptr<Model>> unknown = Model::load(dir / "model");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().what.find("pattern[0].mixer.type: is 'echo'"), std::string::npos)
      << unknown.error().what;
  EXPECT_TRUE(Model::load_stored(dir / "model", {}, {}, mixers));
}

TEST(MixerTable, RefusesNamesThatAreTaken) {
  MixerTable mixers;
  const size_t before = mixers.all().size();
  EXPECT_FALSE(mixers.add(mixer_entry<Echo>("attention", "not the attention it knows")));
  EXPECT_FALSE(mixers.add(mixer_entry<Echo>("", "nameless")));
  EXPECT_EQ(mixers.all().size(), before);
  EXPECT_EQ(mixers.find("attention")->summary.find("not the"), std::string_view::npos);
}

// A layer holds a mixer that exists, with settings that were checked: there is no name to be looked up later.
TEST(MixerSpec, NoConfigCanHoldAnUnknownOne) {
  static_assert(!std::is_default_constructible_v<MixerSpec> && !std::is_default_constructible_v<LayerConfig>);
  static_assert(!std::is_constructible_v<MixerSpec, Json> &&
                !std::is_constructible_v<MixerSpec, std::string>);
  MixerSpec a = built_in_mixers().find("mamba")->with_defaults();
  const MixerSpec b = std::move(a);  // nor an empty one
  EXPECT_EQ(a.type(), "mamba");      // NOLINT: a copy was made
  ModelConfig config;
  config.pattern = {LayerConfig{b, MlpConfig(SwigluConfig{{.d_ff = 16}})}};
  const std::unique_ptr<Model> model = Model::create(config);
  model->init(1);
  const std::vector<int32_t> tokens{1, 2, 3};
  EXPECT_EQ(logits(*model, tokens, std::vector<size_t>{3}).size(), 3u * 256);
}

TEST(MixerSpec, ComparesSettingsHoweverTheyAreWritten) {
  const ModelConfig model;
  std::vector<Problem> problems;
  const MixerEntry& entry = *built_in_mixers().find("gated_deltanet");
  const auto parse = [&](const Json& j) { return *parse_mixer(entry, j, "", model, problems); };
  const MixerSpec plain = parse({{"type", "gated_deltanet"}}),
                  same = parse({{"heads", 4}, {"type", "gated_deltanet"}}),
                  dropping = parse({{"type", "gated_deltanet"}, {"qkv_dropout", 0.5}});
  EXPECT_TRUE(plain == same && plain == entry.with_defaults());
  EXPECT_NE(MixerJson::written(plain), MixerJson::written(same));
  EXPECT_FALSE(plain == dropping);
  EXPECT_FALSE(plain == built_in_mixers().find("deltanet")->with_defaults());
  EXPECT_TRUE(dropping.has_dropout());
  EXPECT_FALSE(plain.has_dropout());
  EXPECT_TRUE(dropping.without_dropout() == plain);
  EXPECT_TRUE(problems.empty());
  // What is not given follows from the model.
  const std::optional<FastWeightConfig> settings = plain.settings<FastWeightConfig>(model);
  ASSERT_TRUE(settings);
  EXPECT_EQ(settings->head_dim, model.d_model / 4);
  EXPECT_EQ(settings->output.out_eps, model.norm_eps);
  EXPECT_FALSE(plain.settings<AttentionConfig>(model));
}

}  // namespace
}  // namespace braid
