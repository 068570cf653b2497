// A grid of training options as an experiment: a row for each combination, a run for each seed. It is run,
// resumed and reported as the papers' experiments are (runner.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lab/experiment.h"

namespace braid {

struct SweepOptions {
  TrainOptions base;              // of all runs
  std::vector<std::string> grid;  // "lr=1e-3,2e-3": an option of `braid train` and its values
  int64_t seeds = 1;              // from base.seed on
  std::string name = "sweep";
};

class Sweep {
 public:
  static Result<std::unique_ptr<Sweep>> make(const SweepOptions& options);
  Sweep(const Sweep&) = delete;
  const Experiment& experiment() const { return experiment_; }
  size_t runs() const { return trials_.size(); }

 private:
  Sweep() = default;
  std::string name_, title_, shows_;
  std::vector<Trial> trials_;
  Experiment experiment_;
};

}  // namespace braid
