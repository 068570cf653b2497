#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <thread>

#include "tasks/evaluators_test.h"
#include "tasks/score.h"
#include "io/hash.h"
#include "tasks/task_source.h"

namespace braid {
namespace {

TaskSource source_of(const char* name, const std::vector<std::string>& settings = {},
                     TaskSourceOptions options = {}) {
  return TaskSource(*make_task(name, settings), options);
}

TaskSource source_of(const Expect& e, TaskSourceOptions options = {}) {
  return source_of(e.name, e.settings, options);
}

std::string title(const Expect& e) {
  std::string text = e.name;
  for (const std::string& s : e.settings) text += " " + s;
  return text;
}

TEST(Tasks, EveryTaskIsExpected) {
  std::set<std::string_view> expected, listed;
  for (const Expect& e : all_expected()) expected.insert(e.name);
  for (const TaskEntry& e : all_tasks()) listed.insert(e.name);
  EXPECT_EQ(expected, listed);
}

TEST(Tasks, AnswersAreRight) {
  for (const Expect& e : all_expected()) {
    const TaskSource source = source_of(e);
    for (size_t i = 0; i < 300; ++i) {
      const Sample train = source.train_sample(i), test = source.validation_sample(i);
      ASSERT_EQ(e.wrong(train), "") << title(e) << " " << source.task().show(train);
      ASSERT_EQ(e.wrong(test), "") << title(e) << " " << source.task().show(test);
      for (const Sample& s : {train, test})
        for (size_t t = 0; t < s.tokens.size(); ++t) {
          ASSERT_LT(static_cast<size_t>(s.tokens[t]), e.vocab);
          ASSERT_TRUE(s.targets[t] == kUnsupervised || static_cast<size_t>(s.targets[t]) < e.vocab);
        }
    }
    EXPECT_EQ(source.vocab_size(), e.vocab) << title(e);
  }
}

// A wrong generator must be found out: targets by a wrong rule, one wrong target, one too few or too many, a
// token outside the vocabulary, a sample cut short.
TEST(Tasks, EvaluatorsCatchMutants) {
  for (const Expect& e : all_expected()) {
    const TaskSource source = source_of(e);
    int differs = 0;
    for (size_t i = 0; i < 50; ++i) {
      const Sample right = source.validation_sample(i);
      Sample mutant = right;
      e.mistake(mutant);
      differs += mutant.targets != right.targets;
      ASSERT_EQ(e.wrong(mutant) == "", mutant.targets == right.targets) << title(e);

      Rng rng(i, "mutants");
      const size_t at = rng.below(right.tokens.size());
      size_t answer = at;
      while (right.targets[answer] == kUnsupervised) answer = (answer + 1) % right.targets.size();
      mutant = right;
      mutant.targets[at] = mutant.targets[at] == kUnsupervised ? right.targets[answer] : kUnsupervised;
      ASSERT_NE(e.wrong(mutant), "") << title(e);
      mutant = right;
      mutant.targets[answer] ^= 1;
      ASSERT_NE(e.wrong(mutant), "") << title(e);
      mutant = right;
      mutant.tokens[at] = static_cast<int32_t>(e.vocab);
      ASSERT_NE(e.wrong(mutant), "") << title(e);
      mutant = right;
      mutant.tokens.pop_back();
      ASSERT_NE(e.wrong(mutant), "") << title(e);
    }
    const bool commutes = std::ranges::count(e.settings, "group=Z60");
    EXPECT_GT(differs, commutes ? -1 : 10) << title(e);
  }
}

// Of the k-th answer of a sample, how often is the most frequent one right?
TEST(Tasks, ChanceIsThatOfTheBestBlindGuess) {
  for (const Expect& e : all_expected()) {
    const TaskSource source = source_of(e);
    EXPECT_NEAR(source.task().chance(), e.chance, 0.002 + 0.01 * e.chance) << title(e);
    std::vector<std::map<int32_t, size_t>> counts;
    const size_t samples = 4'000'000 / e.test_max;
    for (size_t i = 0; i < samples; ++i) {
      size_t k = 0;
      for (const int32_t target : source.validation_sample(i).targets) {
        if (target == kUnsupervised) continue;
        if (k == counts.size()) counts.emplace_back();
        ++counts[k++][target];
      }
    }
    size_t best = 0, all = 0;
    for (const auto& answers : counts) {
      size_t most = 0;
      for (const auto& [answer, count] : answers) most = std::max(most, count), all += count;
      best += most;
    }
    // The most frequent of many is a little more frequent than its probability.
    EXPECT_NEAR(share(best, all), source.task().chance(), 0.02) << title(e);
  }
}

TEST(Tasks, LengthsAreUniformAndBothEndsOccur) {
  for (const Expect& e : all_expected()) {
    const TaskSource source = source_of(e);
    const bool fixed = e.train_min == e.train_max && e.test_min == e.test_max;
    std::map<size_t, int> train, test;
    const int n = fixed ? 10 : 40000;
    for (int i = 0; i < n; ++i) {
      ++train[source.train_sample(static_cast<uint64_t>(i)).tokens.size()];
      ++test[source.validation_sample(static_cast<size_t>(i)).tokens.size()];
    }
    EXPECT_EQ(train.begin()->first, e.train_min) << title(e);
    EXPECT_EQ(train.rbegin()->first, e.train_max) << title(e);
    EXPECT_EQ(test.begin()->first, e.test_min) << title(e);
    EXPECT_EQ(test.rbegin()->first, e.test_max) << title(e);
    for (const Split split : {Split::kTrain, Split::kTest}) {
      EXPECT_EQ(source.task().min_length(split), split == Split::kTrain ? e.train_min : e.test_min)
          << title(e);
      EXPECT_EQ(source.task().max_length(split), split == Split::kTrain ? e.train_max : e.test_max)
          << title(e);
    }
    EXPECT_EQ(source.max_length(), std::max(e.train_max, e.test_max));
    if (e.name == std::string("pcr") || e.name == std::string("mqar") ||
        e.name == std::string("counted-recall") || e.name == std::string("state-recall"))
      continue;  // several things vary
    for (const auto& lengths : {train, test}) {
      const double mean = static_cast<double>(n) / static_cast<double>(lengths.size());
      for (const auto& [length, count] : lengths) EXPECT_NEAR(count, mean, 6 * std::sqrt(mean)) << title(e);
    }
  }
}

TEST(Tasks, AnswersAndInputsAreSpread) {
  const auto count = [](const TaskSource& source, auto&& key) {
    std::map<int32_t, int> counts;
    for (uint64_t i = 0; i < 12000; ++i) ++counts[key(source.train_sample(i))];
    return counts;
  };
  const auto last = [](const Sample& s) { return s.targets.back(); };
  const auto uniform = [](const std::map<int32_t, int>& counts, size_t classes) {
    EXPECT_EQ(counts.size(), classes);
    const double mean = 12000.0 / static_cast<double>(classes);
    for (const auto& [key, n] : counts) EXPECT_NEAR(n, mean, 6 * std::sqrt(mean)) << key;
  };
  uniform(count(source_of("parity"), last), 2);
  uniform(count(source_of("word-problem"), last), 120);
  uniform(count(source_of("word-problem", {"elements=swaps"}), [](const Sample& s) { return s.tokens[1]; }),
          11);
  uniform(count(source_of("word-problem", {"elements=moved3"}), [](const Sample& s) { return s.tokens[1]; }),
          31);
  uniform(count(source_of("word-problem", {"group=Z60"}), last), 60);
  uniform(count(source_of("swap-tracking"), last), 5);
  uniform(count(source_of("swap-tracking"), [](const Sample& s) { return s.tokens[7]; }), 10);
  uniform(count(source_of("selective-copy"), last), 14);
  uniform(count(source_of("selective-copy", {"train_length=32"}),
                [](const Sample& s) { return s.tokens[9] > 0; }),
          2);
  uniform(count(source_of("induction"), last), 15);
  uniform(count(source_of("induction"),
                [](const Sample& s) {
                  return static_cast<int32_t>(std::ranges::find(s.tokens, 0) - s.tokens.begin()) / 127;
                }),
          2);  // 254 places
  uniform(count(source_of("state-recall"), last), 2);
  uniform(
      count(source_of("state-recall", {"any_pointer=true"}), [](const Sample& s) { return s.tokens.back(); }),
      5);
  uniform(count(source_of("pcr"), last), 2);
  uniform(count(source_of("pcr"), [](const Sample& s) { return s.targets[s.targets.size() - 3]; }), 2);
  uniform(count(source_of("pcr"), [](const Sample& s) { return s.targets[s.targets.size() - 2]; }), 32);
  uniform(count(source_of("counted-recall"), [](const Sample& s) { return s.tokens[0] % 4; }), 4);
  // The second node is in node 1's tree in 15 of 31 samples.
  EXPECT_NEAR(count(source_of("reachability"), [](const Sample& s) { return s.targets[1]; })[1025],
              12000 * 15.0 / 31, 330);
  // Brackets: with 5 tokens, a third of the outer operators each; with 8, left has 1 .. 4.
  const std::vector<std::string> eight{"train_min=10", "train_max=10"};
  uniform(count(source_of("mod-arith-brackets", {"train_min=7", "train_max=7"}),
                [](const Sample& s) { return s.tokens[2]; }),
          3);
  std::map<int32_t, int> left = count(source_of("mod-arith-brackets", eight), [](const Sample& s) {
    return s.tokens[1] == 6 ? 2 : s.tokens[1] < 5 ? 1 : s.tokens[2] == 6 ? 4 : 3;
  });
  uniform(left, 4);
}

// Queries come early: the weights of gaps are drawn without replacement.
TEST(Tasks, MqarGapsFollowTheirWeights) {
  const TaskSource one = source_of("mqar", {"train_length=12", "train_pairs=1", "power=0.5"});
  std::map<size_t, int> first;
  const int n = 20000;
  for (int i = 0; i < n; ++i) {
    const Sample s = one.train_sample(static_cast<uint64_t>(i));
    const auto at = std::ranges::find_if(s.targets, [](int32_t t) { return t != kUnsupervised; });
    ++first[static_cast<size_t>(at - s.targets.begin() - 2) / 2];
  }
  double total = 0;
  for (int g = 0; g < 5; ++g) total += 1 / std::sqrt(g + 1.0);
  for (size_t g = 0; g < 5; ++g)
    EXPECT_NEAR(first[g], n / std::sqrt(static_cast<double>(g) + 1) / total, 5 * std::sqrt(n / 5.0)) << g;
}

TEST(Tasks, ASampleDependsOnlyOnSeedAndIndex) {
  for (const Expect& e : all_expected()) {
    const TaskSource a = source_of(e), again = source_of(e), other = source_of(e, {.seed = 1});
    const Batch whole = a.batch(70, 30);
    ASSERT_EQ(whole.sequences(), 30u);
    std::vector<Sample> threaded(30);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        for (size_t i = 30; i-- > 0;)  // backwards, by turns
          if (i % 3 == t) threaded[i] = a.train_sample(70 + i);
      });
    for (std::thread& t : threads) t.join();
    for (size_t i = 0; i < 30; ++i) {
      EXPECT_EQ(threaded[i].tokens, again.batch(70 + i, 1).tokens) << title(e);
      EXPECT_TRUE(std::ranges::equal(whole.view().tokens_of(i), threaded[i].tokens)) << title(e);
      EXPECT_TRUE(std::ranges::equal(whole.view().targets_of(i), threaded[i].targets)) << title(e);
    }
    EXPECT_NE(whole.tokens, other.batch(70, 30).tokens) << title(e);
    EXPECT_NE(a.validation(0, 30).tokens, other.validation(0, 30).tokens) << title(e);
  }
}

