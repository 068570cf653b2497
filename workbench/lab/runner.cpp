#include "lab/runner.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include "base/interrupt.h"
#include "io/file.h"
#include "io/folder.h"
#include "io/strict_json.h"
#include "lab/report.h"
#include "report/run_page.h"
#include "tasks/make_source.h"
#include "train/run_folder.h"
#include "train/run_record.h"

namespace braid {
namespace {

std::string trial_dir(const Experiment& e, const LabOptions& o, const Trial& t) {
  return study_dir(e, o) + "/trials/" + t.id();
}

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

double number_in(const Json& object, const char* name, double otherwise) {
  if (!object.is_object()) return otherwise;
  const auto at = object.find(name);
  return at != object.end() && at->is_number() ? at->get<double>() : otherwise;
}

// The value that the table shows, from result.json or a line of metrics.jsonl.
double value_of(const Measure& m, const Json& json) {
  if (m.kind == Measure::Kind::kLoss) return number_in(json, "eval_loss", kNone);
  const auto metrics = json.find("metrics");
  if (metrics == json.end() || !metrics->is_object() || !metrics->contains(m.metric)) return kNone;
  const Json& metric = (*metrics)[m.metric];
  const double value = number_in(metric, "value", kNone), chance = number_in(metric, "chance", 0);
  return 100 * (m.kind == Measure::Kind::kNormalised ? (value - chance) / (1 - chance) : value);
}

// A study of before folders had a mark: its result says so, or nothing is in it that would be replaced.
bool is_unmarked_study(const Experiment& e, const std::string& dir) {
  std::string name;
  if (path_exists(dir + "/result.json")) {
    const Result<Json> result = load_object(dir + "/result.json");
    return result && read_field(*result, "experiment", name, "") && name == e.name;
  }
  std::error_code ec;
  for (std::filesystem::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec))
    if (const std::string entry = it->path().filename().string(); entry != "trials" && entry != "stages")
      return false;
  return !ec;
}

// The work of a trial, in arbitrary units, to guess how long the rest takes.
double weight(const TrainOptions& o) { return static_cast<double>(o.steps * o.batch * o.accumulate); }

// A folder may go on only with the settings it was started with.
Status check_same(const std::string& dir, const TrainOptions& o) {
  const Result<Json> record = load_run_record(dir);
  if (!record) return record.error();
  // An option that a folder does not know yet is as it was then: at its default.
  const Result<TrainOptions> started = options_from_json((*record)["options"], dir + "/run.json");
  if (!started) return started.error();
  Json now = options_json(with_absolute_paths(o)), then = options_json(with_absolute_paths(*started));
  for (const char* name : {"run", "resume", "threads"}) now.erase(name), then.erase(name);
  if (now == then) return {};
  return Error{dir + ": was started with other settings", "delete this folder, or choose another --dir"};
}

Result<TrialResult> load_trial(const Experiment& e, const LabOptions& o, const Trial& t) {
  TrialResult out{.trial = t, .result = std::nullopt, .curve = {}};
  const std::string dir = trial_dir(e, o, t), file = dir + "/result.json";
  if (path_exists(file)) {
    Result<Json> json = load_object(file);
    if (!json) return json.error();
    if (Status s = check_result(*json, file); !s) return s.error();
    out.result = *std::move(json);
  }
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
  return {fmt::format("lab run: {} has no training run with {}", e.name, fmt::join(asked, " and ")),
          fmt::format("use, for {}", fmt::join(there, ", for "))};
}

Status write_report(const Experiment& e, const LabOptions& o, const Study& study, const Program& program) {
  const std::string dir = study_dir(e, o);
  const Made made = made_here(program);
  if (Status s = save_result(dir, study_json(e, study), made); !s) return s;
  return report_page(e, study, made).save(dir + "/report.html");
}

}  // namespace

std::string study_dir(const Experiment& e, const LabOptions& o) {
  return fmt::format("{}/{}-{}", o.dir, e.name, effort_name(o.effort));
}

bool is_study(const Experiment& e, const LabOptions& o) {
  const std::string dir = study_dir(e, o);
  return path_exists(dir) && !is_empty_folder(dir) &&
         check_folder("--dir", dir, FolderKind::kLab, is_unmarked_study(e, dir));
}

Status claim_study(const Experiment& e, const LabOptions& o) {
  const std::string dir = study_dir(e, o);
  for (const char* name : {"/report.html", "/result.json"})
    if (Status s = check_output({"--dir", dir + name}, {{"--text", o.text}, {"--model", o.model}}); !s)
      return s;
  if (is_empty_folder(o.dir))  // so that a report of all studies may stand there
    if (Status s = claim_folder("--dir", o.dir, FolderKind::kLab); !s) return s;
  return claim_folder("--dir", dir, FolderKind::kLab, is_unmarked_study(e, dir));
}

