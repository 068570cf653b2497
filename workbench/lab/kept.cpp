#include "lab/kept.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <set>

#include "io/file.h"
#include "io/strict_json.h"
#include "lab/agreement.h"
#include "train/run_record.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr Effort kEfforts[] = {Effort::kPaper, Effort::kDefault, Effort::kQuick};
constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();

// Six digits: more are noise, and change from machine to machine.
Json rounded(double x) {
  if (!std::isfinite(x)) return nullptr;
  const std::string text = fmt::format("{:.6g}", x);
  double out = 0;
  std::from_chars(text.data(), text.data() + text.size(), out);
  return out;
}
double number_or_missing(const Json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_number() ? at->get<double>() : kMissing;
}

// Indented, but what fits on a line is on one.
void write_json(const Json& value, size_t indent, std::string& out) {
  constexpr size_t kWidth = 120;
  const std::string line = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if ((!value.is_object() && !value.is_array()) || value.empty() ||
      (indent > 0 && indent + line.size() <= kWidth)) {
    out += line;
    return;
  }
  const std::string space(indent + 1, ' ');
  out += value.is_object() ? "{" : "[";
  const char* separator = "\n";
  for (const auto& [key, item] : value.items()) {
    out += separator + space;
    if (value.is_object()) out += Json(key).dump() + ": ";
    write_json(item, indent + 1, out);
    separator = ",\n";
  }
  out += "\n" + std::string(indent, ' ') + (value.is_object() ? "}" : "]");
}

// What tables need of a trial's result.
Json reduced(const Experiment& e, const Json& result) {
  Json out{{"step", result["step"]}, {"seconds", rounded(result["seconds"].get<double>())}};
  for (const char* name : {"stopped", "parameters", "tokens"})
    if (result.contains(name)) out[name] = result[name];
  if (result.contains("metrics"))
    for (const auto& [name, metric] : result["metrics"].items())
      if (!e.length_metric.empty() && name.starts_with(e.length_metric) && name != e.measure.metric)
        out["metrics"][name] = {{"value", rounded(number_or_missing(metric, "value"))},
                                {"chance", rounded(number_or_missing(metric, "chance"))}};
  if (e.tables && result.contains("loss_by_position"))
    for (const Json& bin : result["loss_by_position"])
      out["loss_by_position"].push_back({bin[0], rounded(bin[1].get<double>())});
  return out;
}

std::string time_text(std::time_t t) {
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&t));
  return text;
}

// When the last stage of a computation was written.
std::string last_stage(const std::string& dir) {
  std::string last;
  std::error_code ec;
  for (const std::string& name : names_in(dir + "/stages")) {
    const auto written = fs::last_write_time(dir + "/stages/" + name, ec);
    if (ec) continue;
    const auto since = std::chrono::duration_cast<std::chrono::seconds>(
        std::chrono::file_clock::to_sys(written).time_since_epoch());
    last = std::max(last, time_text(static_cast<std::time_t>(since.count())));
  }
  return last;
}

