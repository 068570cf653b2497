#include "lab/runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/interrupt.h"
#include "io/file.h"
#include "io/json.h"
#include "lab/report.h"
#include "report/run_page.h"
#include "tasks/make_source.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

std::string trial_dir(const Experiment& e, const LabOptions& o, const Trial& t) {
  return study_dir(e, o) + "/trials/" + t.id();
}

// The value that the table shows, from result.json or a line of metrics.jsonl.
double value_of(const Measure& m, const Json& json) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  if (m.kind == Measure::Kind::kLoss) {
    const auto loss = json.find("eval_loss");
    return loss != json.end() && loss->is_number() ? loss->get<double>() : kNone;
  }
  const auto metrics = json.find("metrics");
  if (metrics == json.end() || !metrics->contains(m.metric)) return kNone;
  const Json& metric = (*metrics)[m.metric];
  const double value = metric.value("value", kNone), chance = metric.value("chance", 0.0);
  return 100 * (m.kind == Measure::Kind::kNormalised ? (value - chance) / (1 - chance) : value);
}

// The work of a trial, in arbitrary units, to guess how long the rest takes.
double weight(const TrainOptions& o) { return static_cast<double>(o.steps * o.batch * o.accumulate); }

// A folder may go on only with the settings it was started with.
Status check_same(const std::string& dir, const TrainOptions& o) {
  const Result<Json> record = load_json(dir + "/run.json");
  if (!record) return record.error();
  // An option that a folder does not know yet is as it was then: at its default.
  Json now = options_json(o), then = options_json({});
  if (const auto options = record->find("options"); options != record->end() && options->is_object())
    then.update(*options);
  for (const char* name : {"run", "resume", "threads"}) now.erase(name), then.erase(name);
  if (nlohmann::json(now) == nlohmann::json(then)) return {};  // in whatever order they stand
  return Error{dir + ": was started with other settings",
               "delete this folder, or choose another --dir, to run it with the present ones"};
}

TrialResult load_trial(const Experiment& e, const LabOptions& o, const Trial& t) {
  TrialResult out{.trial = t, .result = std::nullopt, .curve = {}};
  const std::string dir = trial_dir(e, o, t);
  if (fs::exists(dir + "/result.json"))
    if (Result<Json> json = load_json(dir + "/result.json"); json && json->is_object()) out.result = *json;
  for (Json& line : metric_lines(dir)) {
    if (!line.contains("eval_loss")) continue;
    line["value"] = value_of(e.measure, line);
    out.curve.push_back(std::move(line));
  }
  if (out.result) out.value = value_of(e.measure, *out.result);
  return out;
}

std::vector<Trial> chosen_trials(const Experiment& e, const LabOptions& o) {
  std::vector<Trial> trials = e.trials(o.effort);
  const auto matches = [&](std::string Trial::*name, const std::string& text) {
    const bool whole = std::ranges::find(trials, text, name) != trials.end();
    return
        [=](const Trial& t) { return whole ? t.*name == text : (t.*name).find(text) != std::string::npos; };
  };
  const auto row = matches(&Trial::row, o.only), column = matches(&Trial::column, o.column);
  std::erase_if(trials, [&](const Trial& t) {
    return !row(t) || !column(t) || (o.seeds > 0 && t.options.seed >= o.seeds) ||
           (o.lr > 0 && std::fabs(t.options.lr - o.lr) > 1e-9 * o.lr);
  });
  for (Trial& t : trials) {
    if (!o.text.empty() && !t.options.text.empty()) t.options.text = o.text;
    if (!o.precision.empty()) t.options.precision = o.precision;
  }
  return trials;
}

