#include "lab/compute.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/clock.h"
#include "base/interrupt.h"
#include "base/progress.h"
#include "io/file.h"
#include "io/hash.h"
#include "io/strict_json.h"
#include "lab/report.h"

namespace braid {

namespace {

// Whatever the order of the keys, which a file may not keep.
bool same(const Json& kept, const Json& settings) { return nlohmann::json(kept) == nlohmann::json(settings); }

// A file of a stage: what was computed, with which settings, and a hash of all that.
Json hashed(Json file) {
  nlohmann::json rest = file;
  rest.erase("content");
  file["content"] = Hash().text(rest.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)).hex();
  return file;
}

Status save_kept(const std::string& dir, const std::string& file, Json kept) {
  if (Status s = make_dirs(dir + "/stages"); !s) return s;
  return save_json(file, hashed(std::move(kept)));
}

// None: there is no such file, or its settings are others.
Result<std::optional<Json>> load_kept(const std::string& file, const Json& settings) {
  if (!path_exists(file)) return std::optional<Json>();
  const char* fix = "delete the file to compute this stage again";
  const Result<Json> json = load_object(file);
  if (!json) return Error{json.error().what, fix};
  std::string content;
  double seconds;
  for (const char* name : {"settings", "value"})
    if (!json->contains(name)) return Error{file + ": " + name + " is missing", fix};
  if (Status s = read_field(*json, "seconds", seconds, file); !s) return Error{s.error().what, fix};
  if (Status s = read_field(*json, "content", content, file); !s) return Error{s.error().what, fix};
  if (hashed(*json)["content"] != content)
    return Error{file + ": was changed after it was saved: its content has another hash", fix};
  return same((*json)["settings"], settings) ? std::optional(*json) : std::nullopt;
}

}  // namespace

std::string Stages::path(const std::string& name, const char* kind) const {
  return fmt::format("{}/stages/{}{}.json", dir_, name, kind);
}

Result<Json> Stages::operator()(const std::string& name, const Json& settings,
                                const std::function<Result<Json>()>& compute) {
  const std::string file = path(name, "");
  const Result<std::optional<Json>> kept = load_kept(file, settings);
  if (!kept) return kept.error();
  if (*kept) {
    seconds_ += (**kept)["seconds"].get<double>();
    return (**kept)["value"];
  }
  if (only_load_) return Error{dir_ + ": is not complete", "run it first: braid lab run"};
  if (interrupted()) return interruption();
  if (!o_.quiet) std::fputs(fmt::format("[stage {}: {}]\n", ++stage_, name).c_str(), stderr);
  const double start = seconds_now();
  const Result<Json> begun = partial(name, settings);
  if (!begun) return begun;
  const double before = begun->value("seconds", 0.0);
  Result<Json> value = compute();
  if (!value) return value;
  const double took = before + seconds_now() - start;
  seconds_ += took;
  constexpr double kLong = 2;  // seconds
  if (!o_.quiet && took > kLong) std::fputs(fmt::format("  {}\n", human_time(took)).c_str(), stderr);
  if (Status s = save_kept(dir_, file, {{"settings", settings}, {"seconds", took}, {"value", *value}}); !s)
    return s.error();
  if (Status s = remove_tree(path(name, ".partial")); !s) return s.error();
  // As it would be read again: numbers through JSON and back.
  const Result<std::optional<Json>> again = load_kept(file, settings);
  if (!again) return again.error();
  check(again->has_value(), "Stages: the settings do not survive JSON");
  return (**again)["value"];
}

Result<Json> Stages::partial(const std::string& name, const Json& settings) const {
  const Result<std::optional<Json>> kept = load_kept(path(name, ".partial"), settings);
  if (!kept) return kept.error();
  return *kept ? (**kept)["value"] : Json::object();
}

Status Stages::keep_partial(const std::string& name, const Json& settings, const Json& value) const {
  return save_kept(dir_, path(name, ".partial"),
                   {{"settings", settings}, {"seconds", 0.0}, {"value", value}});
}

std::string computed_title(const Experiment& e, const Computed& c) {
  const size_t all = c.findings.claims.size(),
               failed = all - static_cast<size_t>(std::ranges::count_if(c.findings.claims, &Claim::held));
  return failed == 0 ? fmt::format("{}: all {} claims hold", e.title, all)
                     : fmt::format("{}: {} of {} claims fail", e.title, failed, all);
}

bool Computed::held() const { return std::ranges::all_of(findings.claims, &Claim::held); }

namespace {

Page whole_page(const Experiment& e, const LabOptions& o, const Computed& c, const Made& made) {
  Page page(computed_title(e, c));
  page.topic(
      fmt::format("{}, {}: {} claims, computed", e.name, effort_name(o.effort), c.findings.claims.size()));
  page.paragraph(e.shows);
  page.paragraph(fmt::format("After: {}.", e.paper));
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
  add_made(made, fmt::format("{} of computing.", human_time(c.seconds)), page);
  return page;
}

}  // namespace

Result<Computed> run_computation(const Experiment& e, const LabOptions& o, const Program& program,
                                 ThreadPool& pool, bool only_load) {
  if (only_load && !is_study(e, o))
    return Error{study_dir(e, o) + ": is not complete", "run it first: braid lab run"};
  if (!only_load)
    if (Status s = claim_study(e, o); !s) return s.error();
  const Result<Made> made = only_load ? load_made(e, o) : Result<Made>(made_here(program));
  if (!made) return made.error();
  Stages stages(e, o, pool, only_load);
  Result<Findings> findings = e.compute(stages);
  if (!findings) return findings.error();
  Computed out{std::move(*findings), stages.seconds()};
  if (Status s = save_result(stages.dir(), computed_json(e, o, out), *made); !s) return s.error();
  if (Status s = whole_page(e, o, out, *made).save(stages.dir() + "/report.html"); !s) return s.error();
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
