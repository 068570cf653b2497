// Synthetic tasks: seeded, versioned generators of sequences whose answers are known.
//
//   auto task = make_task("parity", {"train_max=60"});
//   if (!task) return task.error();
//   TaskSource source(*std::move(task), {.seed = 1});
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "tasks/settings.h"

namespace braid {

enum class Split { kTrain, kTest };

struct Sample {
  std::vector<int32_t> tokens, targets;  // as in Batch: one target per token, kUnsupervised where none
};

struct TaskEntry;

class Task {
 public:
  virtual ~Task() = default;

  const TaskEntry* entry = nullptr;  // its line in the table, set by make_task

  virtual std::vector<Setting> settings() = 0;        // they point into this task
  virtual std::vector<Problem> validate() const = 0;  // what the ranges of single settings cannot say
  virtual size_t vocab_size() const = 0;
  virtual size_t max_length(Split split) const = 0;  // tokens of the longest sample
  virtual double chance() const = 0;                 // accuracy of the best blind guess
  virtual Sample sample(Rng& rng, Split split) const = 0;
  virtual std::string token_text(int32_t token) const = 0;

  // One line for people: the sequence up to its first answer, then the answers. "1 0 1 -> 0"
  virtual std::string show(const Sample& sample) const;
};

struct TaskEntry {
  std::string_view name;
  int version;                   // goes up whenever the same seed would give other samples
  std::string_view description;  // what is to be learned and what a length counts
  std::string_view paper;
  std::unique_ptr<Task> (*make)();
};

std::span<const TaskEntry> all_tasks();
Result<std::unique_ptr<Task>> make_task(std::string_view name,
                                        const std::vector<std::string>& assignments = {});

// The lengths that most tasks have. Each sample draws its own, uniformly, both ends included.
struct Lengths {
  int64_t train_min, train_max, test_min, test_max;

  std::vector<Setting> settings(int64_t least);
  std::vector<Problem> validate() const;
  int64_t longest(Split split) const { return split == Split::kTrain ? train_max : test_max; }
  int64_t draw(Rng& rng, Split split) const {
    return rng.between(split == Split::kTrain ? train_min : test_min, longest(split));
  }
};

}  // namespace braid
