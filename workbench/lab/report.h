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
Page report_page(const Experiment& e, const Study& study, const Program& program);

std::string table_text(const Experiment& e, const Study& study);  // for a terminal

}  // namespace braid
