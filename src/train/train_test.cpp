#include <gtest/gtest.h>

#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <bit>
#include <cmath>
#include <cstring>

#include <atomic>
#include <filesystem>
#include <sstream>

#include "io/json.h"
#include "autograd/exact.h"
#include "data/text.h"
#include "io/file.h"
#include "io/strict_json.h"
#include "model/config_json.h"
#include "kernels/orthogonalize/orthogonalize_ref.h"
#include "support/test_dir.h"
#include "support/test_kernels.h"
#include "tasks/make_source.h"
#include "verify/compare.h"
#include "verify/exact_check.h"
#include "model/mixers/registry.h"
#include "model/presets.h"
#include "tasks/task_source.h"
#include "train/run_folder.h"
#include "train/setup.h"
#include "train/tensorboard.h"
#include "train/trainer.h"

// Stands in for the C library in this program: no folder comes to the place of one with this name.
namespace {
std::string no_rename_to;
bool refused(const char* to) {
  if (no_rename_to.empty() || !std::string(to).ends_with(no_rename_to)) return false;
  errno = EIO;
  return true;
}
}  // namespace
extern "C" {
int rename(const char* from, const char* to) noexcept {
  return refused(to) ? -1 : static_cast<int>(syscall(SYS_rename, from, to));
}
int renameat2(int a, const char* from, int b, const char* to, unsigned flags) noexcept {
  return refused(to) ? -1 : static_cast<int>(syscall(SYS_renameat2, a, from, b, to, flags));
}
}

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
  ThreadPool pool(1, test_kernels());
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

// docs/howto/extend.md shows this op.
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
    ThreadPool pool(threads, test_kernels());
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
  ThreadPool pool(threads, test_kernels());
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
  ThreadPool pool(1, test_kernels());
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
    ThreadPool pool(threads, test_kernels());
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
  ThreadPool pool(1, test_kernels());
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
  ThreadPool pool(1, test_kernels());
  Gradient g(*model, pool, {}), h(*plain, pool, {});
  const Batch batch = ragged_batch(8, 12, 17);
  EXPECT_EQ(g.run(batch, 1).loss, g.run(batch, 1).loss);
  EXPECT_NE(g.run(batch, 1).loss, g.run(batch, 2).loss);
  EXPECT_EQ(g.evaluate(batch).loss, h.evaluate(batch).loss);
}

TEST(Gradient, Bf16IsCloseToF32) {
  const std::unique_ptr<Model> model = make({});
  ThreadPool pool(1, test_kernels());
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
  Optimizer optimizer(model->params(), {.weight_decay = 0.5, .clip = 1});
  const std::vector<float> before(model->params().block().begin(), model->params().block().end());
  const std::vector<float> zero(before.size(), 0);
  optimizer.step(zero, 0, 0.1, {});
  for (const Param& p : model->params().all()) {
    const float ratio = model->params().block()[p.offset] / before[p.offset];
    EXPECT_FLOAT_EQ(ratio, p.decay ? 0.95f : 1.0f) << p.name;
    EXPECT_EQ(p.decay, p.shape.rank() == 2) << p.name;
  }
  Optimizer norms_too(model->params(), {.weight_decay = 0.5, .clip = 1, .decay_norms = true});
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

// The records by hand: lengths, checksums and the fields of the first scalar.
TEST(Tensorboard, RecordsHaveLengthsAndChecksums) {
  EXPECT_EQ(crc32c("123456789", 9), 0xe3069283u);  // the check value of the polynomial
  const TestDir dir;
  EventFile file = *EventFile::start(dir.path(), 0);
  ASSERT_TRUE(file.add(300, {{"train/loss", 1.5}, {"eval/loss", 2.5}}));
  const std::vector<std::string> names = names_in(dir.path());
  ASSERT_EQ(names.size(), 1u);
  EXPECT_TRUE(is_event_file(names[0])) << names[0];
  const std::string bytes = *read_text(dir.path() + "/" + names[0]);
  size_t at = 0, records = 0;
  std::string last;
  while (at < bytes.size()) {
    uint64_t length = 0;
    uint32_t check = 0;
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&check, bytes.data() + at + 8, 4);
    EXPECT_EQ(check, std::rotr(crc32c(bytes.data() + at, 8), 15) + 0xa282ead8u);
    last = bytes.substr(at + 12, length);
    std::memcpy(&check, bytes.data() + at + 12 + length, 4);
    EXPECT_EQ(check, std::rotr(crc32c(last.data(), last.size()), 15) + 0xa282ead8u);
    at += 16 + length, ++records;
  }
  EXPECT_EQ(records, 2u);
  EXPECT_NE(last.find(std::string("\x10\xac\x02", 3)), std::string::npos) << "step 300 as a varint";
  EXPECT_NE(last.find("\x0a\x0atrain/loss\x15"), std::string::npos);
}

