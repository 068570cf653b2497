#include <gtest/gtest.h>

#include <cmath>
#include <unistd.h>

#include <filesystem>

#include "io/json.h"
#include "autograd/exact.h"
#include "data/text.h"
#include "io/file.h"
#include "support/test_dir.h"
#include "tasks/make_source.h"
#include "verify/compare.h"
#include "verify/exact_check.h"
#include "model/mixers/registry.h"
#include "model/presets.h"
#include "tasks/task_source.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace braid {
namespace {

std::unique_ptr<Model> make(const std::vector<std::string>& overrides, int64_t vocab = 17,
                            const std::string& arch = "transformer",
                            const MixerTable& mixers = built_in_mixers()) {
  Result<Json> json = preset_config(arch, "tiny", vocab);
  for (const std::string& o : overrides) EXPECT_TRUE(apply_override(*json, o)) << o;
  const Result<ModelConfig> config = parse_config(*json, "test", mixers);
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

// `common` tokens are half of all, so that many of a slice are the same, and sequences begin as the ones
// before them do; 0: all are as frequent, and each begins as it likes.
Batch ragged_batch(size_t sequences, size_t longest, int32_t vocab, uint64_t seed = 1, uint64_t common = 0) {
  Rng rng(seed, "batch");
  Batch b;
  for (size_t s = 0; s < sequences; ++s) {
    const size_t n = 1 + rng.below(longest);
    std::vector<int32_t> tokens(n), targets(n);
    for (size_t i = 0; i < n; ++i) {
      tokens[i] = static_cast<int32_t>(rng.below(common && rng.below(2) ? common : vocab));
      if (common && s > 0 && i < 2 * b.view().length(s - 1) / 3) tokens[i] = b.view().tokens_of(s - 1)[i];
      targets[i] = rng.below(3) ? static_cast<int32_t>(rng.below(vocab)) : kUnsupervised;
    }
    targets[n - 1] = 0;
    b.append(tokens, targets);
  }
  return b;
}

// Larger weights than at the start of training, so that every path matters.
void enlarge(Model& model) {
  for (const Param& p : model.params().all())
    if (p.decay && !p.name.ends_with("conv1d.weight") && !p.name.ends_with("dt_proj.weight"))
      for (float& w : model.params().block().subspan(p.offset, p.count())) w *= 4;
}

// Half as wide as tiny, so that the exact passes take no time.
std::vector<std::string> small(const std::string& arch, std::vector<std::string> overrides = {}) {
  const Json tiny = *preset_config(arch, "tiny", 17);
  overrides.insert(overrides.begin(), {"d_model=" + std::to_string(tiny["d_model"].get<int64_t>() / 2),
                                       "pattern.*.mlp.d_ff=24"});
  if (tiny["pattern"][0]["mlp"].contains("experts")) overrides.emplace_back("pattern.*.mlp.experts=3");
  return overrides;
}

// Logits and gradient, by fast kernels in f32 and cut into slices, against the references in double.
void expect_exact(Model& model, const std::string& name) {
  enlarge(model);
  ThreadPool pool(1);
  Gradient g(model, pool, {.slice_tokens = 20});
  const Batch batch = ragged_batch(7, 10, 17, 1, 3);
  const double loss = g.run(batch, 0).loss;
  ExactCheck exact(model, {batch.tokens, batch.offsets, batch.targets});
  for (const CheckRow& r : {exact.logits(), exact.gradient(g.grads())})
    EXPECT_TRUE(r.ok()) << name << " " << r.what << ": rms " << r.diff.rms << " max " << r.diff.max;
  EXPECT_NEAR(loss, exact.loss(), kTolF32.rms * exact.loss()) << name;
  for (const Param& p : model.params().all())
    EXPECT_TRUE(std::ranges::any_of(g.grads().subspan(p.offset, p.count()), [](float x) { return x != 0; }))
        << name << " " << p.name << " has no gradient";
}

TEST(Gradient, IsExactForEveryVariant) {
  for (const std::vector<std::string>& variant :
       {std::vector<std::string>{},
        {"pattern.*.mixer.window=3"},
        {"pattern.*.mixer.kv_heads=2", "pattern.*.mixer.qk_norm=head"},
        {"pattern.*.mixer.qk_norm=full", "pattern.*.mixer.rope_theta=0"},
        {"pattern.*.mixer.gate=sigmoid", "zero_centred_norms=true"},
        {"tie_embeddings=true", "pattern.*.norm=post"},
        {"pattern.*.norm=none"},
        {"pattern.*.mlp.type=gelu"},
        {"pattern.*.mixer.bias=all", "pattern.*.mlp.bias=true"},
        {"pattern.*.mixer.bias=qkv", "pattern.*.mlp.type=gelu", "pattern.*.mlp.bias=true",
         "pattern.*.norm=post"},
        {"pattern.*.mixer.rope_scaling=yarn", "pattern.*.mixer.rope_factor=4",
         "pattern.*.mixer.rope_original=8", "pattern.*.mixer.qk_norm=head", "pattern.*.mixer.qk_eps=0.1"},
        {"pattern.*.mixer.rope_scaling=llama3", "pattern.*.mixer.rope_factor=4",
         "pattern.*.mixer.rope_original=8"},
        {"pattern.*.mlp={\"type\":\"none\"}"}})
    expect_exact(*make(small("transformer", variant)), variant.empty() ? "plain" : variant[0]);
}

// docs/library.md shows this op.
Var doubled(Exec& e, Var x) {
  const Var y = e.result_like(x, x.v.cols);
  for (size_t r = 0; r < x.v.rows; ++r)
    for (size_t c = 0; c < x.v.cols; ++c) y.v.row(r)[c] = 2 * x.v.row(r)[c];
  if (Exact* exact = e.exact()) exact->add(x.v, x.v, y.v);
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
    const Var h = linear(call.exec, call.input, w_);
    const auto [a, b] = split<2>(e, h, {h.v.cols / 2, h.v.cols / 2});
    return linear(e, add(e, doubled(e, a), add(e, b, doubled(e, a))), o_, call.residual);
  }
  double flops_per_token(int64_t) const override { return 0; }
  StateSize state_size(int64_t) const override { return {}; }

 private:
  size_t w_, o_;
};

TEST(Gradient, FlowsThroughAMixerAndAnOpFromOutside) {
  MixerTable mixers;
  const Status added = mixers.add(mixer_entry<Outside>("outside", "of the test"));
  ASSERT_TRUE(added) << added.error().what;
  expect_exact(*make({"pattern.*.mixer={\"type\":\"outside\"}"}, 17, "transformer", mixers), "outside");
}

// The switches of the Gated DeltaNet ablation, and what no preset uses.
TEST(Gradient, IsExactForEverySwitchOfTheFastWeights) {
  for (const std::vector<std::string>& variant :
       {std::vector<std::string>{"pattern.*.mixer.feature=elu1", "pattern.*.mixer.feature_norm=l1"},
        {"pattern.*.mixer.feature=identity", "pattern.*.mixer.conv=0", "pattern.*.mixer.key_heads=2"},
        {"pattern.*.mixer.out_norm=none", "pattern.*.mixer.negative_eigenvalues=true"},
        {"pattern.*.mixer.out_norm=full", "pattern.*.mixer.gate=sigmoid", "pattern.*.mixer.gate_rank=5"},
        {"pattern.*.mixer.decay=none", "pattern.*.mixer.gate=none", "pattern.*.mixer.rope_theta=100"},
        {"pattern.*.mixer.decay=channel", "pattern.*.mixer.write=additive", "pattern.*.mixer.normalise=true",
         "pattern.*.mixer.feature=elu1", "pattern.*.mixer.feature_norm=none"},
        {"pattern.*.mixer.decay=constant", "pattern.*.mixer.steps=3", "pattern.*.mixer.head_dim=6"}})
    expect_exact(*make(small("gated-deltanet", variant), 17, "gated-deltanet"), variant[0]);
  for (const char* arch : {"hqlt-sync", "hqlt-delayed-stream", "hqlt-delayed-chunk"})
    for (const std::vector<std::string>& variant :
         {std::vector<std::string>{"pattern.*.mixer.mixing=sum", "pattern.*.mixer.rope_theta=0"},
          {"pattern.*.mixer.mixing=scalar", "pattern.*.mixer.conv=3", "pattern.*.mixer.gate=silu",
           "pattern.*.mixer.decay=token"},
          {"pattern.*.mixer.rule=gated_deltanet"},
          {"pattern.*.mixer.rule=gated_deltaproduct", "pattern.*.mixer.conv=3"},
          {"pattern.*.mixer.rule=gated_deltaproduct", "pattern.*.mixer.steps=3"}}) {
      std::vector<std::string> all = variant;
      all.emplace_back("pattern.*.mixer.window=3");
      expect_exact(*make(small(arch, all), 17, arch), arch + (" " + variant.back()));
    }
  expect_exact(*make(small("mamba2", {"pattern.*.mixer.groups=2"}), 17, "mamba2"), "mamba2 groups");
  expect_exact(
      *make(small("mamba2", {"pattern.*.mixer.bias=true", "pattern.*.mixer.conv_bias=false"}), 17, "mamba2"),
      "mamba2 biases");
  for (const std::vector<std::string>& variant :
       {std::vector<std::string>{"pattern.*.mixer.strength=gate", "pattern.*.mixer.similarity=qk"},
        {"pattern.*.mixer.strength=gates", "pattern.*.mixer.kappa1=linear", "pattern.*.mixer.key_norm=l2"},
        {"pattern.*.mixer.strength=zero", "pattern.*.mixer.kappa2=linear", "pattern.*.mixer.rope_theta=0"}})
    expect_exact(*make(small("deltaformer", variant), 17, "deltaformer"), "deltaformer " + variant[0]);
}

// Where a few tokens are asked for, memories get their queries alone; the reference gives every token one.
TEST(Gradient, IsExactWhereFewTokensAsk) {
  const auto draw = [](size_t sequences, size_t longest) {
    const Batch drawn = ragged_batch(sequences, longest, 17, 1, 3);
    const BatchView all = drawn.view();
    Batch batch;
    for (size_t s = 0; s < sequences; ++s) {
      std::vector<int32_t> targets(all.length(s), kUnsupervised);
      targets.back() = 3;
      if (s == 4 && targets.size() > 2) targets[1] = 5;  // a convolution sees one token before it
      batch.append(all.tokens_of(s), targets);
    }
    return batch;
  };
  const auto expect = [](const std::string& arch, const std::vector<std::string>& settings,
                         const Batch& batch) {
    const auto model = make(small(arch, settings), 17, arch);
    enlarge(*model);
    ExactCheck exact(*model, {batch.tokens, batch.offsets, batch.targets});
    const CheckRow r = exact.gradient(exact.f32_gradient());
    EXPECT_TRUE(r.ok()) << arch << " " << (settings.empty() ? "" : settings[0]) << ": " << r.what << " rms "
                        << r.diff.rms;
  };
  for (const char* arch : {"transformer", "hqlt-sync", "hqlt-delayed-stream", "hqlt-delayed-chunk"})
    for (const char* conv : {"pattern.*.mixer.conv=0", "pattern.*.mixer.conv=4"})
      expect(arch, {conv, "pattern.*.mixer.window=5"}, draw(12, 30));
  for (const char* arch : {"linear-attention", "retnet", "gla", "hgrn2", "mamba2", "deltanet",
                           "gated-deltanet", "kda", "gated-deltaproduct"})
    expect(arch, {}, draw(6, 14));
}

// What the check above must catch: any one parameter's gradient off by a percent or in another order, and a
// whole backward that is slightly wrong.
TEST(Gradient, MutantsFail) {
  const std::unique_ptr<Model> model = make(small("gated-deltanet"), 17, "gated-deltanet");
  enlarge(*model);
  const Batch batch = ragged_batch(4, 8, 17);
  ExactCheck exact(*model, {batch.tokens, batch.offsets, batch.targets});
  const std::vector<float> right = exact.f32_gradient();
  EXPECT_TRUE(exact.gradient(right).ok());
  EXPECT_TRUE(exact.gradient_along(right, 3).ok());
  for (const Param& p : model->params().all()) {
    std::vector<float> wrong = right;
    for (float& g : std::span(wrong).subspan(p.offset, p.count())) g *= 1.01f;
    const CheckRow r = exact.gradient(wrong);
    EXPECT_FALSE(r.ok()) << p.name;
    EXPECT_EQ(r.what, "gradient, worst in " + p.name);
    wrong = right;
    std::ranges::reverse(std::span(wrong).subspan(p.offset, p.count()));
    EXPECT_FALSE(exact.gradient(wrong).ok()) << p.name;
  }
  // The gradient of another model: its norms divide by a little more.
  const std::unique_ptr<Model> other = make(small("gated-deltanet", {"norm_eps=1e-5"}), 17, "gated-deltanet");
  enlarge(*other);
  ExactCheck near(*other, {batch.tokens, batch.offsets, batch.targets});
  EXPECT_FALSE(exact.gradient(near.f32_gradient()).ok());
}

TEST(Gradient, IsExactWithDropout) {
  const std::unique_ptr<Model> model =
      make(small("gdn-h1", {"dropout=0.3", "pattern.1.mixer.weight_dropout=0.3"}), 17, "gdn-h1");
  enlarge(*model);
  const Batch batch = ragged_batch(4, 8, 17);
  const Rng rng(3, "dropout");
  ExactCheck plain(*model, {batch.tokens, batch.offsets, batch.targets}),
      exact(*model, {batch.tokens, batch.offsets, batch.targets}, &rng);
  EXPECT_TRUE(exact.gradient(exact.f32_gradient()).ok());
  EXPECT_FALSE(exact.gradient(plain.f32_gradient()).ok());
}

class EveryPreset : public testing::TestWithParam<std::string> {};

TEST_P(EveryPreset, LogitsAndGradientAreExact) {
  expect_exact(*make_preset(GetParam(), small(GetParam())), GetParam());
}

// No reference loses the imaginary part: the complex step against a central difference in double.
TEST_P(EveryPreset, TheComplexStepEqualsTheDifferenceQuotient) {
  const std::unique_ptr<Model> model = make_preset(GetParam(), small(GetParam()));
  enlarge(*model);
  const Batch batch = ragged_batch(4, 8, 17);
  ExactCheck exact(*model, {batch.tokens, batch.offsets, batch.targets});
  const std::vector<double> direction = to_double(random_vector(model->params().block_size(), 1));
  const double h = 1e-6, difference = (exact.loss(direction, h) - exact.loss(direction, -h)) / (2 * h),
               slope = exact.slope(direction);
  EXPECT_NEAR(difference, slope, kTolF32.rms * std::fabs(slope));
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

// Every place that has dropout at all.
std::vector<std::string> dropout_everywhere(const std::string& arch) {
  std::vector<std::string> all{"dropout=0.2", "embedding_dropout=0.1"};
  const Result<Json> json = preset_config(arch, "tiny", 17);
  for (size_t i = 0; i < (*json)["pattern"].size(); ++i) {
    const std::string type = (*json)["pattern"][i]["mixer"]["type"];
    const std::string mixer = "pattern." + std::to_string(i) + ".mixer.";
    if (type == "attention") all.push_back(mixer + "weight_dropout=0.1");
    if (type != "attention" && type != "deltaformer" && !type.starts_with("mamba"))
      all.push_back(mixer + "qkv_dropout=0.1");
  }
  return all;
}

// One sequence is long enough for states that forward keeps, several share a slice.
Batch long_and_short() {
  Batch b = ragged_batch(6, 12, 17);
  const Batch one = ragged_batch(1, 400, 17, 3);
  EXPECT_GT(one.tokens.size(), 140u);
  b.append(one.tokens, one.targets);
  return b;
}

struct Measured {
  std::vector<float> grads;  // and the loss
  size_t bytes;
};
Measured run_once(Model& model, const Batch& batch, const GradientOptions& options, int threads = 1) {
  ThreadPool pool(threads);
  Gradient g(model, pool, options);
  const double loss = g.run(batch, 3).loss;
  Measured r{{g.grads().begin(), g.grads().end()}, g.arena_bytes()};
  r.grads.push_back(static_cast<float>(loss));
  return r;
}

TEST_P(EveryPreset, RecomputingChangesNoBitOfTheGradient) {
  const std::unique_ptr<Model> plain = make_preset(GetParam()),
                               drops = make_preset(GetParam(), dropout_everywhere(GetParam()));
  const Batch batch = long_and_short();
  for (const Precision p : {Precision::kF32, Precision::kBf16})
    for (Model* model : {plain.get(), drops.get()}) {
      const Measured kept = run_once(*model, batch, {.precision = p, .slice_tokens = 30}),
                     made = run_once(*model, batch, {.precision = p, .slice_tokens = 30, .recompute = true});
      EXPECT_EQ(kept.grads, made.grads);
      EXPECT_LT(made.bytes, kept.bytes);
    }
  const GradientOptions recompute{.slice_tokens = 1000, .recompute = true};
  EXPECT_EQ(run_once(*drops, batch, recompute, 1).grads, run_once(*drops, batch, recompute, 2).grads);
}

TEST_P(EveryPreset, DropoutIsRandomByStepOnlyAndVanishesInEvaluation) {
  const std::unique_ptr<Model> plain = make_preset(GetParam());
  const Batch batch = ragged_batch(8, 12, 17);
  ThreadPool pool(1);
  Gradient without(*plain, pool, {});
  const double loss = without.evaluate(batch).loss;
  for (const std::string& place : dropout_everywhere(GetParam())) {
    const std::unique_ptr<Model> model = make_preset(GetParam(), {place});
    Gradient g(*model, pool, {});
    EXPECT_EQ(g.evaluate(batch).loss, loss) << place;
    EXPECT_EQ(g.run(batch, 1).loss, g.run(batch, 1).loss) << place;
    EXPECT_NE(g.run(batch, 1).loss, g.run(batch, 2).loss) << place;
    EXPECT_NE(g.run(batch, 1).loss, loss) << place;
    EXPECT_EQ(run_once(*model, batch, {.slice_tokens = 1000}, 1).grads,
              run_once(*model, batch, {.slice_tokens = 1000}, 2).grads)
        << place;
  }
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

// Products of few rows are put off until there are 128 of them; in one slice there is nothing to put off.
TEST(Gradient, IsTheSameWhetherRowsWaitOrNot) {
  const auto model = make_preset("hqlt-sync");
  enlarge(*model);
  ThreadPool pool(1);
  const Batch batch = ragged_batch(200, 10, 17, 1, 3);
  Gradient waits(*model, pool, {.slice_tokens = 20, .lanes = 1}),
      whole(*model, pool, {.slice_tokens = 1'000'000, .lanes = 1});
  waits.run(batch, 0), whole.run(batch, 0);
  const auto difference = [&] {
    return compare(std::span<const float>(waits.grads()), std::span<const float>(whole.grads()));
  };
  EXPECT_TRUE(within(difference(), kTolF32Grad)) << difference().rms << " " << difference().max;
  waits.run(batch, 1);  // nothing is left over from the run before
  EXPECT_TRUE(within(difference(), kTolF32Grad));
}

// What is kept grows with the layers; what is made again does not, but for their inputs.
TEST(Gradient, RecomputingKeepsOneLayerInMemory) {
  const std::unique_ptr<Model> model = make({"n_layers=12"});
  Batch batch;
  const std::vector<int32_t> tokens(600, 1);
  batch.append(tokens, tokens);
  const size_t kept = run_once(*model, batch, {}).bytes,
               made = run_once(*model, batch, {.recompute = true}).bytes;
  EXPECT_GT(kept, 3 * made);
  // Linear in the length.
  batch.append(tokens, tokens);
  const size_t twice = run_once(*model, batch, {.slice_tokens = 1200, .recompute = true}).bytes;
  EXPECT_LT(twice, 2.1 * static_cast<double>(made));
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
  EXPECT_NEAR(lb, lf, kTolBf16.rms * lf);
  EXPECT_NE(lb, lf);
  const Diff d = compare<float, float>(b.grads(), f.grads());
  EXPECT_LT(d.rms, kTolBf16.max);
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
  AdamW norms_too(model->params(), {.weight_decay = 0.5, .clip = 1, .decay_norms = true});
  const std::vector<float> then(model->params().block().begin(), model->params().block().end());
  norms_too.step(zero, 0, 0.1, {});
  for (const Param& p : model->params().all())
    EXPECT_FLOAT_EQ(model->params().block()[p.offset] / then[p.offset], 0.95f) << p.name;
  std::vector<float> grads(before.size(), 0);
  grads[3] = 3, grads[4] = 4;
  EXPECT_DOUBLE_EQ(optimizer.grad_norm(grads, {}), 5);
  grads[5] = NAN;
  EXPECT_FALSE(std::isfinite(optimizer.grad_norm(grads, {})));
}

TEST(Trainer, ParametersCanStayAsTheyStart) {
  TrainOptions o;
  o.task = "reachability", o.task_set = {"train_length=8", "test_length=8"}, o.fixed_embedding = true;
  o.arch = "deltaformer", o.size = "d16-l1-h2-f16", o.steps = 3, o.warmup = 0, o.eval_every = 0;
  o.set = {"pattern.0.norm=none",
           R"(params={"layers.0.mixer.k_proj":{"init":"identity","column":2,"train":false},)"
           R"("layers.0.mixer.q":{"init":"zeros"}})"};
  const TestDir dir;
  o.run = dir.path() + "/run";
  Result<std::unique_ptr<Source>> source = make_source(o);
  ASSERT_TRUE(source);
  ThreadPool pool(2);
  const Result<TrainSummary> r =
      run_training(o, **source, {"", "", "", ""}, pool, {.quiet = true, .on_start = {}, .on_metrics = {}});
  ASSERT_TRUE(r) << r.error().what;
  const Result<std::unique_ptr<Model>> model = Model::load(o.run);
  ASSERT_TRUE(model) << model.error().what;
  const ParamSet& params = (*model)->params();
  const Tensor rows = *(*source)->fixed_embedding();
  size_t seen = 0;
  for (size_t i = 0; i < params.all().size(); ++i) {
    const Mat<const float> m = params.mat(i);
    const bool embedding = params[i].name == "embedding.weight",
               keys = params[i].name == "layers.0.mixer.k_proj.weight";
    seen |= embedding ? 1 : keys ? 2 : 0;
    for (size_t row = 0; row < (embedding || keys ? m.rows : 0); ++row)
      for (size_t c = 0; c < m.cols; ++c) {
        const float one = c == row + 2 ? 1 : 0,
                    given = embedding && c < rows.mat().cols ? rows.mat().row(row)[c] : 0;
        ASSERT_EQ(m.row(row)[c], embedding ? given : one);
      }
    if (params[i].name == "layers.0.mixer.q_proj.weight")
      seen |= std::any_of(m.data, m.data + m.count(), [](float x) { return x != 0; }) ? 4 : 0;
  }
  EXPECT_EQ(seen, 7u);
  o.set.push_back("outputs=3");
  EXPECT_FALSE(make_config(o, **source));
  o.set = {"tie_embeddings=true"};
  EXPECT_FALSE(make_config(o, **source));
  o.set = {}, o.size = "d4-l1-h2-f16";
  EXPECT_FALSE(make_config(o, **source));
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
  OneBatch source;
  Trainer trainer(*model, source, pool, o);
  const Result<TrainSummary> r = trainer.run(false, true);
  ASSERT_TRUE(r);
  EXPECT_LT(r->evaluation.outcome.loss, 0.05) << "started at about " << std::log(17.0);
  EXPECT_EQ(r->evaluation.outcome.accuracy(), 1.0);
}

// Stop rules and curriculum, on a task that can be learned at once.
TrainOptions short_run() {
  TrainOptions o;
  o.run = "", o.steps = 400, o.batch = 8, o.warmup = 5, o.lr = 1e-2, o.weight_decay = 0, o.eval_every = 20;
  return o;
}
TaskSource copying(const std::vector<std::string>& settings) {
  Result<std::unique_ptr<Task>> task = make_task("copy", settings);
  EXPECT_TRUE(task) << task.error().what;
  return TaskSource(*std::move(task), {.seed = 1, .validation_size = 16});
}

TEST(Trainer, StopsAtItsTargetOnAPlateauAndInTime) {
  ThreadPool pool(1);
  const auto run = [&](const TrainOptions& o) {
    const std::unique_ptr<Model> model = make({});
    OneBatch source;
    const Result<TrainSummary> r = Trainer(*model, source, pool, o).run(false, true);
    EXPECT_TRUE(r);
    return *r;
  };
  TrainOptions o = short_run();
  o.patience = 3;  // the loss of one batch falls until it hardly can
  const TrainSummary flat = run(o);
  EXPECT_TRUE(flat.stop == Stop::kPlateau || flat.stop == Stop::kSteps);
  EXPECT_EQ(flat.stop == Stop::kPlateau, flat.progression.since_best == 3u);
  o = short_run();
  o.minutes = 1e-9;
  const TrainSummary late = run(o);
  EXPECT_EQ(late.stop, Stop::kMinutes);
  EXPECT_EQ(late.progression.step, 1u);
  EXPECT_GT(late.evaluation.outcome.supervised, 0u);
  o = short_run();
  o.stop_at = 0.01;
  TaskSource source = copying({"train_max=4", "test_max=4"});
  const std::unique_ptr<Model> model = make({}, static_cast<int64_t>(source.vocab_size()));
  const Result<TrainSummary> early = Trainer(*model, source, pool, o).run(false, true);
  ASSERT_TRUE(early);
  EXPECT_EQ(early->stop, Stop::kTarget);
  EXPECT_EQ(early->progression.step, 20u);
  ASSERT_FALSE(early->evaluation.metrics.empty());
  EXPECT_EQ(headline_score(source, early->evaluation), early->evaluation.metrics[0].value());
  EXPECT_NEAR(early->evaluation.metrics[0].value(), early->evaluation.outcome.accuracy(), 1e-12);
}

TEST(Trainer, ACurriculumGrowsAndResumesBitForBit) {
  const TestDir dir;
  const auto train = [&](const std::string& run, int64_t steps, bool resume) {
    TaskSource source = copying({"train_max=2", "test_max=16"});
    const std::unique_ptr<Model> model = make({}, static_cast<int64_t>(source.vocab_size()));
    ThreadPool pool(2);
    TrainOptions o = short_run();
    o.run = run, o.steps = steps, o.schedule = "constant", o.grow_at = 0.02;
    const Result<TrainSummary> r = Trainer(*model, source, pool, o).run(resume, true);
    EXPECT_TRUE(r);
    EXPECT_EQ(source.growths(), r->progression.growths);
    return std::pair(r->progression.growths,
                     std::vector<float>(model->params().block().begin(), model->params().block().end()));
  };
  const auto whole = train(dir.path() + "/whole", 70, false);
  EXPECT_GT(whole.first, 0u);
  (void)train(dir.path() + "/cut", 47, false);
  const auto resumed = train(dir.path() + "/cut", 70, true);
  EXPECT_EQ(resumed.first, whole.first);
  EXPECT_EQ(resumed.second, whole.second);
}

// The held-out loss before and after a few dozen steps.
std::pair<double, double> learn(const std::string& arch, Source& source) {
  const std::unique_ptr<Model> model = make({}, static_cast<int64_t>(source.vocab_size()), arch);
  ThreadPool pool(2);
  Gradient before(*model, pool, {});
  const double first = before.evaluate(source.validation(0, source.validation_size())).loss;
  TrainOptions o;
  o.run = "", o.steps = 30, o.batch = 8, o.warmup = 3, o.lr = 5e-3, o.eval_every = 0;
  const Result<TrainSummary> r = Trainer(*model, source, pool, o).run(false, true);
  EXPECT_TRUE(r);
  return {first, r->evaluation.outcome.loss};
}

TEST_P(EveryPreset, TheLossFallsOnTextAndOnATask) {
  // Words in random order: spelling can be learned at once, their order never. Who knows how often each
  // letter comes has a loss of 2.4, who knows the words one of 0.3.
  std::string words;
  Rng rng(1, "words");
  for (int i = 0; i < 800; ++i)
    words += std::array{"weave ", "three ", "strands ", "into ", "one "}[rng.below(5)];
  const Result<std::unique_ptr<TextSource>> text = TextSource::from_text(words, "words", {.length = 48});
  ASSERT_TRUE(text);
  const auto [before, after] = learn(GetParam(), **text);
  EXPECT_NEAR(before, std::log(256.0), 0.5);
  EXPECT_LT(after, 2);
  // What parity is takes longer; which tokens are answers is learned at once.
  Result<std::unique_ptr<Task>> task = make_task("parity", {"train_max=12", "test_min=3", "test_max=12"});
  ASSERT_TRUE(task);
  TaskSource source(*std::move(task), {.seed = 1, .validation_size = 64});
  const auto [chance, trained] = learn(GetParam(), source);
  EXPECT_LT(trained, 0.8 * chance);
}

// Half of the steps, then a new process's worth of objects on another number of threads.
TEST_P(EveryPreset, StopsAndResumesBitForBit) {
  const TestDir dir;
  OneBatch source;
  const auto train = [&](const std::string& run, int64_t steps, bool resume, int threads) {
    const std::unique_ptr<Model> model = make_preset(GetParam(), {"dropout=0.1"});
    ThreadPool pool(threads);
    TrainOptions o;
    o.run = run, o.steps = steps, o.batch = 3, o.warmup = 2, o.schedule = "constant", o.eval_every = 0;
    EXPECT_TRUE(make_dirs(run));
    EXPECT_TRUE(Trainer(*model, source, pool, o).run(resume, true));
    return std::vector<float>(model->params().block().begin(), model->params().block().end());
  };
  const std::vector<float> whole = train(dir / "whole", 6, false, 1), half = train(dir / "cut", 3, false, 1);
  EXPECT_NE(half, whole);
  EXPECT_EQ(train(dir / "cut", 6, true, 2), whole);
}

TEST(Trainer, SkipsBadStepsAndStopsAfterTheLimit) {
  const std::unique_ptr<Model> model = make({});
  model->params().block()[0] = NAN;
  ThreadPool pool(1);
  TrainOptions o;
  o.run = "", o.steps = 50, o.batch = 8, o.bad_steps = 4;
  OneBatch source;
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
