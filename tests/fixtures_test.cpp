// Models that transformers and fla saved (tests/data/families, made by tools/make_fixtures.py), with the
// logits and the greedy continuation that transformers computed: the whole sequence, any cut of it, single
// tokens, through the library and through `braid logits`.
#include <fmt/format.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "io/json.h"
#include "infer/session.h"
#include "io/safetensors.h"
#include "model/config_json.h"
#include "model/model.h"
#include "model/families/families.h"
#include "verify/compare.h"
#include "verify/state_check.h"
#include "process.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

// Relative to the rms of all expected logits.
struct Difference {
  double worst = 0, rms = 0;
  bool good() const { return within({rms, worst}, kTolF32); }  // not for NaN
};

Difference difference(std::span<const float> got, std::span<const float> want) {
  Difference d;
  double squares = 0, off = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double delta = static_cast<double>(got[i]) - want[i];
    squares += static_cast<double>(want[i]) * want[i], off += delta * delta;
    if (!(std::abs(delta) <= d.worst)) d.worst = std::abs(delta);
  }
  const double rms = std::sqrt(squares / static_cast<double>(want.size()));
  return {d.worst / rms, std::sqrt(off / static_cast<double>(want.size())) / rms};
}

struct Fixture {
  std::string name, dir;
  std::vector<int32_t> tokens, greedy;
  std::vector<float> logits, cached;
  size_t prefill;
};

const std::vector<Fixture>& fixtures() {
  static const std::vector<Fixture> all = [] {
    std::vector<Fixture> found;
    for (const auto& entry : fs::directory_iterator(BRAID_SOURCE "/tests/data/families")) {
      Fixture f{.name = entry.path().filename(),
                .dir = entry.path(),
                .tokens = {},
                .greedy = {},
                .logits = {},
                .cached = {},
                .prefill = 0};
      const Result<SafeTensors> file = SafeTensors::open(f.dir + "/expected.safetensors");
      check(static_cast<bool>(file), file ? "" : file.error().what);
      const auto numbers = [&]<class T>(const char* name, std::vector<T>& to) {
        const std::span<const T> from = file->find(name)->as<T>();
        to.assign(from.begin(), from.end());
      };
      std::vector<int32_t> prefill;
      numbers("tokens", f.tokens), numbers("greedy", f.greedy), numbers("prefill", prefill);
      numbers("logits", f.logits), numbers("cached", f.cached);
      f.prefill = static_cast<size_t>(prefill[0]);
      found.push_back(std::move(f));
    }
    std::ranges::sort(found, {}, &Fixture::name);
    return found;
  }();
  return all;
}

std::unique_ptr<Model> load(const Fixture& f) {
  Result<std::unique_ptr<Model>> model = Model::load(f.dir);
  EXPECT_TRUE(model) << f.name << ": " << model.error().what;
  return *std::move(model);
}

// The logits of all tokens, fed in pieces of these lengths, over and over.
std::vector<float> logits_of(Model& model, const std::vector<int32_t>& tokens,
                             const std::vector<size_t>& pieces) {
  Context context({.threads = 1});
  Session session(model, context);
  std::vector<float> all;
  for (size_t at = 0, i = 0; at < tokens.size(); ++i) {
    const size_t n = std::min(pieces[i % pieces.size()], tokens.size() - at);
    const Mat<const float> part = session.feed_all(std::span(tokens).subspan(at, n));
    for (size_t r = 0; r < part.rows; ++r) all.insert(all.end(), part.row(r), part.row(r) + part.cols);
    at += n;
  }
  return all;
}

Difference whole(Model& model, const Fixture& f) {
  return difference(logits_of(model, f.tokens, {f.tokens.size()}), f.logits);
}

TEST(Fixtures, EveryFamilyHasOne) {
  std::set<std::string> families;
  for (const Fixture& f : fixtures()) {
    const Result<Json> json = load_config_json(f.dir + "/config.json");
    ASSERT_TRUE(json) << json.error().what;
    families.insert(std::string((*family_of(*json, f.name))->model_type));
  }
  for (const std::string& name : family_names()) EXPECT_TRUE(families.contains(name)) << name;
  uintmax_t bytes = 0;
  for (const auto& e : fs::recursive_directory_iterator(BRAID_SOURCE "/tests/data/families"))
    if (e.is_regular_file()) bytes += e.file_size();
  EXPECT_LT(bytes, 2'500'000u);
}