// Two steps by the formulas in double, with a matrix of two logical ones; vectors and the embedding as AdamW.
TEST(Muon, StepsAreThoseOfTheFormulas) {
  TrainOptions o;
  o.arch = "mamba2", o.size = "d16-l1-h2-f16";
  const std::unique_ptr<Model> model = Model::create(*make_config(o, 11));
  model->init(1);
  ParamSet& params = model->params();
  const double lr = 0.1, decay = 0.5, mu = 0.9;
  Optimizer optimizer(params,
                      {.kind = OptimizerKind::kMuon, .weight_decay = decay, .clip = 0, .momentum = mu});
  Optimizer adamw(params, {.weight_decay = decay, .clip = 0});
  std::vector<double> p(params.block().begin(), params.block().end()), m(p.size(), 0);
  size_t hidden = 0, blocks = 0;
  for (uint64_t step = 0; step < 2; ++step) {
    std::vector<float> g(p.size());
    Rng rng(step, "gradient");
    for (float& x : g) x = rng.normal();
    for (const Param& param : params.all()) {
      if (!param.hidden) continue;
      ++hidden;
      size_t begin = param.offset;
      for (const size_t rows : param.row_blocks.empty() ? std::vector{param.rows()} : param.row_blocks) {
        ++blocks;
        std::vector<double> u(rows * param.cols());
        for (size_t i = 0; i < u.size(); ++i) {
          m[begin + i] = mu * m[begin + i] + g[begin + i];
          u[i] = g[begin + i] + mu * m[begin + i];
        }
        ref::orthogonalize<double>(5, 3.4445, -4.775, 2.0315, 1e-7, rows, param.cols(), u.data());
        const double size = 0.2 * std::sqrt(static_cast<double>(std::max(rows, param.cols())));
        for (size_t i = 0; i < u.size(); ++i)
          p[begin + i] = (1 - lr * decay) * p[begin + i] - lr * size * u[i];
        begin += u.size();
      }
    }
    const std::vector<float> before(params.block().begin(), params.block().end());
    optimizer.step(g, 1, lr, {});
    const std::vector<float> after(params.block().begin(), params.block().end());
    for (const Param& param : params.all())
      for (size_t i = param.offset; param.hidden && i < param.offset + param.count(); ++i)
        ASSERT_NEAR(after[i], p[i], 2e-5) << param.name;
    // The rest.
    std::ranges::copy(before, params.block().begin());
    adamw.step(g, 1, lr, {});
    for (const Param& param : params.all())
      for (size_t i = param.offset; !param.hidden && i < param.offset + param.count(); ++i)
        ASSERT_EQ(after[i], params.block()[i]) << param.name;
    std::ranges::copy(after, params.block().begin());
  }
  EXPECT_GT(hidden, 0u);
  EXPECT_GT(blocks, hidden) << "mamba2's in_proj is five matrices";
}

