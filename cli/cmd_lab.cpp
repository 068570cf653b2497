#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/interrupt.h"
#include "base/nearest.h"
#include "cli/cli.h"
#include "io/folder.h"
#include "io/json.h"
#include "lab/compute.h"
#include "lab/index_page.h"
#include "lab/report.h"
#include "lab/results_page.h"
#include "lab/runner.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

int list(bool json) {
  for (const Experiment& e : all_experiments()) {
    if (!json) {
      say("{:<24}{}\n{:<24}{}; --quick: {} min\n", e.name, e.title, "", e.paper, quick_minutes(e));
      continue;
    }
    Json line{{"name", e.name},
              {"title", e.title},
              {"paper", e.paper},
              {"shows", e.shows},
              {"kind", e.compute ? "computation" : "training"},
              {"quick_seconds", e.quick_seconds}};
    if (e.trials)
      line["trials"] = {{"quick", e.trials(Effort::kQuick).size()},
                        {"default", e.trials(Effort::kDefault).size()},
                        {"paper", e.trials(Effort::kPaper).size()}};
    print_json(line);
  }
  return kOk;
}

Error only_for_training(const Experiment& e, const char* option) {
  return {fmt::format("{}: applies to experiments that train models, not to {}", option, e.name),
          "leave it out"};
}

// Not zero unless every claim holds.
int compute(const Experiment& e, const LabOptions& o, int64_t threads, bool json) {
  for (const auto& [option, value] : {std::pair{"--only", &o.only},
                                      {"--column", &o.column},
                                      {"--text", &o.text},
                                      {"--precision", &o.precision}})
    if (!value->empty()) return wrong_use(only_for_training(e, option));
  if (o.seeds) return wrong_use(only_for_training(e, "--seeds"));
  if (o.lr != 0) return wrong_use(only_for_training(e, "--lr"));
  catch_interrupts();
  Result<ThreadPool> started = start_threads(threads);
  if (!started) return fail(started.error());
  ThreadPool& pool = *started;
  const Result<Computed> r = run_computation(e, o, this_program(), pool);
  if (!r) return fail(r.error());
  if (json)
    print_json(computed_json(e, o, *r));
  else
    say("{}report: {}/report.html\n", claims_text(*r), study_dir(e, o));
  return r->held() ? kOk : kFailed;
}

int no_experiment(const std::string& name) {
  std::vector<std::string> names;
  for (const Experiment& x : all_experiments()) names.emplace_back(x.name);
  return wrong_use({fmt::format("lab: experiment is '{}'", name), suggest(name, names)});
}

int run(const std::string& name, const LabOptions& o, int64_t threads, bool json) {
  const Experiment* e = find_experiment(name);
  if (!e) return no_experiment(name);
  if (!o.model.empty() && !e->takes_model)
    return wrong_use({"--model: is not an option of " + name, "leave it out"});
  if (e->compute) return compute(*e, o, threads, json);
  const std::vector<Trial> trials = e->trials(o.effort);
  if (!o.text.empty() && std::ranges::all_of(trials, [](const Trial& t) { return t.options.text.empty(); }))
    return wrong_use({fmt::format("--text: is for experiments on text, not for {}", name), "leave it out"});
  catch_interrupts();
  Result<ThreadPool> started = start_threads(threads);
  if (!started) return fail(started.error());
  ThreadPool& pool = *started;
  LabOptions with = o;
  with.on_note = [](const std::string& text) { tell("braid: {}\n", text); };
  const Result<LabOutcome> r = run_experiment(*e, with, this_program(), pool);
  if (!r) return fail(r.error());
  const std::string dir = study_dir(*e, o);
  if (json)
    print_json(study_json(*e, r->study));
  else
    say("{}\nreport: {}/report.html\n", table_text(*e, r->study), dir);
  if (r->interrupted) {
    tell("interrupted; the same command goes on where it stopped\n");
    return kFailed;
  }
  return kOk;
}

// The page of each study under a folder, and one of all of them.
int report(const LabOptions& asked, bool json) {
  std::vector<IndexRow> rows;
  for (const Experiment& e : all_experiments())
    for (const Effort effort : {Effort::kQuick, Effort::kDefault, Effort::kPaper}) {
      LabOptions o = asked;
      o.effort = effort;
      if (!is_study(e, o)) continue;
      const std::string dir = study_dir(e, o), page = fs::path(dir).filename().string() + "/report.html";
      Result<Made> made = load_made(e, o);
      if (!made) return fail(made.error());
      if (e.compute) {
        ThreadPool pool(1, kernel_choice());
        const Result<Computed> c = run_computation(e, o, this_program(), pool, true);
        if (!c) {
          rows.push_back({&e, effort, c.error().what, "-", PageCell::Mark::kMissing, *std::move(made)});
          tell("braid: {}\n", c.error().what);
          continue;
        }
        if (json) print_json(computed_json(e, o, *c));
        rows.push_back(index_row(e, effort, *c, *std::move(made), page));
        continue;
      }
      const Result<Study> study = load_study(e, o);
      if (!study) return fail(study.error());
      if (Status s = report_page(e, *study, *made).save(dir + "/report.html"); !s) return fail(s.error());
      if (json) print_json(study_json(e, *study));
      rows.push_back(index_row(e, *study, *std::move(made), page));
    }
  const size_t found = std::ranges::count_if(rows, [](const IndexRow& r) { return !r.href.empty(); });
  if (found == 0)
    return fail({fmt::format("--dir {}: there are no experiments here", asked.dir),
                 fmt::format("run one first: {} lab run NAME --quick", program_name())});
  // A folder that the lab did not make may have studies in it, but a page of its own stays.
  const std::string file = asked.dir + "/report.html";
  std::error_code ec;
  const bool there = fs::exists(fs::symlink_status(file, ec));
  if (Status s = claim_folder("--dir", asked.dir, FolderKind::kLab, !there); !s) return fail(s.error());
  if (Status s = index_page(rows).save(file); !s) return fail(s.error());
  if (!json) say("{} experiments in {}/report.html\n", found, asked.dir);
  return kOk;
}