std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false;
  for (const char c : command) {
    if (c == '\'') quoted = !quoted;
    if (c == ' ' && !quoted) {
      if (!word.empty()) words.push_back(std::move(word));
      word.clear();
    } else {
      word += c;
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

// The value of --threads; 0 if there is none.
int64_t threads_of(const std::string& command) {
  const std::vector<std::string> words = words_of(command);
  int64_t threads = 0;
  for (size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i] == "--threads")
      std::from_chars(words[i + 1].data(), words[i + 1].data() + words[i + 1].size(), threads);
  return threads;
}

// What all runs were trained with: fills dates, commits, threads and settings from their run.json.
Status read_records(const std::string& study, Kept& k) {
  std::set<std::string> commits;
  const Json defaults = options_json({});
  bool first = true;
  for (const TrialResult& t : k.study.trials) {
    if (!t.result) continue;
    const std::string dir = study + "/trials/" + t.trial.id(), file = dir + "/run.json";
    const Result<Json> record = load_run_record(dir);
    if (!record) return record.error();
    std::string started, commit;
    int64_t threads = 0;
    if (Status s = read_field(*record, "started", started, file); !s) return s;
    const Result<Json> braid = object_field(*record, "braid", file),
                       machine = object_field(*record, "machine", file),
                       options = object_field(*record, "options", file);
    for (const Result<Json>* part : {&braid, &machine, &options})
      if (!*part) return part->error();
    if (Status s = read_field(*braid, "commit", commit, file, "braid."); !s) return s;
    if (Status s = read_field(*machine, "threads", threads, file, "machine."); !s) return s;
    commits.insert(commit);
    k.date = std::max(k.date, started), k.threads = std::max(k.threads, threads);
    if (first) {
      for (const auto& [name, value] : options->items())
        if (!defaults.contains(name) || defaults[name] != value) k.settings[name] = value;
      for (const char* name : {"run", "resume", "threads", "seed", "keep", "checkpoint-every"})
        k.settings.erase(name);
      first = false;
    }
    for (auto at = k.settings.begin(); at != k.settings.end();)
      at = options->contains(at.key()) && (*options)[at.key()] == at.value() ? std::next(at)
                                                                             : k.settings.erase(at);
  }
  for (const std::string& c : commits) k.commits += (k.commits.empty() ? "" : ", ") + c;
  return {};
}

Result<std::vector<Claim>> read_claims(const Json& object, const std::string& file) {
  std::vector<Claim> out;
  if (!object.contains("claims")) return out;
  if (!object["claims"].is_array()) return field_error(file, "claims", &object["claims"], "a list");
  for (const Json& c : object["claims"]) {
    Claim claim;
    if (!c.is_object()) return field_error(file, "claims", &c, "a list of objects");
    if (Status s = read_field(c, "claim", claim.text, file, "claims."); !s) return s.error();
    if (Status s = read_field(c, "found", claim.found, file, "claims."); !s) return s.error();
    if (Status s = read_field(c, "held", claim.held, file, "claims."); !s) return s.error();
    out.push_back(std::move(claim));
  }
  return out;
}

Status read_cell(const Json& cell, const std::string& file, Kept& k) {
  const Experiment& e = *k.experiment;
  std::string row, column;
  uint64_t planned;
  if (!cell.is_object()) return field_error(file, "cells", &cell, "a list of objects");
  if (Status s = read_field(cell, "row", row, file, "cells."); !s) return s;
  if (Status s = read_field(cell, "column", column, file, "cells."); !s) return s;
  if (Status s = read_field(cell, "planned", planned, file, "cells."); !s) return s;
  for (auto [all, name] : {std::pair{&k.study.rows, &row}, {&k.study.columns, &column}})
    if (std::ranges::find(*all, *name) == all->end()) all->push_back(*name);
  if (!cell.contains("runs") || !cell["runs"].is_array())
    return field_error(file, "cells.runs", nullptr, "a list of runs");
  for (const Json& run : cell["runs"]) {
    TrialResult t{.trial = {row, column, "", {}}, .result = Json::object(), .curve = {}};
    if (!run.is_object()) return field_error(file, "cells.runs", &run, "a list of objects");
    if (Status s = read_field(run, "seed", t.trial.options.seed, file, "runs."); !s) return s;
    if (Status s = read_field(run, "lr", t.trial.options.lr, file, "runs."); !s) return s;
    if (Status s = check_result(run, file); !s) return s;
    t.value = number_or_missing(run, "value");
    t.trial.variant = fmt::format("lr {:g} seed {}", t.trial.options.lr, t.trial.options.seed);
    t.result = reduced(e, run);
    k.study.trials.push_back(std::move(t));
  }
  for (size_t i = cell["runs"].size(); i < planned; ++i)
    k.study.trials.push_back({.trial = {row, column, "", {}}, .result = std::nullopt, .curve = {}});
  return {};
}

Json cell_json(const Kept& k, const std::string& row, const std::string& column) {
  const Experiment& e = *k.experiment;
  const CellResult c = k.study.cell(row, column, e.measure.larger_is_better());
  Json out{{"row", row},
           {"column", column},
           {"planned", c.planned},
           {"best", rounded(c.best)},
           {"median", rounded(c.median)}};
  const std::vector<PaperFigure> figures = paper_figures(e);
  if (const PaperFigure* f = paper_figure(figures, row, column))
    out["paper"] = {{"best", rounded(f->best)}, {"median", rounded(f->median)}};
  out["runs"] = Json::array();
  for (const TrialResult& t : k.study.trials) {
    if (t.trial.row != row || t.trial.column != column || !t.result) continue;
    Json run{{"seed", t.trial.options.seed}, {"lr", t.trial.options.lr}, {"value", rounded(t.value)}};
    run.update(reduced(e, *t.result));
    out["runs"].push_back(std::move(run));
  }
  return out;
}

Result<std::string> keep(const Kept& k, const std::string& folder, bool refresh) {
  const std::string file = fmt::format("{}/{}.json", folder, k.name()), text = kept_text(k);
  const std::string runs = k.experiment->trials ? k.runs_text() : fmt::format("{} claims", k.claims.size());
  std::string done = fmt::format("kept {}: {}", file, runs);
  if (path_exists(file)) {
    const Result<Kept> there = read_kept(file);
    if (!there) return there.error();
    const Result<std::string> before = read_text(file);
    if (!before) return before.error();
    if (*before == text) return fmt::format("unchanged {}", file);
    if (!refresh && there->date > k.date)
      return fmt::format("not replaced {}: it is of a later run ({}) than this one ({})", file, there->date,
                         k.date);
    done = refresh ? fmt::format("brought up to date {}", file)
                   : fmt::format("replaced {}: {}, of {}; before of {}", file, runs, k.date, there->date);
  }
  if (Status s = make_dirs(folder); !s) return s.error();
  if (Status s = write_atomic(file, text); !s) return s.error();
  return done;
}

}  // namespace