// A changed generator must raise its version in registry.cpp; then the new fingerprint goes to
// evaluators_test.cpp.
TEST(Tasks, SamplesAreThoseOfTheVersion) {
  for (const Expect& e : all_expected()) {
    const TaskSource source = source_of(e, {.seed = 7});
    Hash f;
    f.number(static_cast<uint64_t>(source.task().entry->version));
    for (size_t i = 0; i < 20; ++i)
      for (const Sample& s : {source.train_sample(i), source.validation_sample(i)})
        for (size_t t = 0; t < s.tokens.size(); ++t)
          f.number(static_cast<uint64_t>(s.tokens[t])).number(static_cast<uint64_t>(s.targets[t]));
    EXPECT_EQ(f.hex(), e.golden) << title(e);
  }
}

TEST(Tasks, GrowingDoublesTrainingLengthsUpToTests) {
  for (const Expect& e : all_expected()) {
    TaskSource source = source_of(e);
    const Batch test = source.validation(0, 5);
    const std::string fingerprint = source.fingerprint();
    size_t length = e.train_max, growths = 0;
    while (source.grow()) {
      ++growths;
      ASSERT_EQ(source.growths(), growths);
      const size_t now = source.task().max_length(Split::kTrain);
      EXPECT_GT(now, length) << title(e);
      EXPECT_LE(now, 2 * length + 2) << title(e);
      length = now;
      for (uint64_t i = 0; i < 30; ++i) {
        const Sample s = source.train_sample(i);
        ASSERT_EQ(e.wrong(s), "") << title(e);
        EXPECT_LE(s.tokens.size(), now);
      }
    }
    const bool own = std::ranges::count(e.settings, "mix=true") > 0;  // training has its own lengths
    EXPECT_EQ(length, own ? e.train_max : e.test_max) << title(e);
    EXPECT_EQ(source.growths(), growths);
    EXPECT_EQ(source.validation(0, 5).tokens, test.tokens);
    EXPECT_EQ(source.vocab_size(), e.vocab);
    EXPECT_EQ(source.max_length(), std::max(e.train_max, e.test_max));
    EXPECT_EQ(source.fingerprint(), fingerprint);
  }
  TaskSource swaps =
      source_of("swap-tracking", {"train_length=32", "test_length=256"});  // the paper's curriculum
  for (const size_t length : {64u, 128u, 256u}) {
    EXPECT_TRUE(swaps.grow());
    EXPECT_EQ(swaps.train_sample(0).tokens.size(), length);
  }
  EXPECT_FALSE(swaps.grow());
  TaskSource mqar = source_of("mqar", {"test_length=256", "test_pairs=64"});
  while (mqar.grow()) {
  }
  EXPECT_EQ(count_supervised(mqar.train_sample(0).targets), 16u);
}

