// The theory's models are a second forward: every setting that the engine's models have either acts in both
// alike, or is refused. The settings come from the tables that parse them, so one that is added and not
// listed here fails.
#include "theory/number_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/rng.h"
#include "io/json.h"
#include "model/config_json.h"
#include "model/mixers/registry.h"
#include "model/mlp.h"

namespace braid {
namespace {

using Settings = std::vector<std::string>;  // as for --set; those of mixers and MLPs without their place

// Values other than the default, and what must be set before they act.
struct Values {
  std::vector<Settings> values;
  Settings first = {};
};
using Keys = std::map<std::string, Values>;

const Keys kTrainingAlone{{"dropout", {{{"dropout=0.3"}}}},
                          {"embedding_dropout", {{{"embedding_dropout=0.3"}}}},
                          {"qkv_dropout", {{{"qkv_dropout=0.3"}}}},
                          {"weight_dropout", {{{"weight_dropout=0.3"}}}},
                          {"train_length", {{{"train_length=64"}}}}};
const Settings kYarn{"rope_theta=10", "rope_scaling=yarn", "rope_original=64", "rope_factor=4"};
const Keys kAttention{{"heads", {{{"heads=2"}}}},
                      {"kv_heads", {{{"kv_heads=2"}}}},
                      {"head_dim", {{{"head_dim=12"}}}},
                      {"window", {{{"window=3"}}}},
                      {"rope_theta", {{{"rope_theta=50"}, {"rope_theta=0"}}}},
                      {"rotary_dim", {{{"rotary_dim=4"}}}},
                      {"rope_scaling",
                       {{{"rope_scaling=linear", "rope_factor=3"},
                         {"rope_scaling=yarn", "rope_original=64", "rope_factor=4"},
                         {"rope_scaling=llama3", "rope_original=64", "rope_factor=4"}},
                        {"rope_theta=10"}}},
                      {"rope_factor", {{{"rope_factor=3"}}, kYarn}},
                      {"rope_original", {{{"rope_original=16"}}, kYarn}},
                      {"rope_low", {{{"rope_low=2"}}, kYarn}},
                      {"rope_high", {{{"rope_high=5"}}, kYarn}},
                      {"rope_amplitude", {{{"rope_amplitude=2"}}, kYarn}},
                      {"qk_norm", {{{"qk_norm=head"}, {"qk_norm=full"}}}},
                      {"qk_eps", {{{"qk_eps=0.5"}}, {"qk_norm=head"}}},
                      {"bias", {{{"bias=qkv"}, {"bias=all"}}}},
                      {"conv", {{{"conv=3"}}}},
                      {"gate", {{{"gate=sigmoid"}}}}};
const Keys kFastWeight{{"heads", {{{"heads=2"}}}},
                       {"key_heads", {{{"key_heads=2"}}}},
                       {"head_dim", {{{"head_dim=12"}}}},
                       {"value_dim", {{{"value_dim=12"}}}},
                       {"conv", {{{"conv=3"}, {"conv=0"}}}},
                       {"steps", {{{"steps=2"}}}},
                       {"rope_theta", {{{"rope_theta=50"}}}},
                       {"normalise", {{{"normalise=true"}}, {"write=additive"}}},
                       {"feature", {{{"feature=relu"}, {"feature=elu1"}, {"feature=identity"}}}},
                       {"feature_norm", {{{"feature_norm=l1"}, {"feature_norm=none"}}}},
                       {"value_feature", {{{"value_feature=identity"}}}},
                       {"decay",
                        {{{"decay=none"},
                          {"decay=constant"},
                          {"decay=token"},
                          {"decay=channel"},
                          {"decay=sigmoid"},
                          {"decay=forget"}},
                         {"conv=0"}}},
                       {"write", {{{"write=additive"}}}},
                       {"negative_eigenvalues", {{{"negative_eigenvalues=true"}}}},
                       {"decay_rank", {{{"decay_rank=3"}}, {"decay=channel"}}},
                       {"out_norm", {{{"out_norm=full"}, {"out_norm=none"}}}},
                       {"gate", {{{"gate=none"}, {"gate=silu"}, {"gate=sigmoid"}}}},
                       {"gate_rank", {{{"gate_rank=3"}}, {"gate=silu"}}},
                       {"out_eps", {{{"out_eps=0.5"}}}}};
const Keys kMlp{{"d_ff", {{{"d_ff=20"}}}},
                {"bias", {{{"bias=true"}}}},
                {"experts", {{{"experts=3"}}}},
                {"top_k", {{{"top_k=1"}}}},
                {"shared_d_ff", {{{"shared_d_ff=20"}}}}};
const Keys kModel{{"vocab_size", {{{"vocab_size=29"}}}},
                  {"outputs", {{{"outputs=11"}}}},
                  {"d_model", {{{"d_model=48"}}}},
                  {"n_layers", {{{"n_layers=3"}}}},
                  {"norm_eps", {{{"norm_eps=0.5"}}}},
                  {"init", {{{"init=fla"}}}},
                  {"init_std", {{{"init_std=0.1"}}}},
                  {"zero_centred_norms", {{{"zero_centred_norms=true"}}}},
                  {"tie_embeddings", {{{"tie_embeddings=true"}}}}};

constexpr int64_t kVocab = 23;
constexpr size_t kTokens = 12;

std::unique_ptr<Model> make(const std::string& mixer, const std::string& mlp, const Settings& settings) {
  Json json{{"model_type", "braid"},
            {"vocab_size", kVocab},
            {"d_model", 32},
            {"init_std", 0.2},
            {"pattern", {{{"mixer", {{"type", mixer}}}, {"mlp", {{"type", mlp}}}}}}};
  if (mlp != "none") json["pattern"][0]["mlp"]["d_ff"] = 24;
  for (const std::string& s : settings) EXPECT_TRUE(apply_override(json, s)) << s;
  const Result<ModelConfig> config = parse_config(json, "test");
  if (!config) {
    ADD_FAILURE() << config.error().what << " " << config.error().fix;
    return nullptr;
  }
  std::unique_ptr<Model> model = Model::create(*config);
  model->init(1);
  Rng rng(1, "vectors");  // ones and zeros would hide what they do
  for (const Param& p : model->params().all())
    if (p.shape.rank() == 1)
      for (float& w : model->params().block().subspan(p.offset, p.count()))
        w = 1.5f * w + static_cast<float>(0.3 * rng.normal());
  return model;
}

std::vector<int32_t> some_tokens() {
  Rng rng(2, "tokens");
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < kTokens; ++i) tokens.push_back(static_cast<int32_t>(rng.below(kVocab)));
  return tokens;
}

std::vector<double> engine(Model& model) {
  const std::vector<int32_t> tokens = some_tokens();
  Arena arena;
  Exec exec({.arena = &arena, .params = &model.params()});
  const uint32_t offsets[] = {0, kTokens};
  std::vector<uint32_t> rows(kTokens);
  for (size_t r = 0; r < kTokens; ++r) rows[r] = static_cast<uint32_t>(r);
  const Mat<float> y = model.logits(exec, model.hidden(exec, {.tokens = tokens, .offsets = offsets}, rows));
  return {y.data, y.data + y.count()};
}

std::vector<double> theory(const NumberModel& model) {
  const std::unique_ptr<NumberRun> run = model.start();
  std::vector<double> all;
  for (const int32_t token : some_tokens()) {
    run->feed(token);
    const std::vector<double> logits = run->logits();
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

void expect_same(const std::vector<double>& got, const std::vector<double>& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double worst = 0, size = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::fabs(got[i] - want[i]));
    size = std::max(size, std::fabs(want[i]));
  }
  EXPECT_LT(worst, 1e-4 * size) << what;
}

// Each value of a key: it changes what the engine's model gives, and the theory's gives the same or refuses.
class Walk {
 public:
  Walk(std::string mixer, std::string mlp, std::string place)
      : mixer_(std::move(mixer)), mlp_(std::move(mlp)), place_(std::move(place)) {}

