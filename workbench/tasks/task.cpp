#include "tasks/task.h"

#include <fmt/format.h>

namespace braid {
namespace {

constexpr size_t kCommonMetrics = 2;

bool grow_length(int64_t& length, int64_t limit) {
  if (length >= limit) return false;
  length = std::min(2 * length, limit);
  return true;
}

}  // namespace

std::vector<Metric> Task::metrics() const {
  const double guess = chance();
  std::vector<Metric> all{{"accuracy", guess}, {"sequences"}};
  if (min_length(Split::kTest) == max_length(Split::kTest)) return all;
  const size_t longest = std::max(max_length(Split::kTrain), max_length(Split::kTest));
  for (size_t i = 0; i <= doubling(longest); ++i)
    all.push_back({"accuracy, " + doubling_text(i) + " tokens", guess});
  return all;
}

void Task::measure(const Answered& a, std::span<Metric> m) const {
  const Score s = score(a);
  m[0].right += s.right_positions, m[0].total += s.positions;
  m[1].right += s.right_sequences, m[1].total += s.sequences;
  if (min_length(Split::kTest) == max_length(Split::kTest)) return;
  Metric& by_length = m[kCommonMetrics + doubling(a.tokens.size())];
  by_length.right += s.right_positions, by_length.total += s.positions;
}

std::string Task::show(const Sample& sample) const {
  std::string question, answer;
  for (size_t i = 0; i < sample.tokens.size(); ++i) {
    if (answer.empty()) question += token_text(sample.tokens[i]) + " ";
    if (sample.targets[i] != kUnsupervised) answer += " " + token_text(sample.targets[i]);
  }
  return question + "->" + answer;
}

std::string Task::show_in_place(const Sample& sample) const {
  constexpr size_t kLongRun = 4;
  std::string text;
  for (size_t i = 0, run; i < sample.tokens.size(); i += run) {
    const auto same = [&](size_t j) {  // as token i, and nothing asked at either
      return j < sample.tokens.size() && sample.tokens[j] == sample.tokens[i] &&
             sample.targets[i] == kUnsupervised && sample.targets[j] == kUnsupervised;
    };
    for (run = 1; same(i + run);) ++run;
    if (run < kLongRun) run = 1;
    text += (i ? " " : "") + token_text(sample.tokens[i]);
    if (run > 1) text += fmt::format("x{}", run);
    if (sample.targets[i] != kUnsupervised) text += ":" + token_text(sample.targets[i]);
  }
  return text;
}

std::vector<Metric> measure(const Task& task, const BatchView& batch, std::span<const int32_t> predicted) {
  std::vector<Metric> all = task.metrics();
  for (size_t i = 0; i < batch.sequences(); ++i) task.measure(answered(batch, predicted, i), all);
  return all;
}

void add(std::vector<Metric>& total, std::span<const Metric> more) {
  check(total.size() == more.size(), "only metrics of the same task can be added");
  for (size_t i = 0; i < more.size(); ++i) total[i].right += more[i].right, total[i].total += more[i].total;
}

std::vector<Setting> Lengths::settings(int64_t least, int64_t most) {
  const auto low = static_cast<double>(least), high = static_cast<double>(most);
  return {{"train_min", &train_min, low, high, "shortest training length"},
          {"train_max", &train_max, low, high, "longest training length"},
          {"test_min", &test_min, low, high, "shortest test length"},
          {"test_max", &test_max, low, high, "longest test length"}};
}

std::vector<Problem> Lengths::validate() const {
  std::vector<Problem> problems;
  const auto ordered = [&](std::string split, int64_t low, int64_t high) {
    if (low > high)
      problems.push_back({split + "_min", fmt::format("{} is more than {}_max {}", low, split, high),
                          fmt::format("set {}_max={}", split, low)});
  };
  ordered("train", train_min, train_max);
  ordered("test", test_min, test_max);
  return problems;
}

bool Lengths::grow() {
  const bool same = train_min == train_max;
  if (!grow_length(train_max, test_max)) return false;
  if (same) train_min = train_max;
  return true;
}

std::vector<Setting> FixedLengths::settings(int64_t least, int64_t most) {
  const auto low = static_cast<double>(least), high = static_cast<double>(most);
  return {{"train_length", &train_length, low, high, "training length"},
          {"test_length", &test_length, low, high, "test length"}};
}

bool FixedLengths::grow() { return grow_length(train_length, test_length); }

}  // namespace braid
