// Experiments that are computations with claims: each claim says what is claimed, what was found, and whether
// it held. A computation is a list of stages, each a JSON value kept in a file: what is done is not done
// again, and the page is made from the values alone.
//
//   LAB/pcr-construction-quick/stages/NAME.json
//   LAB/pcr-construction-quick/report.html, result.json
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/experiment.h"
#include "report/page.h"
#include "lab/runner.h"

namespace braid {

struct Findings {
  std::vector<Claim> claims;
  Json figures = Json::object();
  Page page{""};  // the page below the claims
};

class Stages {
 public:
  Stages(const Experiment& e, const LabOptions& o, ThreadPool& pool, bool only_load)
      : dir_(study_dir(e, o)), o_(o), pool_(pool), only_load_(only_load) {}

  Effort effort() const { return o_.effort; }
  const std::string& model() const { return o_.model; }
  const std::string& dir() const { return dir_; }
  bool quiet() const { return o_.quiet; }
  ThreadPool& pool() const { return pool_; }

  // The value of a stage: from its file if that has the same settings, else computed and kept. A damaged file
  // is an error.
  Result<Json> operator()(const std::string& name, const Json& settings,
                          const std::function<Result<Json>()>& compute);
  // For stages that take long: what is there so far (or an empty object), and a place to keep it.
  Result<Json> partial(const std::string& name, const Json& settings) const;
  Status keep_partial(const std::string& name, const Json& settings, const Json& value) const;

  static Error interruption() {
    return {"lab run: interrupted", "run the same command again: it continues where it stopped"};
  }
  double seconds() const { return seconds_; }  // that the stages took, whenever that was

 private:
  std::string path(const std::string& name, const char* kind) const;

  std::string dir_;
  const LabOptions& o_;
  ThreadPool& pool_;
  bool only_load_;
  double seconds_ = 0;
  int stage_ = 0;  // the last that was computed
};

struct Computed {
  Findings findings;
  double seconds = 0;
  bool held() const;  // all claims
};
// Runs what is missing, or with `only_load` fails if something is; writes the page and result.json.
Result<Computed> run_computation(const Experiment& e, const LabOptions& o, const Program& program,
                                 ThreadPool& pool, bool only_load = false);

std::string computed_title(const Experiment& e, const Computed& c);  // what was found, in one line
Json computed_json(const Experiment& e, const LabOptions& o, const Computed& c);
std::string claims_text(const Computed& c);  // for a terminal

}  // namespace braid