// A norm of 5 against limits below, at and above it: what the moments get is the gradient of that norm at
// most.
TEST(AdamW, ClipsTheNormOfTheWholeGradient) {
  const std::unique_ptr<Model> model = make({});
  std::vector<float> grads(model->params().block().size(), 0);
  grads[3] = 3, grads[4] = -4;
  for (const auto& [clip, share] : {std::pair{1.0, 0.2}, {2.5, 0.5}, {5.0, 1.0}, {7.0, 1.0}, {0.0, 1.0}}) {
    Optimizer optimizer(model->params(), {.beta1 = 0.5, .beta2 = 0.75, .clip = clip});
    optimizer.step(grads, optimizer.grad_norm(grads, {}), 0.1, {});
    const std::span<const float> m = optimizer.m().as<float>(), v = optimizer.v().as<float>();
    for (const size_t i : {size_t{3}, size_t{4}}) {
      const auto g = static_cast<float>(share) * grads[i];
      EXPECT_FLOAT_EQ(m[i], 0.5f * g) << "clip " << clip;
      EXPECT_FLOAT_EQ(v[i], 0.25f * g * g) << "clip " << clip;
    }
  }
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
  ThreadPool pool(2, test_kernels());
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
  ThreadPool pool(2, test_kernels());
  TrainOptions o;
  o.run = "", o.steps = 100, o.batch = 8, o.warmup = 5, o.lr = 1e-2, o.weight_decay = 0;
  OneBatch source;
  Trainer trainer(*model, source, pool, o);
  const Result<TrainSummary> r = trainer.run({.quiet = true});
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
  ThreadPool pool(1, test_kernels());
  const auto run = [&](const TrainOptions& o) {
    const std::unique_ptr<Model> model = make({});
    OneBatch source;
    const Result<TrainSummary> r = Trainer(*model, source, pool, o).run({.quiet = true});
    EXPECT_TRUE(r);
    return *r;
  };
  TrainOptions o = short_run();
  o.patience = 3, o.lr = 0;  // the first evaluation is the best, the three after it are not better
  const TrainSummary flat = run(o);
  EXPECT_EQ(flat.stop, Stop::kPlateau);
  EXPECT_EQ(flat.progression.step, 80u);
  EXPECT_EQ(flat.progression.best_step, 20u);
  EXPECT_EQ(flat.progression.since_best, 3u);
  o.lr = 1e-3, o.steps = 100, o.schedule = "constant";  // each is better than the one before
  const TrainSummary falling = run(o);
  EXPECT_EQ(falling.stop, Stop::kSteps);
  EXPECT_EQ(falling.progression.best_step, 100u);
  EXPECT_EQ(falling.progression.since_best, 0u);
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
  const Result<TrainSummary> early = Trainer(*model, source, pool, o).run({.quiet = true});
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
    ThreadPool pool(2, test_kernels());
    TrainOptions o = short_run();
    o.run = run, o.steps = steps, o.schedule = "constant", o.grow_at = 0.02;
    const Result<TrainSummary> r = Trainer(*model, source, pool, o).run({.resume = resume, .quiet = true});
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
  ThreadPool pool(2, test_kernels());
  Gradient before(*model, pool, {});
  const double first = before.evaluate(source.validation(0, source.validation_size())).loss;
  TrainOptions o;
  o.run = "", o.steps = 30, o.batch = 8, o.warmup = 3, o.lr = 5e-3, o.eval_every = 0;
  const Result<TrainSummary> r = Trainer(*model, source, pool, o).run({.quiet = true});
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
    ThreadPool pool(threads, test_kernels());
    TrainOptions o;
    o.run = run, o.steps = steps, o.batch = 3, o.warmup = 2, o.schedule = "constant", o.eval_every = 0;
    EXPECT_TRUE(make_dirs(run));
    EXPECT_TRUE(Trainer(*model, source, pool, o).run({.resume = resume, .quiet = true}));
    return std::vector<float>(model->params().block().begin(), model->params().block().end());
  };
  const std::vector<float> whole = train(dir / "whole", 6, false, 1), half = train(dir / "cut", 3, false, 1);
  EXPECT_NE(half, whole);
  EXPECT_EQ(train(dir / "cut", 6, true, 2), whole);
}

