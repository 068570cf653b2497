#include "lab/compute.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "io/file.h"
#include "io/json.h"

namespace braid {

namespace {

// Whatever the order of the keys, which a file may not keep.
bool same(const Json& kept, const Json& settings) {
  const nlohmann::json a = kept.value("settings", Json()), b = settings;
  return a == b;
}

}  // namespace

std::string Stages::path(const std::string& name, const char* kind) const {
  return fmt::format("{}/stages/{}{}.json", dir_, name, kind);
}

Result<Json> Stages::operator()(const std::string& name, const Json& settings,
                                const std::function<Result<Json>()>& compute) {
  const std::string file = path(name, "");
  if (std::filesystem::exists(file))
    if (const Result<Json> kept = load_json(file); kept && same(*kept, settings)) {
      seconds_ += kept->value("seconds", 0.0);
      return kept->value("value", Json());
    }
  if (only_load_) return Error{dir_ + ": is not complete", "run it first: braid lab run"};
  if (interrupted()) return interruption();
  if (!o_.quiet) fmt::print(stderr, "{}\n", name);
  const double start = seconds_now();
  const double before = partial(name, settings).value("seconds", 0.0);
  Result<Json> value = compute();
  if (!value) return value;
  const double took = before + seconds_now() - start;
  seconds_ += took;
  if (Status s = make_dirs(dir_ + "/stages"); !s) return s.error();
  if (Status s = save_json(file, {{"settings", settings}, {"seconds", took}, {"value", *value}}); !s)
    return s.error();
  if (Status s = remove_tree(path(name, ".partial")); !s) return s.error();
  // As it would be read again: numbers through JSON and back.
  const Result<Json> kept = load_json(file);
  if (!kept) return kept.error();
  return kept->value("value", Json());
}

Json Stages::partial(const std::string& name, const Json& settings) const {
  const std::string file = path(name, ".partial");
  if (!std::filesystem::exists(file)) return Json::object();
  const Result<Json> kept = load_json(file);
  return kept && same(*kept, settings) ? kept->value("value", Json::object()) : Json::object();
}

Status Stages::keep_partial(const std::string& name, const Json& settings, const Json& value) const {
  if (Status s = make_dirs(dir_ + "/stages"); !s) return s;
  return save_json(path(name, ".partial"), {{"settings", settings}, {"value", value}});
}

bool Computed::held() const { return std::ranges::all_of(findings.claims, &Claim::held); }

namespace {

Page whole_page(const Experiment& e, const LabOptions& o, const Computed& c, const Program& program) {
  Page page{std::string(e.title)};
  page.paragraph(e.shows);
  page.paragraph(fmt::format("After: {}. Effort: {}.", e.paper, effort_name(o.effort)));
  PageTable table;
  table.head = {"claim", "found", "held"};
  for (const Claim& x : c.findings.claims)
    table.rows.push_back({{x.text},
                          {x.found},
                          {x.held ? "yes" : "no", x.held ? PageCell::Mark::kGood : PageCell::Mark::kBad}});
  table.caption =
      "Everything here was computed by the command below; it ends with an error if a claim does not hold.";
  table.words = true;
  page.table(table);
  page.append(c.findings.page);
  page.heading("How to do it again");
  page.code(program.command);
  page.paragraph(fmt::format("{} of computing. Braid {} ({}), {}; {}, {}.", human_time(c.seconds),
                             program.version, program.commit, program.compiler, cpu_model(),
                             isa_name(active_isa())));
  return page;
}

}  // namespace

Result<Computed> run_computation(const Experiment& e, const LabOptions& o, const Program& program,
                                 ThreadPool& pool, bool only_load) {
  Stages stages(e, o, pool, only_load);
  if (Status s = make_dirs(stages.dir()); !s) return s.error();
  Result<Findings> findings = e.compute(stages);
  if (!findings) return findings.error();
  Computed out{std::move(*findings), stages.seconds()};
  if (Status s = save_json(stages.dir() + "/result.json", computed_json(e, o, out)); !s) return s.error();
  if (Status s = whole_page(e, o, out, program).save(stages.dir() + "/report.html"); !s) return s.error();
  return out;
}

Json computed_json(const Experiment& e, const LabOptions& o, const Computed& c) {
  Json out{{"experiment", e.name}, {"effort", effort_name(o.effort)}, {"held", c.held()},
           {"seconds", c.seconds}, {"claims", Json::array()},         {"figures", c.findings.figures}};
  for (const Claim& x : c.findings.claims)
    out["claims"].push_back({{"claim", x.text}, {"found", x.found}, {"held", x.held}});
  return out;
}

std::string claims_text(const Computed& c) {
  std::string out;
  for (const Claim& x : c.findings.claims)
    out += fmt::format("{:<9}{}\n         {}\n", x.held ? "held" : "NOT HELD", x.text, x.found);
  return out;
}

}  // namespace braid