// Of what was asked for, and what there would be.
Error nothing_chosen(const Experiment& e, const LabOptions& o) {
  std::vector<std::string> asked, there;
  const auto filter = [&](bool given, const std::string& what, const char* option, const auto& name) {
    if (!given) return;
    asked.push_back(what);
    std::vector<std::string> names;
    for (const Trial& t : e.trials(o.effort))
      if (std::ranges::find(names, name(t)) == names.end()) names.push_back(name(t));
    there.push_back(fmt::format("{}: {}", option, fmt::join(names, "; ")));
  };
  filter(!o.only.empty(), fmt::format("a row with '{}'", o.only), "--only",
         [](const Trial& t) { return t.row; });
  filter(!o.column.empty(), fmt::format("a column with '{}'", o.column), "--column",
         [](const Trial& t) { return t.column; });
  filter(o.lr > 0, fmt::format("a learning rate of {:g}", o.lr), "--lr",
         [](const Trial& t) { return fmt::format("{:g}", t.options.lr); });
  return {fmt::format("{}: no training run has {}", e.name, fmt::join(asked, " and ")),
          fmt::format("there are, for {}", fmt::join(there, ", for "))};
}

Status write_report(const Experiment& e, const LabOptions& o, const Study& study, const Program& program) {
  const std::string dir = study_dir(e, o);
  if (Status s = save_json(dir + "/result.json", study_json(e, study)); !s) return s;
  return report_page(e, study, program).save(dir + "/report.html");
}

}  // namespace

std::string study_dir(const Experiment& e, const LabOptions& o) {
  return fmt::format("{}/{}-{}", o.dir, e.name, effort_name(o.effort));
}

Result<Study> load_study(const Experiment& e, const LabOptions& o) {
  Study study{.effort = o.effort, .trials = {}, .rows = {}, .columns = {}};
  const auto once = [](std::vector<std::string>& all, const std::string& name) {
    if (std::ranges::find(all, name) == all.end()) all.push_back(name);
  };
  for (const Trial& t : chosen_trials(e, o)) {
    study.trials.push_back(load_trial(e, o, t));
    once(study.rows, t.row), once(study.columns, t.column);
  }
  if (study.trials.empty()) return nothing_chosen(e, o);
  return study;
}

Result<LabOutcome> run_experiment(const Experiment& e, const LabOptions& o, const Program& program,
                                  ThreadPool& pool) {
  Result<Study> study = load_study(e, o);
  if (!study) return study.error();
  if (Status s = make_dirs(study_dir(e, o)); !s) return s.error();
  double left = 0, done = 0, seconds = 0;
  for (const TrialResult& t : study->trials)
    if (!t.result) left += weight(t.trial.options);
  std::vector<size_t> order(study->trials.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return study->trials[i].trial.options.seed; });
  for (size_t n = 0; n < order.size(); ++n) {
    const size_t i = order[n];
    if (study->trials[i].result) continue;
    const Trial trial = study->trials[i].trial;
    if (!o.quiet)
      fmt::print(stderr, "[{} of {}] {}, {}, {}{}\n", n + 1, order.size(), trial.row, trial.column,
                 trial.variant,
                 done > 0 ? fmt::format("; about {} left in all", human_time(seconds / done * left)) : "");
    TrainOptions t = trial.options;
    t.run = trial_dir(e, o, trial);
    t.resume = fs::exists(t.run + "/run.json");
    if (t.resume)
      if (Status s = check_same(t.run, trial.options); !s) return s.error();
    if (Status s = validate(t); !s) return s.error();
    Result<std::unique_ptr<Source>> source = make_source(t);
    if (!source) return source.error();
    const Result<TrainSummary> r =
        run_training(t, **source, program, pool, {.quiet = o.quiet, .on_start = {}, .on_metrics = {}});
    // A run whose loss is not finite has a result, too, and the others go on.
    if (!r && !fs::exists(t.run + "/result.json"))
      return Error{fmt::format("{}: {}", trial.id(), r.error().what), r.error().fix};
    if (!r && !o.quiet) fmt::print(stderr, "{}: {}\n", trial.id(), r.error().what);
    if (r && r->interrupted()) {
      if (Status s = write_report(e, o, *study, program); !s) return s.error();
      return LabOutcome{std::move(*study), true};
    }
    // The result and the model stay; what only a resumed run needs does not.
    if (Status s = remove_tree(t.run + "/state"); !s) return s.error();
    done += weight(trial.options), left -= weight(trial.options), seconds += r ? r->seconds : 0;
    study->trials[i] = load_trial(e, o, trial);
    if (Status s = write_report(e, o, *study, program); !s) return s.error();
  }
  if (Status s = write_report(e, o, *study, program); !s) return s.error();
  return LabOutcome{std::move(*study), false};
}

}  // namespace braid
