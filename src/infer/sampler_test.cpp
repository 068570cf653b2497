#include "infer/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
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

// The filters again, by definition, on all tokens and in the order of the options: what the sampler should
// draw with.
std::vector<double> expected(const SamplerOptions& o, const std::vector<float>& given,
                             const std::vector<int32_t>& history = {}) {
  std::vector<double> logits(given.begin(), given.end()), p(given.size());
  std::vector<bool> in(given.size(), true);
  const auto normalise = [&] {
    double sum = 0;
    for (size_t i = 0; i < p.size(); ++i) sum += in[i] ? std::exp(logits[i]) : 0;
    for (size_t i = 0; i < p.size(); ++i) p[i] = in[i] ? std::exp(logits[i]) / sum : 0;
  };
  const auto sorted_by = [&](auto&& key) {
    std::vector<size_t> order(p.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::stable_sort(order, {}, key);
    return order;
  };
  const auto keep_until = [&](const std::vector<size_t>& order, double enough) {
    double before = 0;
    for (const size_t i : order) {
      if (before >= enough) in[i] = false;
      before += p[i];
    }
  };
  for (const Filter f : o.filters) {
    normalise();
    const std::vector<size_t> likely = sorted_by([&](size_t i) { return -p[i]; });
    switch (f) {
      case Filter::kPenalties:
        for (size_t i = 0; i < p.size(); ++i) {
          const auto n = static_cast<double>(std::count(
              history.end() - std::min<std::ptrdiff_t>(o.last_n < 0 ? 1000 : o.last_n, std::ssize(history)),
              history.end(), static_cast<int32_t>(i)));
          if (n == 0) continue;
          logits[i] *= logits[i] < 0 ? o.repetition_penalty : 1.0 / o.repetition_penalty;
          logits[i] -= n * o.frequency_penalty + o.presence_penalty;
        }
        break;
      case Filter::kTopNSigma: {
        double n = 0, sum = 0, square = 0, largest = -1e300;
        for (size_t i = 0; i < p.size(); ++i)
          if (in[i])
            n += 1, sum += logits[i], square += logits[i] * logits[i], largest = std::max(largest, logits[i]);
        const double sigma = std::sqrt(square / n - sum / n * sum / n);
        for (size_t i = 0; i < p.size(); ++i)
          if (o.top_n_sigma > 0 && logits[i] < largest - o.top_n_sigma * sigma) in[i] = false;
        break;
      }
      case Filter::kTopK:
        for (size_t r = 0; r < p.size(); ++r)
          if (o.top_k > 0 && r >= static_cast<size_t>(o.top_k)) in[likely[r]] = false;
        break;
      case Filter::kTypical: {
        double entropy = 0;
        for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
        keep_until(
            sorted_by([&](size_t i) { return p[i] > 0 ? std::abs(-std::log(p[i]) - entropy) : 1e300; }),
            o.typical_p);
        break;
      }
      case Filter::kTopP:
        keep_until(likely, o.top_p);
        break;
      case Filter::kMinP:
        for (const size_t i : likely)
          if (p[i] < o.min_p * p[likely[0]]) in[i] = false;
        break;
      case Filter::kXtc:  // only with probability 0 or 1 here
        if (o.xtc_probability == 1)
          for (size_t r = 0; r + 1 < p.size() && p[likely[r + 1]] >= o.xtc_threshold; ++r)
            in[likely[r]] = false;
        break;
      case Filter::kTemperature:
        for (double& x : logits) x /= o.temperature;
        break;
    }
  }
  normalise();
  return p;
}

const std::vector<float> kLogits{0.3f, -1, 2, 1.4f, 0.31f, -3, 1.1f, 0};

// Hugging Face's order.
std::vector<Filter> temperature_first() { return *parse_filters("penalties,temperature,top_k,top_p,min_p"); }

TEST(Sampler, DrawsFromTheFilteredDistribution) {
  const std::vector<int32_t> history{2, 2, 1, 6};
  for (const SamplerOptions& o : std::vector<SamplerOptions>{
           {},
           {.temperature = 0.5f},
           {.temperature = 3, .top_k = 4},
           {.temperature = 0.7f, .top_p = 0.8f},
           {.temperature = 2, .top_p = 0.8f},
           {.temperature = 2, .top_p = 0.8f, .filters = temperature_first()},
           {.min_p = 0.2f},
           {.temperature = 1.5f, .top_k = 6, .top_p = 0.9f, .min_p = 0.15f},
           {.temperature = 1.5f, .top_k = 6, .top_p = 0.9f, .min_p = 0.15f, .filters = temperature_first()},
           {.typical_p = 0.6f},
           {.temperature = 0.8f, .top_k = 5, .typical_p = 0.4f},
           {.top_n_sigma = 1},
           {.temperature = 2, .top_n_sigma = 0.5f},
           {.xtc_probability = 1, .xtc_threshold = 0.1f},
           {.xtc_probability = 1, .xtc_threshold = 0.9f},
           {.repetition_penalty = 1.8f},
           {.presence_penalty = 0.5f, .frequency_penalty = 0.3f, .last_n = 3},
           {.temperature = 0.9f, .top_k = 5, .top_p = 0.95f, .min_p = 0.05f, .repetition_penalty = 0.6f},
           {.top_k = 3, .repetition_penalty = 3, .filters = *parse_filters("top_k,penalties")}}) {
    const std::vector<double> got = frequencies(o, kLogits, history), want = expected(o, kLogits, history);
    for (size_t i = 0; i < kLogits.size(); ++i) {
      EXPECT_TRUE(want[i] > 0 || got[i] == 0) << i;
      EXPECT_NEAR(got[i], want[i], 5 * std::sqrt(want[i] * (1 - want[i]) / 40000) + 1e-4) << i;
    }
  }
}

TEST(Sampler, TheOrderMatters) {
  const SamplerOptions last{.temperature = 2, .top_p = 0.8f};
  SamplerOptions first = last;
  first.filters = temperature_first();
  EXPECT_LT(support(last, kLogits).size(), support(first, kLogits).size());  // flatter: 0.8 needs more tokens
  EXPECT_EQ(filters_text(kUsualFilters), "penalties,top_n_sigma,top_k,typical,top_p,min_p,xtc,temperature");
  EXPECT_EQ(filters_text(*parse_filters(filters_text(first.filters))), filters_text(first.filters));
  EXPECT_TRUE(parse_filters("")->empty());
  EXPECT_FALSE(parse_filters("top_q"));
  EXPECT_FALSE(parse_filters("top_k,top_k"));
  EXPECT_FALSE(parse_filters("top_k,,top_p"));
}

TEST(Sampler, XtcActsWithItsProbability) {
  const std::vector<float> even(4, 0.f);  // each 0.25: the three with smaller ids go
  const std::vector<double> f = frequencies({.xtc_probability = 0.4f, .xtc_threshold = 0.2f}, even);
  EXPECT_NEAR(f[3], 0.4 + 0.6 / 4, 0.02);
  EXPECT_NEAR(f[0], 0.6 / 4, 0.02);
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
  EXPECT_EQ(validate({.temperature = -1,
                      .top_k = -1,
                      .top_p = 0,
                      .min_p = 1.5f,
                      .typical_p = 0,
                      .top_n_sigma = -1,
                      .xtc_probability = 2,
                      .xtc_threshold = -1,
                      .repetition_penalty = 0,
                      .presence_penalty = kNan,
                      .frequency_penalty = kInf,
                      .last_n = -2})
                .size(),
            12u);
  EXPECT_EQ(validate({.temperature = kNan, .top_p = kNan, .min_p = kNan, .repetition_penalty = kNan}).size(),
            4u);
  EXPECT_EQ(
      validate({.temperature = kInf, .top_p = 1.01f, .min_p = -0.1f, .repetition_penalty = kInf}).size(), 4u);
}

}  // namespace
}  // namespace braid
