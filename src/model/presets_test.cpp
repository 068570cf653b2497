// What holds for every architecture, whatever it is made of. Nothing is listed here: the tests walk the
// registry.
#include "io/json.h"
#include "model/config_json.h"
#include "model/presets.h"

#include <gtest/gtest.h>

#include "support/test_dir.h"
#include "support/test_kernels.h"
#include "verify/compare.h"
#include "support/lively_model.h"
#include "model/state_file.h"

namespace braid {
namespace {

constexpr int64_t kVocab = 61;

// A tiny model with windows and chunks so short that they matter, weights so large that every path does.
// `name`: a preset, or "hqlt-sync rule=kda": one with a setting of its mixers.
std::unique_ptr<Model> tiny(const std::string& name, std::vector<std::string> overrides = {}) {
  const std::string arch = name.substr(0, name.find(' '));
  if (arch != name) overrides.push_back("pattern.*.mixer." + name.substr(arch.size() + 1));
  Result<Json> json = preset_config(arch, "tiny", kVocab);
  EXPECT_TRUE(json);
  for (Json& layer : (*json)["pattern"]) {
    Json& mixer = layer["mixer"];
    if (mixer.contains("window") || mixer["type"] == "hqlt") mixer["window"] = 7;
  }
  for (const std::string& o : overrides) EXPECT_TRUE(apply_override(*json, o)) << o;
  return lively_model(*json, arch);
}

std::vector<int32_t> random_tokens(size_t n, uint64_t seed = 1) {
  Rng rng(seed, "tokens");
  std::vector<int32_t> t(n);
  for (int32_t& x : t) x = static_cast<int32_t>(rng.below(kVocab));
  return t;
}

using Sequences = std::vector<std::vector<int32_t>>;

// Logits of every token of a batch, in order; states are advanced if given.
std::vector<float> run(Model& model, const Sequences& batch, std::span<State* const> states,
                       Par par = test_par()) {
  Arena arena(true);
  std::vector<int32_t> tokens;
  std::vector<uint32_t> offsets{0};
  for (size_t s = 0; s < batch.size(); ++s) {
    tokens.insert(tokens.end(), batch[s].begin(), batch[s].end());
    offsets.push_back(static_cast<uint32_t>(tokens.size()));
  }
  Exec exec({.arena = &arena, .params = &model.params(), .par = par});
  std::vector<uint32_t> rows(tokens.size());
  for (size_t r = 0; r < rows.size(); ++r) rows[r] = static_cast<uint32_t>(r);
  const Var h = model.hidden(exec, {.tokens = tokens, .offsets = offsets, .states = states}, rows);
  const Mat<float> logits = model.logits(exec, h);
  return {logits.data, logits.data + logits.count()};
}

// One sequence in pieces of these lengths, repeating.
std::vector<float> run_pieces(Model& model, State& state, std::span<const int32_t> tokens,
                              const std::vector<size_t>& pieces) {
  std::vector<float> out;
  State* states[] = {&state};
  for (size_t at = 0, i = 0; at < tokens.size(); ++i) {
    const size_t n = std::min(tokens.size() - at, pieces[i % pieces.size()]);
    const std::vector<float> part =
        run(model, {std::vector<int32_t>(tokens.begin() + at, tokens.begin() + at + n)}, states);
    out.insert(out.end(), part.begin(), part.end());
    at += n;
  }
  return out;
}

void expect_same(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  const Diff d = compare<float, float>(got, want);
  EXPECT_TRUE(within(d, kTolF32)) << what << ": rms " << d.rms << " max " << d.max << " at " << d.worst;
}

class EveryPreset : public testing::TestWithParam<std::string> {};

TEST_P(EveryPreset, AnyCutGivesTheSameLogits) {
  const std::unique_ptr<Model> model = tiny(GetParam());
  const std::vector<int32_t> tokens = random_tokens(100);
  const std::vector<float> want = run(*model, {tokens}, {});
  for (const std::vector<size_t>& pieces : {std::vector<size_t>{100}, {1}, {7}, {33, 1, 2, 40}}) {
    State state = model->new_state();
    expect_same(run_pieces(*model, state, tokens, pieces), want, "pieces of " + std::to_string(pieces[0]));
    EXPECT_EQ(state.position, 100);
  }
}

TEST_P(EveryPreset, ACopiedStateGoesOnByItself) {
  const std::unique_ptr<Model> model = tiny(GetParam());
  const std::vector<int32_t> tokens = random_tokens(60), other = random_tokens(20, 2);
  const std::vector<float> want = run(*model, {tokens}, {});
  State a = model->new_state();
  std::vector<float> got = run_pieces(*model, a, std::span(tokens).first(25), {25});
  const State saved = a;
  EXPECT_TRUE(saved == a);
  EXPECT_GT(a.bytes(), 0u);
  run_pieces(*model, a, other, {3});  // what the copy's original sees must not matter to the copy
  EXPECT_FALSE(saved == a);
  State b = saved, c = saved;
  const std::vector<float> rest = run_pieces(*model, b, std::span(tokens).subspan(25), {4, 1});
  EXPECT_EQ(rest, run_pieces(*model, c, std::span(tokens).subspan(25), {4, 1}));  // bit for bit
  EXPECT_TRUE(b == c);
  got.insert(got.end(), rest.begin(), rest.end());
  expect_same(got, want, "after a copy");
}

TEST_P(EveryPreset, ASavedStateGoesOnBitForBit) {
  const TestDir dir;
  const std::unique_ptr<Model> model = tiny(GetParam()), again = tiny(GetParam());
  const std::vector<int32_t> tokens = random_tokens(60);
  const auto [before, after] = std::pair(std::span(tokens).first(25), std::span(tokens).subspan(25));
  State whole = model->new_state();
  run_pieces(*model, whole, before, {10, 15});
  ASSERT_TRUE(save_state(whole, *model, dir / "state"));
  Result<State> loaded = load_state(*again, dir / "state");
  ASSERT_TRUE(loaded) << loaded.error().what;
  EXPECT_TRUE(*loaded == whole);
  EXPECT_EQ(run_pieces(*again, *loaded, after, {4, 1}), run_pieces(*model, whole, after, {4, 1}));
  EXPECT_TRUE(*loaded == whole);
}

TEST_P(EveryPreset, ARaggedBatchIsItsSequencesOneByOne) {
  const std::unique_ptr<Model> model = tiny(GetParam());
  const Sequences first{random_tokens(5, 1), random_tokens(31, 2), random_tokens(1, 3), random_tokens(14, 4)},
      second{random_tokens(1, 5), random_tokens(1, 6), random_tokens(1, 7), random_tokens(1, 8)},
      third{random_tokens(9, 9), random_tokens(1, 10), random_tokens(16, 11), random_tokens(2, 12)};
  std::vector<float> alone;
  for (const std::vector<int32_t>& s : first) {
    const std::vector<float> part = run(*model, {s}, {});
    alone.insert(alone.end(), part.begin(), part.end());
  }
  expect_same(run(*model, first, {}), alone, "without states");
  std::vector<State> together(4, model->new_state()), apart = together;
  std::vector<State*> states;
  for (State& s : together) states.push_back(&s);
  for (const Sequences& batch : {first, second, third}) {
    std::vector<float> want;
    for (size_t s = 0; s < batch.size(); ++s) {
      State* one[] = {&apart[s]};
      const std::vector<float> part = run(*model, {batch[s]}, one);
      want.insert(want.end(), part.begin(), part.end());
    }
    expect_same(run(*model, batch, states), want, "with states");
  }
}

TEST_P(EveryPreset, ThreadsDoNotChangeABit) {
  const std::unique_ptr<Model> model = tiny(GetParam());
  const Sequences batch{random_tokens(70, 1), random_tokens(3, 2)};
  ThreadPool pool(3, test_kernels());
  EXPECT_EQ(run(*model, batch, {}), run(*model, batch, {}, Par(pool)));
}

TEST_P(EveryPreset, TheStateIsAsLargeAsItSays) {
  const std::unique_ptr<Model> model = tiny(GetParam());
  State state = model->new_state();
  run_pieces(*model, state, random_tokens(128), {128});  // one page of the key-value memory
  const StateSize size = model->state_size(128);
  EXPECT_GE(state.bytes(), (size.memory + size.tails) * sizeof(float));
  // Windows shorter than a page keep the page: what a window of a page would take, and no more.
  Json json = to_json(model->config());
  for (Json& layer : json["pattern"])
    if (Json& mixer = layer["mixer"]; mixer.value("window", 0) > 0 && mixer["window"] < 128)
      mixer["window"] = 128;
  const StateSize pages = Model::create(*parse_config(json, "whole pages"))->state_size(128);
  EXPECT_EQ(state.bytes(), (pages.memory + size.tails) * sizeof(float));
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Registry, EveryPreset, testing::ValuesIn(preset_names()), test_name);

// HQLT with the update rules of other mixers.
std::vector<std::string> hqlt_rules() {
  std::vector<std::string> all;
  for (const char* variant : {"hqlt-sync", "hqlt-delayed-stream", "hqlt-delayed-chunk"})
    for (const char* rule : {"retnet", "gla", "gated_deltanet", "kda", "gated_deltaproduct"})
      all.push_back(std::string(variant) + " rule=" + rule);
  return all;
}
INSTANTIATE_TEST_SUITE_P(HqltRules, EveryPreset, testing::ValuesIn(hqlt_rules()), test_name);

// ---- Identities between architectures.

// Sets every parameter whose name ends in `suffix`.
void set_all(Model& model, std::string_view suffix, float value) {
  size_t found = 0;
  for (const Param& p : model.params().all())
    if (p.name.ends_with(suffix)) {
      ++found;
      for (float& w : model.params().block().subspan(p.offset, p.count())) w = value;
    }
  EXPECT_GT(found, 0u) << suffix;
}

// Copies the parameters that both have, by name.
void copy_shared(const Model& from, Model& to) {
  for (size_t i = 0; i < to.params().all().size(); ++i)
    for (size_t j = 0; j < from.params().all().size(); ++j)
      if (from.params()[j].name == to.params()[i].name && from.params()[j].shape == to.params()[i].shape)
        copy<float>(from.params().mat(j), to.params().mat(i));
}

const std::vector<int32_t>& tokens50() {
  static const std::vector<int32_t> t = random_tokens(50);
  return t;
}

std::vector<float> logits(Model& model) { return run(model, {tokens50()}, {}); }

TEST(Identity, GatedDeltaNetWithoutDecayIsDeltaNet) {
  const std::unique_ptr<Model> gated = tiny("gated-deltanet",
                                            {"pattern.*.mixer.gate=none", "pattern.*.mlp.d_ff=64"}),
                               plain = tiny("deltanet", {"pattern.*.mlp.d_ff=64"});
  copy_shared(*plain, *gated);
  EXPECT_NE(logits(*gated), logits(*plain));
  set_all(*gated, "A_log", -INFINITY);  // g = -exp(A_log) softplus(..) = 0
  expect_same(logits(*gated), logits(*plain), "g = 0");
}

TEST(Identity, KdaWithEqualChannelsIsGatedDeltaNet) {
  const std::unique_ptr<Model> kda = tiny("kda", {"pattern.*.mixer.gate=silu", "pattern.*.mlp.d_ff=64"}),
                               gdn = tiny("gated-deltanet", {"pattern.*.mlp.d_ff=64"});
  copy_shared(*gdn, *kda);
  // Steps that do not depend on the input: dt_bias alone, one number per head.
  set_all(*gdn, "a_proj.weight", 0), set_all(*kda, "f_b_proj.weight", 0);
  set_all(*gdn, "dt_bias", 0.3f), set_all(*kda, "dt_bias", 0.3f);
  expect_same(logits(*kda), logits(*gdn), "equal channels");
}

TEST(Identity, OneStepOfDeltaProductIsGatedDeltaNet) {
  const std::unique_ptr<Model> one = tiny("gated-deltaproduct",
                                          {"pattern.*.mixer.steps=1", "pattern.*.mlp.d_ff=64"}),
                               gdn = tiny("gated-deltanet", {"pattern.*.mixer.negative_eigenvalues=true",
                                                             "pattern.*.mlp.d_ff=64"});
  copy_shared(*gdn, *one);
  EXPECT_EQ(logits(*one), logits(*gdn));
}

// Two steps of which one writes nothing.
TEST(Identity, DeltaProductWithOneIdleStepIsGatedDeltaNet) {
  const std::vector<std::string> sizes{"pattern.*.mixer.conv=0", "pattern.*.mlp.d_ff=64"};
  std::vector<std::string> negative = sizes;
  negative.emplace_back("pattern.*.mixer.negative_eigenvalues=true");
  const std::unique_ptr<Model> two = tiny("gated-deltaproduct", sizes),
                               gdn = tiny("gated-deltanet", negative);
  copy_shared(*gdn, *two);
  for (size_t i = 0; i < two->params().all().size(); ++i) {
    const std::string& name = two->params()[i].name;
    for (size_t j = 0; j < gdn->params().all().size(); ++j) {
      if (gdn->params()[j].name != name || gdn->params()[j].shape == two->params()[i].shape) continue;
      const Mat<float> all = two->params().mat(i), part = gdn->params().mat(j);
      ASSERT_EQ(all.rows, 2 * part.rows) << name;
      std::fill_n(all.data, all.count(), 0.0f);  // a key of zero writes nothing
      copy<float>(part, all.row_range(0, part.rows));
    }
  }
  expect_same(logits(*two), logits(*gdn), "idle second step");
}

// The names, and where a setting overrides its rule's.
TEST(Identity, HqltsRuleIsItsSettings) {
  const auto same = [](const std::vector<std::string>& a, const std::vector<std::string>& b) {
    const std::unique_ptr<Model> x = tiny("hqlt-sync", a), y = tiny("hqlt-sync", b);
    ASSERT_EQ(x->params().all().size(), y->params().all().size());
    for (size_t i = 0; i < x->params().all().size(); ++i) {
      EXPECT_EQ(x->params()[i].name, y->params()[i].name);
      EXPECT_EQ(x->params()[i].shape, y->params()[i].shape);
    }
    EXPECT_EQ(logits(*x), logits(*y)) << a[0];
  };
  const std::string m = "pattern.*.mixer.";
  same({m + "rule=deltanet"}, {});
  same({m + "rule=gated_deltanet"}, {m + "decay=token"});
  same({m + "rule=kda"}, {m + "decay=channel"});
  same({m + "rule=linear_attention"}, {m + "write=additive"});
  same({m + "rule=gated_deltaproduct"}, {m + "decay=token", m + "steps=2", m + "negative_eigenvalues=true"});
  same({m + "steps=1", m + "decay=none", m + "rule=gated_deltaproduct"}, {m + "negative_eigenvalues=true"});
  for (const auto& [rule, field] : {std::pair{"hgrn2", ".rule: is hgrn2"}, {"gla", ".steps: is above 1"}}) {
    Json json = *preset_config("hqlt-sync", "tiny", kVocab);
    json["pattern"][0]["mixer"]["rule"] = rule, json["pattern"][0]["mixer"]["steps"] = 2;
    const Result<ModelConfig> refused = parse_config(json, "");
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().what.find(field), std::string::npos) << refused.error().what;
  }
}

// Two steps of which one writes nothing.
TEST(Identity, HqltWithOneIdleStepIsHqltWithOne) {
  for (const char* variant : {"hqlt-sync", "hqlt-delayed-stream", "hqlt-delayed-chunk"})
    for (const char* conv : {"pattern.*.mixer.conv=0", "pattern.*.mixer.conv=3"}) {
      const std::vector<std::string> once{conv, "pattern.*.mlp.d_ff=64",
                                          "pattern.*.mixer.rule=gated_deltaproduct",
                                          "pattern.*.mixer.steps=1"},
          twice{once[0], once[1], once[2]};
      const std::unique_ptr<Model> one = tiny(variant, once), two = tiny(variant, twice);
      copy_shared(*one, *two);
      const size_t width = static_cast<size_t>(one->config().d_model);
      for (size_t i = 0; i < two->params().all().size(); ++i) {
        const Mat<float> to = two->params().mat(i);
        const Mat<const float> from = one->params().mat(i);
        ASSERT_EQ(one->params()[i].name, two->params()[i].name);
        if (from.rows == to.rows) continue;
        std::fill_n(to.data, to.count(), 0.0f);                  // a key of zero writes nothing
        if (two->params()[i].name.ends_with("conv1d.weight")) {  // q, k, further k, v, further v
          copy<float>(from.row_range(0, 2 * width), to.row_range(0, 2 * width));
          copy<float>(from.row_range(2 * width, 3 * width), to.row_range(3 * width, 4 * width));
        } else {
          copy<float>(from, to.row_range(0, from.rows));
        }
      }
      expect_same(logits(*two), logits(*one), variant + (" " + std::string(conv)));
    }
}

TEST(Identity, DeltaFormerThatTakesNothingBackIsTheTransformer) {
  const std::unique_ptr<Model> delta = tiny("deltaformer", {"pattern.*.mixer.strength=zero"}),
                               attention = tiny("transformer");
  copy_shared(*attention, *delta);
  expect_same(logits(*delta), logits(*attention), "b = 0");
}

TEST(Identity, DelayedStreamWithALongWindowIsAttentionPlusZero) {
  // mixing = sum and nothing ever leaves the window: what is left is attention, whatever the rule would do.
  const std::unique_ptr<Model> stream = tiny("hqlt-delayed-stream",
                                             {"pattern.*.mixer.mixing=sum", "pattern.*.mixer.window=50"}),
                               other = tiny("hqlt-delayed-stream",
                                            {"pattern.*.mixer.mixing=sum", "pattern.*.mixer.window=50"}),
                               chunk = tiny("hqlt-delayed-chunk",
                                            {"pattern.*.mixer.mixing=sum", "pattern.*.mixer.window=50"});
  set_all(*other, "b_proj.weight", 1.0f);
  EXPECT_EQ(logits(*stream), logits(*other));
  expect_same(logits(*chunk), logits(*stream), "one chunk");
  const std::unique_ptr<Model>
      attention =
          tiny("transformer", {"n_layers=" + std::to_string(stream->config().n_layers),
                               "pattern.0.mlp.d_ff=" +
                                   std::to_string(stream->config().layer(0).mlp.as<SwigluConfig>()->d_ff)}),
      plain = tiny("hqlt-delayed-stream",
                   {"pattern.*.mixer.mixing=sum", "pattern.*.mixer.window=50",
                    "pattern.*.mixer.out_norm=none", "pattern.*.mixer.value_feature=identity"});
  copy_shared(*attention, *plain);
  expect_same(logits(*plain), logits(*attention), "attention");
}

TEST(Identity, HqltWithTheGateForcedIsOneOfItsParts) {
  for (const char* mixing : {"vector", "scalar"}) {
    const std::vector<std::string> one{"pattern.*.mixer.mixing=" + std::string(mixing), "n_layers=1",
                                       "pattern.*.mixer.value_feature=silu", "pattern.*.mlp.d_ff=64"};
    const std::unique_ptr<Model> hqlt = tiny("hqlt-sync", one);
    // The first channel of the normalised input is positive for every token, so this forces the gate.
    const auto force = [&](float fast, float kv) {
      for (size_t i = 0; i < hqlt->params().all().size(); ++i) {
        const Mat<float> m = hqlt->params().mat(i);
        if (hqlt->params()[i].name == "embedding.weight")
          for (size_t r = 0; r < m.rows; ++r) m.row(r)[0] = 1;
        if (!hqlt->params()[i].name.ends_with("mix_proj.weight")) continue;
        std::fill_n(m.data, m.count(), 0.0f);
        for (size_t r = 0; r < m.rows; ++r)
          m.row(r)[0] = r < m.rows / 2 || mixing == std::string("vector") ? fast : kv;
      }
    };
    force(1e3f, -1e3f);
    const std::unique_ptr<Model> delta =
        tiny("deltanet", {"pattern.*.mixer.conv=0", "n_layers=1", "pattern.*.mlp.d_ff=64"});
    copy_shared(*hqlt, *delta);
    expect_same(logits(*hqlt), logits(*delta), std::string(mixing) + " fast");
    force(-1e3f, 1e3f);
    std::vector<std::string> sum = one;
    sum[0] = "pattern.*.mixer.mixing=sum";
    sum.emplace_back("pattern.*.mixer.write=additive");
    const std::unique_ptr<Model> kv = tiny("hqlt-sync", sum);  // with no writes, the sum is attention
    copy_shared(*hqlt, *kv);
    const std::unique_ptr<Model> delayed =
        tiny("hqlt-delayed-stream", {sum[0], "n_layers=1", "pattern.*.mlp.d_ff=64"});
    copy_shared(*hqlt, *delayed);
    const std::vector<int32_t> few(tokens50().begin(), tokens50().begin() + 7);  // nothing leaves the window
    expect_same(run(*hqlt, {few}, {}), run(*delayed, {few}, {}), std::string(mixing) + " kv");
  }
}

// The paper's settings of Table 2 (arXiv:2412.06464), in multiples of layers x width at length 4096.
TEST(Paper, StateSizesComeOut) {
  const auto unit = [](const std::string& arch, const std::vector<std::string>& set = {}) {
    Result<Json> json = preset_config(arch, "400M", 256);
    EXPECT_TRUE(json);
    for (const std::string& s : set) EXPECT_TRUE(apply_override(*json, s));
    const Result<ModelConfig> c = parse_config(*json, arch);
    EXPECT_TRUE(c);
    return static_cast<double>(Model::create(*c)->state_size(4096).memory) /
           static_cast<double>(c->n_layers * c->d_model);
  };
  EXPECT_EQ(unit("retnet"), 512);
  EXPECT_EQ(unit("hgrn2"), 128);
  EXPECT_EQ(unit("mamba"), 32);
  EXPECT_EQ(unit("mamba2"), 256);
  EXPECT_EQ(unit("deltanet"), 128);
  EXPECT_EQ(unit("gated-deltanet"), 128);
  EXPECT_EQ(unit("gdn-h1"), 2112);
  EXPECT_EQ(unit("gdn-h1", {"pattern.0.mixer.heads=6"}), 2176);
  EXPECT_EQ(unit("samba"), 2064);                               // the paper says 2062
  EXPECT_NEAR(unit("gdn-h2"), (256 + 128 + 4096) / 3.0, 1e-9);  // the paper says 1418
}

TEST(Paper, ReleasedModelsHaveTheirSize) {
  const auto billions = [](const std::string& arch, const std::string& size) {
    const Result<Json> json = preset_config(arch, size, 256);
    EXPECT_TRUE(json);
    return static_cast<double>(Model::create(*parse_config(*json, arch))->params().count()) * 1e-9;
  };
  EXPECT_NEAR(billions("olmo-hybrid", "7B"), 7.431, 0.0005);
  EXPECT_NEAR(billions("qwen3.5", "0.8B"), 0.752, 0.0005);
  EXPECT_NEAR(billions("qwen3.5", "4B"), 4.21, 0.005);
  EXPECT_NEAR(billions("qwen3.5", "9B"), 8.95, 0.005);
  EXPECT_NEAR(billions("qwen3.5", "27B"), 26.9, 0.05);
  EXPECT_NEAR(billions("qwen3-next", "80B"), 79.7, 0.5);
}

}  // namespace
}  // namespace braid
