// Results that stay in the repository: what the pages of docs/results are made from. One file for each
// experiment and effort, in a folder such as docs/results/data:
//
//   NAME-EFFORT.json   {"experiment": .., "effort": .., "date": .., "command": .., "seconds": ..,
//                       "cells": [{"row": .., "column": .., "planned": .., "best": .., "runs": [{..}]}],
//                       "claims": [{"claim": .., "found": .., "held": ..}]}
//
// A file is a function of what was measured and of what this program says about the paper (its figures, the
// claims about cells): loading and saving a file again brings the latter up to date.
#pragma once

#include <string>
#include <vector>

#include "io/json.h"
#include "lab/report.h"
#include "lab/runner.h"

namespace braid {

struct Kept {
  const Experiment* experiment = nullptr;
  Study study;                     // no trials for a computation; else the cells of which something was run
  size_t planned = 0;              // runs of the experiment with this effort
  std::vector<Claim> claims;       // of a computation, or about the study's cells
  Made made;                       // its command is one that can be repeated: no --dir, no --threads
  std::string commits;             // of all runs
  std::string date;                // when the last run began
  int64_t threads = 0;             // 0: not known
  double seconds = 0;              // of training, or of computing
  Json settings = Json::object();  // training options that all runs share and that are not the default

  std::string name() const;  // NAME-EFFORT
  size_t runs_done() const;
  std::string runs_text() const;  // "9 of 15 runs"
  bool unfinished() const { return runs_done() < planned; }
};

// A finished or unfinished study below o.dir.
Result<Kept> kept_from_study(const Experiment& e, const LabOptions& o);
Result<Kept> read_kept(const std::string& file);
std::string kept_text(const Kept& k);  // the file's content

// All of a folder, as the experiments are listed; the paper's effort first.
Result<std::vector<Kept>> read_all_kept(const std::string& folder);

// Keeps what is under `path`: a study's folder, a folder of studies, or a kept file, which is brought up to
// date. Says for each what was done. A kept file of a later run stays.
Result<std::vector<std::string>> keep_results(const std::string& path, const std::string& folder);

// The command without what belongs to one machine: "braid lab run words --quick".
std::string repeatable_command(const std::string& command);

}  // namespace braid