  void keys(const std::vector<FieldDoc>& fields, const Keys& known) {
    for (const FieldDoc& f : fields) {
      if (const auto at = kTrainingAlone.find(f.name); at != kTrainingAlone.end()) {
        for (const Settings& s : at->second.values) value(f.name, {}, s, /*acts=*/false);
        continue;
      }
      const auto at = known.find(f.name);
      if (at == known.end()) {
        ADD_FAILURE() << mixer_ << " " << mlp_ << ": " << f.name << " is not walked here";
        continue;
      }
      size_t acting = 0;
      for (const Settings& s : at->second.values)
        if (std::ranges::find(s, f.name + "=" + f.value) == s.end())
          value(f.name, at->second.first, s, true), ++acting;
      EXPECT_GT(acting, 0u) << f.name;
    }
  }

  size_t compared() const { return compared_; }
  size_t refused() const { return refused_; }

 private:
  Settings placed(const Settings& a, const Settings& b = {}) const {
    Settings all;
    for (const Settings* part : {&a, &b})
      for (const std::string& s : *part) all.push_back(place_ + s);
    return all;
  }

  void value(const std::string& key, const Settings& first, const Settings& settings, bool acts) {
    const std::string what = mixer_ + ", " + mlp_ + ": " + settings[0];
    const std::unique_ptr<Model> before = make(mixer_, mlp_, placed(first)),
                                 after = make(mixer_, mlp_, placed(first, settings));
    if (!before || !after) return;
    const std::vector<double> want = engine(*after);
    if (acts)
      EXPECT_NE(want, engine(*before)) << what << " changes nothing";
    else
      EXPECT_EQ(want, engine(*before)) << what << " acts outside of training";
    const Result<std::unique_ptr<NumberModel>> made = NumberModel::make(*after, Arithmetic::f64());
    if (made) {
      ++compared_;
      expect_same(theory(**made), want, what);
    } else {
      ++refused_;
      const bool allowed = static_cast<bool>(NumberModel::make(*before, Arithmetic::f64()));
      EXPECT_TRUE(!allowed || made.error().what.find(key) != std::string::npos ||
                  made.error().what.find("mlp") != std::string::npos)
          << what << ": " << made.error().what;
    }
  }

