#include <gtest/gtest.h>

#include <cmath>
#include <unistd.h>

#include <filesystem>

#include "kernels/common/compare.h"
#include "model/mixers/registry.h"
#include "model/presets.h"
#include "train/trainer.h"

namespace braid {
namespace {

std::unique_ptr<Model> make(const std::vector<std::string>& overrides, int64_t vocab = 17,
                            const std::string& arch = "transformer") {
  Result<Json> json = preset_config(arch, "tiny", vocab);
  for (const std::string& o : overrides) EXPECT_TRUE(apply_override(*json, o)) << o;
  const Result<ModelConfig> config = parse_config(*json, "test");
  EXPECT_TRUE(config);
  std::unique_ptr<Model> model = Model::create(*config);
  model->init(5);
  return model;
}

// Every architecture, with windows and chunks so short that they matter.
std::unique_ptr<Model> make_preset(const std::string& arch, std::vector<std::string> overrides = {}) {
  const Result<Json> json = preset_config(arch, "tiny", 17);
  for (size_t i = 0; i < (*json)["pattern"].size(); ++i) {
    const Json& mixer = (*json)["pattern"][i]["mixer"];
    if (mixer.contains("window") || mixer["type"] == "hqlt")
      overrides.push_back("pattern." + std::to_string(i) + ".mixer.window=3");
  }
  return make(overrides, 17, arch);
}

Batch ragged_batch(size_t sequences, size_t longest, int32_t vocab, uint64_t seed = 1) {
  Rng rng(seed, "batch");
  Batch b;
  for (size_t s = 0; s < sequences; ++s) {
    const size_t n = 1 + rng.below(longest);
    std::vector<int32_t> tokens(n), targets(n);
    for (size_t i = 0; i < n; ++i) {
      tokens[i] = static_cast<int32_t>(rng.below(vocab));
      targets[i] = rng.below(3) ? static_cast<int32_t>(rng.below(vocab)) : kUnsupervised;
    }
    targets[n - 1] = 0;
    b.append(tokens, targets);
  }
  return b;
}

// The gradient against a central difference along a random direction, for variants that take different paths
// through the tape. Each kernel is held to double precision by its own test; this one sees whether they are
// wired together rightly.
// With the usual epsilon, outputs close to zero make the loss too curved for differences in f32.
const char* const kSmooth = "norm_eps=0.01";

void expect_gradient(Model& model, const std::string& name) {
  // Larger weights than at the start of training, so that every path matters.
  for (const Param& p : model.params().all())
    if (p.decay && !p.name.ends_with("conv1d.weight") && !p.name.ends_with("dt_proj.weight"))
      for (float& w : model.params().block().subspan(p.offset, p.count())) w *= 4;
  ThreadPool pool(1);
  Gradient g(model, pool, {.slice_tokens = 20});
  const Batch batch = ragged_batch(9, 12, 17);
  g.run(batch, 0);
  const std::vector<float> grads(g.grads().begin(), g.grads().end());
  const std::vector<float> saved(model.params().block().begin(), model.params().block().end());
  // One direction per parameter, so that a small one cannot hide behind a large one.
  for (const Param& p : model.params().all()) {
    const std::vector<float> direction = random_vector(p.count(), p.offset + 1);
    double slope = 0, size = 0;
    for (size_t i = 0; i < p.count(); ++i)
      slope += static_cast<double>(direction[i]) * grads[p.offset + i],
          size += std::fabs(grads[p.offset + i]);
    const auto moved = [&](double h) {
      for (size_t i = 0; i < p.count(); ++i)
        model.params().block()[p.offset + i] = static_cast<float>(saved[p.offset + i] + h * direction[i]);
      g.params_changed();
      return g.evaluate(batch).loss;
    };
    const double h = 4e-4, numeric = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
    moved(0);
    EXPECT_NEAR(numeric, slope, 0.02 * std::fabs(slope) + 2e-3) << name << " " << p.name << " size " << size;
    EXPECT_GT(size, 0) << name << " " << p.name;
  }
}

TEST(Gradient, EqualsTheDifferenceQuotientForEveryVariant) {
  for (const std::vector<std::string>& variant :
       {std::vector<std::string>{},
        {"pattern.*.mixer.window=3"},
        {"pattern.*.mixer.kv_heads=2", "pattern.*.mixer.qk_norm=head"},
        {"pattern.*.mixer.qk_norm=full", "pattern.*.mixer.rope_theta=0"},
        {"pattern.*.mixer.gate=sigmoid", "zero_centred_norms=true"},
        {"tie_embeddings=true", "pattern.*.norm=post"},
        {"pattern.*.mlp.type=gelu"},
        {"pattern.*.mlp={\"type\":\"none\"}"}})
    expect_gradient(*make(variant), variant.empty() ? "plain" : variant[0]);
}

// docs/library.md shows this op.
Var doubled(Exec& e, Var x) {
  const Var y = e.result(x.v.rows, x.v.cols);
  for (size_t r = 0; r < x.v.rows; ++r)
    for (size_t c = 0; c < x.v.cols; ++c) y.v.row(r)[c] = 2 * x.v.row(r)[c];
  if (e.recording())
    e.tape().record("doubled", y.slot, [&tape = e.tape(), x, y] {
      const Mat<float> dy = tape.grad(y.slot);
      const auto [dx, into] = tape.target(x.slot);
      if (!dx.data) return;
      for (size_t r = 0; r < dy.rows; ++r)
        for (size_t c = 0; c < dy.cols; ++c)
          dx.row(r)[c] = 2 * dy.row(r)[c] + (into == Into::kAdd ? dx.row(r)[c] : 0);
    });
  return y;
}

class Outside : public Mixer {
 public:
  struct Config {
    template <class V>
    void visit(V&) {}
  };
  Outside(const Config&, const ModelConfig& model, Declare declare)
      : w_(declare.matrix("w.weight", 2 * model.d_model, model.d_model)),
        o_(declare.matrix("o.weight", model.d_model, model.d_model, Init::kOutput)) {}
  Var forward(const MixerCall& call) const override {
    Exec& e = call.exec;
    const Var h = linear(e, call.x, w_);
    const auto [a, b] = split<2>(e, h, {h.v.cols / 2, h.v.cols / 2});
    return linear(e, add(e, doubled(e, a), add(e, b, doubled(e, a))), o_, call.residual);
  }
  double flops_per_token(int64_t) const override { return 0; }
  StateSize state_size(int64_t) const override { return {}; }

