#include "lab/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace braid {
namespace {

double tolerance(const Measure& m) { return m.kind == Measure::Kind::kLoss ? kNats : kSharePoints; }

// 1: better than the reference by more than the tolerance, -1: worse, 0: equal.
int sign(const Measure& m, double value, double reference) {
  const double gain = m.larger_is_better() ? value - reference : reference - value;
  return gain > tolerance(m) ? 1 : gain < -tolerance(m) ? -1 : 0;
}

CellResult cell_of(const Experiment& e, const Study& s, const std::string& row, const std::string& column) {
  return s.cell(row, column, e.measure.larger_is_better());
}
bool complete(const CellResult& c) { return c.planned > 0 && c.values.size() == c.planned; }

}  // namespace

const char* agrees_text(Agrees a) {
  return a == Agrees::kYes ? "yes" : a == Agrees::kBestOnly ? "best only" : "no";
}

std::vector<PaperFigure> paper_figures(const Experiment& e) {
  return e.figures ? e.figures() : std::vector<PaperFigure>{};
}

const PaperFigure* paper_figure(const std::vector<PaperFigure>& all, const std::string& row,
                                const std::string& column) {
  for (const PaperFigure& f : all)
    if (f.row == row && f.column == column) return &f;
  return nullptr;
}

std::optional<Distances> loss_distances(const Experiment& e, const Study& study, const std::string& row,
                                        const std::string& column) {
  const std::vector<PaperFigure> all = paper_figures(e);
  const auto first = std::ranges::find(all, column, &PaperFigure::column);
  const PaperFigure* f = paper_figure(all, row, column);
  if (!f || first->row == row) return std::nullopt;
  const CellResult c = cell_of(e, study, row, column), reference = cell_of(e, study, first->row, column);
  if (!complete(c) || !complete(reference)) return std::nullopt;
  return Distances{f->best - first->best, c.best - reference.best};
}

std::optional<Agrees> agrees(const Experiment& e, const Study& study, const std::string& row,
                             const std::string& column) {
  const std::vector<PaperFigure> all = paper_figures(e);
  const PaperFigure* f = paper_figure(all, row, column);
  const CellResult c = cell_of(e, study, row, column);
  if (!f || !complete(c)) return std::nullopt;
  if (e.measure.kind == Measure::Kind::kLoss) {
    const std::optional<Distances> d = loss_distances(e, study, row, column);
    if (!d) return std::nullopt;
    return sign(e.measure, d->paper, 0) == sign(e.measure, d->ours, 0) ? Agrees::kYes : Agrees::kNo;
  }
  if (!(std::fabs(c.best - f->best) <= kSharePoints)) return Agrees::kNo;
  const bool medians = c.values.size() > 1 && std::isfinite(f->median);
  return medians && !(std::fabs(c.median - f->median) <= kSharePoints) ? Agrees::kBestOnly : Agrees::kYes;
}

std::string order_text(const PaperOrder& o) {
  std::string text = fmt::format("{}: {} {} {}", o.column, o.row,
                                 o.kind == PaperOrder::Kind::kBetter  ? "better than"
                                 : o.kind == PaperOrder::Kind::kEqual ? "equal to"
                                                                      : "not worse than",
                                 o.than);
  if (!o.figures.empty()) text += fmt::format(" (paper: {})", o.figures);
  return text;
}

std::string expectation_text(const Expectation& x) {
  const bool least = std::isfinite(x.at_least);
  return fmt::format("{}: {} {} {:g}", x.column, x.row, least ? "at least" : "at most",
                     least ? x.at_least : x.at_most);
}

std::vector<Claim> study_claims(const Experiment& e, const Study& study) {
  std::vector<Claim> out;
  if (e.orders)
    for (const PaperOrder& o : e.orders(study.effort)) {
      const CellResult a = cell_of(e, study, o.row, o.column), b = cell_of(e, study, o.than, o.column);
      if (!complete(a) || !complete(b)) continue;
      const int s = sign(e.measure, a.best, b.best);
      const bool better = o.kind == PaperOrder::Kind::kBetter, equal = o.kind == PaperOrder::Kind::kEqual;
      out.push_back(
          {order_text(o),
           fmt::format("{} against {}", figure_text(e.measure, a.best), figure_text(e.measure, b.best)),
           better  ? s > 0
           : equal ? s == 0
                   : s >= 0});
    }
  if (!e.expected) return out;
  const std::vector<PaperFigure> figures = paper_figures(e);
  for (const Expectation& x : e.expected(study.effort)) {
    const CellResult c = cell_of(e, study, x.row, x.column);
    if (paper_figure(figures, x.row, x.column) || !complete(c)) continue;
    out.push_back(
        {expectation_text(x), figure_text(e.measure, c.best), c.best >= x.at_least && c.best <= x.at_most});
  }
  return out;
}

std::string Agreement::text() const {
  if (all == 0) return "-";
  return fmt::format("{}, {} of {}", yes == all ? "yes" : yes + partly > 0 ? "partly" : "no", yes, all);
}

Agreement agreement(const Experiment& e, const Study& study, const std::vector<Claim>& claims) {
  Agreement out;
  for (const PaperFigure& f : paper_figures(e))
    if (const std::optional<Agrees> a = agrees(e, study, f.row, f.column)) {
      ++out.all;
      out.yes += *a == Agrees::kYes, out.partly += *a == Agrees::kBestOnly;
    }
  for (const Claim& c : claims) ++out.all, out.yes += c.held;
  return out;
}

std::string figure_text(const Measure& m, double x) {
  return std::isfinite(x) ? fmt::format("{:.{}f}", x, m.kind == Measure::Kind::kLoss ? 3 : 1)
                          : std::string("-");
}
std::string figure_text(const Measure& m, double best, double median) {
  return figure_text(m, best) + (std::isfinite(median) ? fmt::format(" ({})", figure_text(m, median)) : "");
}

}  // namespace braid
