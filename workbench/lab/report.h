// From a study to a page and to JSON: the table beside the paper's, the curves, what was expected, and how to
// do it again.
#pragma once

#include "lab/experiment.h"
#include "report/page.h"
#include "train/setup.h"

namespace braid {

struct Verdict {
  Expectation expected;
  double value;
  bool done, met;  // done: all its trials are
};
std::vector<Verdict> verdicts(const Experiment& e, const Study& study);

Json study_json(const Experiment& e, const Study& study);

// By what results were made: kept with them, since a page may be written again by another command.
struct Made {
  Program program;
  std::string cpu, isa;
  std::string date;  // of the day, "2026-01-31"; empty in results of earlier versions
};
Made made_here(const Program& program);
Json to_json(const Made& made);
Result<Made> read_made(const Json& object, const std::string& file);
// How to reproduce it; `more` precedes the program and the machine.
void add_made(const Made& made, const std::string& more, Page& page);

// What was found, in one line: the title of the page.
std::string study_title(const Experiment& e, const Study& study);
Page report_page(const Experiment& e, const Study& study, const Made& made);

std::string table_text(const Experiment& e, const Study& study);  // for a terminal

}  // namespace braid
