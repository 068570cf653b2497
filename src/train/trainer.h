// The training loop: batches, gradient, clipping, AdamW, evaluation, metrics, checkpoints; stops and resumes
// without a trace.
//
//   Trainer trainer(model, source, pool, options);
//   Result<TrainSummary> r = trainer.run(metrics_sink);
#pragma once

#include <functional>
#include <string>

#include "base/error.h"
#include "base/progress.h"
#include "data/source.h"
#include "train/checkpoint.h"
#include "train/gradient.h"
#include "train/options.h"

namespace braid {

struct TrainSummary {
  Progression progression;
  Outcome evaluation;        // on the held-out data at the end
  bool interrupted = false;  // saved early because the user asked
  double seconds = 0;
};

class Trainer {
 public:
  Trainer(Model& model, const Source& source, ThreadPool& pool, const TrainOptions& options);

  // Starts over or, if `resume`, from the newest checkpoint of options.run. That folder gets config, metrics,
  // checkpoints and the newest model, so Model::load() reads it; with an empty name nothing is written.
  Result<TrainSummary> run(bool resume, bool quiet);

  using OnMetrics = std::function<void(const Json&)>;
  void on_metrics(OnMetrics f) { on_metrics_ = std::move(f); }

 private:
  Outcome evaluate();
  Status log(const Json& line);
  Status trim_metrics(uint64_t last_step);  // drops lines a killed run wrote after its last checkpoint
  Status save();

  Model& model_;
  const Source& source_;
  ThreadPool& pool_;
  TrainOptions options_;
  Gradient gradient_;
  AdamW optimizer_;
  Schedule schedule_;
  Progression p_;
  OnMetrics on_metrics_;
};

}  // namespace braid
