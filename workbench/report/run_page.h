// A run folder as a page: curves of what metrics.jsonl has, the result, the command and the machine.
#pragma once

#include <string>
#include <vector>

#include "io/json.h"
#include "report/page.h"

namespace braid {

// The lines of metrics.jsonl; those that are cut or damaged are left out.
std::vector<Json> metric_lines(const std::string& run);

// live: of a run that goes on; the page loads itself again.
Page run_page(const std::string& run, bool live = false);

}  // namespace braid