TEST(Tasks, TrainingAndValidationNeverShareASample) {  // long samples: equal ones would be no accident
  const std::vector<std::string> same{"train_min=100", "train_max=120", "test_min=100", "test_max=120"};
  for (const Expect& e : all_expected()) {
    const bool short_ones = e.name == std::string("parity") || e.name == std::string("copy") ||
                            std::string_view(e.name).starts_with("mod");
    const TaskSource source = short_ones ? source_of(e.name, same) : source_of(e);
    std::set<std::vector<int32_t>> seen;
    for (uint64_t i = 0; i < 2000; ++i) seen.insert(source.train_sample(i).tokens);
    EXPECT_EQ(seen.size(), 2000u);
    for (size_t i = 0; i < 1024; ++i) EXPECT_FALSE(seen.contains(source.validation_sample(i).tokens));
  }
}

TEST(Tasks, ValidationSizeAndFingerprintFollowTheOptions) {
  EXPECT_EQ(source_of("parity").validation_size(), 1024u);
  EXPECT_EQ(source_of("parity", {}, {.validation_size = 8192}).validation(8000, 192).sequences(), 192u);
  const std::set<std::string> seen{source_of("parity").fingerprint(), source_of("copy").fingerprint(),
                                   source_of("parity", {"test_max=255"}).fingerprint(),
                                   source_of("parity", {}, {.seed = 1}).fingerprint(),
                                   source_of("parity", {}, {.validation_size = 8}).fingerprint()};
  EXPECT_EQ(seen.size(), 5u);
  EXPECT_EQ(source_of("parity", {"test_max=256"}).fingerprint(), source_of("parity").fingerprint());
}

