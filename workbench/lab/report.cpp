#include "lab/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/cpu.h"
#include "base/progress.h"
#include "io/strict_json.h"

namespace braid {
namespace {

std::string number(double x, bool loss) {
  return std::isfinite(x) ? fmt::format("{:.{}f}", x, loss ? 3 : 1) : std::string("-");
}

const PaperFigure* figure(const std::vector<PaperFigure>& all, const std::string& row,
                          const std::string& column) {
  for (const PaperFigure& f : all)
    if (f.row == row && f.column == column) return &f;
  return nullptr;
}

std::vector<PaperFigure> figures_of(const Experiment& e) {
  return e.figures ? e.figures() : std::vector<PaperFigure>{};
}

// How many runs of a cell ended because their loss was not finite.
size_t not_finite(const Study& study, const std::string& row, const std::string& column) {
  return std::ranges::count_if(study.trials, [&](const TrialResult& t) {
    return t.trial.row == row && t.trial.column == column && t.result &&
           t.result->value("stopped", "") == stop_text(Stop::kNotFinite);
  });
}

std::string ours(const Study& study, const std::string& row, const std::string& column, const CellResult& c,
                 bool loss) {
  if (c.values.empty()) return "-";
  std::string text = number(c.best, loss);
  if (c.values.size() > 1) text += fmt::format(" ({})", number(c.median, loss));
  if (c.values.size() < c.planned) text += fmt::format(" [{} of {}]", c.values.size(), c.planned);
  if (const size_t n = not_finite(study, row, column))
    text += c.planned == 1 ? ", not finite" : fmt::format(", {} not finite", n);
  return text;
}

// The best finished trial of a cell, or else the first that has a curve.
const TrialResult* shown_trial(const Experiment& e, const Study& s, const std::string& row,
                               const std::string& column) {
  const TrialResult* best = nullptr;
  for (const TrialResult& t : s.trials) {
    if (t.trial.row != row || t.trial.column != column || t.curve.empty()) continue;
    const bool better =
        !best || (t.result && (!best->result || (e.measure.larger_is_better() ? t.value > best->value
                                                                              : t.value < best->value)));
    if (better) best = &t;
  }
  return best;
}

// "accuracy, 33-64 tokens" -> 64; NaN without a number.
double last_number(const std::string& name) {
  size_t end = name.size();
  while (end > 0 && !std::isdigit(static_cast<unsigned char>(name[end - 1]))) --end;
  size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(name[begin - 1]))) --begin;
  return begin < end && end - begin < 10 ? std::stod(name.substr(begin, end - begin))
                                         : std::numeric_limits<double>::quiet_NaN();
}

void add_charts(const Experiment& e, const Study& study, Page& page) {
  for (const std::string& column : study.columns) {
    Chart curve{.title = "While training: " + column, .x_label = "step", .y_label = e.measure.unit};
    Chart lengths{.title = "By length: " + column,
                  .x_label = "up to this many",
                  .y_label = e.measure.unit,
                  .log_x = true};
    for (size_t r = 0; r < study.rows.size(); ++r) {
      const TrialResult* t = shown_trial(e, study, study.rows[r], column);
      if (!t) continue;
      Series s{.name = study.rows[r], .style = static_cast<int>(r)};
      for (const Json& line : t->curve)
        s.x.push_back(line.value("step", 0.0)),
            s.y.push_back(line["value"].is_number() ? line["value"].get<double>() : NAN);
      curve.series.push_back(std::move(s));
      if (e.length_metric.empty() || !t->result || !t->result->contains("metrics")) continue;
      Series by{.name = study.rows[r], .style = static_cast<int>(r)};
      std::vector<std::pair<double, double>> points;
      for (const auto& [name, metric] : (*t->result)["metrics"].items()) {
        if (!name.starts_with(e.length_metric) || name == e.measure.metric ||
            !std::isfinite(last_number(name)))
          continue;
        const double value = metric.value("value", NAN), chance = metric.value("chance", 0.0);
        points.emplace_back(
            last_number(name),
            100 * (e.measure.kind == Measure::Kind::kNormalised ? (value - chance) / (1 - chance) : value));
      }
      std::ranges::sort(points);
      for (const auto& [x, y] : points) by.x.push_back(x), by.y.push_back(y);
      if (points.size() > 1) lengths.series.push_back(std::move(by));
    }
    if (!curve.series.empty()) page.chart(curve);
    if (!lengths.series.empty()) page.chart(lengths);
  }
}

