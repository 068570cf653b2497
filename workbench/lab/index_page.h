// The page of everything in a lab folder: a row per experiment, which links to its own page.
#pragma once

#include <string>
#include <vector>

#include "lab/compute.h"
#include "lab/report.h"

namespace braid {

struct IndexRow {
  const Experiment* experiment;
  Effort effort;
  std::string found, agrees;  // "5 of 7 results agree ...", "5 of 7"
  PageCell::Mark mark = PageCell::Mark::kNone;
  Made made = {};
  std::string href = {};  // empty: no page
};

IndexRow index_row(const Experiment& e, const Study& study, Made made, std::string href);
IndexRow index_row(const Experiment& e, Effort effort, const Computed& computed, Made made, std::string href);

Page index_page(const std::vector<IndexRow>& rows);

}  // namespace braid