TEST(Trainer, SkipsBadStepsAndStopsAfterTheLimit) {
  const std::unique_ptr<Model> model = make({});
  model->params().block()[0] = NAN;
  ThreadPool pool(1, test_kernels());
  TrainOptions o;
  o.run = "", o.steps = 50, o.batch = 8, o.bad_steps = 4;
  OneBatch source;
  Trainer trainer(*model, source, pool, o);
  int lines = 0;
  trainer.on_metrics([&](const std::string& line) {
    ++lines;
    EXPECT_TRUE((*parse_ordered_json(line, "line"))["loss"].is_null());
  });
  const Result<TrainSummary> r = trainer.run({.quiet = true});
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
  ThreadPool pool(1, test_kernels());
  Optimizer optimizer(model->params(), {});
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

// The first held-out batch has a token whose embedding is NaN, the later ones have not.
class NanOnce final : public Source {
 public:
  size_t validation_size() const override { return 1; }
  size_t vocab_size() const override { return 17; }
  size_t max_length() const override { return 3; }
  std::string fingerprint() const override { return "nan once"; }
  std::string describe() const override { return "nan once"; }

 private:
  void append_train(Batch& out, uint64_t) const override {
    out.append(std::vector<int32_t>{1, 2, 3}, std::vector<int32_t>{2, 3, 4});
  }
  void append_validation(Batch& out, size_t) const override {
    out.append(std::vector<int32_t>{1, asked_++ == 0 ? 16 : 2}, std::vector<int32_t>{2, 3});
  }
  mutable std::atomic<int> asked_ = 0;
};

TEST(Trainer, ANanAtTheFirstEvaluationIsNotTheBestForEver) {
  const TestDir dir;
  const std::unique_ptr<Model> model = make({});
  for (size_t i = 0; i < model->params().all().size(); ++i)
    if (model->params()[i].name == "embedding.weight")
      for (size_t c = 0; c < model->params()[i].cols(); ++c) model->params().mat(i).row(16)[c] = NAN;
  ThreadPool pool(1);
  NanOnce source;
  TrainOptions o;
  o.run = dir / "run", o.steps = 3, o.batch = 2, o.warmup = 0, o.eval_every = 1;
  std::vector<double> losses;
  Trainer trainer(*model, source, pool, o);
  trainer.on_metrics([&](const std::string& text) {
    const Json line = *parse_ordered_json(text, "line");
    if (line.contains("eval_loss"))
      losses.push_back(line["eval_loss"].is_null() ? NAN : line["eval_loss"].get<double>());
  });
  const Result<TrainSummary> r = trainer.run({.quiet = true});
  ASSERT_TRUE(r) << r.error().what;
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_TRUE(std::isnan(losses[0]));
  EXPECT_GE(r->progression.best_step, 2u);
  EXPECT_EQ(r->progression.best_loss, std::min(losses[1], losses[2]));
}

// A short run on one batch in a folder, with a checkpoint at every second step.
struct ShortRun {
  TestDir dir;
  std::string run = dir / "run";
  std::vector<std::string> notes;
  std::vector<float> params;

  Result<TrainSummary> train(int64_t steps, bool resume, const std::string& in = "") {
    const std::unique_ptr<Model> model = make({});
    ThreadPool pool(1);
    OneBatch source;
    TrainOptions o;
    o.run = in.empty() ? run : in, o.steps = steps, o.batch = 3, o.warmup = 2, o.schedule = "constant";
    o.eval_every = 0, o.checkpoint_every = 2;
    Trainer trainer(*model, source, pool, o);
    trainer.on_note([&](const std::string& note) { notes.push_back(note); });
    Result<TrainSummary> r = trainer.run({.resume = resume, .quiet = true});
    params.assign(model->params().block().begin(), model->params().block().end());
    return r;
  }
  std::vector<std::string> checkpoints() const {
    std::vector<std::string> names;
    for (const auto& e : std::filesystem::directory_iterator(run + "/state"))
      names.push_back(e.path().filename());
    std::ranges::sort(names);
    return names;
  }
  std::string file(uint64_t step, const std::string& name) const {
    return run + "/state/step-0000000" + std::to_string(step) + "/" + name;
  }
};

void flip_a_bit(const std::string& path) {
  std::string bytes = get(path);
  ASSERT_GT(bytes.size(), 100u) << path;
  bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 4);
  put(path, bytes);
}