 private:
  size_t w_, o_;
};

TEST(Gradient, FlowsThroughAMixerAndAnOpFromOutside) {
  const Status added = register_mixer(mixer_entry<Outside>("outside", "of the test"));
  ASSERT_TRUE(added) << added.error().what;
  expect_gradient(*make({"pattern.*.mixer={\"type\":\"outside\"}", kSmooth}), "outside");
}

// The switches of the Gated DeltaNet ablation, and what no preset uses.
TEST(Gradient, EqualsTheDifferenceQuotientForEverySwitchOfTheFastWeights) {
  for (const std::vector<std::string>& variant :
       {std::vector<std::string>{"pattern.*.mixer.feature=elu1", "pattern.*.mixer.feature_norm=l1"},
        {"pattern.*.mixer.feature=identity", "pattern.*.mixer.conv=0", "pattern.*.mixer.key_heads=2"},
        {"pattern.*.mixer.out_norm=none", "pattern.*.mixer.negative_eigenvalues=true"},
        {"pattern.*.mixer.out_norm=full", "pattern.*.mixer.gate=sigmoid", "pattern.*.mixer.gate_rank=5"},
        {"pattern.*.mixer.decay=none", "pattern.*.mixer.gate=none", "pattern.*.mixer.rope_theta=100"},
        {"pattern.*.mixer.decay=channel", "pattern.*.mixer.write=additive", "pattern.*.mixer.normalise=true",
         "pattern.*.mixer.feature=elu1", "pattern.*.mixer.feature_norm=none"},
        {"pattern.*.mixer.decay=constant", "pattern.*.mixer.steps=3", "pattern.*.mixer.head_dim=6"}}) {
    std::vector<std::string> all = variant;
    all.emplace_back(kSmooth);
    expect_gradient(*make(all, 17, "gated-deltanet"), variant[0]);
  }
  for (const char* arch : {"hqlt-sync", "hqlt-delayed-stream", "hqlt-delayed-chunk"})
    for (const std::vector<std::string>& variant :
         {std::vector<std::string>{"pattern.*.mixer.mixing=sum", "pattern.*.mixer.rope_theta=0"},
          {"pattern.*.mixer.mixing=scalar", "pattern.*.mixer.conv=3", "pattern.*.mixer.gate=silu",
           "pattern.*.mixer.decay=token"}}) {
      std::vector<std::string> all = variant;
      all.emplace_back("pattern.*.mixer.window=3"), all.emplace_back(kSmooth);
      expect_gradient(*make(all, 17, arch), arch + (" " + variant[0]));
    }
  for (const std::vector<std::string>& variant :
       {std::vector<std::string>{"pattern.*.mixer.strength=gate", "pattern.*.mixer.similarity=qk"},
        {"pattern.*.mixer.strength=gates", "pattern.*.mixer.kappa1=linear", "pattern.*.mixer.key_norm=l2"},
        {"pattern.*.mixer.strength=zero", "pattern.*.mixer.kappa2=linear", "pattern.*.mixer.rope_theta=0"}}) {
    std::vector<std::string> all = variant;
    all.emplace_back(kSmooth);
    expect_gradient(*make(all, 17, "deltaformer"), "deltaformer " + variant[0]);
  }
}

class EveryPreset : public testing::TestWithParam<std::string> {};

TEST_P(EveryPreset, TheGradientEqualsTheDifferenceQuotient) {
  std::vector<std::string> overrides{kSmooth};
  // The choice of experts jumps, which no difference survives; choosing all of them keeps everything else.
  const Result<Json> json = preset_config(GetParam(), "tiny", 17);
  if ((*json)["pattern"][0]["mlp"].contains("experts"))
    overrides.push_back("pattern.*.mlp.top_k=" + (*json)["pattern"][0]["mlp"]["experts"].dump());
  expect_gradient(*make_preset(GetParam(), overrides), GetParam());
}

TEST_P(EveryPreset, ThreadsDoNotChangeABitOfTheGradient) {
  const std::unique_ptr<Model> model = make_preset(GetParam());
  const Batch batch = ragged_batch(30, 12, 17);
  const auto run = [&](int threads, size_t slice) {
    ThreadPool pool(threads);
    Gradient g(*model, pool, {.slice_tokens = slice});
    g.run(batch, 0);
    return std::vector<float>(g.grads().begin(), g.grads().end());
  };
  EXPECT_EQ(run(1, 30), run(2, 30));      // slices in parallel
  EXPECT_EQ(run(1, 1000), run(2, 1000));  // threads inside the ops
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Registry, EveryPreset, testing::ValuesIn(preset_names()), test_name);

TEST(Gradient, ThreadsAndSlicesOfLanesDoNotChangeABit) {
  const std::unique_ptr<Model> model = make({"dropout=0.2"});
  const Batch batch = ragged_batch(50, 12, 17);
  const auto run = [&](int threads, size_t lanes, Precision precision) {
    ThreadPool pool(threads);
    Gradient g(*model, pool, {.precision = precision, .slice_tokens = 30, .lanes = lanes, .seed = 4});
    const double loss = g.run(batch, 3).loss;
    std::vector<float> out(g.grads().begin(), g.grads().end());
    out.push_back(static_cast<float>(loss));
    return out;
  };
  for (const Precision p : {Precision::kF32, Precision::kBf16}) {
    EXPECT_EQ(run(1, 8, p), run(3, 8, p));  // lanes in parallel
    EXPECT_EQ(run(1, 2, p), run(5, 2, p));  // threads inside the ops
  }
}

TEST(Gradient, DropoutDependsOnTheStepAndVanishesInEvaluation) {
  const std::unique_ptr<Model> model = make({"dropout=0.3"}), plain = make({});
  ThreadPool pool(1);
  Gradient g(*model, pool, {}), h(*plain, pool, {});
  const Batch batch = ragged_batch(8, 12, 17);
  EXPECT_EQ(g.run(batch, 1).loss, g.run(batch, 1).loss);
  EXPECT_NE(g.run(batch, 1).loss, g.run(batch, 2).loss);
  EXPECT_EQ(g.evaluate(batch).loss, h.evaluate(batch).loss);
}

TEST(Gradient, Bf16IsCloseToF32) {
  const std::unique_ptr<Model> model = make({});
  ThreadPool pool(1);
  Gradient f(*model, pool, {}), b(*model, pool, {.precision = Precision::kBf16});
  const Batch batch = ragged_batch(16, 12, 17);
  const double lf = f.run(batch, 0).loss, lb = b.run(batch, 0).loss;
  EXPECT_NEAR(lb, lf, 0.01 * lf);
  EXPECT_NE(lb, lf);
  const Diff d = compare<float, float>(b.grads(), f.grads());
  EXPECT_LT(d.rms, 0.05);
}

TEST(Schedule, HasTheDocumentedShape) {
  const Schedule cosine{.kind = "cosine", .lr = 1, .min_lr = 0.1, .warmup = 10, .steps = 110};
  EXPECT_DOUBLE_EQ(cosine.at(0), 0);
  EXPECT_DOUBLE_EQ(cosine.at(5), 0.5);
  EXPECT_DOUBLE_EQ(cosine.at(10), 1);
  EXPECT_DOUBLE_EQ(cosine.at(60), 0.55);
  EXPECT_NEAR(cosine.at(110), 0.1, 1e-12);
  EXPECT_NEAR(cosine.at(500), 0.1, 1e-12);
  const Schedule wsd{.kind = "wsd", .lr = 1, .min_lr = 0, .warmup = 10, .steps = 100};
  EXPECT_DOUBLE_EQ(wsd.at(79), 1);
  EXPECT_DOUBLE_EQ(wsd.at(90), 0.5);
  const Schedule constant{.kind = "constant", .lr = 2};
  EXPECT_DOUBLE_EQ(constant.at(12345), 2);
}

TEST(AdamW, DecaysMatricesOnlyAndClips) {
  const std::unique_ptr<Model> model = make({});
  AdamW optimizer(model->params(), {.weight_decay = 0.5, .clip = 1});
  const std::vector<float> before(model->params().block().begin(), model->params().block().end());
  const std::vector<float> zero(before.size(), 0);
  optimizer.step(zero, 0, 0.1, {});
  for (const Param& p : model->params().all()) {
    const float ratio = model->params().block()[p.offset] / before[p.offset];
    EXPECT_FLOAT_EQ(ratio, p.decay ? 0.95f : 1.0f) << p.name;
    EXPECT_EQ(p.decay, p.shape.rank() == 2) << p.name;
  }
  std::vector<float> grads(before.size(), 0);
  grads[3] = 3, grads[4] = 4;
  EXPECT_DOUBLE_EQ(optimizer.grad_norm(grads, {}), 5);
  grads[5] = NAN;
  EXPECT_FALSE(std::isfinite(optimizer.grad_norm(grads, {})));
}

// One fixed batch, whose labels are random: only memorising helps.
class OneBatch final : public Source {
 public:
  size_t validation_size() const override { return 8; }
  size_t vocab_size() const override { return 17; }
  size_t max_length() const override { return 12; }
  std::string fingerprint() const override { return "one batch"; }
  std::string describe() const override { return "one batch"; }

