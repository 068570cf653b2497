#include "io/json.h"
#include "model/config_json.h"
#include "theory/construction.h"

#include <gtest/gtest.h>

#include "base/parallel.h"
#include "support/test_dir.h"
#include "support/test_kernels.h"
#include "model/presets.h"

namespace braid {
namespace {

Rng dice(uint64_t seed) { return {seed, "theory test"}; }

std::unique_ptr<NumberModel> number_model(const Model& m, const Arithmetic& a) {
  Result<std::unique_ptr<NumberModel>> r = NumberModel::make(m, a);
  EXPECT_TRUE(r) << (r ? "" : r.error().what);
  return std::move(*r);
}

// Logits of a model by the engine: [tokens, answers].
std::vector<std::vector<double>> engine_logits(Model& model, std::span<const int32_t> tokens) {
  ThreadPool pool(1, test_kernels());
  Arena arena;
  Exec e({.arena = &arena, .params = &model.params(), .par = Par(pool)});
  const uint32_t offsets[] = {0, static_cast<uint32_t>(tokens.size())};
  std::vector<uint32_t> rows(tokens.size());
  for (uint32_t i = 0; i < rows.size(); ++i) rows[i] = i;
  const Mat<float> y = model.logits(e, model.hidden(e, {.tokens = tokens, .offsets = offsets}, rows));
  std::vector<std::vector<double>> out;
  for (size_t i = 0; i < y.rows; ++i) out.emplace_back(y.row(i), y.row(i) + y.cols);
  return out;
}

// In double the same model as the engine's: presets with convolutions, L2 and QK norms, gates, RoPE, SwiGLU.
TEST(NumberModel, InDoubleIsTheEnginesModel) {
  for (const char* arch : {"transformer", "deltanet", "gated-deltanet", "qwen3-next", "olmo-hybrid"}) {
    Result<Json> json = preset_config(arch, "d32-l4-h4-f48", 40);
    ASSERT_TRUE(json) << arch;
    (*json)["init_std"] = 0.2;
    for (Json& layer : (*json)["pattern"]) layer["mlp"] = {{"type", "swiglu"}, {"d_ff", 48}};
    const Result<ModelConfig> config = parse_config(*json, arch);
    ASSERT_TRUE(config) << arch << ": " << config.error().what;
    const std::unique_ptr<Model> model = Model::create(*config);
    model->init(1);
    Result<std::unique_ptr<NumberModel>> made = NumberModel::make(*model, Arithmetic::f64());
    if (!made) {  // what is not covered is said
      EXPECT_NE(made.error().fix + made.error().what, "");
      EXPECT_EQ(std::string(arch), "olmo-hybrid") << made.error().what;
      continue;
    }
    std::vector<int32_t> tokens;
    Rng rng = dice(1);
    for (int i = 0; i < 30; ++i) tokens.push_back(static_cast<int32_t>(rng.below(40)));
    const std::vector<std::vector<double>> want = engine_logits(*model, tokens);
    const std::unique_ptr<NumberRun> run = (*made)->start();
    double worst = 0, size = 0;
    for (size_t t = 0; t < tokens.size(); ++t) {
      run->feed(tokens[t]);
      const std::vector<double> got = run->logits();
      for (size_t i = 0; i < got.size(); ++i) {
        worst = std::max(worst, std::fabs(got[i] - want[t][i]));
        size = std::max(size, std::fabs(got[i]));
      }
    }
    EXPECT_LT(worst, 1e-4 * size) << arch;
  }
}

size_t wrong_of(const NumberModel& model, const PcrConstruction& c, size_t instances, uint64_t seed = 0,
                double* margin = nullptr) {
  size_t wrong = 0;
  for (size_t i = 0; i < instances; ++i) {
    Rng rng = dice(seed);
    rng.seek(i);
    const int64_t bits = rng.between(0, 40);
    const size_t pairs = 2 + rng.below((uint64_t{1} << c.address_bits) - 1);
    const PcrInstance x = draw_pcr(rng, bits, pairs, c.address_bits);
    const PcrAnswer a = answer_pcr(model, x, c.steps());
    wrong += a.tokens != pcr_answers(x, c.steps());
    if (margin) *margin = std::min(*margin, a.margin);
  }
  return wrong;
}

TEST(Construction, IsRightInEveryArithmetic) {
  for (const bool scratchpad : {true, false}) {
    const PcrConstruction c{.address_bits = 4, .scratchpad = scratchpad};
    const std::unique_ptr<Model> model = pcr_model(c);
    for (const int s : {2, 3, 4})
      for (const Tie tie : kTies) {
        const Arithmetic a{s, tie};
        double margin = HUGE_VAL;
        EXPECT_EQ(wrong_of(*number_model(*model, a), c, 30, 1, &margin), 0u) << a.text() << scratchpad;
        EXPECT_GE(margin, a.largest()) << a.text();
      }
    for (const Arithmetic& a : {Arithmetic::f32(), Arithmetic::f64()})
      EXPECT_EQ(wrong_of(*number_model(*model, a), c, 30), 0u) << a.text();
  }
}

// The same folder through the engine's own kernels.
TEST(Construction, IsAnOrdinaryModelFolder) {
  for (const bool scratchpad : {true, false}) {
    const PcrConstruction c{.address_bits = 4, .scratchpad = scratchpad};
    const TestDir dir;
    ASSERT_TRUE(pcr_model(c)->save(dir.path()));
    Result<std::unique_ptr<Model>> model = Model::load(dir.path());
    ASSERT_TRUE(model) << model.error().what;
    for (uint64_t i = 0; i < 10; ++i) {
      Rng rng = dice(2);
      rng.seek(i);
      PcrInstance x = draw_pcr(rng, 50, 12, 4);
      const std::vector<int32_t> want = pcr_answers(x, c.steps());
      for (const int32_t token : want) {
        EXPECT_EQ(best(engine_logits(**model, x.tokens).back()).token, token);
        x.tokens.push_back(token);
      }
    }
  }
}

// Every group of weights does something: turned round, answers become wrong.
TEST(Construction, AWrongOneIsCaught) {
  for (const bool scratchpad : {true, false}) {
    const PcrConstruction c{.address_bits = 3, .scratchpad = scratchpad};
    for (const WeightGroup& g : pcr_weight_groups(c)) {
      const std::unique_ptr<Model> model = pcr_model(c);
      turn_round(*model, g);
      EXPECT_GT(wrong_of(*number_model(*model, {}), c, 25), 0u) << g.name;
      turn_round(*model, g);
      EXPECT_EQ(wrong_of(*number_model(*model, {}), c, 5), 0u) << g.name;
    }
  }
}

TEST(Construction, WriteStrengthBelowOneLosesTheParity) {
  const PcrConstruction c{.address_bits = 3, .beta_to_2 = false};
  const std::unique_ptr<Model> model = pcr_model(c);
  for (const Arithmetic& a : {Arithmetic{2, Tie::kEven}, Arithmetic{3, Tie::kZero}, Arithmetic::f64()})
    EXPECT_GT(wrong_of(*number_model(*model, a), c, 40), 5u) << a.text();
}

TEST(Construction, RoundingTurnsTheSign) {
  const auto widths = [](int s, Tie tie) {
    std::vector<int64_t> out;
    for (const RoundingFlip& f : find_flips({s, tie}, 8)) out.push_back(f.width);
    return out;
  };
  const std::vector<int64_t> even = widths(2, Tie::kEven), three = widths(3, Tie::kZero);
  EXPECT_NE(std::ranges::find(even, 2), even.end());
  EXPECT_NE(std::ranges::find(three, 3), three.end());
  const std::vector<RoundingFlip> found = find_flips({2, Tie::kEven}, 8);
  const PcrConstruction c{.address_bits = 3, .beta_to_2 = false, .flip = found.front()};
  const std::unique_ptr<Model> model = pcr_model(c);
  EXPECT_EQ(wrong_of(*number_model(*model, {2, Tie::kEven}), c, 40), 0u);
  EXPECT_GT(wrong_of(*number_model(*model, Arithmetic::f64()), c, 40), 5u);  // it is rounding that does it
}

}  // namespace
}  // namespace braid