void add_scatter(const Experiment& e, const Study& study, Page& page) {
  const std::vector<PaperFigure> paper = figures_of(e);
  Chart chart{.title = "Ours against the paper's, best of all trials",
              .x_label = "paper: " + e.measure.unit,
              .y_label = "ours"};
  chart.diagonal = true;
  size_t points = 0;
  for (size_t i = 0; i < study.rows.size(); ++i) {
    Series s{.name = study.rows[i], .line = false, .style = static_cast<int>(i)};
    for (const std::string& column : study.columns) {
      const PaperFigure* f = figure(paper, study.rows[i], column);
      const CellResult c = study.cell(study.rows[i], column, e.measure.larger_is_better());
      if (!f || !std::isfinite(f->best) || !std::isfinite(c.best)) continue;
      s.x.push_back(f->best), s.y.push_back(c.best), ++points;
    }
    if (!s.x.empty()) chart.series.push_back(std::move(s));
  }
  if (points < 3) return;
  if (e.measure.kind != Measure::Kind::kLoss) chart.x_range = chart.y_range = std::pair(-6.0, 106.0);
  page.chart(chart);
}

void add_repeat(const Study& study, const Made& made, Page& page) {
  double seconds = 0;
  size_t done = 0;
  std::string commands;
  for (const TrialResult& t : study.trials) {
    if (t.result) seconds += t.result->value("seconds", 0.0), ++done;
    commands += fmt::format("# {}, {}, {}{}\n{}\n", t.trial.row, t.trial.column, t.trial.variant,
                            t.result ? fmt::format(": {:.1f} after {} steps, {}, {}", t.value,
                                                   t.result->value("step", uint64_t{0}),
                                                   human_time(t.result->value("seconds", 0.0)),
                                                   t.result->value("stopped", std::string()))
                                     : std::string(": not done"),
                            train_command(t.trial.options));
  }
  add_made(made,
           fmt::format("{} of {} training runs done, {} of training in all.", done, study.trials.size(),
                       human_time(seconds)),
           page);
  page.begin_details("The training runs one by one");
  page.code(commands);
  page.end_details();
}

}  // namespace

Made made_here(const Program& program) { return {program, cpu_model(), std::string(isa_name(program.isa))}; }

Json to_json(const Made& m) {
  return {{"command", m.program.command},
          {"version", m.program.version},
          {"commit", m.program.commit},
          {"compiler", m.program.compiler},
          {"cpu", m.cpu},
          {"isa", m.isa}};
}

Result<Made> read_made(const Json& object, const std::string& file) {
  Made m;
  for (const auto& [name, to] : {std::pair{"command", &m.program.command},
                                 {"version", &m.program.version},
                                 {"commit", &m.program.commit},
                                 {"compiler", &m.program.compiler},
                                 {"cpu", &m.cpu},
                                 {"isa", &m.isa}})
    if (Status s = read_field(object, name, *to, file, "made."); !s) return s.error();
  return m;
}

void add_made(const Made& made, const std::string& more, Page& page) {
  const Program& p = made.program;
  page.heading("How to do it again");
  page.code(p.command);
  // What studies of earlier versions were made by is not known.
  page.paragraph(more + (p.version.empty() ? std::string()
                                           : fmt::format(" Braid {} ({}), {}; {}, {}.", p.version, p.commit,
                                                         p.compiler, made.cpu, made.isa)));
}

std::vector<Verdict> verdicts(const Experiment& e, const Study& study) {
  std::vector<Verdict> out;
  if (!e.expected) return out;
  for (const Expectation& x : e.expected(study.effort)) {
    const CellResult c = study.cell(x.row, x.column, e.measure.larger_is_better());
    if (c.planned == 0) continue;
    out.push_back({x, c.best, c.values.size() == c.planned, c.best >= x.at_least && c.best <= x.at_most});
  }
  return out;
}