TEST(Tasks, ShowReadsLikeTheTask) {
  const auto parity = make_task("parity"), copy = make_task("copy"), wide = make_task("copy", {"symbols=30"});
  EXPECT_EQ((*parity)->show({{2, 1, 2, 2}, {-1, -1, -1, 2}}), "1 0 1 1 -> 1");
  EXPECT_EQ((*copy)->show({{2, 4, 1, 2}, {-1, -1, 2, 4}}), "a c | -> a c");
  EXPECT_EQ((*wide)->show({{31, 1}, {-1, 31}}), "29 | -> 29");
  const auto show = [](const char* name, const std::vector<std::string>& settings, const Sample& sample) {
    return (*make_task(name, settings))->show(sample);
  };
  EXPECT_EQ(show("mod-arith", {}, {{8, 2, 6, 3, 9, 4}, {-1, -1, -1, -1, -1, 9}}), "3 - 1 * 4 = -> 4");
  EXPECT_EQ(show("mod-arith-brackets", {}, {{8, 6, 2, 9, 10}, {-1, -1, -1, -1, 3}}), "( - 2 ) = -> 3");
  EXPECT_EQ(show("word-problem", {"group=S3"}, {{6, 1, 7, 2}, {-1, 1, 1, 3}}), "BOS 132:132 _:132 213:231");
  EXPECT_EQ(show("swap-tracking", {}, {{3, 4}, {14, 14}}), "0-4:4 1-2:4");
  EXPECT_EQ(show("reachability", {}, {{0, 33, 65}, {1025, 1024, 1024}}), "1:yes 2:no 3<2:no");
  EXPECT_EQ(show("stress", {"objects=3", "width=3"}, {{0, 1, 2, 4}, {-1, -1, -1, 2}}), "0 .. 2 | 0-2:2");
  EXPECT_EQ(show("mqar", {"vocabulary=32", "noise=true"},
                 {{3, 18, 0, 0, 0, 0, 3, 0}, {-1, -1, -1, -1, -1, -1, 18, -1}}),
            "k3 v2 _x4 k3:v2 _");
  EXPECT_EQ(show("selective-copy", {"symbols=2"}, {{0, 3, 0, 0, 1, 15, 15}, {-1, -1, -1, -1, -1, 3, 1}}),
            "(1) c (2) a -> c a");
  EXPECT_EQ(show("induction", {}, {{2, 0, 5, 1, 0}, {-1, -1, -1, -1, 5}}), "b * e a * -> e");
  EXPECT_EQ(
      show("state-recall", {}, {{1, 2, 3, 6, 12, 4, 6, 10, 5, 6}, {-1, -1, -1, -1, -1, -1, -1, -1, -1, 2}}),
      "0 1 INIT a @1 OPS a e QUERY a -> 1");
  EXPECT_EQ(
      show("pcr", {},
           {{0, 2, 3, 11, 5, 6, 11, 7, 12, 8, 10, 44}, {-1, -1, -1, -1, -1, -1, -1, -1, -1, 10, 44, 4}}),
      "BOS 1 T A0 V1 Q0 A0 Q1 A1 ASK -> P1 S1 V0");
  EXPECT_EQ(show("counted-recall", {}, {{111, 9, 1, 57}, {-1, 7, 3, 4}}), "k1=v3 k1:v3 1:odd k1*:v0");
}

