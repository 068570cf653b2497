// Packed scoring against one sequence at a time.
#include "infer/score.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/rng.h"
#include "infer/session.h"
#include "model/model.h"

namespace braid {
namespace {

// Attention and a recurrence with a convolution: both kinds of state.
std::unique_ptr<Model> hybrid() {
  const Result<ModelConfig> config = config_from_text(R"({
    "model_type": "braid", "vocab_size": 50, "d_model": 32, "n_layers": 2,
    "pattern": [{"mixer": {"type": "gated_deltanet", "heads": 2}, "mlp": {"type": "swiglu", "d_ff": 48}},
                {"mixer": {"type": "attention", "heads": 2}, "mlp": {"type": "swiglu", "d_ff": 48}}]})",
                                                      "test");
  EXPECT_TRUE(config) << config.error().what;
  std::unique_ptr<Model> m = Model::create(*config);
  m->init(3);
  return m;
}

std::vector<int32_t> some_tokens(Rng& rng, size_t count) {
  std::vector<int32_t> out;
  for (size_t i = 0; i < count; ++i) out.push_back(static_cast<int32_t>(rng.below(50)));
  return out;
}

SequenceScore one_by_one(const Model& model, const ScoreRequest& r) {
  Context context({.threads = 1});
  Session session(model, context);
  SequenceScore out;
  for (size_t i = 0; i + 1 < r.tokens.size(); ++i) {
    const std::span<const float> x = session.feed({&r.tokens[i], 1});
    if (i + 1 < r.from) continue;
    double sum = 0;
    for (const float v : x) sum += std::exp(static_cast<double>(v));
    const auto next = static_cast<size_t>(r.tokens[i + 1]);
    out.log_likelihood += x[next] - std::log(sum);
    out.greedy = out.greedy && x[next] == *std::ranges::max_element(x);
  }
  return out;
}

// Choices of the same context, contexts that share a beginning, and sequences longer than a pass.
std::vector<ScoreRequest> many_requests() {
  Rng rng(7, "requests");
  std::vector<ScoreRequest> out;
  for (const size_t length : {1, 5, 40, 90, 150}) {
    const std::vector<int32_t> context = some_tokens(rng, length);
    for (const size_t more : {1, 1, 2, 7}) {
      ScoreRequest r{context, context.size()};
      for (const int32_t t : some_tokens(rng, more)) r.tokens.push_back(t);
      out.push_back(r);
    }
  }
  ScoreRequest half = out[8];
  half.tokens.resize(30), half.from = 3;
  out.push_back(half);
  out.push_back({some_tokens(rng, 300), 1});
  return out;
}

TEST(Scorer, HasTheScoresOfOneSequenceAtATime) {
  const auto model = hybrid();
  const std::vector<ScoreRequest> requests = many_requests();
  for (const size_t state_from : {20, 1000})
    for (const size_t pass : {64, 4096})
      for (const int threads : {1, 2}) {
        ThreadPool pool(threads);
        Scorer scorer(
            *model, pool,
            {.pass_tokens = pass, .state_from = state_from, .lanes = pass == 64 ? size_t{3} : size_t{32}});
        std::vector<SequenceScore> scores(requests.size());
        ASSERT_TRUE(scorer.score(requests, scores));
        for (size_t i = 0; i < requests.size(); ++i) {
          const SequenceScore expected = one_by_one(*model, requests[i]);
          EXPECT_NEAR(scores[i].log_likelihood, expected.log_likelihood,
                      1e-4 * (1 + std::abs(expected.log_likelihood)))
              << i << " states from " << state_from << ", passes of " << pass;
          EXPECT_EQ(scores[i].greedy, expected.greedy) << i;
        }
      }
}

TEST(Scorer, ThreadsChangeNoBit) {
  const auto model = hybrid();
  const std::vector<ScoreRequest> requests = many_requests();
  std::vector<SequenceScore> a(requests.size()), b(requests.size());
  ThreadPool one(1), three(3);
  ASSERT_TRUE(Scorer(*model, one, {.pass_tokens = 100, .state_from = 30}).score(requests, a));
  ASSERT_TRUE(Scorer(*model, three, {.pass_tokens = 100, .state_from = 30}).score(requests, b));
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].log_likelihood, b[i].log_likelihood) << i;
}

TEST(Scorer, ContinuesPromptsGreedily) {
  const auto model = hybrid();
  std::vector<PromptRequest> prompts;
  for (const ScoreRequest& r : many_requests()) prompts.push_back({r.tokens, 9});
  prompts[3].max_tokens = 1;
  ThreadPool pool(2);
  for (const size_t state_from : {20, 1000}) {
    Scorer scorer(*model, pool, {.pass_tokens = 128, .state_from = state_from, .lanes = 4});
    std::vector<std::vector<int32_t>> got(prompts.size());
    size_t ticks = 0;
    ASSERT_TRUE(scorer.generate(
        prompts,
        [&](size_t i, int32_t token) {
          got[i].push_back(token);
          return token == 7;
        },
        [&](size_t) { return ++ticks > 0; }));
    EXPECT_GT(ticks, 0u);
    for (size_t i = 0; i < prompts.size(); ++i) {
      Context context({.threads = 1});
      Session session(*model, context);
      std::vector<int32_t> expected;
      std::span<const float> x = session.feed(prompts[i].tokens);
      while (static_cast<int64_t>(expected.size()) < prompts[i].max_tokens) {
        const auto token = static_cast<int32_t>(std::ranges::max_element(x) - x.begin());
        expected.push_back(token);
        if (token == 7) break;
        x = session.feed({&token, 1});
      }
      EXPECT_EQ(got[i], expected) << i << " states from " << state_from;
    }
  }
}

TEST(Scorer, StopsAndNamesDamage) {
  const auto model = hybrid();
  const std::vector<ScoreRequest> requests = many_requests();
  std::vector<SequenceScore> scores(requests.size());
  ThreadPool pool(1);
  const Status stopped =
      Scorer(*model, pool, {.pass_tokens = 64}).score(requests, scores, [](size_t) { return false; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().what, "stopped");
  model->params().mat(model->head()).data[5] = NAN;
  const Status damaged = Scorer(*model, pool).score(requests, scores);
  ASSERT_FALSE(damaged);
  EXPECT_NE(damaged.error().what.find("finite"), std::string::npos);
}

}  // namespace
}  // namespace braid
