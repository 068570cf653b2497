// The training loop: batches, gradient, clipping, optimiser, evaluation, metrics, checkpoints; stops and
// resumes without a trace.
//
//   const std::unique_ptr<Model> model = Model::create(*config);
//   model->init(/*seed=*/0);
//   ThreadPool pool(cpu_count());
//   Trainer trainer(*model, **text, pool, options);
//   const Result<TrainSummary> done = trainer.run({.quiet = true});
//
// These lines are of examples/train.cpp.
#pragma once

#include <functional>
#include <future>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/progress.h"
#include "data/source.h"
#include "train/checkpoint.h"
#include "train/gradient.h"
#include "train/options.h"
#include "train/run_folder.h"

namespace braid {

// On the held-out data.
struct Evaluation {
  Outcome outcome;
  std::vector<Metric> metrics;  // the source's
  // Mean loss of supervised positions 1, 2, 3-4, 5-8, .. of their sequences, and how many there are.
  std::vector<std::pair<double, size_t>> by_position = {};
  uint64_t text_bytes = 0;  // that the targets stand for; 0: no text
  // The source's held-out sets, if it names any.
  struct Part {
    std::string name;
    double loss = 0;
    size_t supervised = 0;
    uint64_t text_bytes = 0;
  };
  std::vector<Part> parts = {};
};
// The metric that tells how good it is, or minus the loss: larger is better.
double headline_score(const Source& source, const Evaluation& e);
Evaluation evaluate(const Source& source, Gradient& gradient);  // all of the held-out data

enum class Stop { kSteps, kTarget, kPlateau, kMinutes, kInterrupted, kNotFinite };
const char* stop_text(Stop stop);  // "all steps done", "target reached", ..

struct TrainSummary {
  uint64_t first_step = 0;  // where this call began: a resumed run goes on
  Progression progression;
  Evaluation evaluation;  // at the end
  Stop stop = Stop::kSteps;
  double seconds = 0;                                              // of this call
  bool interrupted() const { return stop == Stop::kInterrupted; }  // saved early because the user asked
};

struct RunMode {
  bool resume = false;  // from the newest whole checkpoint of options.run; else the run starts over
  bool quiet = false;   // no progress bar
};

class Trainer {
 public:
  Trainer(Model& model, Source& source, ThreadPool& pool, const TrainOptions& options);

  // The folder options.run gets config, metrics, checkpoints and the newest model, so Model::load() reads it,
  // and at the end result.json; with an empty name nothing is written. It must be empty or Braid's; starting
  // over removes the run that is in it.
  Result<TrainSummary> run(const RunMode& how = {});
  // The folder of options.run, if the caller has taken it already: for start() or resume() as the run will
  // be.
  void use(RunFolder folder) { folder_ = std::move(folder); }

  using OnMetrics = std::function<void(const std::string& line)>;  // of metrics.jsonl: a JSON object
  void on_metrics(OnMetrics f) { on_metrics_ = std::move(f); }
  // After each evaluation; what it returns, if anything, is printed.
  using OnEvaluation = std::function<std::string(const Model& model, uint64_t step)>;
  void on_evaluation(OnEvaluation f) { on_evaluation_ = std::move(f); }
  using OnNote = std::function<void(const std::string&)>;
  void on_note(OnNote f) {
    on_note_ = std::move(f);
  }  // of damaged checkpoints that were left for an older one

 private:
  Status open_folder(bool resume);
  Status restore();
  Batch next_batch(size_t sequences);
  Status step(Progress& bar);  // one update, or none if it would not be finite
  Status evaluate_and_log(Progress& bar);
  void look_at_curriculum(const Outcome& o, Progress& bar);
  Status log(const std::string& line);
  double gflops(const Outcome& o, double seconds) const;
  Status trim_metrics(uint64_t last_step);  // drops lines a killed run wrote after its last checkpoint
  Status save();
  Status write_result(Stop stop);  // of last_

  Model& model_;
  Source& source_;
  ThreadPool& pool_;
  TrainOptions options_;
  Gradient gradient_;
  Optimizer optimizer_;
  Schedule schedule_;
  Progression p_;
  Evaluation last_;
  OnMetrics on_metrics_;
  OnEvaluation on_evaluation_;
  OnNote on_note_;
  std::optional<RunFolder> folder_;
  std::future<Batch> ahead_;  // the batch of the next step
  double peak_ = 0;           // Gflop/s of multiply-adds of all threads, measured when a run begins
};

}  // namespace braid
