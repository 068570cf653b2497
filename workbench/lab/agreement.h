// Whether a result agrees with the paper's. The rule is written here and nowhere else:
//
//   shares   best of all runs within kSharePoints of the paper's best; where both have a median, it too
//   losses   texts and token units differ, so the distance to the first row is compared: worse, equal or
//            better than that row, as in the paper; distances up to kNats are equal
//   orders   "better" is by more than these tolerances, "equal" within them
//   bounds   an expected best, inside its bounds
#pragma once

#include "lab/experiment.h"

namespace braid {

inline constexpr double kSharePoints = 5, kNats = 0.02;

enum class Agrees { kYes, kBestOnly, kNo };  // kBestOnly: the best does, the median does not
const char* agrees_text(Agrees a);

// A figure of the paper beside the cell, whose runs are all done. None: nothing to compare.
std::optional<Agrees> agrees(const Experiment& e, const Study& study, const std::string& row,
                             const std::string& column);

// For losses: how much more than the first row, in the paper and here. None: nothing to compare.
struct Distances {
  double paper, ours;
};
std::optional<Distances> loss_distances(const Experiment& e, const Study& study, const std::string& row,
                                        const std::string& column);

// The paper's orders, and what is expected of cells for which it has no figure; cells without runs are left
// out.
std::vector<Claim> study_claims(const Experiment& e, const Study& study);

// "sync: vector better than sum (paper: perplexity 26.3 against 27.7)"
std::string order_text(const PaperOrder& o);
std::string expectation_text(const Expectation& x);

// Of all figures and claims: "yes, 7 of 7", "partly, 3 of 7", "no, 0 of 2".
struct Agreement {
  size_t yes = 0, partly = 0, all = 0;
  std::string text() const;
};
Agreement agreement(const Experiment& e, const Study& study, const std::vector<Claim>& claims);

std::string figure_text(const Measure& m, double x);  // "-" if it is not finite
std::string figure_text(const Measure& m, double best, double median);
const PaperFigure* paper_figure(const std::vector<PaperFigure>& all, const std::string& row,
                                const std::string& column);
std::vector<PaperFigure> paper_figures(const Experiment& e);

}  // namespace braid
