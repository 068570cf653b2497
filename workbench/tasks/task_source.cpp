#include "tasks/task_source.h"

#include <fmt/format.h>

#include "io/hash.h"

namespace braid {

TaskSource::TaskSource(std::unique_ptr<Task> task, const TaskSourceOptions& options)
    : task_(std::move(task)), options_(options) {
  check(task_ && task_->entry, "TaskSource needs a task from make_task");
  description_ = fmt::format("{} v{}:", task_->entry->name, task_->entry->version);
  for (const Setting& s : task_->settings()) description_ += fmt::format(" {}={}", s.name, value_text(s));
  fingerprint_ = Hash().text(description_).number(options_.seed).number(options_.validation_size).hex();
}

Sample TaskSource::train_sample(uint64_t i) const {
  Rng rng(options_.seed, "task train");
  rng.seek(i);
  return task_->sample(rng, Split::kTrain);
}

Sample TaskSource::validation_sample(size_t i) const {
  Rng rng(options_.seed, "task validation");
  rng.seek(i);
  return task_->sample(rng, Split::kTest);
}

void TaskSource::measure(const Batch& batch, std::span<const int32_t> predicted,
                         std::span<Metric> metrics) const {
  const BatchView view = batch.view();
  for (size_t i = 0; i < view.sequences(); ++i) task_->measure(answered(view, predicted, i), metrics);
}

void TaskSource::append_train(Batch& out, uint64_t i) const {
  const Sample s = train_sample(i);
  out.append(s.tokens, s.targets);
}

void TaskSource::append_validation(Batch& out, size_t i) const {
  const Sample s = validation_sample(i);
  out.append(s.tokens, s.targets);
}

}  // namespace braid