std::string Kept::name() const { return fmt::format("{}-{}", experiment->name, effort_name(study.effort)); }
size_t Kept::runs_done() const {
  return static_cast<size_t>(
      std::ranges::count_if(study.trials, [](const TrialResult& t) { return t.result.has_value(); }));
}

std::string Kept::runs_text() const { return fmt::format("{} of {} runs", runs_done(), planned); }

std::string repeatable_command(const std::string& command) {
  std::vector<std::string> words = words_of(command);
  std::string out = "braid";
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& w = words[i];
    if (w == "--dir" || w == "--threads") {
      ++i;
      continue;
    }
    if (w == "--quiet" || w == "--json" || w.starts_with("--dir=") || w.starts_with("--threads=")) continue;
    out += " " + w;
  }
  return out;
}

Result<Kept> kept_from_study(const Experiment& e, const LabOptions& o) {
  const std::string dir = study_dir(e, o), file = dir + "/result.json";
  const Result<Json> result = load_object(file);
  if (!result) return result.error();
  Result<Made> made = load_made(e, o);
  if (!made) return made.error();
  Kept k{.experiment = &e,
         .study = {.effort = o.effort, .trials = {}, .rows = {}, .columns = {}},
         .claims = {},
         .made = *made,
         .commits = {},
         .date = {}};
  k.made.program.command = repeatable_command(made->program.command);
  if (e.compute) {
    Result<std::vector<Claim>> claims = read_claims(*result, file);
    if (!claims) return claims.error();
    k.claims = *std::move(claims), k.commits = made->program.commit;
    if (Status s = read_field(*result, "seconds", k.seconds, file); !s) return s.error();
    k.date = last_stage(dir), k.threads = threads_of(made->program.command);
    return k;
  }
  Result<Study> study = load_study(e, o);
  if (!study) return study.error();
  k.study = *std::move(study);
  k.planned = k.study.trials.size();
  if (Status s = read_records(dir, k); !s) return s.error();
  // Rows and columns of which nothing was run are not kept.
  std::erase_if(k.study.trials, [&](const TrialResult& t) {
    return k.study.cell(t.trial.row, t.trial.column, true).values.empty();
  });
  for (const TrialResult& t : k.study.trials)
    if (t.result) k.seconds += t.result->value("seconds", 0.0);
  const auto unused = [&](std::string Trial::*name) {
    return [&, name](const std::string& text) {
      return std::ranges::none_of(k.study.trials,
                                  [&](const TrialResult& t) { return t.trial.*name == text; });
    };
  };
  std::erase_if(k.study.rows, unused(&Trial::row)), std::erase_if(k.study.columns, unused(&Trial::column));
  if (k.study.trials.empty())
    return Error{dir + ": no training run is finished", "go on with: " + k.made.program.command};
  k.claims = study_claims(e, k.study);
  return k;
}