TEST(Tasks, SmallestSettingsWork) {
  const TaskSource parity = source_of("parity", {"train_min=2", "train_max=2", "test_min=2", "test_max=2"});
  EXPECT_EQ(parity.train_sample(0).tokens.size(), 1u);
  EXPECT_EQ(parity.train_sample(0).targets, parity.train_sample(0).tokens);  // one bit is its own parity
  const TaskSource copy = source_of("copy", {"train_max=1", "test_max=1", "symbols=2"});
  EXPECT_EQ(copy.train_sample(0).tokens.size(), 2u);
  const std::vector<std::pair<const char*, std::vector<std::string>>> smallest{
      {"mod-arith", {"train_max=3", "test_min=3", "test_max=3"}},
      {"mod-arith-brackets", {"train_max=3", "test_min=3", "test_max=3"}},
      {"word-problem", {"train_length=1", "test_length=1", "group=S3"}},
      {"swap-tracking", {"train_length=1", "test_length=1", "objects=2"}},
      {"reachability", {"train_length=2", "test_length=2"}},
      {"stress", {"objects=2", "width=2", "train_length=3", "test_length=3"}},
      {"mqar", {"train_length=4", "test_length=4", "train_pairs=1", "test_pairs=1", "vocabulary=4"}},
      {"selective-copy", {"train_length=1", "test_length=1", "symbols=1", "vocabulary=4"}},
      {"induction", {"train_length=4", "test_min=4", "test_max=4", "vocabulary=3"}},
      {"state-recall", {"train_length=5", "test_length=5"}},
      {"pcr", {"train_max=1", "test_min=1", "test_max=1", "train_pairs=4", "test_pairs=4", "address_bits=2"}},
      {"counted-recall",
       {"train_min=1", "train_max=1", "test_min=1", "test_max=1", "pairs=1", "keys=1", "values=2"}}};
  for (const auto& [name, settings] : smallest) {
    const TaskSource source = source_of(name, settings);
    std::vector<Metric> all = source.task().metrics();
    for (uint64_t i = 0; i < 50; ++i) {
      const Sample s = source.train_sample(i);
      EXPECT_GT(count_supervised(s.targets), 0u) << name;
      source.task().measure({s.tokens, s.targets, s.targets}, all);
    }
    EXPECT_EQ(all[0].value(), 1) << name;
    EXPECT_GT(source.task().chance(), 0) << name;
    EXPECT_LE(source.task().chance(), 1) << name;
  }
}

