// Runs the trials of an experiment one after the other, each in its own run folder, all of them with the
// first seed before any with the second; what is done is not done again, and an interrupted trial goes on
// where it stopped.
//
//   LAB/hqlt-table3-quick/trials/ID/...     run folders
//   LAB/hqlt-table3-quick/report.html, result.json
#pragma once

#include <string>

#include "lab/experiment.h"
#include "lab/report.h"
#include "train/setup.h"

namespace braid {

struct LabOptions {
  std::string dir = "runs/lab";
  Effort effort = Effort::kDefault;
  std::string only, column;  // rows and columns of this name, else all that contain it; empty: all
  int64_t seeds = 0;         // at most so many in a cell; 0: the experiment's own number
  double lr = 0;             // of several learning rates only this one; 0: all
  std::string text;          // instead of the text that comes with the program
  std::string precision;     // of all trials, instead of their own
  std::string model;         // a model folder to look at, for computations that can
  bool quiet = false;
  Trainer::OnNote on_note = {};  // what a user should know even if all goes well
};

std::string study_dir(const Experiment& e, const LabOptions& o);

// Is there a folder of this study, and is it the lab's?
bool is_study(const Experiment& e, const LabOptions& o);
// Makes the study's folder, or takes it over if it is the lab's; errors name --dir.
Status claim_study(const Experiment& e, const LabOptions& o);
// result.json of a study, with what it was made by.
Status save_result(const std::string& dir, Json result, const Made& made);
// What a study was made by, from its result.json; of one of before that was kept, the plain command.
Result<Made> load_made(const Experiment& e, const LabOptions& o);

// Whether a trial's result, or a kept one, has what reports read of it.
Status check_result(const Json& result, const std::string& file);

// What is on disk, complete or not.
Result<Study> load_study(const Experiment& e, const LabOptions& o);

struct LabOutcome {
  Study study;
  bool interrupted = false;
};
// The page and result.json are written anew after each trial.
Result<LabOutcome> run_experiment(const Experiment& e, const LabOptions& o, const Program& program,
                                  ThreadPool& pool);

}  // namespace braid