Json study_json(const Experiment& e, const Study& study) {
  const auto value = [](double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); };
  Json out{{"experiment", e.name},    {"effort", effort_name(study.effort)},
           {"unit", e.measure.unit},  {"cells", Json::array()},
           {"trials", Json::array()}, {"expectations", Json::array()}};
  const std::vector<PaperFigure> paper = figures_of(e);
  for (const std::string& row : study.rows)
    for (const std::string& column : study.columns) {
      const CellResult c = study.cell(row, column, e.measure.larger_is_better());
      if (c.planned == 0) continue;
      const PaperFigure* f = figure(paper, row, column);
      out["cells"].push_back({{"row", row},
                              {"column", column},
                              {"best", value(c.best)},
                              {"median", value(c.median)},
                              {"done", c.values.size()},
                              {"planned", c.planned},
                              {"paper", f ? value(f->best) : Json(nullptr)}});
    }
  for (const TrialResult& t : study.trials)
    out["trials"].push_back({{"id", t.trial.id()},
                             {"row", t.trial.row},
                             {"column", t.trial.column},
                             {"variant", t.trial.variant},
                             {"value", value(t.value)},
                             {"command", train_command(t.trial.options)},
                             {"result", t.result ? *t.result : Json(nullptr)}});
  for (const Verdict& v : verdicts(e, study))
    out["expectations"].push_back({{"row", v.expected.row},
                                   {"column", v.expected.column},
                                   {"at_least", value(v.expected.at_least)},
                                   {"at_most", value(v.expected.at_most)},
                                   {"value", value(v.value)},
                                   {"done", v.done},
                                   {"met", v.met}});
  return out;
}

Page report_page(const Experiment& e, const Study& study, const Made& made) {
  Page page{std::string(e.title)};
  page.paragraph(e.shows);
  page.paragraph(fmt::format("Paper: {}. Effort: {}.", e.paper, effort_name(study.effort)));
  const std::vector<PaperFigure> paper = figures_of(e);
  const std::vector<Verdict> judged = verdicts(e, study);
  const bool loss = e.measure.kind == Measure::Kind::kLoss;
  PageTable table;
  table.head = {"model"};
  for (const std::string& column : study.columns) {
    if (!paper.empty()) table.head.push_back(column + ", paper");
    table.head.push_back(column + (paper.empty() ? "" : ", ours"));
  }
  for (const std::string& row : study.rows) {
    std::vector<PageCell> cells{{row}};
    for (const std::string& column : study.columns) {
      if (!paper.empty()) {
        const PaperFigure* f = figure(paper, row, column);
        std::string text = f ? number(f->best, loss) : "-";
        if (f && std::isfinite(f->median)) text += fmt::format(" ({})", number(f->median, loss));
        cells.push_back({text, f ? PageCell::Mark::kNone : PageCell::Mark::kMissing});
      }
      const CellResult c = study.cell(row, column, e.measure.larger_is_better());
      PageCell cell{ours(study, row, column, c, loss),
                    c.values.empty() ? PageCell::Mark::kMissing : PageCell::Mark::kNone};
      for (const Verdict& v : judged)
        if (v.expected.row == row && v.expected.column == column && v.done)
          cell.mark = v.met ? PageCell::Mark::kGood : PageCell::Mark::kBad;
      cells.push_back(cell);
    }
    table.rows.push_back(std::move(cells));
  }
  table.caption = fmt::format("{}: best{}. Green: as expected; red: not.", e.measure.unit,
                              " of all seeds and learning rates, median in brackets");
  page.table(table);
  add_scatter(e, study, page);
  add_charts(e, study, page);
  if (e.more) e.more(study, page);
  add_repeat(study, made, page);
  return page;
}

std::string table_text(const Experiment& e, const Study& study) {
  const std::vector<PaperFigure> paper = figures_of(e);
  const bool loss = e.measure.kind == Measure::Kind::kLoss;
  size_t width = 5;
  for (const std::string& row : study.rows) width = std::max(width, row.size());
  std::string out = fmt::format("{:<{}}", "", width);
  for (const std::string& column : study.columns)
    out += fmt::format("  {:>22}{}", column, paper.empty() ? "" : "     paper");
  out += "\n";
  for (const std::string& row : study.rows) {
    out += fmt::format("{:<{}}", row, width);
    for (const std::string& column : study.columns) {
      const CellResult c = study.cell(row, column, e.measure.larger_is_better());
      out += fmt::format("  {:>22}", ours(study, row, column, c, loss));
      const PaperFigure* f = figure(paper, row, column);
      if (!paper.empty()) out += fmt::format("  {:>8}", f ? number(f->best, loss) : "-");
    }
    out += "\n";
  }
  out += fmt::format("({}; best of all trials, median in brackets)\n", e.measure.unit);
  for (const Verdict& v : verdicts(e, study))
    if (v.done && !v.met)
      out +=
          fmt::format("not as expected: {}, {}: {} instead of {}\n", v.expected.row, v.expected.column,
                      number(v.value, loss),
                      std::isfinite(v.expected.at_least) ? fmt::format("at least {:g}", v.expected.at_least)
                                                         : fmt::format("at most {:g}", v.expected.at_most));
  return out;
}

}  // namespace braid