TEST(Trainer, StartingOverLeavesNothingOfTheRunBefore) {
  ShortRun s;
  ASSERT_TRUE(s.train(8, false));
  put(s.run + "/result.json", "{}");
  ASSERT_TRUE(make_dirs(s.run + "/state/notes"));
  put(s.run + "/letter", "mine"), put(s.run + "/state/notes/a", "mine");
  const Result<TrainSummary> r = s.train(4, false);
  ASSERT_TRUE(r) << r.error().what;
  EXPECT_EQ(r->progression.step, 4u);
  EXPECT_EQ(s.checkpoints(), (std::vector<std::string>{"notes", "step-00000002", "step-00000004"}));
  EXPECT_EQ(get(s.run + "/letter") + get(s.run + "/state/notes/a"), "minemine");
  EXPECT_TRUE(has(get(s.run + "/result.json"), "all steps done"));
  // A later resume goes on with the new run.
  ASSERT_TRUE(s.train(6, true));
  const std::vector<float> resumed = s.params;
  ASSERT_TRUE(s.train(6, false, s.dir / "whole"));
  EXPECT_EQ(resumed, s.params);
}

TEST(Trainer, AForeignFolderIsNotTouched) {
  ShortRun s;
  ASSERT_TRUE(make_dirs(s.run));
  put(s.run + "/config.json", R"({"model_type": "llama"})");
  put(s.run + "/model.safetensors", "somebody's weights");
  for (const bool resume : {false, true}) {
    const Result<TrainSummary> r = s.train(4, resume);
    EXPECT_TRUE(has(what(r), "--run " + s.run + ": has files that Braid did not write as a training run"));
    EXPECT_EQ(get(s.run + "/model.safetensors"), "somebody's weights");
  }
  size_t files = 0;
  for ([[maybe_unused]] const auto& e : std::filesystem::directory_iterator(s.run)) ++files;
  EXPECT_EQ(files, 2u);
}

// Runs of before folders had a mark and checkpoints had hashes.
TEST(Trainer, ARunOfAnEarlierVersionGoesOn) {
  ShortRun s;
  ASSERT_TRUE(s.train(6, false, s.dir / "whole"));
  const std::vector<float> whole = s.params;
  ASSERT_TRUE(s.train(4, false));
  for (const char* name : {"/.braid", "/.braid-lock"}) ASSERT_TRUE(std::filesystem::remove(s.run + name));
  for (const uint64_t step : {2, 4}) {
    Result<Json> json = load_json(s.file(step, "trainer.json"));
    ASSERT_TRUE(json);
    (*json)["version"] = 1, json->erase("files"), json->erase("content");
    ASSERT_TRUE(save_json(s.file(step, "trainer.json"), *json));
  }
  const Result<TrainSummary> r = s.train(6, true);
  ASSERT_TRUE(r) << r.error().what;
  EXPECT_EQ(s.params, whole);
  EXPECT_TRUE(s.notes.empty());
  EXPECT_TRUE(std::filesystem::exists(s.run + "/.braid"));
}

TEST(Checkpoint, ADamagedOneIsLeftForTheNewestThatIsWhole) {
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "trainer.json"}) {
    ShortRun s;
    ASSERT_TRUE(s.train(8, false, s.dir / "whole"));
    const std::vector<float> whole = s.params;
    ASSERT_TRUE(s.train(6, false));
    flip_a_bit(s.file(6, name));
    const Result<TrainSummary> r = s.train(8, true);
    ASSERT_TRUE(r) << r.error().what;
    EXPECT_EQ(s.params, whole) << name;
    ASSERT_EQ(s.notes.size(), 1u) << name;
    EXPECT_TRUE(has(s.notes[0], s.file(6, name)));
    EXPECT_TRUE(has(s.notes[0], "going on from step 4"));
    EXPECT_EQ(s.checkpoints(), (std::vector<std::string>{"step-00000006", "step-00000008"}));
    s.notes.clear();
    EXPECT_TRUE(s.train(8, true));  // what was damaged is gone
    EXPECT_TRUE(s.notes.empty());
  }
}

