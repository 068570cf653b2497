// Synthetic tasks: seeded, versioned generators of sequences whose answers are known.
//
//   auto task = make_task("parity", {"train_max=60"});
//   if (!task) return task.error();
//   TaskSource source(*std::move(task), {.seed = 1});
//
// A curriculum calls grow(): training samples become up to twice as long, never longer than test samples.
//
//   if (train_accuracy >= 0.99) source.grow();   // "double the length at 99 %"
//
// Sample i then depends on the seed, i and the number of growths: a resumed run grows as often as before. The
// test split, the vocabulary and the longest length of both splits stay as they are.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "tasks/score.h"
#include "tasks/settings.h"
#include "tensor/tensor.h"

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
  virtual void prepare() {}                           // tables, once the settings are right
  virtual bool grow() { return false; }               // false: already as long as test samples

  virtual size_t vocab_size() const = 0;
  virtual size_t answers() const { return vocab_size(); }  // every target is below this
  virtual size_t max_length(Split split) const = 0;        // tokens of the longest sample
  virtual size_t min_length(Split split) const { return max_length(split); }
  // Share of right answers, on the test split, of the best guess that sees positions but no tokens.
  virtual double chance() const = 0;
  virtual Sample sample(Rng& rng, Split split) const = 0;

  // For inputs that are vectors rather than symbols: row i stands for token i, [vocab_size, any width]. A
  // model that takes part has these rows, padded with zeros to d_model, as its embedding and does not train
  // them. Nothing: embeddings are learned.
  virtual std::optional<Tensor> fixed_embedding() const { return std::nullopt; }

  // What to count, at zero: "accuracy" (supervised positions), "sequences" (all answers right), then what the
  // task adds; by number of tokens where that varies. measure() adds one sequence to all that it concerns.
  virtual std::vector<Metric> metrics() const;
  virtual void measure(const Answered& sequence, std::span<Metric> metrics) const;
  virtual std::string headline() const { return "accuracy"; }  // the metric that the paper reports

  virtual std::string token_text(int32_t token) const = 0;
  // One line for people: the sequence up to its first answer, then the answers. "1 0 1 -> 0"
  virtual std::string show(const Sample& sample) const;

 protected:
  // "a:b c d:e _x9": tokens, each with its answer if it has one; many equal ones without are counted.
  std::string show_in_place(const Sample& sample) const;
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

// All metrics of the task over a batch. Those of several batches are added up by add().
std::vector<Metric> measure(const Task& task, const BatchView& batch, std::span<const int32_t> predicted);
void add(std::vector<Metric>& total, std::span<const Metric> more);

inline constexpr int64_t kLongest = 65536;

// Lengths of tasks that generalise from short to long. Each sample draws its own, uniformly, both ends
// included.
struct Lengths {
  int64_t train_min, train_max, test_min, test_max;

  std::vector<Setting> settings(int64_t least, int64_t most = kLongest);
  std::vector<Problem> validate() const;
  bool grow();  // train_max doubles; train_min follows if it was the same
  int64_t shortest(Split split) const { return split == Split::kTrain ? train_min : test_min; }
  int64_t longest(Split split) const { return split == Split::kTrain ? train_max : test_max; }
  int64_t draw(Rng& rng, Split split) const { return rng.between(shortest(split), longest(split)); }
};

// One length per split.
struct FixedLengths {
  int64_t train_length, test_length;

  std::vector<Setting> settings(int64_t least, int64_t most = kLongest);
  bool grow();
  int64_t of(Split split) const { return split == Split::kTrain ? train_length : test_length; }
  int64_t longest() const { return std::max(train_length, test_length); }
};

}  // namespace braid
