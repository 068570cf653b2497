// What changes per call is passed in: nothing of one context reaches another.
#include "infer/session.h"

#include <gtest/gtest.h>

#include <thread>

#include "infer/evaluate.h"
#include "io/json.h"
#include "kernels/matmul/matmul.h"
#include "kernels/registry.h"
#include "model/model.h"
#include "model/presets.h"
#include "support/lively_model.h"
#include "support/test_dir.h"
#include "support/test_kernels.h"

namespace braid {
namespace {

std::vector<int32_t> some_tokens(size_t n) {
  std::vector<int32_t> t(n);
  for (size_t i = 0; i < n; ++i) t[i] = static_cast<int32_t>((7 * i + i * i / 5) % 61);
  return t;
}

std::vector<float> logits(const Model& model, Context& context, size_t n = 80) {
  Session s(model, context);
  const std::span<const float> l = s.feed(some_tokens(n));
  return {l.begin(), l.end()};
}

class ContextTest : public testing::Test {
 protected:
  ContextTest() {
    EXPECT_TRUE(lively_model(*preset_config("gdn-h1", "d64-l2-h2", 61), "gdn-h1")->save(dir_ / "m"));
  }
  std::unique_ptr<Model> stored(WeightFormat f) { return *Model::load_stored(dir_ / "m", f); }
  const TestDir dir_;
};

// A model with rounded activations beside one without: the second does not change.
TEST_F(ContextTest, ActivationsOfOneSessionDoNotReachAnother) {
  const std::unique_ptr<Model> model = stored(WeightFormat::kBf16);
  ThreadPool pool(1, test_kernels());
  Context exact(pool), rounded(pool, Activations::kBf16), again(pool);
  const std::vector<float> before = logits(*model, exact), other = logits(*model, rounded);
  EXPECT_NE(before, other);
  EXPECT_EQ(logits(*model, exact), before);
  EXPECT_EQ(logits(*model, again), before);
  Session base(*model, exact), second(*model, rounded);
  const Result<Comparison> c = evaluate(base, &second, some_tokens(300), {.context = 100});
  ASSERT_TRUE(c) << c.error().what;
  EXPECT_GT(c->kl, 0);
  EXPECT_LT(c->kl, 0.01);
  EXPECT_LT(c->rms_dp, 0.05);
}

// auto is bf16 with bf16 weights where the implementation in use multiplies bf16, and f32 everywhere else.
TEST_F(ContextTest, AutoRoundsWhereWeightsAndKernelsAreBf16) {
  KernelChoice widened = test_kernels();
  widened.force("matmul_bf16", "widened");
  const bool multiplies =
      matmul_bf16_impls().rows()[matmul_bf16_impls().chosen(test_par())].needs > Isa::kBase;
  for (const WeightFormat f : {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kQ8}) {
    const std::unique_ptr<Model> model = stored(f);
    for (const bool fast : {true, false}) {
      ThreadPool pool(1, fast ? test_kernels() : widened);
      Context f32(pool), bf16(pool, Activations::kBf16), by_itself(pool, Activations::kAuto);
      const std::vector<float> want =
          logits(*model, fast && multiplies && f == WeightFormat::kBf16 ? bf16 : f32);
      EXPECT_EQ(logits(*model, by_itself), want) << weight_format_name(f) << fast;
      EXPECT_EQ(logits(*model, by_itself, 1), logits(*model, f32, 1));  // a single token is never rounded
    }
  }
}

// Two threads with a model in common, one of them limited to other kernels: each gets its own bits.
TEST_F(ContextTest, ThreadsWithOtherKernelsShareAModel) {
  const std::unique_ptr<Model> model = stored(WeightFormat::kF32);
  KernelChoice references;
  for (const OpEntry& op : all_ops()) references.force(op.name, "ref");
  Context best({.threads = 1}), ref({.threads = 1, .kernels = references});
  const std::vector<float> want = logits(*model, best), want_ref = logits(*model, ref);
  EXPECT_NE(want, want_ref);
  std::vector<float> got, got_ref;
  std::thread a([&] {
    for (int i = 0; i < 5; ++i) got = logits(*model, best);
  });
  std::thread b([&] { got_ref = logits(*model, ref); });
  a.join(), b.join();
  EXPECT_EQ(got, want);
  EXPECT_EQ(got_ref, want_ref);
}

}  // namespace
}  // namespace braid