TEST(Checkpoint, IfNoneIsWholeNothingIsTouched) {
  ShortRun s;
  ASSERT_TRUE(s.train(4, false));
  flip_a_bit(s.file(4, "optimizer.safetensors"));
  std::filesystem::remove(s.file(2, "model.safetensors"));
  const Result<TrainSummary> r = s.train(8, true);
  for (const std::string& part : {std::string("no checkpoint is whole"), s.file(4, "optimizer.safetensors"),
                                  s.file(2, "model.safetensors") + ": is missing"})
    EXPECT_TRUE(has(what(r), part));
  EXPECT_EQ(s.checkpoints().size(), 2u);
  std::filesystem::remove_all(s.run + "/state");
  EXPECT_TRUE(has(what(s.train(8, true)), "no checkpoint to resume from"));
}

TEST(Checkpoint, FieldsAreReadStrictly) {
  ShortRun s;
  ASSERT_TRUE(s.train(2, false));
  const std::string file = s.file(2, "trainer.json"), whole = get(file);
  const auto with = [&](const std::string& name, const Json& value) {
    Json json = *load_json(file);
    if (value == "gone")
      json.erase(name);
    else
      json[name] = value;
    EXPECT_TRUE(save_json(file, json));
    const std::string text = what(s.train(4, true));
    put(file, whole);
    return text;
  };
  EXPECT_TRUE(has(with("sample", "x"), "trainer.json: sample is \"x\", not a whole number"));
  EXPECT_TRUE(has(with("sample", nullptr), "trainer.json: sample is null"));
  EXPECT_TRUE(has(with("best_loss", nullptr), "trainer.json: best_loss is null"));
  EXPECT_TRUE(has(with("tokens", "gone"), "trainer.json: tokens is missing"));
  EXPECT_TRUE(has(with("sample", 7), "trainer.json: was changed after it was saved"));
  EXPECT_TRUE(has(with("version", nullptr), "trainer.json: version is null"));
  EXPECT_TRUE(has(with("files", "gone"), "trainer.json: was changed"));
  // A later version's checkpoint is no damage: to go back behind it would lose work.
  EXPECT_TRUE(has(with("version", 3), "version 3 is not known here"));
  EXPECT_TRUE(s.train(4, true));
}

// A save of the same step, as after a bad step, whose folder cannot come to its place.
TEST(Checkpoint, StaysUntilAnotherIsInItsPlace) {
  const TestDir dir;
  const std::unique_ptr<Model> model = make({});
  Optimizer optimizer(model->params(), {});
  ASSERT_TRUE(save_checkpoint(dir.path(), *model, optimizer, {.step = 5, .sample = 1}, 2));
  no_rename_to = "step-00000005";
  EXPECT_FALSE(save_checkpoint(dir.path(), *model, optimizer, {.step = 5, .sample = 2}, 2));
  no_rename_to.clear();
  const Result<Progression> p = load_checkpoint(dir.path(), 5, *model, optimizer);
  ASSERT_TRUE(p) << p.error().what;
  EXPECT_EQ(p->sample, 1u);
}

