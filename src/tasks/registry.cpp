#include <array>

#include <fmt/format.h>

#include "base/nearest.h"
#include "data/batch.h"
#include "tasks/makers.h"

namespace braid {
namespace {

constexpr std::array kTasks{
    TaskEntry{"parity", 1, "whether the number of ones is odd; a length counts the bits and the answer",
              "arXiv:2411.12537", &make_parity},
    TaskEntry{"copy", 1, "a random string repeated after a separator; a length counts its symbols",
              "arXiv:2402.01032", &make_copy},
};

}  // namespace

std::span<const TaskEntry> all_tasks() { return kTasks; }

Result<std::unique_ptr<Task>> make_task(std::string_view name, const std::vector<std::string>& assignments) {
  std::vector<std::string> names;
  for (const TaskEntry& entry : kTasks) {
    names.emplace_back(entry.name);
    if (entry.name != name) continue;
    std::unique_ptr<Task> task = entry.make();
    task->entry = &entry;
    std::vector<Problem> problems = apply_settings(task->settings(), assignments);
    for (Problem& p : task->validate()) problems.push_back(std::move(p));
    if (!problems.empty()) return to_error(fmt::format("task {}: wrong settings", name), problems);
    return task;
  }
  return Error{fmt::format("there is no task '{}'", name), suggest(name, names)};
}

std::string Task::show(const Sample& sample) const {
  std::string question, answer;
  for (size_t i = 0; i < sample.tokens.size(); ++i) {
    if (answer.empty()) question += token_text(sample.tokens[i]) + " ";
    if (sample.targets[i] != kUnsupervised) answer += " " + token_text(sample.targets[i]);
  }
  return question + "->" + answer;
}

std::vector<Setting> Lengths::settings(int64_t least) {
  const auto low = static_cast<double>(least), high = 65536.0;
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

}  // namespace braid