TEST(Tasks, AnUnknownTaskGetsASuggestion) {
  const auto near = make_task("partiy"), far = make_task("chess");
  ASSERT_FALSE(near);
  EXPECT_NE(near.error().fix.find("'parity'"), std::string::npos);
  ASSERT_FALSE(far);
  EXPECT_NE(far.error().fix.find("use one of: parity, mod-arith, "), std::string::npos);
}

TEST(Tasks, HostileSettingsListEveryProblem) {
  const auto bad = make_task("parity", {"train_min=1", "train_max=abc", "test_min=9999999999999999999999",
                                        "tset_max=3", "nonsense", "=4", "test_max=1e3", "test_max=70"});
  ASSERT_FALSE(bad);
  const std::string& what = bad.error().what;
  EXPECT_EQ(std::ranges::count(what, '\n'), 8) << what;
  for (const char* part : {"train_min: is 1; use 2 .. 65536", "train_max: is 'abc', not a whole number",
                           "test_min: is '9999999999999999999999'", "use 'test_max'",
                           "'nonsense': is not name=value", "'=4'", "test_max: is '1e3'", "given twice"})
    EXPECT_NE(what.find(part), std::string::npos) << part << "\n" << what;

  const auto crossed = make_task("copy", {"train_min=30", "test_min=50", "symbols=1"});
  ASSERT_FALSE(crossed);
  for (const char* part : {"30 is more than train_max 20; set train_max=30", "50 is more than test_max 40",
                           "symbols: is 1; use 2 .. 65536"})
    EXPECT_NE(crossed.error().what.find(part), std::string::npos) << part << "\n" << crossed.error().what;

  const auto problems = [](const char* name, const std::vector<std::string>& settings) {
    const auto task = make_task(name, settings);
    return task ? "" : task.error().what;
  };
  const std::vector<std::tuple<const char*, std::vector<std::string>, const char*>> wrong{
      {"mqar", {"train_pairs=17"}, "17 pairs need a length of 68; use at most 16"},
      {"mqar", {"test_length=65"}, "test_length: is 65, which has no half; use 66"},
      {"mqar", {"vocabulary=8"}, "has 3 keys, fewer than 4 pairs in train; use 10"},
      {"mqar", {"mix=true", "vocabulary=500"}, "fewer than 256 pairs in test; use 514"},
      {"reachability", {"train_length=31"}, "train_length: is 31, which has no half; use 32"},
      {"stress", {"test_length=128"}, "128 leaves no swap after 128 writes; use 256"},
      {"stress", {"width=8"}, "128 keys do not spread in 8 dimensions; use at most 64"},
      {"selective-copy", {"train_length=10"}, "10 has no room for 16 symbols; use 16 or more"},
      {"induction", {"test_max=1000"}, "1000 is no power of two; use 1024"},
      {"induction", {"test_min=2048"}, "2048 is more than test_max 1024"},
      {"word-problem", {"group=A5", "elements=swaps"}, "A5 has no such elements"},
      {"word-problem", {"group=Z60", "elements=moved3"}, "Z60 has no such elements"},
      {"word-problem", {"group=S6"}, "use S3, S4, A5, S5 or Z60"},
      {"pcr", {"test_pairs=33"}, "33, which has no half"},
      {"pcr", {"test_pairs=64"}, "64 pairs need as many addresses; there are 32"},
      {"pcr", {"train_min=30"}, "30 is more than train_max 20"},
      {"counted-recall", {"pairs=49"}, "49 pairs need as many keys; there are 48"}};
  for (const auto& [name, settings, part] : wrong)
    EXPECT_NE(problems(name, settings).find(part), std::string::npos) << problems(name, settings);
  const std::string both = problems("pcr", {"test_pairs=65", "train_min=30"});
  EXPECT_EQ(std::ranges::count(both, '\n'), 3) << both;

  for (const char* value : {"", " 5", "5 ", "+5", "-5", "0x10", "5.0", "nan", "65537"})
    EXPECT_FALSE(make_task("parity", {std::string("test_max=") + value})) << value;
}