Status check_result(const Json& result, const std::string& file) {
  uint64_t step;
  double number;
  std::string text;
  if (Status s = read_field(result, "step", step, file); !s) return s;
  if (Status s = read_field(result, "seconds", number, file); !s) return s;
  if (result.contains("stopped"))
    if (Status s = read_field(result, "stopped", text, file); !s) return s;
  if (result.contains("loss_by_position")) {
    const Json& bins = result["loss_by_position"];
    const auto is_bin = [](const Json& b) {
      return b.is_array() && b.size() == 2 && b[0].is_number() && b[1].is_number();
    };
    if (!bins.is_array() || !std::ranges::all_of(bins, is_bin))
      return field_error(file, "loss_by_position", &bins, "a list of pairs of numbers");
  }
  if (!result.contains("metrics")) return {};
  const Result<Json> metrics = object_field(result, "metrics", file);
  if (!metrics) return metrics.error();
  for (const auto& [name, metric] : metrics->items()) {
    if (!metric.is_object()) return field_error(file, "metrics." + name, &metric, "an object");
    for (const char* part : {"value", "chance"})
      if (Status s = read_field(metric, part, number, file, "metrics." + name + "."); !s) return s;
  }
  return {};
}

Status save_result(const std::string& dir, Json result, const Made& made) {
  result["made"] = to_json(made);
  return save_json(dir + "/result.json", result);
}

Result<Made> load_made(const Experiment& e, const LabOptions& o) {
  const std::string file = study_dir(e, o) + "/result.json";
  if (path_exists(file)) {
    const Result<Json> result = load_object(file);
    if (!result) return result.error();
    if (result->contains("made")) {
      const Result<Json> made = object_field(*result, "made", file);
      return made ? read_made(*made, file) : Result<Made>(made.error());
    }
  }
  Made made;
  made.program.command = fmt::format("braid lab run {}{}{}", e.name,
                                     o.effort == Effort::kQuick   ? " --quick"
                                     : o.effort == Effort::kPaper ? " --paper"
                                                                  : "",
                                     o.dir == LabOptions().dir ? "" : " --dir " + o.dir);
  return made;
}

Result<Study> load_study(const Experiment& e, const LabOptions& o) {
  Study study{.effort = o.effort, .trials = {}, .rows = {}, .columns = {}};
  const auto once = [](std::vector<std::string>& all, const std::string& name) {
    if (std::ranges::find(all, name) == all.end()) all.push_back(name);
  };
  for (const Trial& t : chosen_trials(e, o)) {
    Result<TrialResult> loaded = load_trial(e, o, t);
    if (!loaded) return loaded.error();
    study.trials.push_back(*std::move(loaded));
    once(study.rows, t.row), once(study.columns, t.column);
  }
  if (study.trials.empty()) return nothing_chosen(e, o);
  return study;
}

Result<LabOutcome> run_experiment(const Experiment& e, const LabOptions& o, const Program& program,
                                  ThreadPool& pool) {
  Result<Study> study = load_study(e, o);
  if (!study) return study.error();
  if (Status s = claim_study(e, o); !s) return s.error();
  double left = 0, done = 0, seconds = 0;
  for (const TrialResult& t : study->trials)
    if (!t.result) left += weight(t.trial.options);
  std::vector<size_t> order(study->trials.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return study->trials[i].trial.options.seed; });
  for (size_t n = 0; n < order.size(); ++n) {
    const size_t i = order[n];
    // Another process may have done it meanwhile.
    Result<TrialResult> now = load_trial(e, o, study->trials[i].trial);
    if (!now) return now.error();
    const bool had_result = study->trials[i].result.has_value();
    study->trials[i] = *std::move(now);
    if (study->trials[i].result) {
      if (!had_result) left -= weight(study->trials[i].trial.options);
      continue;
    }
    const Trial trial = study->trials[i].trial;
    if (!o.quiet)
      std::fputs(fmt::format(
                     "[{} of {}] {}, {}, {}{}\n", n + 1, order.size(), trial.row, trial.column, trial.variant,
                     done > 0 ? fmt::format("; about {} left in all", human_time(seconds / done * left)) : "")
                     .c_str(),
                 stderr);
    TrainOptions t = trial.options;
    t.run = trial_dir(e, o, trial);
    if (path_exists(t.run + "/run.json"))
      if (Status s = check_same(t.run, trial.options); !s) return s.error();
    t.resume = latest_checkpoint(t.run).has_value();
    if (Status s = validate(t); !s) return s.error();
    Result<std::unique_ptr<Source>> source = make_source(t);
    if (!source) return source.error();
    const Result<TrainSummary> r =
        run_training(t, **source, program, pool,
                     {.quiet = o.quiet, .start_over = true, .folder_option = "--dir", .on_note = o.on_note});
    // A run whose loss is not finite has a result, too, and the others go on.
    if (!r && !path_exists(t.run + "/result.json"))
      return Error{fmt::format("{}: {}", trial.id(), r.error().what), r.error().fix};
    if (!r && !o.quiet) std::fputs(fmt::format("{}: {}\n", trial.id(), r.error().what).c_str(), stderr);
    if (r && r->interrupted()) {
      if (Status s = write_report(e, o, *study, program); !s) return s.error();
      return LabOutcome{std::move(*study), true};
    }
    // The result and the model stay; what only a resumed run needs does not.
    if (Status s = remove_checkpoints(t.run); !s) return s.error();
    done += weight(trial.options), left -= weight(trial.options), seconds += r ? r->seconds : 0;
    Result<TrialResult> done_trial = load_trial(e, o, trial);
    if (!done_trial) return done_trial.error();
    study->trials[i] = *std::move(done_trial);
    if (Status s = write_report(e, o, *study, program); !s) return s.error();
  }
  if (Status s = write_report(e, o, *study, program); !s) return s.error();
  return LabOutcome{std::move(*study), false};
}

}  // namespace braid
