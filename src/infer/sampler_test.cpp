#include "infer/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace braid {
namespace {

constexpr float kInf = INFINITY, kNan = NAN;

int32_t choose(const SamplerOptions& options, std::vector<float> logits, uint64_t position = 0,
               std::vector<int32_t> history = {}) {
  return *Sampler(options)(logits, history, position);
}

std::vector<double> frequencies(const SamplerOptions& options, const std::vector<float>& logits,
                                const std::vector<int32_t>& history = {}, int n = 40000) {
  Sampler sampler(options);
  std::vector<double> f(logits.size());
  for (int i = 0; i < n; ++i)
    f[static_cast<size_t>(*sampler(logits, history, static_cast<uint64_t>(i)))] += 1.0 / n;
  return f;
}

std::set<int32_t> support(const SamplerOptions& options, const std::vector<float>& logits) {
  const std::vector<double> f = frequencies(options, logits, {}, 4000);
  std::set<int32_t> ids;
  for (size_t i = 0; i < f.size(); ++i)
    if (f[i] > 0) ids.insert(static_cast<int32_t>(i));
  return ids;
}

// The filters again, on sorted probabilities and by definition: what the sampler should draw with.
std::vector<double> expected(const SamplerOptions& o, std::vector<float> logits,
                             const std::vector<int32_t>& history = {}) {
  for (const int32_t id : std::set<int32_t>(history.begin(), history.end())) {
    float& x = logits[static_cast<size_t>(id)];
    x = x < 0 ? x * o.repetition_penalty : x / o.repetition_penalty;
  }
  std::vector<double> p(logits.size());
  for (size_t i = 0; i < p.size(); ++i) p[i] = std::exp(static_cast<double>(logits[i]) / o.temperature);
  const auto normalise = [&] {
    double sum = 0;
    for (const double x : p) sum += x;
    for (double& x : p) x /= sum;
  };
  normalise();
  std::vector<size_t> order(p.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
  for (size_t r = 0; r < p.size(); ++r)
    if (o.top_k > 0 && r >= static_cast<size_t>(o.top_k)) p[order[r]] = 0;
  normalise();
  double before = 0;
  for (const size_t i : order) {
    const double own = p[i];
    if (before >= o.top_p) p[i] = 0;
    before += own;
  }
  normalise();
  for (size_t r = p.size(); r-- > 0;)
    if (p[order[r]] < o.min_p * p[order[0]]) p[order[r]] = 0;
  normalise();
  return p;
}

TEST(Sampler, DrawsFromTheFilteredDistribution) {
  const std::vector<float> logits{0.3f, -1, 2, 1.4f, 0.31f, -3, 1.1f, 0};
  const std::vector<int32_t> history{2, 2, 1, 6};
  for (const SamplerOptions& o : std::vector<SamplerOptions>{
           {},
           {.temperature = 0.5f},
           {.temperature = 3, .top_k = 4},
           {.temperature = 0.7f, .top_p = 0.8f},
           {.temperature = 2, .top_p = 0.8f},  // keeps more than at 0.7: the temperature comes first
           {.min_p = 0.2f},
           {.temperature = 1.5f, .top_k = 6, .top_p = 0.9f, .min_p = 0.15f},
           {.repetition_penalty = 1.8f},
           {.temperature = 0.9f, .top_k = 5, .top_p = 0.95f, .min_p = 0.05f, .repetition_penalty = 0.6f}}) {
    const std::vector<double> got = frequencies(o, logits, history), want = expected(o, logits, history);
    for (size_t i = 0; i < logits.size(); ++i) {
      EXPECT_TRUE(want[i] > 0 || got[i] == 0) << i;
      EXPECT_NEAR(got[i], want[i], 5 * std::sqrt(want[i] * (1 - want[i]) / 40000) + 1e-4) << i;
    }
  }
  EXPECT_NE(expected({.temperature = 0.7f, .top_p = 0.8f}, logits),
            expected({.temperature = 2, .top_p = 0.8f}, logits));
}

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  EXPECT_EQ(choose({.temperature = 0}, {1, 3, 2, 3}), 1);
  EXPECT_EQ(choose({.temperature = 0, .top_k = 1, .seed = 9}, {1, 3, 2, 3}, 77), 1);
  EXPECT_EQ(choose({.temperature = 1e-30f}, {1, 2.999f, 3}), 2);  // no overflow
  EXPECT_EQ(choose({.temperature = 1e30f, .top_k = 1}, {1, 2, 3}), 2);
}

TEST(Sampler, TiesGoToTheSmallerId) {
  EXPECT_EQ(support({.top_k = 2}, {1, 5, 1, 5, 5}), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(support({.top_p = 0.5f}, {2, 2, 2, 2}), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(support({.top_k = 1}, {0, 0, 0}), (std::set<int32_t>{0}));
}

TEST(Sampler, TopPEdges) {
  const std::vector<float> logits{std::log(0.5f), std::log(0.25f), std::log(0.25f)};
  EXPECT_EQ(support({.top_p = 1e-6f}, logits), (std::set<int32_t>{0}));  // the best always stays
  EXPECT_EQ(support({.top_p = 0.49f}, logits), (std::set<int32_t>{0}));
  EXPECT_EQ(support({.top_p = 0.51f}, logits), (std::set<int32_t>{0, 1}));
  EXPECT_EQ(support({.top_p = 0.76f}, logits), (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(support({.top_p = 0.99999f}, logits), (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(support({.top_p = 1}, logits), (std::set<int32_t>{0, 1, 2}));
  EXPECT_EQ(support({.top_k = 2, .top_p = 0.66f}, logits), (std::set<int32_t>{0}));  // 0.5 of 0.75 left
  EXPECT_EQ(support({.top_p = 0.5f}, {7}), (std::set<int32_t>{0}));
}

TEST(Sampler, MinPEdges) {
  EXPECT_EQ(support({.min_p = 1}, {1, 2, 2, 0}), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(support({.top_k = 100, .min_p = 0.3f}, {0, 1, -1}), (std::set<int32_t>{0, 1}));
}

TEST(Sampler, RepetitionPenaltyCountsEachTokenOnce) {
  const SamplerOptions o{.temperature = 0, .repetition_penalty = 2};
  EXPECT_EQ(choose(o, {3, 2}, 0, {0}), 1);
  EXPECT_EQ(choose(o, {5, 2}, 0, {0, 0, 0}), 0);     // 2.5, not 0.625
  EXPECT_EQ(choose(o, {-1, -1.5f}, 0, {0}), 1);      // negative logits are pushed down, too
  EXPECT_EQ(choose(o, {3, 2}, 0, {-1, 2, 999}), 0);  // ids outside the vocabulary do not matter
}

TEST(Sampler, ADrawDependsOnSeedAndPositionOnly) {
  const std::vector<float> logits(100, 0.f);
  Sampler a({.seed = 1}), b({.seed = 1}), c({.seed = 2});
  std::vector<int32_t> forward, other;
  for (uint64_t i = 0; i < 50; ++i) forward.push_back(*a(logits, {}, i)), other.push_back(*c(logits, {}, i));
  for (uint64_t i = 50; i-- > 0;) EXPECT_EQ(*b(logits, {}, i), forward[i]);
  EXPECT_NE(forward, other);
  EXPECT_GT(std::set<int32_t>(forward.begin(), forward.end()).size(), 25u);
}

TEST(Sampler, NanIsNeverChosenAndInfinityHasADefinedMeaning) {
  EXPECT_EQ(support({}, {kNan, 0, kNan, 0}), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(choose({.temperature = 0}, {kNan, -5, kNan}), 1);
  EXPECT_EQ(support({}, {-kInf, 0, 1}), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(support({.top_p = 0.9f, .min_p = 0.1f}, {kInf, 5, kInf, kNan}), (std::set<int32_t>{0, 2}));
  EXPECT_EQ(support({.top_k = 3}, {kNan, -kInf, 4}), (std::set<int32_t>{2}));
  EXPECT_EQ(choose({.temperature = 0, .repetition_penalty = 2}, {kNan, kInf, 1}, 0, {0, 1, 2}), 1);
  EXPECT_EQ(choose({}, {3e38f, -3e38f}), 0);
  for (const std::vector<float>& none : {std::vector<float>{}, {-kInf, -kInf}, {kNan}, {kNan, -kInf}})
    for (const float temperature : {0.f, 1.f})
      EXPECT_FALSE(Sampler({.temperature = temperature, .top_k = 2, .top_p = 0.5f})(none, {}, 0));
}

TEST(Sampler, EveryWrongOptionIsReported) {
  EXPECT_TRUE(validate(SamplerOptions{}).empty());
  EXPECT_EQ(
      validate({.temperature = -1, .top_k = -1, .top_p = 0, .min_p = 1.5f, .repetition_penalty = 0}).size(),
      5u);
  EXPECT_EQ(validate({.temperature = kNan, .top_p = kNan, .min_p = kNan, .repetition_penalty = kNan}).size(),
            4u);
  EXPECT_EQ(
      validate({.temperature = kInf, .top_p = 1.01f, .min_p = -0.1f, .repetition_penalty = kInf}).size(), 4u);
}

}  // namespace
}  // namespace braid
