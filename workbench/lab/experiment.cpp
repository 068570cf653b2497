#include "lab/experiment.h"

#include <algorithm>
#include <cmath>

namespace braid {

const char* effort_name(Effort effort) {
  return effort == Effort::kQuick ? "quick" : effort == Effort::kPaper ? "paper" : "default";
}

std::string Trial::id() const {
  std::string out = row + "_" + column + "_" + variant;
  for (char& c : out)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-' && c != '_') c = '-';
  return out;
}

CellResult Study::cell(const std::string& row, const std::string& column, bool larger_is_better) const {
  CellResult out;
  for (const TrialResult& t : trials) {
    if (t.trial.row != row || t.trial.column != column) continue;
    ++out.planned;
    if (t.result && std::isfinite(t.value)) out.values.push_back(t.value);
  }
  if (out.values.empty()) return out;
  std::vector<double> sorted = out.values;
  std::ranges::sort(sorted);
  out.best = larger_is_better ? sorted.back() : sorted.front();
  const size_t n = sorted.size();
  out.median = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
  return out;
}

int quick_minutes(const Experiment& e) { return std::max(1, (e.quick_seconds + 30) / 60); }

const Experiment* find_experiment(std::string_view name) {
  for (const Experiment& e : all_experiments())
    if (e.name == name) return &e;
  return nullptr;
}

}  // namespace braid