TEST(Fixtures, LogitsOfEveryPositionAndAnyCut) {
  for (const Fixture& f : fixtures()) {
    const std::unique_ptr<Model> model = load(f);
    const std::vector<std::vector<size_t>> cuts{
        {f.tokens.size()}, {1},    {f.prefill, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
        {5, 1, 9},         {2, 3}, {19, 1}};
    for (const std::vector<size_t>& pieces : cuts) {
      const std::vector<float> got = logits_of(*model, f.tokens, pieces);
      for (const std::vector<float>* want : {&f.logits, &f.cached}) {
        const Difference d = difference(got, *want);
        EXPECT_TRUE(d.good()) << f.name << " in pieces of " << pieces[0] << ", ...: worst " << d.worst
                              << ", rms " << d.rms;
      }
    }
    const Difference d = whole(*model, f);
    RecordProperty(f.name, fmt::format("worst {:.1e}, rms {:.1e}", d.worst, d.rms));
    fmt::print("  {:<22} worst {:.1e}, rms {:.1e}\n", f.name, d.worst, d.rms);
  }
}

// Rolled back, batched, cut by snapshots: bit for bit.
TEST(Fixtures, StatesHoldTheirPromises) {
  for (const Fixture& f : fixtures()) {
    const std::unique_ptr<Model> model = load(f);
    for (const StateCheck& c : check_states(*model))
      for (const std::string& w : c.wrong) ADD_FAILURE() << f.name << ": " << c.what << ": " << w;
  }
}

TEST(Fixtures, GreedyTokensAreTheSame) {
  for (const Fixture& f : fixtures()) {
    const std::unique_ptr<Model> model = load(f);
    Context context({.threads = 1});
    Session session(*model, context);
    std::span<const float> row = session.feed(std::span(f.tokens).first(f.prefill));
    std::vector<int32_t> said;
    while (said.size() < f.greedy.size()) {
      said.push_back(static_cast<int32_t>(std::ranges::max_element(row) - row.begin()));
      row = session.feed(std::span(said).last(1));
    }
    EXPECT_EQ(said, f.greedy) << f.name;
  }
}

TEST(Fixtures, TheCommandGivesTheSame) {
  for (const Fixture& f : fixtures()) {
    const TempDir dir;
    std::string ids;
    for (const int32_t t : f.tokens) ids += (ids.empty() ? "" : ",") + std::to_string(t);
    for (const char* split : {"", "7,1,1,8"}) {
      std::vector<std::string> args{"logits", "--model", f.dir, "--tokens", ids, "--out", dir / "logits"};
      if (*split) args.insert(args.end(), {"--split", split});
      const Finished done = run_braid(args);
      ASSERT_EQ(done.code, 0) << f.name << ": " << done.err;
      const Result<SafeTensors> file = SafeTensors::open(dir / "logits");
      ASSERT_TRUE(file) << file.error().what;
      EXPECT_TRUE(difference(file->find("logits")->as<float>(), f.logits).good()) << f.name << " " << split;
    }
  }
}

// ---- What is wrong must show

Mat<float> param(Model& model, const std::string& name) {
  for (size_t i = 0; i < model.params().all().size(); ++i)
    if (model.params()[i].name == name) return model.params().mat(i);
  check(false, "no parameter " + name);
  return {};
}

TEST(Fixtures, TwoRowsOfAnyTensorExchangedAreNoticed) {
  size_t exchanged = 0;
  for (const Fixture& f : fixtures()) {
    const std::unique_ptr<Model> model = load(f);
    for (size_t i = 0; i < model->params().all().size(); ++i) {
      const Param& p = model->params()[i];
      // A vector's rows are numbers; of the embedding, tokens that occur.
      const size_t rows = static_cast<size_t>(p.shape[0]), cols = p.count() / rows;
      size_t a = 0, b = rows - 1;
      if (p.name == "embedding.weight")
        a = static_cast<size_t>(f.tokens[0]), b = static_cast<size_t>(f.tokens[1]);
      if (rows < 2 || a == b) continue;
      float* data = model->params().block().data() + p.offset;
      const auto exchange = [&] {
        std::swap_ranges(data + a * cols, data + a * cols + cols, data + b * cols);
      };
      exchange();
      EXPECT_FALSE(whole(*model, f).good()) << f.name << ": " << p.name;
      exchange();
      ++exchanged;
    }
    EXPECT_TRUE(whole(*model, f).good()) << f.name;
  }
  EXPECT_GT(exchanged, 500u);
}

// The fixture's numbers in a model with one setting changed.
Difference with(const std::string& name, const std::string& setting) {
  for (const Fixture& f : fixtures())
    if (f.name == name) {
      const std::unique_ptr<Model> right = load(f);
      Json json = to_json(right->config());
      EXPECT_TRUE(apply_override(json, setting));
      const Result<ModelConfig> config = parse_config(json, name);
      EXPECT_TRUE(config) << config.error().what;
      const std::unique_ptr<Model> wrong = Model::create(*config);
      wrong->init(1);
      EXPECT_EQ(wrong->params().block().size(), right->params().block().size()) << name << " " << setting;
      std::ranges::copy(right->params().block(), wrong->params().block().begin());
      return whole(*wrong, f);
    }
  ADD_FAILURE() << "no fixture " << name;
  return {};
}

TEST(Fixtures, AWrongSettingIsNoticed) {
  EXPECT_TRUE(with("qwen3_next", "init_std=0.5").good());  // one that does not matter
  const std::vector<std::pair<const char*, const char*>> wrong{
      {"qwen3_next", "zero_centred_norms=false"},
      {"qwen3_next", "pattern.3.mixer.rotary_dim=6"},
      {"qwen3_5", "norm_eps=1e-3"},
      {"olmo_hybrid", "pattern.0.mixer.negative_eigenvalues=false"},
      {"olmo_hybrid", "pattern.0.mixer.out_eps=1e-4"},
      {"olmo_hybrid-nope", "pattern.3.mixer.rope_theta=10000"},
      {"olmo2", "pattern.0.norm=pre"},
      {"olmo3-yarn", "pattern.3.mixer.rope_amplitude=1"},
      {"olmo3-yarn", "pattern.0.mixer.window=8"},
      {"llama-bias-llama3", "pattern.0.mixer.rope_high=5"},
      {"qwen2-yarn", "pattern.0.mixer.rope_factor=3"},
      {"qwen3", "pattern.0.mixer.rope_factor=2"},
      {"mistral", "pattern.0.mixer.window=6"},
      {"fla-transformer", "pattern.0.mixer.qk_eps=1e-3"},
      {"fla-delta_net", "pattern.0.mixer.feature_norm=l2"},
      {"fla-delta_net", "pattern.0.mixer.feature=silu"},
      {"fla-gated_deltanet", "pattern.0.mixer.gate=sigmoid"},
  };
  for (const auto& [name, setting] : wrong)
    EXPECT_FALSE(with(name, setting).good()) << name << " " << setting;
}

// Value head h must belong to key head h / (heads / key_heads), not to h mod key_heads: the heads are put in
// the other order.
TEST(Fixtures, TiledValueHeadsAreNoticed) {
  for (const char* name : {"qwen3_next", "qwen3_5", "olmo_hybrid", "fla-gated_deltanet"})
    for (const Fixture& f : fixtures()) {
      if (f.name != name) continue;
      const std::unique_ptr<Model> model = load(f);
      const Json m = MixerJson::complete(model->config().layer(0).mixer, model->config());
      const size_t heads = m["heads"], key_heads = m["key_heads"], dk = m["head_dim"], dv = m["value_dim"];
      ASSERT_GT(heads, key_heads) << name;
      const auto tiled = [&](Mat<float> x, size_t first, size_t rows_per_head, size_t numbers) {
        const std::vector<float> old(x.data, x.data + x.count());
        for (size_t h = 0; h < heads; ++h) {
          const size_t from = h % (heads / key_heads) * key_heads + h / (heads / key_heads);
          for (size_t i = 0; i < rows_per_head * numbers; ++i)
            x.data[first * numbers + h * rows_per_head * numbers + i] =
                old[first * numbers + from * rows_per_head * numbers + i];
        }
      };
      const std::string mixer = "layers.0.mixer.";
      const size_t d = static_cast<size_t>(model->config().d_model), taps = m["conv"];
      tiled(param(*model, mixer + "v_proj.weight"), 0, dv, d);
      tiled(param(*model, mixer + "g_proj.weight"), 0, dv, d);
      tiled(param(*model, mixer + "conv1d.weight"), 2 * key_heads * dk, dv, taps);
      for (const char* gate : {"a_proj.weight", "b_proj.weight"}) tiled(param(*model, mixer + gate), 0, 1, d);
      for (const char* gate : {"A_log", "dt_bias"}) tiled(param(*model, mixer + gate), 0, 1, 1);
      const Mat<float> out = param(*model, mixer + "o_proj.weight");
      for (size_t r = 0; r < out.rows; ++r) tiled({out.row(r), heads * dv, 1}, 0, dv, 1);
      EXPECT_FALSE(whole(*model, f).good()) << name;
    }
}

}  // namespace
}  // namespace braid::test
