#include "io/json.h"
#include "model/config_json.h"
#include "model/model.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <map>

#include "io/file.h"
#include "io/safetensors.h"
#include "support/test_dir.h"
#include "support/test_kernels.h"
#include "verify/compare.h"
#include "model/mixers/registry.h"
#include "model/presets.h"
#include "model/state_file.h"

namespace braid {
namespace {

// Settings of the attention mixer that take different paths.
const std::vector<std::vector<std::string>> kVariants{
    {},
    {"pattern.*.mixer.window=5"},
    {"pattern.*.mixer.kv_heads=2", "pattern.*.mixer.qk_norm=head"},
    {"pattern.*.mixer.kv_heads=1", "pattern.*.mixer.qk_norm=full", "pattern.*.mixer.window=130"},
    {"pattern.*.mixer.rope_theta=0", "tie_embeddings=true"},
    {"pattern.*.mixer.rotary_dim=6", "pattern.*.mlp={\"type\":\"none\"}"},
    {"pattern.*.mixer.head_dim=10", "pattern.*.mixer.heads=3"},
    {"pattern.*.mixer.conv=3", "pattern.*.mixer.kv_heads=2", "pattern.*.mixer.window=9"},
};

std::unique_ptr<Model> make(const std::vector<std::string>& overrides) {
  Result<Json> json = preset_config("transformer", "tiny", 61);
  for (const std::string& o : overrides) EXPECT_TRUE(apply_override(*json, o)) << o;
  const Result<ModelConfig> config = parse_config(*json, "test");
  EXPECT_TRUE(config) << (config ? "" : config.error().what);
  std::unique_ptr<Model> model = Model::create(*config);
  model->init(3);
  return model;
}

std::vector<int32_t> random_tokens(size_t n) {
  Rng rng(1, "tokens");
  std::vector<int32_t> t(n);
  for (int32_t& x : t) x = static_cast<int32_t>(rng.below(61));
  return t;
}

// Rms and largest number of every parameter, by the end of its name.
std::map<std::string, std::pair<double, double>> sizes(const Model& model) {
  std::map<std::string, std::pair<double, double>> out;
  for (size_t i = 0; i < model.params().all().size(); ++i) {
    const Mat<const float> m = model.params().mat(i);
    double squares = 0, most = 0;
    for (size_t j = 0; j < m.count(); ++j)
      squares += m.data[j] * m.data[j], most = std::max(most, std::abs(static_cast<double>(m.data[j])));
    const std::string& name = model.params()[i].name;
    out[name.substr(name.rfind('.', name.rfind('.') - 1) + 1)] = {std::sqrt(squares / m.count()), most};
  }
  return out;
}

TEST(Model, StartsAsConfigured) {
  const std::vector<std::string> conv{"pattern.*.mixer.conv=4", "init_std=0.01"};
  const auto scaled = sizes(*make(conv));
  EXPECT_NEAR(scaled.at("q_proj.weight").first, 0.01, 5e-4);
  EXPECT_NEAR(scaled.at("o_proj.weight").first, 0.01 / 2, 5e-4);  // two layers
  EXPECT_LE(scaled.at("conv1d.weight").second, 0.5);              // 1 / sqrt(4 taps)
  EXPECT_NEAR(scaled.at("conv1d.weight").first, 0.5 / std::sqrt(3.0), 0.03);
  std::vector<std::string> as_fla = conv;
  as_fla.push_back("init=fla");
  const std::unique_ptr<Model> model = make(as_fla);
  const auto fla = sizes(*model);
  EXPECT_EQ(fla.at("q_proj.weight"), scaled.at("q_proj.weight"));
  EXPECT_NEAR(fla.at("conv1d.weight").first, 0.01, 1e-3);
  EXPECT_GT(fla.at("conv1d.weight").second, 0.02);  // normal
  const double widest = 1 / std::sqrt(2.0 * 2 * static_cast<double>(model->config().d_model));
  EXPECT_LE(fla.at("o_proj.weight").second, widest);
  EXPECT_NEAR(fla.at("o_proj.weight").first, widest / std::sqrt(3.0), 0.03 * widest);
}

// Logits of all tokens, fed to `state` in pieces of the given lengths (repeating).
std::vector<float> run(Model& model, State* state, std::span<const int32_t> tokens,
                       std::span<const size_t> pieces, Par par = test_par()) {
  std::vector<float> out;
  Arena arena(true);
  for (size_t at = 0, i = 0; at < tokens.size(); ++i) {
    const size_t n = std::min(tokens.size() - at, pieces[i % pieces.size()]);
    arena.reset();
    Exec exec({.arena = &arena, .params = &model.params(), .par = par});
    const uint32_t offsets[] = {0, static_cast<uint32_t>(n)};
    State* states[] = {state};
    std::vector<uint32_t> rows(n);
    for (size_t r = 0; r < n; ++r) rows[r] = static_cast<uint32_t>(r);
    const Var h =
        model.hidden(exec,
                     {.tokens = tokens.subspan(at, n),
                      .offsets = offsets,
                      .states = state ? std::span<State* const>(states) : std::span<State* const>()},
                     rows);
    const Mat<float> logits = model.logits(exec, h);
    out.insert(out.end(), logits.data, logits.data + logits.count());
    at += n;
  }
  return out;
}

TEST(Model, AnyCutGivesTheSameLogits) {
  const std::vector<int32_t> tokens = random_tokens(300);  // more than two pages of cache
  for (const auto& variant : kVariants) {
    const std::unique_ptr<Model> model = make(variant);
    const size_t whole[] = {tokens.size()};
    const std::vector<float> want = run(*model, nullptr, tokens, whole);
    for (const std::vector<size_t>& pieces :
         {std::vector<size_t>{tokens.size()}, {1}, {128}, {127, 2}, {7, 1, 200}}) {
      State state = model->new_state();
      const Diff d = compare<float, float>(run(*model, &state, tokens, pieces), want);
      EXPECT_TRUE(within(d, kTolSplit))
          << (variant.empty() ? "plain" : variant[0]) << " pieces of " << pieces[0];
      EXPECT_EQ(state.position, 300);
    }
  }
}

TEST(Model, ACopiedStateIsIndependent) {
  const std::unique_ptr<Model> model = make({});
  const std::vector<int32_t> tokens = random_tokens(200);
  const size_t piece[] = {40};
  State a = model->new_state();
  run(*model, &a, std::span(tokens).first(80), piece);
  const State copy = a;
  EXPECT_TRUE(copy == a);
  State b = copy;
  const std::vector<float> first = run(*model, &a, std::span(tokens).subspan(80), piece);
  EXPECT_FALSE(copy == a);
  const std::vector<float> second = run(*model, &b, std::span(tokens).subspan(80), piece);
  EXPECT_EQ(first, second);  // bit for bit: the same shapes were run
  EXPECT_TRUE(a == b);
}

TEST(Model, AWindowedCacheStaysSmall) {
  const std::unique_ptr<Model> windowed = make({"pattern.*.mixer.window=20"}), full = make({});
  const std::vector<int32_t> tokens = random_tokens(2000);
  const size_t piece[] = {1};
  State w = windowed->new_state(), f = full->new_state();
  run(*windowed, &w, tokens, piece);
  run(*full, &f, tokens, piece);
  EXPECT_LE(w.bytes() * 5, f.bytes());
}

// ---- States in files

TEST(StateFile, GoesOnAfterPagesWereForgotten) {
  const TestDir dir;
  for (const char* window : {"0", "1", "20", "200"}) {
    const std::unique_ptr<Model> model = make({"pattern.*.mixer.window=" + std::string(window)});
    const std::vector<int32_t> tokens = random_tokens(700);
    for (const size_t cut : {0, 1, 128, 256, 300, 512}) {
      const size_t piece[] = {50};
      State whole = model->new_state();
      run(*model, &whole, std::span(tokens).first(cut), piece);
      ASSERT_TRUE(save_state(whole, *model, dir / "state"));
      Result<State> loaded = load_state(*model, dir / "state");
      ASSERT_TRUE(loaded) << loaded.error().what;
      EXPECT_TRUE(*loaded == whole);
      ASSERT_TRUE(save_state(whole, *model, dir / "with tokens", std::span(tokens).first(cut)));
      const Result<SavedState> both = load_saved(*model, dir / "with tokens");
      ASSERT_TRUE(both) << both.error().what;
      EXPECT_TRUE(both->state == whole);
      EXPECT_TRUE(std::ranges::equal(both->tokens, std::span(tokens).first(cut)));
      EXPECT_EQ(run(*model, &*loaded, std::span(tokens).subspan(cut), piece),
                run(*model, &whole, std::span(tokens).subspan(cut), piece))
          << "window " << window << " cut " << cut;
    }
  }
}

TEST(StateFile, MisfitsAreNamed) {
  const TestDir dir;
  const std::string path = dir / "state", bad = dir / "bad";
  const std::unique_ptr<Model> model = make({}), wide = make({"d_model=96"}), other = make({});
  other->init(99);
  State state = model->new_state();
  const size_t piece[] = {9};
  run(*model, &state, random_tokens(9), piece);
  ASSERT_TRUE(save_state(state, *model, path));
  const auto expect_error = [](const auto& r, const std::string& what) {
    ASSERT_FALSE(r) << what;
    EXPECT_NE(r.error().what.find(what), std::string::npos) << r.error().what;
  };
  expect_error(load_state(*wide, path), "another config");
  expect_error(load_state(*other, path), "other weights");
  expect_error(load_state(*model, dir / "nothing"), "nothing");
  ASSERT_TRUE(model->save_weights(bad));
  expect_error(load_state(*model, bad), "not a saved state");

  // A file that is cut anywhere, or has a bit flipped: all of the header's, some of the rest.
  const Result<std::string> bytes = read_text(path);
  ASSERT_TRUE(bytes);
  for (size_t n = 0; n < bytes->size(); n += 997) {
    put(bad, bytes->substr(0, n));
    EXPECT_FALSE(load_state(*model, bad)) << n;
  }
  const size_t header = bytes->find("    ") + 8;  // its padding is the first run of blanks
  ASSERT_LT(header, 4000u);
  for (size_t n = 0, bit = 0; n < bytes->size(); n += n < header ? 1 : 211, bit = (bit + 3) % 8) {
    std::string flipped = *bytes;
    flipped[n] = static_cast<char>(flipped[n] ^ (1 << bit));
    put(bad, flipped);
    EXPECT_FALSE(load_state(*model, bad)) << "byte " << n << " bit " << bit;
  }
  expect_error(load_state(*model,
                          [&] {
                            std::string flipped = *bytes;
                            flipped.back() = static_cast<char>(flipped.back() ^ 1);
                            put(bad, flipped);
                            return bad;
                          }()),
               "was changed after it was saved");

  // The same file with one thing changed.
  const Result<SafeTensors> file = SafeTensors::open(path);
  ASSERT_TRUE(file);
  const Tensor other_numbers(DType::kF32, {9, 63}), more(DType::kF32, {10, 64}), half(DType::kBF16, {9, 64});
  const auto changed = [&](const std::string& name, const View* view,
                           std::map<std::string, std::string> metadata = {}) {
    std::vector<NamedTensor> tensors;
    for (const std::string& n : file->names())
      if (n != name) tensors.push_back({n, *file->find(n)});
    if (view) tensors.push_back({name, *view});
    for (const auto& [key, value] : file->metadata()) metadata.try_emplace(key, value);
    EXPECT_TRUE(write_safetensors(bad, tensors, metadata));
    return read_saved(*model, bad);
  };
  const View narrow = other_numbers.view(), longer = more.view(), bf16_view = half.view();
  ASSERT_TRUE(changed("layers.0.k", file->find("layers.0.k")));
  expect_error(changed("layers.0.k", nullptr), "layers.0.k: is missing; expected [9, 64]");
  expect_error(changed("layers.0.k", &narrow), "layers.0.k: has shape [9, 63]; expected [9, 64]");
  expect_error(changed("layers.1.v", &longer), "layers.1.v: has shape [10, 64]; expected [9, 64]");
  expect_error(changed("layers.1.k", &longer), "layers.1.k: has shape [10, 64]; expected [9, 64]");
  expect_error(changed("layers.1.v", &bf16_view), "layers.1.v: has dtype BF16; expected F32");
  expect_error(changed("layers.0.fast", &narrow), "layers.0.fast: is not part of this model's state");
  for (const char* position :
       {"-1", "8", "10", "137", "", "nine", "9 ", "99999999999999999999", "1000000000"})
    EXPECT_FALSE(changed("", nullptr, {{"position", position}})) << position;
}

TEST(Model, ThreadsDoNotChangeABit) {
  const std::unique_ptr<Model> model = make({});
  const std::vector<int32_t> tokens = random_tokens(300);
  ThreadPool pool(3, test_kernels());
  const size_t pieces[] = {250, 1, 49};
  State a = model->new_state(), b = model->new_state();
  EXPECT_EQ(run(*model, &a, tokens, pieces), run(*model, &b, tokens, pieces, Par(pool)));
}

TEST(Model, SavedWeightsComeBackAndMisfitsAreNamed) {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("braid-model-test-" + std::to_string(getpid()) + ".safetensors");
  const std::unique_ptr<Model> a = make({}), b = make({}), wide = make({"d_model=96"});
  b->init(99);
  ASSERT_TRUE(a->save_weights(path));
  EXPECT_FALSE(std::ranges::equal(a->params().block(), b->params().block()));
  ASSERT_TRUE(b->load_weights(path));
  EXPECT_TRUE(std::ranges::equal(a->params().block(), b->params().block()));
  const Status s = wide->load_weights(path);
  ASSERT_FALSE(s);
  EXPECT_NE(s.error().what.find("embedding.weight: has shape [61, 64]; expected [61, 96]"), std::string::npos)
      << s.error().what;
  std::filesystem::remove(path);
}

TEST(Model, EachParameterHasItsOwnRandomStream) {
  // A deeper model starts with the same first layers.
  const std::unique_ptr<Model> shallow = make({}), deep = make({"n_layers=3"});
  const auto find = [](const Model& m, std::string_view name) {
    for (size_t i = 0; i < m.params().all().size(); ++i)
      if (m.params()[i].name == name) return m.params().mat(i).data[0];
    return 0.0f;
  };
  EXPECT_EQ(find(*shallow, "layers.1.mixer.q_proj.weight"), find(*deep, "layers.1.mixer.q_proj.weight"));
  EXPECT_NE(find(*deep, "layers.1.mixer.q_proj.weight"), find(*deep, "layers.2.mixer.q_proj.weight"));
}

TEST(Config, RoundTripsThroughJson) {
  const std::unique_ptr<Model> m =
      make({"pattern.*.mixer.window=64", "pattern.*.norm=none", "outputs=5",
            R"(params={"embedding":{"train":false},"head.weight":{"init":"identity","column":1}})"});
  const Json j = to_json(m->config());
  const Result<ModelConfig> again = parse_config(j, "again");
  ASSERT_TRUE(again);
  EXPECT_EQ(to_json(*again), j);
}

TEST(Config, ParametersAreNamedByTheirBeginning) {
  Json json = *preset_config("transformer", "tiny", 17);
  json["params"] = {{"layers.1.", {{"train", false}}}};
  const std::unique_ptr<Model> model = Model::create(*parse_config(json, ""));
  for (const Param& p : model->params().all()) EXPECT_EQ(p.train, !p.name.starts_with("layers.1."));
  for (const Json& wrong : {Json{{"layer.1.", {{"train", false}}}}, Json{{"embedding", {{"init", "eye"}}}},
                            Json{{"embedding", 7}}}) {
    json["params"] = wrong;
    EXPECT_FALSE(parse_config(json, "")) << wrong;
  }
}

TEST(Config, EveryPresetAtEverySizeIsValidAndNamesItsSize) {
  for (const Preset& p : all_presets())
    for (const Size& s : all_sizes()) {
      const Result<Json> json = preset_config(std::string(p.name), std::string(s.name), 256);
      ASSERT_TRUE(json);
      const Result<ModelConfig> config = parse_config(*json, std::string(p.name));
      ASSERT_TRUE(config) << config.error().what;
      const auto count = static_cast<double>(Model::create(*config)->params().count());
      const std::string name(s.name);
      const double named = std::stod(name == "tiny" ? "0.14" : name) * (name.back() == 'B' ? 1e9 : 1e6);
      if (p.name == "transformer" && s.vocab_size == 0) {
        EXPECT_NEAR(count / named, 1, 0.02) << name;
      }
      const Result<Json> other = preset_config("transformer", name, 256);
      const auto transformer =
          static_cast<double>(Model::create(*parse_config(*other, ""))->params().count());
      EXPECT_NEAR(count / transformer, 1, 0.03) << p.name << " " << name;
    }
}

TEST(Config, HostileValuesGiveProblemsNotCrashes) {
  for (
      const char* text :
      {"[]", "null", "7", "{}", R"({"model_type":"braid","pattern":[]})",
       R"({"model_type":"braid","pattern":[7]})", R"({"model_type":"braid","d_model":1e300,"pattern":[{}]})",
       R"({"model_type":"braid","n_layers":-1,"pattern":{}})",
       R"({"model_type":"llama","vocab_size":18446744073709551615,"pattern":[{"mixer":{"type":7},"mlp":3}]})",
       R"({"model_type":"braid","d_model":65,"pattern":[{"mixer":{"type":"attention","heads":4},"mlp":{"type":"swiglu"}}]})"}) {
    const Result<ModelConfig> c = parse_config(Json::parse(text), "hostile");
    EXPECT_FALSE(c) << text;
  }
}

TEST(Mixers, EveryOneDocumentsItsSettings) {
  for (const MixerEntry& m : built_in_mixers().all())
    for (const FieldDoc& f : m.fields()) EXPECT_FALSE(f.help.empty()) << m.name << "." << f.name;
}

}  // namespace
}  // namespace braid