// Where two folders cannot be swapped, one is put aside for a moment: a kill then leaves it there.
TEST(Checkpoint, OneThatWasPutAsideComesBack) {
  ShortRun s;
  ASSERT_TRUE(s.train(6, false, s.dir / "whole"));
  const std::vector<float> whole = s.params;
  ASSERT_TRUE(s.train(4, false));
  std::filesystem::remove_all(s.run + "/state/step-00000002");
  std::filesystem::rename(s.run + "/state/step-00000004", s.run + "/state/.braid-tmp-1-1");
  ASSERT_TRUE(make_dirs(s.run + "/state/.braid-tmp-1-2"));
  ASSERT_TRUE(s.train(6, true));
  EXPECT_EQ(s.params, whole);
  EXPECT_EQ(s.checkpoints(), (std::vector<std::string>{"step-00000004", "step-00000006"}));
}

TEST(Checkpoint, OtherNamesInItsFolderAreNotSteps) {
  const TestDir dir;
  for (const char* name : {"step-", "step-x", "step-7", "step-99999999999999999999", "step-0000000000000007"})
    ASSERT_TRUE(make_dirs(dir / ("state/" + std::string(name))));
  EXPECT_EQ(latest_checkpoint(dir.path()), std::nullopt);
}

TEST(RunFolder, OneProcessIsAtWorkInIt) {
  ShortRun s;
  ASSERT_TRUE(s.train(2, false));
  Result<RunFolder> folder = RunFolder::resume(s.run);
  ASSERT_TRUE(folder) << folder.error().what;
  for (const bool resume : {false, true})
    EXPECT_TRUE(has(what(s.train(4, resume)), "--run " + s.run + ": another process is at work"));
  EXPECT_EQ(s.checkpoints().size(), 1u);
  folder = Error{"released"};
  EXPECT_TRUE(s.train(4, true));
}

TEST(RunFolder, ARunInItIsReplacedOnlyIfAsked) {
  ShortRun s;
  ASSERT_TRUE(s.train(2, false));
  EXPECT_TRUE(has(what(RunFolder::start(s.run, false)), "there is a run in this folder"));
  EXPECT_EQ(s.checkpoints().size(), 1u);
  EXPECT_TRUE(RunFolder::start(s.run, true));
  EXPECT_FALSE(std::filesystem::exists(s.run + "/state"));
}

// run_training on a task, as the command line does.
struct RecordedRun {
  TestDir dir;
  TrainOptions o;
  std::vector<std::string> notes;
  RecordedRun() {
    o.task = "parity", o.run = dir / "run", o.steps = 2, o.batch = 2, o.eval_size = 4, o.warmup = 0;
    o.schedule = "constant";
  }
  std::string record() const { return o.run + "/run.json"; }
  Result<TrainSummary> train(const std::string& command) {
    Result<std::unique_ptr<Source>> source = make_source(o);
    EXPECT_TRUE(source);
    ThreadPool pool(1);
    return run_training(o, **source, {command, "1", "2", "3"}, pool,
                        {.quiet = true, .on_note = [&](const std::string& n) { notes.push_back(n); }});
  }
};

TEST(RunRecord, KeepsTheFirstCommandAndListsTheOthers) {
  RecordedRun r;
  ASSERT_TRUE(r.train("the first"));
  const std::string started = (*load_json(r.record()))["started"];
  r.o.resume = true;
  for (int i = 0; i < 2; ++i) {
    r.o.steps = 4 + 2 * i;
    const Result<TrainSummary> on = r.train("again " + std::to_string(i));
    ASSERT_TRUE(on) << on.error().what;
  }
  const Json record = *load_json(r.record());
  EXPECT_EQ(record["command"], "the first");
  EXPECT_EQ(record["started"], started);
  ASSERT_EQ(record["resumed"].size(), 2u);
  EXPECT_EQ(record["resumed"][1]["command"], "again 1");
  EXPECT_EQ(record["options"]["steps"], 6);
}

