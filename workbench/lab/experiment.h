// An experiment of a paper. Most are training runs whose results stand in a table beside the paper's, with
// curves and with what is expected of them: data that runner.h runs and report.h shows. Those about theorems
// are computations with claims (compute.h).
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/json.h"
#include "train/options.h"

namespace braid {

class Page;
struct PageTable;
class Stages;
struct Findings;

// A few minutes; an hour or two on two cores; the paper's own settings.
enum class Effort { kQuick, kDefault, kPaper };
const char* effort_name(Effort effort);

// One training run. Runs with the same row and column differ in seed and learning rate; the table shows the
// best and the median of them.
struct Trial {
  std::string row, column;  // a model, a task
  std::string variant;      // "lr 0.001 seed 1"
  TrainOptions options;     // its run folder is the runner's
  std::string id() const;   // a file name, unique in its experiment
};

// What a trial's result.json tells. Share: a metric of the task, times 100. Normalised: 0 for chance.
struct Measure {
  enum class Kind { kShare, kNormalised, kLoss } kind = Kind::kShare;
  std::string metric = "accuracy";
  std::string unit = "accuracy, %";
  bool larger_is_better() const { return kind != Kind::kLoss; }
};

struct PaperFigure {
  std::string row, column;
  double best, median = std::numeric_limits<double>::quiet_NaN();
};

// What must come out for the point to be made.
struct Expectation {
  std::string row, column;
  double at_least = -std::numeric_limits<double>::infinity(),
         at_most = std::numeric_limits<double>::infinity();
};

// What the paper says of two rows of a column. The tolerances are those of agreement.h.
struct PaperOrder {
  std::string row;
  enum class Kind { kBetter, kNotWorse, kEqual } kind = Kind::kBetter;
  std::string than, column;
  std::string figures = {};  // the paper's, as far as it has some: "perplexity 26.3 against 27.7"
};

// A statement, what was found, and whether it holds.
struct Claim {
  std::string text, found;
  bool held;
};

// Why a result differs from the paper's, and how far that is known: "measured", "inferred", "not tested".
struct Difference {
  std::string row, column;  // empty: all
  std::string why, status;
};

// One row and column, over its trials.
struct CellResult {
  std::vector<double> values;  // of the trials that are done
  size_t planned = 0;
  double best = std::numeric_limits<double>::quiet_NaN(), median = best;
};

struct TrialResult {
  Trial trial;
  std::optional<Json> result;  // result.json, when it is done
  std::vector<Json> curve;     // the evaluations in metrics.jsonl
  double value = std::numeric_limits<double>::quiet_NaN();
};

// Everything an experiment has given so far.
struct Study {
  Effort effort;
  std::vector<TrialResult> trials;
  std::vector<std::string> rows, columns;  // in the order of the trials
  CellResult cell(const std::string& row, const std::string& column, bool larger_is_better) const;
};

struct Experiment {
  std::string_view name, title, paper;  // paper: title, and "arXiv:NUMBER"
  std::string_view shows;               // one or two sentences: what is trained and what should be seen
  std::string_view place = {};          // in the paper, with its short name: "HQLT, Table 3"
  int quick_seconds = 0;                // of --quick, measured on one Zen 5 core
  Measure measure = {};
  std::function<std::vector<Trial>(Effort effort)> trials = {};
  std::vector<PaperFigure> (*figures)() = nullptr;  // that of the index of all results first
  std::vector<Expectation> (*expected)(Effort effort) = nullptr;
  std::vector<PaperOrder> (*orders)(Effort effort) = nullptr;
  std::vector<Difference> (*differences)(Effort effort) = nullptr;
  std::string_view length_metric = {};                       // prefix of metrics by length, for a chart
  std::vector<PageTable> (*tables)(const Study&) = nullptr;  // beside the table of cells
  void (*more)(const Study& study, Page& page) = nullptr;    // further analysis
  Result<Findings> (*compute)(Stages& stages) =
      nullptr;               // instead of trials, and of all that belongs to them
  bool takes_model = false;  // compute can look at a model folder (--model)
};

int quick_minutes(const Experiment& e);  // at least 1

std::span<const Experiment> all_experiments();
const Experiment* find_experiment(std::string_view name);

}  // namespace braid
