// What tasks count beyond accuracy, and what they offer to models: fixed embeddings, groups, keys.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tasks/evaluators_test.h"
#include "tasks/groups.h"
#include "tasks/keys.h"
#include "tasks/pairs.h"
#include "tasks/task_source.h"

namespace braid {
namespace {

TaskSource source_of(const char* name, const std::vector<std::string>& settings = {}) {
  return TaskSource(*make_task(name, settings), {});
}

const Metric& find(const std::vector<Metric>& all, const std::string& name) {
  const auto found = std::ranges::find(all, name, &Metric::name);
  EXPECT_NE(found, all.end()) << name;
  return *found;
}

TEST(Metrics, OfEveryTaskAreZeroHalfAndOne) {
  for (const Expect& e : all_expected()) {
    const TaskSource source = source_of(e.name, e.settings);
    for (const Batch& batch : {source.validation(0, 40), source.batch(0, 40)}) {
      std::vector<int32_t> wrong(batch.targets.size(), -7);
      const std::vector<Metric> right = measure(source.task(), batch.view(), batch.targets);
      std::vector<Metric> all = measure(source.task(), batch.view(), wrong);
      const Score plain = score(batch.view(), batch.targets);
      EXPECT_EQ(right[0].total, plain.positions);
      EXPECT_EQ(right[1].total, plain.sequences);
      std::set<std::string> names;
      for (size_t i = 0; i < all.size(); ++i) {
        names.insert(all[i].name);
        EXPECT_EQ(all[i].value(), 0) << e.name << " " << all[i].name;
        EXPECT_EQ(right[i].right, right[i].total) << e.name << " " << all[i].name;
      }
      EXPECT_EQ(names.size(), all.size()) << e.name;
      EXPECT_TRUE(names.contains(source.task().headline())) << e.name;
      add(all, right);
      EXPECT_EQ(all[0].value(), 0.5);
    }
  }
}

TEST(Metrics, ByLengthAddUpToAccuracy) {
  const TaskSource source = source_of("parity");
  const Batch batch = source.validation(0, 300);
  const std::vector<Metric> all = measure(source.task(), batch.view(), batch.targets);
  size_t total = 0;
  for (const Metric& m : all)
    if (m.name.ends_with("tokens")) total += m.total;
  EXPECT_EQ(total, 300u);
  EXPECT_EQ(find(all, "accuracy, 17-32 tokens").total, 0u);
  EXPECT_GT(find(all, "accuracy, 129-256 tokens").total, 100u);
  EXPECT_EQ(find(all, "accuracy").chance, 0.5);
  EXPECT_EQ(find(all, "accuracy").normalised(), 1);
}

TEST(Metrics, DoublingsAreBetweenPowersOfTwo) {
  const std::vector<std::pair<size_t, std::string>> expected{
      {1, "1"}, {2, "2"}, {3, "3-4"}, {4, "3-4"}, {5, "5-8"}, {8, "5-8"}, {9, "9-16"}, {256, "129-256"}};
  for (const auto& [n, text] : expected) EXPECT_EQ(doubling_text(doubling(n)), text) << n;
}

TEST(Metrics, ModularArithmeticNormalisesAsThePaper) {
  for (const char* name : {"mod-arith", "mod-arith-brackets"})
    EXPECT_EQ(source_of(name).task().metrics()[0].chance, 0.2) << name;
}

TEST(Metrics, WordProblemCountsRightPrefixes) {
  const TaskSource source = source_of("word-problem", {"test_length=10"});
  EXPECT_EQ(source.task().headline(), "first 10");
  const Batch batch = source.validation(0, 2);
  std::vector<int32_t> predicted = batch.targets;
  predicted[5] = -7;  // the fifth answer of the first sample
  const std::vector<Metric> all = measure(source.task(), batch.view(), predicted);
  for (const auto& [name, right] :
       {std::pair{"first 1", 2u}, {"first 4", 2u}, {"first 8", 1u}, {"first 10", 1u}}) {
    EXPECT_EQ(find(all, name).right, right) << name;
    EXPECT_EQ(find(all, name).total, 2u) << name;
  }
  EXPECT_EQ(find(all, "accuracy").right, 19u);
}

TEST(Metrics, StateRecallCountsWhereThePointerMoved) {
  const auto task = make_task("state-recall", {"train_length=5", "test_length=5"});
  // bits 0 1 1 1 0; a .. e at 0 .. 4; swaps; asked for a. The answer of who ignores swaps is 0 (token 1).
  const auto sequence = [](std::vector<int32_t> swaps) {
    std::vector<int32_t> tokens{1, 2, 2, 2, 1, 3, 6, 11, 7, 12, 8, 13, 9, 14, 10, 15, 4};
    tokens.insert(tokens.end(), swaps.begin(), swaps.end());
    tokens.insert(tokens.end(), {5, 6});
    return tokens;
  };
  const auto moved = [&](std::vector<int32_t> swaps, int32_t answer) {
    const std::vector<int32_t> tokens = sequence(std::move(swaps));
    std::vector<int32_t> targets(tokens.size(), kUnsupervised), predicted(tokens.size(), 1);
    targets.back() = answer;
    std::vector<Metric> all = (*task)->metrics();
    (*task)->measure({tokens, targets, predicted}, all);
    return find(all, "accuracy, moved");
  };
  EXPECT_EQ(moved({6, 7, 7, 6, 8, 9, 9, 10, 8, 10}, 1).total, 0u);  // there and back
  const Metric away = moved({6, 7, 7, 8, 8, 9, 9, 10, 10, 8}, 2);   // a has b's address
  EXPECT_EQ(away.total, 1u);
  EXPECT_EQ(away.right, 0u);
  EXPECT_EQ(moved({7, 8, 6, 8, 9, 10, 9, 10, 10, 7}, 2).total, 1u);  // a has c's, which was b's
}

TEST(Metrics, PcrTellsParityFromRetrieval) {
  const TaskSource source = source_of("pcr");
  const Batch batch = source.validation(0, 400);
  std::vector<int32_t> even = batch.targets;  // always says P0, and looks up rightly whatever stands there
  for (int32_t& p : even)
    if (p == 10) p = 9;
  const std::vector<Metric> all = measure(source.task(), batch.view(), even);
  EXPECT_NEAR(find(all, "parity").value(), 0.5, 0.1);
  EXPECT_EQ(find(all, "parity").total, 400u);
  EXPECT_EQ(find(all, "answer given parity").total, find(all, "parity").right);
  EXPECT_EQ(find(all, "address given parity").value(), 1);
  EXPECT_EQ(find(all, "answer").value(), 1);
  EXPECT_NEAR(static_cast<double>(find(all, "answer, values differ").total), 200, 50);
  EXPECT_EQ(find(all, "sequences").right, find(all, "parity").right);
  size_t by_bits = 0;
  for (const Metric& m : all) by_bits += m.name.starts_with("sequences, ") ? m.right : 0;
  EXPECT_EQ(by_bits, find(all, "sequences").right);

  // Who always takes the first address is right in three quarters, whatever the form.
  for (const Expect& rule : all_expected()) {
    if (rule.name != std::string("pcr")) continue;
    const TaskSource form = source_of("pcr", rule.settings);
    std::vector<Metric> first = form.task().metrics();
    for (size_t i = 0; i < 2000; ++i) {
      const Sample s = form.train_sample(i);
      Sample guess = s;
      rule.mistake(guess);
      form.task().measure({s.tokens, s.targets, guess.targets}, first);
    }
    EXPECT_NEAR(find(first, "answer").value(), 0.75, 0.05);
    EXPECT_NEAR(find(first, "answer, values differ").value(), 0.5, 0.07);
  }
}

TEST(Metrics, CountedRecallTellsItsPartsApart) {
  const TaskSource source = source_of("counted-recall");
  const Batch batch = source.validation(0, 200);
  std::vector<int32_t> remembers = batch.targets;  // always says even, so that stars mean nothing
  for (size_t t = 0; t < remembers.size(); ++t) {
    const bool starred = batch.tokens[t] >= 8 + 48 && batch.tokens[t] < 8 + 96;
    if (batch.tokens[t] < 2) remembers[t] = 2;
    if (starred) remembers[t] = batch.targets[t] == 4 ? 5 : 4;
  }
  const std::vector<Metric> all = measure(source.task(), batch.view(), remembers);
  EXPECT_NEAR(find(all, "count").value(), 0.5, 0.1);
  EXPECT_EQ(find(all, "recall").value(), 1);
  EXPECT_EQ(find(all, "both").right, 0u);
  const size_t total = find(all, "count").total + find(all, "recall").total + find(all, "both").total;
  EXPECT_EQ(total, find(all, "accuracy").total);
  EXPECT_NEAR(static_cast<double>(find(all, "both").total) / static_cast<double>(total), 1.0 / 3, 0.03);
}

TEST(Metrics, MqarMixReportsEverySize) {
  const TaskSource source = source_of("mqar", {"mix=true"});
  const Batch batch = source.validation(0, 100);
  const std::vector<Metric> all = measure(source.task(), batch.view(), batch.targets);
  size_t total = 0;
  for (const Metric& m : all)
    if (m.name.find("pairs") != std::string::npos) {
      EXPECT_GT(m.total, 0u) << m.name;
      total += m.total;
    }
  EXPECT_EQ(total, all[0].total);
}

TEST(Groups, AreGroupsWithTheRightElements) {
  const std::vector<std::tuple<std::string_view, size_t, size_t, size_t>> expected{
      {"S3", 6, 3, 2}, {"S4", 24, 6, 8}, {"A5", 60, 0, 20}, {"S5", 120, 10, 20}};  // order, swaps, 3-cycles
  for (const auto& [name, order, swaps, cycles] : expected) {
    const Group g = make_group(name);
    EXPECT_EQ(g.order, order) << name;
    EXPECT_EQ(std::ranges::count(g.moved, 2u), static_cast<long>(swaps)) << name;
    EXPECT_EQ(std::ranges::count(g.moved, 3u), static_cast<long>(cycles)) << name;
    EXPECT_TRUE(std::ranges::is_sorted(g.names)) << name;
  }
  for (const std::string_view name : kGroups) {
    const Group g = make_group(name);
    for (size_t a = 0; a < g.order; ++a) {
      EXPECT_EQ(g.product(a, 0), a);
      EXPECT_EQ(g.product(0, a), a);
      std::set<size_t> row;
      for (size_t b = 0; b < g.order; ++b) {
        row.insert(g.product(a, b));
        const size_t c = (7 * a + 11 * b) % g.order;
        ASSERT_EQ(g.product(g.product(a, b), c), g.product(a, g.product(b, c))) << name;
      }
      ASSERT_EQ(row.size(), g.order) << name;
    }
  }
}

TEST(Keys, AreOrthonormalWhileThereIsRoom) {
  for (const auto& [n, d] : {std::pair{7u, 7u}, {20u, 33u}, {128u, 128u}}) {
    const Tensor keys = near_orthogonal_keys(n, d, 3);
    EXPECT_LT(coherence(keys.mat()), 1e-6f) << n << " " << d;
  }
}

TEST(Keys, SpreadWhenThereIsNot) {
  const Tensor keys = near_orthogonal_keys(128, 64, 0), other = near_orthogonal_keys(128, 64, 1);
  for (size_t i = 0; i < 128; ++i) {
    double length = 0;
    for (size_t c = 0; c < 64; ++c) length += std::pow(keys.mat().row(i)[c], 2);
    EXPECT_NEAR(length, 1, 1e-5);
  }
  EXPECT_LT(coherence(keys.mat()), 1.25f * std::sqrt(64.0f / (64 * 127)));  // Welch: 0.0887
  EXPECT_NE(keys.as<float>()[0], other.as<float>()[0]);
  EXPECT_LT(coherence(near_orthogonal_keys(65, 64, 0).mat()), 0.05f);
  EXPECT_LT(coherence(near_orthogonal_keys(512, 128, 0).mat()), 0.125f);  // what rounding needs
  EXPECT_LT(coherence(near_orthogonal_keys(128, 16, 0).mat()), 0.5f);  // the most that the stress test allows
}

// The share of right answers of the paper's construction: u_t = v_t - sum of kappa(k_s, k_t) u_s, read with
// k_0.
double read_place_0(const TaskSource& source, size_t objects, bool round) {
  const Tensor rows = *source.task().fixed_embedding();
  const size_t width = rows.mat().cols / 3;
  const auto kappa = [&](const float* a, const float* b) {
    double sum = 0;
    for (size_t c = 0; c < width; ++c) sum += a[c] * b[c];
    return round ? std::round(sum) : sum;
  };
  size_t right = 0, all = 0;
  for (uint64_t sample = 0; sample < 2; ++sample) {
    const Sample s = source.train_sample(sample);
    std::vector<std::vector<double>> u;
    std::vector<double> read(width, 0.0);
    for (size_t t = 0; t < s.tokens.size(); ++t) {
      const float* row = rows.mat().row(static_cast<size_t>(s.tokens[t]));
      u.emplace_back(row + width, row + 2 * width);
      for (size_t i = 0; i < t; ++i)
        if (const double k = kappa(rows.mat().row(static_cast<size_t>(s.tokens[i])), row); k != 0)
          for (size_t c = 0; c < width; ++c) u[t][c] -= k * u[i][c];
      const double k = kappa(row, row + 2 * width);  // with the query, which is k_0
      for (size_t c = 0; c < width; ++c) read[c] += k * u[t][c];
      if (s.targets[t] == kUnsupervised) continue;
      int32_t best = 0;
      double most = -1e9;
      for (size_t object = 0; object < objects; ++object) {
        const float* value = rows.mat().row(object) + width;
        double match = 0;
        for (size_t c = 0; c < width; ++c) match += value[c] * read[c];
        if (match > most) most = match, best = static_cast<int32_t>(object);
      }
      ++all;
      right += best == s.targets[t];
    }
  }
  return share(right, all);
}

TEST(Stress, RoundingReadsRightWithMorePlacesThanDimensions) {
  const TaskSource more =
      source_of("stress", {"objects=160", "width=80", "train_length=320", "test_length=320"});
  EXPECT_EQ(read_place_0(more, 160, true), 1);
  EXPECT_LT(read_place_0(more, 160, false), 0.8);
  const TaskSource room =
      source_of("stress", {"objects=48", "width=48", "train_length=96", "test_length=96"});
  EXPECT_EQ(read_place_0(room, 48, true), 1);
  EXPECT_EQ(read_place_0(room, 48, false), 1);
}

TEST(Stress, KeysFollowTheirOwnSeed) {
  const std::vector<std::string> small{"objects=8", "width=8", "train_length=16", "test_length=16"};
  std::vector<std::string> seeded = small;
  seeded.push_back("key_seed=1");
  const TaskSource a = source_of("stress", small), b = source_of("stress", seeded);
  const TaskSource other_samples(*make_task("stress", small), {.seed = 5});
  const Tensor x = *a.task().fixed_embedding(), y = *b.task().fixed_embedding(),
               z = *other_samples.task().fixed_embedding();
  EXPECT_FALSE(std::ranges::equal(x.as<float>(), y.as<float>()));
  EXPECT_TRUE(std::ranges::equal(x.as<float>(), z.as<float>()));
  EXPECT_EQ(a.train_sample(3).tokens, b.train_sample(3).tokens);
  EXPECT_EQ(static_cast<size_t>(x.shape()[0]), a.vocab_size());
}

// A token of several parts is the sum of theirs and tells what kind it is; every swap is a kind of its own.
TEST(StateRecall, EmbeddingIsMadeOfParts) {
  const TaskSource source =
      source_of("state-recall", {"table=6", "train_length=5", "test_length=5", "compact=true"});
  const Tensor rows = *source.task().fixed_embedding();
  ASSERT_EQ(static_cast<size_t>(rows.shape()[0]), source.vocab_size());
  const auto sum = [&](std::initializer_list<std::pair<int, float>> parts) {
    std::vector<float> x(rows.mat().cols - 12);  // without the kinds of compact tokens
    for (const auto& [token, factor] : parts)
      for (size_t i = 0; i < x.size(); ++i) x[i] += factor * rows.mat().row(static_cast<size_t>(token))[i];
    return x;
  };
  // 1, 2 bits; 6 .. 10 pointers; 11 .. 16 addresses; 17 + 2 i + b entries; 29 .. 38 swaps; 39 + 6 p + i.
  const int entry = 17 + 2 * 4 + 1, swap_ac = 29 + 1, start = 39 + 6 * 3 + 2;
  EXPECT_EQ(sum({{entry, 1}}), sum({{11 + 4, 1}, {2, 1}}));
  EXPECT_EQ(sum({{swap_ac, 1}}), sum({}));
  EXPECT_EQ(sum({{start, 1}}), sum({{6 + 3, 1}, {11 + 2, 1}}));
  const auto kind = [&](int token) {
    const float* end = rows.mat().row(static_cast<size_t>(token)) + rows.mat().cols;
    return std::find(end - 12, end, 1.0f) - (end - 12);
  };
  EXPECT_EQ(kind(entry), 0);
  EXPECT_EQ(kind(start), 1);
  EXPECT_EQ(kind(swap_ac), 3);  // a-b is the first
  // Addresses are told by their bits alone, -1 or 1: three for six of them, behind two values and five
  // pointers.
  for (int i = 0; i < 6; ++i)
    for (int b = 0; b < 3; ++b)
      EXPECT_EQ(rows.mat().row(static_cast<size_t>(11 + i))[7 + b], i >> b & 1 ? 1.0f : -1.0f);
}

TEST(Reachability, EmbeddingHasOnesAtNodeAndParent) {
  const TaskSource source = source_of("reachability");
  const Tensor rows = *source.task().fixed_embedding();
  EXPECT_EQ(static_cast<size_t>(rows.shape()[0]), source.vocab_size());
  const Sample s = source.train_sample(0);
  for (size_t c = 0; c < s.tokens.size(); ++c) {
    const float* row = rows.mat().row(static_cast<size_t>(s.tokens[c]));
    for (size_t i = 0; i < 32; ++i)
      EXPECT_EQ(row[i], i == c || i == static_cast<size_t>(s.tokens[c]) % 32 ? 1 : 0);
  }
}

TEST(Pairs, AreNumberedWithoutGaps) {
  for (const size_t n : {2u, 5u, 12u}) {
    size_t expected = 0;
    for (size_t i = 0; i < n; ++i)
      for (size_t j = i + 1; j < n; ++j) {
        EXPECT_EQ(pair_number(i, j, n), expected);
        EXPECT_EQ(pair_of(expected++, n), std::pair(i, j));
      }
    EXPECT_EQ(expected, pair_count(n));
  }
}

}  // namespace
}  // namespace braid
