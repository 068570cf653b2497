// Why the pure kinds fail, and the swaps of DeltaFormer.
#include <gtest/gtest.h>

#include "io/json.h"
#include "model/config_json.h"
#include "tasks/keys.h"
#include "tasks/pcr.h"
#include "theory/collision.h"
#include "theory/construction.h"
#include "theory/parity_attention.h"
#include "theory/swaps.h"

namespace braid {
namespace {

std::unique_ptr<NumberModel> number_model(const Model& m, const Arithmetic& a) {
  Result<std::unique_ptr<NumberModel>> r = NumberModel::make(m, a);
  EXPECT_TRUE(r) << (r ? "" : r.error().what);
  return std::move(*r);
}

// A Gated DeltaNet of one head of 2 x 2 with random weights.
std::unique_ptr<Model> small_model() {
  const Json config{{"model_type", "braid"},
                    {"vocab_size", pcr_vocabulary(4)},
                    {"d_model", 8},
                    {"n_layers", 1},
                    {"init_std", 0.8},
                    {"pattern",
                     {{{"mixer", {{"type", "gated_deltanet"}, {"heads", 1}, {"head_dim", 2}, {"conv", 0}}},
                       {"mlp", {{"type", "none"}}}}}}};
  const Result<ModelConfig> c = parse_config(config, "test");
  EXPECT_TRUE(c) << (c ? "" : c.error().what);
  std::unique_ptr<Model> model = Model::create(*c);
  model->init(3);
  return model;
}

TEST(Collision, IsFoundAndHolds) {
  const std::unique_ptr<Model> model = small_model();
  const std::unique_ptr<NumberModel> m = number_model(*model, {2, Tie::kEven});
  const CollisionSearch found = find_collision(*m, 4, 16, 512, 1);
  ASSERT_EQ(found.how, CollisionSearch::How::kAll);
  EXPECT_NE(found.tables.first, found.tables.second);
  EXPECT_LT(found.states[found.pairs - 1], size_t{1} << found.pairs);  // fewer states than tables
  for (const bool scratchpad : {true, false}) EXPECT_TRUE(prove_collision(*m, 4, found, scratchpad).holds());
  // With few states at a time: by a continuation.
  const CollisionSearch continued = find_collision(*m, 4, 16, 4, 1);
  ASSERT_EQ(continued.how, CollisionSearch::How::kContinued);
  EXPECT_TRUE(prove_collision(*m, 4, continued, true).holds());
  // Two tables that do not collide prove nothing.
  CollisionSearch wrong = found;
  const std::unique_ptr<NumberModel> exact = number_model(*model, Arithmetic::f64());
  wrong.tables = {0, 1}, wrong.pairs = 2;
  EXPECT_FALSE(prove_collision(*exact, 4, wrong, false).holds());
}

// Attention keeps every pair: the hybrid has as many states as tables, and its answers are right.
TEST(Collision, IsNotFoundInTheHybrid) {
  const std::unique_ptr<Model> model = pcr_model({.address_bits = 3});
  const CollisionSearch found = find_collision(*number_model(*model, {2, Tie::kEven}), 3, 6, 64, 1);
  EXPECT_EQ(found.how, CollisionSearch::How::kNone);
  EXPECT_EQ(found.states, (std::vector<size_t>{2, 4, 8, 16, 32, 64}));
}

TEST(Collision, CountsBits) {
  EXPECT_NEAR(state_bits(4, 2), 4 * std::log2(31.0), 1e-12);
  EXPECT_NEAR(state_bits(1, 4), std::log2(511.0), 1e-12);
}

TEST(ParityAttention, CountsAFewBitsOnly) {
  for (const Tie tie : kTies) {
    EXPECT_EQ(counting_error({2, tie}, 3, 0, 0), 0);
    EXPECT_GT(counting_error({2, tie}, 12, 0, 0), 0.1);
    EXPECT_LT(counting_error({4, tie}, 12, 0, 0), counting_error({2, tie}, 12, 0, 0));
  }
  EXPECT_EQ(counting_error(Arithmetic::f64(), 12, 0, 0), 0);
  EXPECT_GT(counting_error({2, Tie::kEven}, 256, 300, 1), 0.4);
}

TEST(ParityAttention, AScratchpadHelps) {
  for (const int64_t block : {1, 3}) {
    const ParityScratch c{12, block};
    const std::unique_ptr<Model> model = parity_model(c);
    for (const Arithmetic& a : {Arithmetic{2, Tie::kZero}, Arithmetic{3, Tie::kEven},
                                Arithmetic{4, Tie::kAway}, Arithmetic::f32()}) {
      const std::unique_ptr<NumberModel> m = number_model(*model, a);
      Rng rng(1, "scratchpad test");
      for (int i = 0; i < 8; ++i) {
        std::vector<int> bits(12);
        int parity = 0;
        for (int& b : bits) b = static_cast<int>(rng.below(2)), parity ^= b;
        EXPECT_EQ(parity_by_scratchpad(*m, c, bits), parity) << a.text();
      }
    }
  }
}

TEST(Swaps, AreExactWithRoundingAlone) {
  const Tensor keys = hadamard_keys(128);
  EXPECT_LT(coherence(keys.mat()), kTheoremCoherence);
  SwapMemory rounded(keys, {}), linear(keys, {DeltaKind::kLinear});
  SwapReport a, b;
  for (uint64_t block = 0; block < 3; ++block)
    a.add(rounded.swap(256, 1, block)), b.add(linear.swap(256, 1, block));
  EXPECT_EQ(a.inexact, 0u);
  EXPECT_EQ(a.reads, 3u * 512);
  EXPECT_EQ(a.most_rows, 512u);
  EXPECT_TRUE(b.first_wrong);
  // Gone on from what was kept: the same.
  SwapMemory again(keys, {});
  again.restore(rounded.contents(), rounded.cached());
  EXPECT_EQ(again.swap(256, 1, 3).inexact, 0u);
  EXPECT_EQ(rounded.swap(256, 1, 3).inexact, 0u);
  EXPECT_EQ(again.contents(), rounded.contents());
  EXPECT_NE(again.contents()[0] + again.contents()[1], 1u);  // something was swapped
  SwapMemory stored(keys, {DeltaKind::kRound, true});
  EXPECT_EQ(stored.swap(100, 1, 0).inexact, 0u);
}

TEST(Swaps, KeysSpreadBelowAnEighth) {
  const KeySearch found = spread_keys(128, 96, 400, 1, {});
  ASSERT_TRUE(found.keys);
  EXPECT_LT(coherence(found.keys->mat()), kTheoremCoherence);
  EXPECT_FALSE(spread_keys(256, welch_width(256) - 1, 20, 1, {}).keys);
  EXPECT_EQ(welch_width(4096), 64u);
}

}  // namespace
}  // namespace braid
