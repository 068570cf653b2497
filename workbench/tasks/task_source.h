// A task as a data source: an endless training stream and a fixed set of validation samples.
#pragma once

#include <memory>

#include "data/source.h"
#include "tasks/task.h"

namespace braid {

struct TaskSourceOptions {
  uint64_t seed = 0;
  size_t validation_size = 1024;
};

class TaskSource final : public Source {
 public:
  TaskSource(std::unique_ptr<Task> task, const TaskSourceOptions& options);

  const Task& task() const { return *task_; }
  Sample train_sample(uint64_t i) const;
  Sample validation_sample(size_t i) const;

  std::vector<Metric> metrics() const override { return task_->metrics(); }
  void measure(const Batch& batch, std::span<const int32_t> predicted,
               std::span<Metric> metrics) const override;
  std::string headline() const override { return task_->headline(); }
  bool grow() override { return task_->grow() && ++growths_; }  // not while others read
  size_t growths() const override { return growths_; }

  size_t validation_size() const override { return options_.validation_size; }
  size_t vocab_size() const override { return task_->vocab_size(); }
  size_t answers() const override { return task_->answers(); }
  std::optional<Tensor> fixed_embedding() const override { return task_->fixed_embedding(); }
  size_t max_length() const override {
    return std::max(task_->max_length(Split::kTrain), task_->max_length(Split::kTest));
  }
  // Both tell the settings at the start: growths are a run's position, not another source.
  std::string fingerprint() const override { return fingerprint_; }
  std::string describe() const override { return description_; }

 protected:
  void append_train(Batch& out, uint64_t i) const override;
  void append_validation(Batch& out, size_t i) const override;

 private:
  std::unique_ptr<Task> task_;
  TaskSourceOptions options_;
  size_t growths_ = 0;
  std::string description_, fingerprint_;
};

}  // namespace braid