TEST(Settings, RealsAndSwitchesParse) {
  double power = 0.01;
  bool noise = true;
  const std::vector<Setting> settings{{"power", &power, 0, 1, ""}, {"noise", &noise, 0, 0, ""}};
  EXPECT_TRUE(apply_settings(settings, {"power=0.5", "noise=false"}).empty());
  EXPECT_EQ(power, 0.5);
  EXPECT_FALSE(noise);
  EXPECT_EQ(value_text(settings[0]), "0.5");
  EXPECT_EQ(value_text(settings[1]), "false");
  for (const char* bad : {"power=nan", "power=inf", "power=1.1", "power=-0.1", "power=x", "noise=yes"})
    EXPECT_EQ(apply_settings(settings, {bad}).size(), 1u) << bad;
  EXPECT_EQ(power, 0.5);
}

TEST(Score, CountsPositionsAndWholeSequences) {
  Batch b;
  b.append(std::vector<int32_t>{1, 2, 3}, std::vector<int32_t>{-1, 5, 6});
  b.append(std::vector<int32_t>{1, 2}, std::vector<int32_t>{7, 8});
  b.append(std::vector<int32_t>{1}, std::vector<int32_t>{-1});
  Score s = score(b.view(), std::vector<int32_t>{0, 5, 6, 7, 9, -1});
  EXPECT_EQ(s.positions, 4u);
  EXPECT_EQ(s.right_positions, 3u);
  EXPECT_EQ(s.sequences, 2u);
  EXPECT_EQ(s.right_sequences, 1u);
  EXPECT_DOUBLE_EQ(s.accuracy(), 0.75);
  EXPECT_DOUBLE_EQ(s.exact_match(), 0.5);
  EXPECT_DOUBLE_EQ(s.normalised(0.5), 0.5);
  s += score(b.slice(1, 2), std::vector<int32_t>{7, 8});
  EXPECT_EQ(s.right_sequences, 2u);
  EXPECT_EQ(Score{}.accuracy(), 0);
}

TEST(Score, ArgmaxTakesTheFirstAndNeverNan) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(argmax(std::vector<float>{1, 3, 3}), 1);
  EXPECT_EQ(argmax(std::vector<float>{nan, -inf, nan}), 1);
  EXPECT_EQ(argmax(std::vector<float>{nan, nan}), -1);
  EXPECT_EQ(argmax({}), -1);
}

}  // namespace
}  // namespace braid