 private:
  void add(Batch& out, uint64_t i) const {
    Batch one = ragged_batch(1, 12, 17, 100 + i % 8);
    one.tokens[0] = static_cast<int32_t>(i % 8);  // tells the sequences apart from the first token on
    // Equal tokens at the start of what attention sees have equal values, hence equal outputs, whatever the
    // weights: with attention inside chunks that can be anywhere.
    for (size_t t = 1; t < one.tokens.size(); ++t)
      if (one.tokens[t] == one.tokens[t - 1]) one.tokens[t] = (one.tokens[t] + 1) % 17;
    out.append(one.tokens, one.targets);
  }
  void append_train(Batch& out, uint64_t i) const override { add(out, i); }
  void append_validation(Batch& out, size_t i) const override { add(out, i); }
};

TEST_P(EveryPreset, OverfitsOneBatch) {
  const std::unique_ptr<Model> model = make_preset(GetParam());
  ThreadPool pool(2);
  TrainOptions o;
  o.run = "", o.steps = 100, o.batch = 8, o.warmup = 5, o.lr = 1e-2, o.weight_decay = 0;
  const OneBatch source;
  Trainer trainer(*model, source, pool, o);
  const Result<TrainSummary> r = trainer.run(false, true);
  ASSERT_TRUE(r);
  EXPECT_LT(r->evaluation.loss, 0.05) << "started at about " << std::log(17.0);
  EXPECT_EQ(r->evaluation.accuracy(), 1.0);
}

TEST(Trainer, SkipsBadStepsAndStopsAfterTheLimit) {
  const std::unique_ptr<Model> model = make({});
  model->params().block()[0] = NAN;
  ThreadPool pool(1);
  TrainOptions o;
  o.run = "", o.steps = 50, o.batch = 8, o.bad_steps = 4;
  const OneBatch source;
  Trainer trainer(*model, source, pool, o);
  int lines = 0;
  trainer.on_metrics([&](const Json& j) {
    ++lines;
    EXPECT_TRUE(j["loss"].is_null());
  });
  const Result<TrainSummary> r = trainer.run(false, true);
  ASSERT_FALSE(r);
  EXPECT_EQ(lines, 4);
  EXPECT_NE(r.error().what.find("4 steps in a row"), std::string::npos);
}

TEST(Trainer, KeepsTheLastCheckpointsAndTheBest) {
  namespace fs = std::filesystem;
  const std::string dir = fs::temp_directory_path() / ("braid-train-test-" + std::to_string(getpid()));
  fs::remove_all(dir);
  fs::create_directories(dir);
  const std::unique_ptr<Model> model = make({});
  ThreadPool pool(1);
  AdamW optimizer(model->params(), {});
  for (uint64_t step = 1; step <= 6; ++step)
    ASSERT_TRUE(save_checkpoint(
        dir, *model, optimizer,
        {.step = step, .sample = 7 * step, .best_step = step < 2 ? step : 2, .best_loss = 1}, 2));
  std::vector<std::string> left;
  for (const auto& e : fs::directory_iterator(dir + "/state")) left.push_back(e.path().filename());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{"step-00000002", "step-00000005", "step-00000006"}));
  EXPECT_EQ(latest_checkpoint(dir), 6u);
  const Result<Progression> p = load_checkpoint(dir, 6, *model, optimizer);
  ASSERT_TRUE(p);
  EXPECT_EQ(p->sample, 42u);
  fs::remove_all(dir);
}

}  // namespace
}  // namespace braid
