#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "tasks/score.h"
#include "tasks/task_source.h"

namespace braid {
namespace {

TaskSource source_of(const char* name, const std::vector<std::string>& settings = {},
                     TaskSourceOptions options = {}) {
  return TaskSource(*make_task(name, settings), options);
}

// Answers of every task, found in another way than its generator's: from the tokens alone.
std::string wrong_parity(const Sample& s) {
  bool odd = false;
  for (size_t i = 0; i < s.tokens.size(); ++i) {
    if (s.tokens[i] != 1 && s.tokens[i] != 2) return "token outside the bits";
    odd ^= s.tokens[i] == 2;
    const bool last = i + 1 == s.tokens.size();
    if (s.targets[i] != (last ? (odd ? 2 : 1) : -1)) return "target " + std::to_string(i);
  }
  return "";
}

std::string wrong_copy(const Sample& s) {
  size_t separator = 0;
  while (separator < s.tokens.size() && s.tokens[separator] != 1) ++separator;
  if (s.tokens.size() != 2 * separator) return "length";
  for (size_t i = 0; i < s.tokens.size(); ++i) {
    if (s.tokens[i] < (i == separator ? 1 : 2) || s.tokens[i] > 17) return "token outside the symbols";
    // position i answers with the symbol that stood `separator` positions before
    if (s.targets[i] != (i < separator ? -1 : s.tokens[i - separator])) return "target " + std::to_string(i);
    if (i > separator && s.tokens[i] != s.tokens[i - separator - 1]) return "not teacher-forced";
  }
  return "";
}

struct Expect {
  const char* name;
  std::string (*wrong)(const Sample&);
  size_t train_min, train_max, test_min, test_max;  // in tokens
  size_t vocab;
  double chance;
};
const Expect kExpect[] = {{"parity", wrong_parity, 2, 39, 39, 255, 3, 0.5},
                          {"copy", wrong_copy, 2, 40, 2, 80, 18, 1.0 / 16}};

TEST(Tasks, EveryTaskIsExpectedHere) { EXPECT_EQ(std::size(kExpect), all_tasks().size()); }

TEST(Tasks, AnswersAreRight) {
  for (const Expect& e : kExpect) {
    const TaskSource source = source_of(e.name);
    for (size_t i = 0; i < 1000; ++i) {
      const Sample train = source.train_sample(i), test = source.validation_sample(i);
      ASSERT_EQ(e.wrong(train), "") << e.name << " " << source.task().show(train);
      ASSERT_EQ(e.wrong(test), "") << e.name << " " << source.task().show(test);
      Sample mutant = test;
      mutant.targets.back() = mutant.targets.back() % 2 + 1;
      ASSERT_NE(e.wrong(mutant), "");
    }
    EXPECT_EQ(source.vocab_size(), e.vocab);
    EXPECT_EQ(source.task().chance(), e.chance);
  }
}

TEST(Tasks, LengthsAreUniformAndBothEndsOccur) {
  for (const Expect& e : kExpect) {
    const TaskSource source = source_of(e.name);
    std::map<size_t, int> train, test;
    const int n = 40000;
    for (int i = 0; i < n; ++i) {
      ++train[source.train_sample(static_cast<uint64_t>(i)).tokens.size()];
      ++test[source.validation_sample(static_cast<size_t>(i)).tokens.size()];
    }
    EXPECT_EQ(train.begin()->first, e.train_min);
    EXPECT_EQ(train.rbegin()->first, e.train_max);
    EXPECT_EQ(test.begin()->first, e.test_min);
    EXPECT_EQ(test.rbegin()->first, e.test_max);
    EXPECT_EQ(source.max_length(), e.test_max);
    for (const auto& lengths : {train, test}) {
      const double mean = static_cast<double>(n) / static_cast<double>(lengths.size());
      for (const auto& [length, count] : lengths) EXPECT_NEAR(count, mean, 6 * std::sqrt(mean)) << e.name;
    }
  }
}

TEST(Tasks, ParityIsBalanced) {
  const TaskSource source = source_of("parity");
  int odd = 0;
  for (uint64_t i = 0; i < 10000; ++i) odd += source.train_sample(i).targets.back() == 2;
  EXPECT_NEAR(odd, 5000, 250);
}

TEST(Tasks, ASampleDependsOnlyOnSeedAndIndex) {
  for (const Expect& e : kExpect) {
    const TaskSource a = source_of(e.name), again = source_of(e.name),
                     other = source_of(e.name, {}, {.seed = 1});
    const Batch whole = a.batch(70, 30);
    ASSERT_EQ(whole.sequences(), 30u);
    for (size_t i = 0; i < 30; ++i) {
      const Sample s = a.train_sample(70 + i);
      EXPECT_EQ(std::vector<int32_t>(s.tokens), again.batch(70 + i, 1).tokens);
      EXPECT_TRUE(std::ranges::equal(whole.view().tokens_of(i), s.tokens));
      EXPECT_TRUE(std::ranges::equal(whole.view().targets_of(i), s.targets));
    }
    EXPECT_NE(whole.tokens, other.batch(70, 30).tokens);
    EXPECT_NE(a.validation(0, 30).tokens, other.validation(0, 30).tokens);
  }
}

TEST(Tasks, TrainingAndValidationNeverShareASample) {  // long samples: equal ones would be no accident
  const std::vector<std::string> same{"train_min=100", "train_max=120", "test_min=100", "test_max=120"};
  for (const Expect& e : kExpect) {
    const TaskSource source = source_of(e.name, same);
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
}

TEST(Tasks, SmallestSettingsWork) {
  const TaskSource parity = source_of("parity", {"train_min=2", "train_max=2", "test_min=2", "test_max=2"});
  EXPECT_EQ(parity.train_sample(0).tokens.size(), 1u);
  EXPECT_EQ(parity.train_sample(0).targets, parity.train_sample(0).tokens);  // one bit is its own parity
  const TaskSource copy = source_of("copy", {"train_max=1", "test_max=1", "symbols=2"});
  EXPECT_EQ(copy.train_sample(0).tokens.size(), 2u);
}

TEST(Tasks, AnUnknownTaskGetsASuggestion) {
  const auto near = make_task("partiy"), far = make_task("chess");
  ASSERT_FALSE(near);
  EXPECT_NE(near.error().fix.find("'parity'"), std::string::npos);
  ASSERT_FALSE(far);
  EXPECT_NE(far.error().fix.find("known: parity, copy"), std::string::npos);
}

TEST(Tasks, HostileSettingsListEveryProblem) {
  const auto bad = make_task("parity", {"train_min=1", "train_max=abc", "test_min=9999999999999999999999",
                                        "tset_max=3", "nonsense", "=4", "test_max=1e3", "test_max=70"});
  ASSERT_FALSE(bad);
  const std::string& what = bad.error().what;
  EXPECT_EQ(std::ranges::count(what, '\n'), 8) << what;
  for (const char* part : {"train_min: is 1; use 2 .. 65536", "train_max: is 'abc', not a whole number",
                           "test_min: is '9999999999999999999999'", "did you mean 'test_max'?",
                           "'nonsense': is not name=value", "'=4'", "test_max: is '1e3'", "given twice"})
    EXPECT_NE(what.find(part), std::string::npos) << part << "\n" << what;

  const auto crossed = make_task("copy", {"train_min=30", "test_min=50", "symbols=1"});
  ASSERT_FALSE(crossed);
  for (const char* part : {"30 is more than train_max 20; set train_max=30", "50 is more than test_max 40",
                           "symbols: is 1; use 2 .. 65536"})
    EXPECT_NE(crossed.error().what.find(part), std::string::npos) << part << "\n" << crossed.error().what;

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