int keep(const std::vector<std::string>& paths, const std::string& folder) {
  if (paths.empty())
    return wrong_use(
        {"lab keep: the folder is missing", "give a folder of results, e.g. runs/lab/hqlt-mixing-quick"});
  for (const std::string& path : paths) {
    const Result<std::vector<std::string>> said = keep_results(path, folder);
    if (!said) return fail(said.error());
    for (const std::string& line : *said) say("{}\n", line);
  }
  return kOk;
}

// Blocks of docs/results.
int print_docs(const std::vector<std::string>& names, const std::string& folder) {
  const Result<std::vector<Kept>> kept = read_all_kept(folder);
  if (!kept) return fail(kept.error());
  if (names.empty()) say("{}", results_index(*kept));
  for (const std::string& name : names) {
    const Experiment* e = find_experiment(name);
    if (!e) return no_experiment(name);
    say("{}", results_block(*e, *kept));
  }
  return kOk;
}

}  // namespace

std::function<int()> define_lab(CLI::App& app) {
  struct All {
    std::string action = "list", kept = "docs/results/data";
    std::vector<std::string> names;
    LabOptions o;
    bool quick = false, paper = false, json = false, docs = false;
    int64_t threads = 0;
  };
  auto all = std::make_shared<All>();
  OptionAdder add(app);
  add("action", all->action,
      "list; run NAME; report: one page of all that was run; keep FOLDER: copy results into --kept");
  add.several("names", all->names,
              "run: an experiment that `braid lab list` prints; keep: folders of results");
  add("--quick", all->quick, "fewer and shorter runs, which show the shape of the result");
  add("--paper", all->paper, "the paper's settings: hours to days");
  add("--only", all->o.only, "row of this name, else rows whose name contains it");
  add("--column", all->o.column, "column of this name, else columns whose name contains it");
  add("--lr", all->o.lr, "one of the experiment's learning rates; 0 = all", Bounds<double>{.low = 0});
  add("--seeds", all->o.seeds, "largest number of seeds per cell; 0 = all of the experiment", kFromZero);
  add("--text", all->o.text, "experiments on text: a file instead of @shakespeare");
  add("--precision", all->o.precision,
      "f32 or bf16 for all training runs instead of the experiment's own; bf16 is faster on CPUs with bf16 "
      "dot "
      "products (AMX, AMD since Zen 4)");
  add("--model", all->o.model, "pcr-collision: model folder to search instead of small models");
  add("--dir", all->o.dir, "folder of all experiments");
  add("--kept", all->kept, "folder of kept results, one JSON file per experiment and effort");
  add("--docs", all->docs, "report: Markdown of the kept results, of the named experiments or as an index");
  add("--threads", all->threads, "threads; 0 = all cores", kThreads);
  add("--quiet", all->o.quiet, "no progress");
  add("--json", all->json, "the result as one JSON line; exit code 1 if a claim of a computation fails");
  return [all] {
    if (all->action == "list") return list(all->json);
    if (all->action == "keep") return keep(all->names, all->kept);
    if (all->action == "report" && all->docs) return print_docs(all->names, all->kept);
    if (all->action == "report") return report(all->o, all->json);
    if (all->action != "run")
      return wrong_use(
          {"lab: action is '" + all->action + "'", suggest(all->action, {"list", "run", "report", "keep"})});
    if (all->names.size() != 1)
      return wrong_use(
          {all->names.empty() ? "lab run: the experiment is missing"
                              : fmt::format("lab run: {} experiments are named", all->names.size()),
           fmt::format("give one name of `{} lab list`, e.g. hqlt-mixing --quick", program_name())});
    TrainOptions train;
    if (!all->o.precision.empty()) train.precision = all->o.precision;
    if (const std::vector<Problem> p = unusable(train); !p.empty()) return wrong_use(wrong_options(p));
    if (all->quick && all->paper)
      return wrong_use({"--quick, --paper: exclude each other", "give one of them"});
    LabOptions o = all->o;
    o.effort = all->quick ? Effort::kQuick : all->paper ? Effort::kPaper : Effort::kDefault;
    return run(all->names[0], o, all->threads, all->json);
  };
}

}  // namespace braid