  std::string mixer_, mlp_, place_;
  size_t compared_ = 0, refused_ = 0;
};

TEST(NumberModel, NoSettingOfAMixerIsIgnored) {
  size_t accepted = 0;
  for (const MixerEntry& m : built_in_mixers().all()) {
    const std::unique_ptr<Model> model = make(m.name, "none", {});
    const Result<std::unique_ptr<NumberModel>> made = NumberModel::make(*model, Arithmetic::f64());
    if (!made) {
      EXPECT_NE(made.error().what.find("pattern[0].mixer."), std::string::npos) << made.error().what;
      continue;
    }
    ++accepted;
    Walk walk(m.name, "none", "pattern.0.mixer.");
    walk.keys(m.fields(), m.name == "attention" ? kAttention : kFastWeight);
    EXPECT_GT(walk.compared(), 8u) << m.name;
    EXPECT_GT(walk.refused(), 3u) << m.name;
  }
  EXPECT_EQ(accepted, 3u);  // attention, deltanet, gated_deltanet
}

TEST(NumberModel, NoSettingOfAnMlpIsIgnored) {
  for (const MlpDoc& m : all_mlps()) {
    Walk walk("attention", std::string(m.name), "pattern.0.mlp.");
    walk.keys(m.fields, kMlp);
    EXPECT_EQ(walk.compared(), m.name == "swiglu" ? 1u : 0u) << m.name;
  }
}

TEST(NumberModel, NoSettingOfTheModelIsIgnored) {
  Walk walk("gated_deltanet", "swiglu", "");
  walk.keys(list_fields(ModelConfig()), kModel);
  EXPECT_EQ(walk.refused(), 0u);
  for (const char* norm : {"pre", "post", "none"}) {
    const std::unique_ptr<Model> model = make("attention", "swiglu", {std::string("pattern.0.norm=") + norm});
    const Result<std::unique_ptr<NumberModel>> made = NumberModel::make(*model, Arithmetic::f64());
    ASSERT_TRUE(made) << made.error().what;
    expect_same(theory(**made), engine(*model), norm);
  }
}

}  // namespace
}  // namespace braid