TEST(RunRecord, IsReadStrictly) {
  RecordedRun r;
  ASSERT_TRUE(r.train("the first"));
  const std::string whole = get(r.record());
  r.o.resume = true, r.o.steps = 4;
  const auto with = [&](const char* pointer, const Json& value) {
    Json json = *load_json(r.record());
    json[Json::json_pointer(pointer)] = value;
    EXPECT_TRUE(save_json(r.record(), json));
    const std::string text = what(r.train("again"));
    put(r.record(), whole);
    return text;
  };
  EXPECT_TRUE(has(with("/options/batch", nullptr), "run.json: options.batch is null, not a whole number"));
  EXPECT_TRUE(has(with("/options/lr", "x"), "run.json: options.lr is \"x\", not a number"));
  EXPECT_TRUE(has(with("/options/set", {1}), "run.json: options.set is [1]"));
  EXPECT_TRUE(has(with("/options/sett", 1), "options.sett is not an option"));
  EXPECT_TRUE(has(with("/options", nullptr), "run.json: options is null, not an object"));
  EXPECT_TRUE(has(with("/data", nullptr), "run.json: data is null, not an object"));
  EXPECT_TRUE(has(with("/data/fingerprint", 1), "run.json: data.fingerprint is 1, not a text"));
  EXPECT_TRUE(has(with("/data/fingerprint", "1"), "the data is not what the run was started with"));
  EXPECT_TRUE(has(with("/command", nullptr), "run.json: command is null"));
  EXPECT_TRUE(has(with("/resumed", nullptr), "run.json: resumed is null"));
  EXPECT_TRUE(has(with("/version", 3), "version 3 is not known"));
  EXPECT_TRUE(has(with("", nullptr), "run.json: is not a JSON object"));
  EXPECT_TRUE(r.notes.empty());
  // Fingerprints of the first version are by another hash.
  Json old = *load_json(r.record());
  old.erase("version"), old["data"]["fingerprint"] = "0123456789abcdef";
  ASSERT_TRUE(save_json(r.record(), old));
  ASSERT_TRUE(r.train("again"));
  ASSERT_EQ(r.notes.size(), 1u);
  EXPECT_TRUE(has(r.notes[0], "whether the data is unchanged cannot be told"));
}

TEST(RunRecord, WhatIsTrainedCannotChangeOnTheWay) {
  RecordedRun r;
  r.o.set = {"dropout=0"};
  ASSERT_TRUE(r.train("the first"));
  r.o.resume = true, r.o.steps = 4;
  const TrainOptions same = r.o;
  const auto refused = [&](const char* name) {
    EXPECT_TRUE(has(what(r.train("again")), std::string("but the run was started"))) << name;
    EXPECT_TRUE(has(what(r.train("again")), std::string(name) + ": is ")) << name;
    r.o = same;
  };
  r.o.arch = "mamba2", refused("--arch");
  r.o.size = "1M", refused("--size");
  r.o.set = {"dropout=0.1"}, refused("--set");
  r.o.config = "other.json", refused("--config");
  r.o.seed = 1, refused("--seed");
  EXPECT_TRUE(r.train("again"));
}

TEST(RunRecord, PathsAreAbsolute) {
  TrainOptions o;
  o.text = "book.txt", o.tokenizer = "./tok", o.config = "a/../c.json";
  const std::string here = std::filesystem::current_path();
  const TrainOptions whole = with_absolute_paths(o);
  EXPECT_EQ(whole.text, here + "/book.txt");
  EXPECT_EQ(whole.tokenizer, here + "/tok");
  EXPECT_EQ(whole.config, here + "/c.json");
  EXPECT_TRUE(changed_on_the_way(whole, o).empty());
  o.text = kShakespeare;
  EXPECT_EQ(with_absolute_paths(o).text, kShakespeare);
}

// The lines of use in trainer.h are of a program that is compiled and run by the tests.
TEST(Trainer, TheUsageInItsHeaderIsOfTheExample) {
  const std::string header = get(BRAID_SOURCE "/src/train/trainer.h"),
                    example = get(BRAID_SOURCE "/examples/train.cpp");
  std::istringstream lines(header.substr(0, header.find("#pragma once")));
  size_t seen = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("//   ")) continue;
    ++seen;
    EXPECT_TRUE(has(example, "  " + line.substr(5) + "\n"));
  }
  EXPECT_GE(seen, 4u);
}

}  // namespace
}  // namespace braid