Result<Kept> read_kept(const std::string& file) {
  const Result<Json> json = load_object(file);
  if (!json) return json.error();
  std::string name, effort;
  Kept k;
  if (Status s = read_field(*json, "experiment", name, file); !s) return s.error();
  if (Status s = read_field(*json, "effort", effort, file); !s) return s.error();
  if (Status s = read_field(*json, "date", k.date, file); !s) return s.error();
  if (Status s = read_field(*json, "threads", k.threads, file); !s) return s.error();
  if (Status s = read_field(*json, "seconds", k.seconds, file); !s) return s.error();
  for (const auto& [field, to] : {std::pair{"command", &k.made.program.command},
                                  {"version", &k.made.program.version},
                                  {"commit", &k.commits},
                                  {"compiler", &k.made.program.compiler},
                                  {"cpu", &k.made.cpu},
                                  {"isa", &k.made.isa}})
    if (Status s = read_field(*json, field, *to, file); !s) return s.error();
  k.experiment = find_experiment(name);
  const auto known = std::ranges::find(kEfforts, effort, effort_name);
  if (!k.experiment || known == std::end(kEfforts))
    return Error{fmt::format("{}: there is no experiment '{}' with effort '{}'", file, name, effort),
                 "see: braid lab list"};
  k.study.effort = *known;
  if (k.experiment->compute) {
    Result<std::vector<Claim>> claims = read_claims(*json, file);
    if (!claims) return claims.error();
    k.claims = *std::move(claims);
    return k;
  }
  uint64_t planned;
  if (Status s = read_field(*json, "planned", planned, file); !s) return s.error();
  k.planned = planned;
  const Result<Json> settings = object_field(*json, "settings", file);
  if (!settings) return settings.error();
  k.settings = *settings;
  if (!json->contains("cells") || !(*json)["cells"].is_array())
    return field_error(file, "cells", nullptr, "a list of cells");
  for (const Json& cell : (*json)["cells"])
    if (Status s = read_cell(cell, file, k); !s) return s.error();
  k.claims = study_claims(*k.experiment, k.study);
  return k;
}

std::string kept_text(const Kept& k) {
  const Experiment& e = *k.experiment;
  Json out{{"experiment", e.name},
           {"effort", effort_name(k.study.effort)},
           {"command", k.made.program.command},
           {"date", k.date},
           {"version", k.made.program.version},
           {"commit", k.commits},
           {"compiler", k.made.program.compiler},
           {"cpu", k.made.cpu},
           {"isa", k.made.isa},
           {"threads", k.threads},
           {"seconds", rounded(k.seconds)}};
  if (e.trials) {
    out["planned"] = k.planned;
    out["settings"] = k.settings;
    out["unit"] = e.measure.unit;
    out["cells"] = Json::array();
    for (const std::string& row : k.study.rows)
      for (const std::string& column : k.study.columns)
        if (k.study.cell(row, column, true).planned > 0) out["cells"].push_back(cell_json(k, row, column));
  }
  out["claims"] = Json::array();
  for (const Claim& c : k.claims)
    out["claims"].push_back({{"claim", c.text}, {"found", c.found}, {"held", c.held}});
  std::string text;
  write_json(out, 0, text);
  return text + "\n";
}

Result<std::vector<Kept>> read_all_kept(const std::string& folder) {
  std::vector<Kept> out;
  for (const Experiment& e : all_experiments())
    for (const Effort effort : kEfforts) {
      const std::string file = fmt::format("{}/{}-{}.json", folder, e.name, effort_name(effort));
      if (!path_exists(file)) continue;
      Result<Kept> k = read_kept(file);
      if (!k) return k.error();
      out.push_back(*std::move(k));
    }
  return out;
}

Result<std::vector<std::string>> keep_results(const std::string& path, const std::string& folder) {
  std::vector<std::string> said;
  if (path.ends_with(".json")) {
    const Result<Kept> k = read_kept(path);
    if (!k) return k.error();
    const Result<std::string> done = keep(*k, folder, true);
    if (!done) return done.error();
    return std::vector{*done};
  }
  std::string whole = fs::path(path).lexically_normal().string();
  while (whole.size() > 1 && whole.ends_with('/')) whole.pop_back();
  const std::string own = fs::path(whole).filename().string(),
                    parent = fs::path(whole).parent_path().string();
  for (const Experiment& e : all_experiments())
    for (const Effort effort : kEfforts) {
      LabOptions o;
      o.effort = effort;
      const bool is_this = own == fmt::format("{}-{}", e.name, effort_name(effort));
      o.dir = !is_this ? whole : parent.empty() ? "." : parent;
      if (!is_study(e, o) || !path_exists(study_dir(e, o) + "/result.json")) continue;
      const Result<Kept> k = kept_from_study(e, o);
      if (!k) return k.error();
      const Result<std::string> done = keep(*k, folder, false);
      if (!done) return done.error();
      said.push_back(*done);
    }
  if (said.empty())
    return Error{path + ": there is no result of an experiment here",
                 "name a folder such as runs/lab/words-quick, or one of several"};
  return said;
}

}  // namespace braid
