#include "lab/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <tuple>

#include "base/cpu.h"
#include "base/progress.h"
#include "io/strict_json.h"
#include "lab/agreement.h"

namespace braid {
namespace {

std::string number(double x, bool loss) {
  return std::isfinite(x) ? fmt::format("{:.{}f}", x, loss ? 3 : 1) : std::string("-");
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

// The finished trials of a cell with the learning rate of the best one, or else the first with a curve.
std::vector<const TrialResult*> shown_trials(const Experiment& e, const Study& s, const std::string& row,
                                             const std::string& column) {
  const TrialResult* best = nullptr;
  const auto in_cell = [&](const TrialResult& t) {
    return t.trial.row == row && t.trial.column == column && !t.curve.empty();
  };
  for (const TrialResult& t : s.trials) {
    if (!in_cell(t)) continue;
    const bool better =
        !best || (t.result && (!best->result || (e.measure.larger_is_better() ? t.value > best->value
                                                                              : t.value < best->value)));
    if (better) best = &t;
  }
  if (!best) return {};
  std::vector<const TrialResult*> out{best};
  for (const TrialResult& t : s.trials)
    if (&t != best && in_cell(t) && t.result && t.trial.options.lr == best->trial.options.lr)
      out.push_back(&t);
  return out;
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

bool is_loss(const Experiment& e) { return e.measure.kind == Measure::Kind::kLoss; }

// What guessing gives in a column, in the unit of the table.
std::optional<double> chance_of(const Experiment& e, const Study& study, const std::string& column) {
  if (is_loss(e)) return std::nullopt;
  if (e.measure.kind == Measure::Kind::kNormalised) return 0;
  for (const TrialResult& t : study.trials) {
    if (t.trial.column != column || !t.result || !t.result->contains("metrics")) continue;
    const Json& metrics = (*t.result)["metrics"];
    if (!metrics.contains(e.measure.metric)) continue;
    const double chance = metrics[e.measure.metric].value("chance", 0.0);
    return chance > 0 ? std::optional(100 * chance) : std::nullopt;
  }
  return std::nullopt;
}

// The axis of a share has its whole range; of a loss, so much that noise does not fill it.
constexpr double kLeastLossSpan = 0.2;
std::optional<std::pair<double, double>> value_range(const Experiment& e) {
  if (is_loss(e)) return std::nullopt;
  return std::pair(e.measure.kind == Measure::Kind::kNormalised ? -5.0 : 0.0, 100.0);
}

// Values of several seeds over steps. A seed that ended early keeps its last value: it was stopped because it
// was done, or diverged.
struct Seeds {
  std::vector<double> x, median, low, high;
};
Seeds seeds_of(const std::vector<Series>& all) {
  std::map<double, std::vector<double>> at;
  for (const Series& s : all)
    for (const double x : s.x) at[x];
  Seeds out;
  for (auto& [x, values] : at) {
    for (const Series& s : all) {
      const size_t i = std::ranges::upper_bound(s.x, x) - s.x.begin();
      if (i > 0 && std::isfinite(s.y[i - 1])) values.push_back(s.y[i - 1]);
    }
    if (values.empty()) continue;
    std::ranges::sort(values);
    const size_t n = values.size();
    out.x.push_back(x), out.low.push_back(values.front()), out.high.push_back(values.back());
    out.median.push_back(n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2);
  }
  return out;
}

void add_training_curves(const Experiment& e, const Study& study, const std::string& column, Page& page) {
  Chart chart{.title = column + ", while training",
              .x_label = "training step",
              .y_label = e.measure.unit,
              .y_range = value_range(e),
              .least_span = kLeastLossSpan};
  if (const std::optional<double> chance = chance_of(e, study, column))
    chart.rules.emplace_back(*chance, "chance");
  bool several = false, moves = false;
  for (size_t r = 0; r < study.rows.size(); ++r) {
    std::vector<Series> runs;
    for (const TrialResult* t : shown_trials(e, study, study.rows[r], column)) {
      Series s{.name = "", .thin = true, .style = static_cast<int>(r)};
      for (const Json& line : t->curve)
        s.x.push_back(line.value("step", 0.0)),
            s.y.push_back(line["value"].is_number() ? line["value"].get<double>() : NAN);
      moves |= s.x.size() > 1;
      runs.push_back(std::move(s));
    }
    if (runs.empty()) continue;
    Seeds seeds = seeds_of(runs);
    Series line{.name = study.rows[r],
                .x = std::move(seeds.x),
                .y = std::move(seeds.median),
                .style = static_cast<int>(r)};
    if (runs.size() > 1) {
      several = true;
      line.low = std::move(seeds.low), line.high = std::move(seeds.high);
      for (Series& s : runs) chart.series.push_back(std::move(s));
    }
    chart.series.push_back(std::move(line));
  }
  if (!moves) return;
  page.chart(chart);
  if (several) page.paragraph("Thick lines: median of the seeds. Thin lines: each seed. Bands: all seeds.");
}

void add_lengths(const Experiment& e, const Study& study, const std::string& column, Page& page) {
  if (e.length_metric.empty()) return;
  Chart chart{.title = column + ", by length, best run",
              .x_label = "length, upper end of its bin",
              .y_label = e.measure.unit,
              .log_x = true,
              .y_range = value_range(e)};
  if (const std::optional<double> chance = chance_of(e, study, column))
    chart.rules.emplace_back(*chance, "chance");
  for (size_t r = 0; r < study.rows.size(); ++r) {
    const std::vector<const TrialResult*> shown = shown_trials(e, study, study.rows[r], column);
    if (shown.empty() || !shown[0]->result || !shown[0]->result->contains("metrics")) continue;
    std::vector<std::pair<double, double>> points;
    for (const auto& [name, metric] : (*shown[0]->result)["metrics"].items()) {
      if (!name.starts_with(e.length_metric) || name == e.measure.metric || !std::isfinite(last_number(name)))
        continue;
      const double value = metric.value("value", NAN), chance = metric.value("chance", 0.0);
      points.emplace_back(
          last_number(name),
          100 * (e.measure.kind == Measure::Kind::kNormalised ? (value - chance) / (1 - chance) : value));
    }
    if (points.size() < 2) continue;
    std::ranges::sort(points);
    Series by{.name = study.rows[r], .style = static_cast<int>(r)};
    for (const auto& [x, y] : points) by.x.push_back(x), by.y.push_back(y);
    chart.series.push_back(std::move(by));
  }
  if (!chart.series.empty()) page.chart(chart);
}

// Losses of other texts and tokens are compared by their distance to the first row.
bool by_distance(const Experiment& e) { return is_loss(e) && e.figures; }

DotRow dot_row(const Experiment& e, const Study& study, const std::string& row, const std::string& column,
               const std::vector<PaperFigure>& paper) {
  const CellResult c = study.cell(row, column, e.measure.larger_is_better());
  const PaperFigure* f = paper_figure(paper, row, column);
  DotRow out{.name = row, .value = c.best, .runs = c.values};
  if (f && std::isfinite(f->best)) out.paper = f->best;
  if (by_distance(e)) {
    const double first = study.cell(study.rows.front(), column, false).best;
    const PaperFigure* theirs = paper_figure(paper, study.rows.front(), column);
    out.value -= first;
    for (double& v : out.runs) v -= first;
    out.paper = f && theirs ? std::optional(f->best - theirs->best) : std::nullopt;
    out.text = std::isfinite(out.value) ? fmt::format("{:+.3f}", out.value) : "not run";
  } else {
    out.text = std::isfinite(out.value) ? figure_text(e.measure, out.value) : "not run";
  }
  out.differs = agrees(e, study, row, column) == Agrees::kNo;
  for (const Verdict& v : verdicts(e, study))
    out.differs |= !f && v.expected.row == row && v.expected.column == column && v.done && !v.met;
  return out;
}

// More columns than this are a scan over settings, which has a chart of its own.
constexpr size_t kMostGroups = 6;

bool add_dots(const Experiment& e, const Study& study, Page& page) {
  const std::vector<PaperFigure> paper = paper_figures(e);
  DotChart chart{.title = std::string(e.title),
                 .x_label = by_distance(e)
                                ? fmt::format("{}: distance to {}", e.measure.unit, study.rows.front())
                                : e.measure.unit,
                 .x_range = value_range(e),
                 .least_span = kLeastLossSpan};
  for (const std::string& column : study.columns) {
    DotChart::Group group{.name = study.columns.size() > 1 ? column : "",
                          .chance = chance_of(e, study, column)};
    bool any = false;
    for (const std::string& row : study.rows) {
      const CellResult c = study.cell(row, column, e.measure.larger_is_better());
      if (c.planned == 0) continue;
      any |= !c.values.empty();
      group.rows.push_back(dot_row(e, study, row, column, paper));
    }
    if (any) chart.groups.push_back(std::move(group));
  }
  if (chart.groups.empty() || study.columns.size() > kMostGroups) return false;
  page.dots(chart);
  return true;
}

// Paper, ours and whether they agree, for each column.
void add_table(const Experiment& e, const Study& study, Page& page) {
  const std::vector<PaperFigure> paper = paper_figures(e);
  PageTable table{.head = {"model"}, .rows = {}};
  const auto has_figures = [&](const std::string& column) {
    return std::ranges::find(paper, column, &PaperFigure::column) != paper.end();
  };
  for (const std::string& column : study.columns) {
    if (!has_figures(column)) {
      table.head.push_back(column);
      continue;
    }
    for (const char* kind : {"paper", "ours", "agrees"}) table.head.push_back(column + ": " + kind);
  }
  bool medians = false;
  for (const std::string& row : study.rows) {
    std::vector<PageCell> cells{{row}};
    for (const std::string& column : study.columns) {
      const CellResult c = study.cell(row, column, e.measure.larger_is_better());
      medians |= c.values.size() > 1;
      const PageCell value{ours(study, row, column, c, is_loss(e)),
                           c.values.empty() ? PageCell::Mark::kMissing : PageCell::Mark::kNone};
      if (!has_figures(column)) {
        cells.push_back(value);
        continue;
      }
      const PaperFigure* f = paper_figure(paper, row, column);
      medians |= f && std::isfinite(f->median);
      cells.push_back({f ? figure_text(e.measure, f->best, f->median) : "-",
                       f ? PageCell::Mark::kNone : PageCell::Mark::kMissing});
      cells.push_back(value);
      const std::optional<Agrees> a = agrees(e, study, row, column);
      cells.push_back(!a ? PageCell{"-", PageCell::Mark::kMissing}
                         : PageCell{agrees_text(*a), *a == Agrees::kYes  ? PageCell::Mark::kGood
                                                     : *a == Agrees::kNo ? PageCell::Mark::kBad
                                                                         : PageCell::Mark::kNone});
    }
    table.rows.push_back(std::move(cells));
  }
  table.caption = fmt::format("{}{}.", e.measure.unit, medians ? ": best run, in brackets the median" : "");
  if (!paper.empty())
    table.caption +=
        is_loss(e) ? fmt::format(
                         " Agrees: worse than, equal to or better than the first row, as in the "
                         "paper; distances up to {:g} are equal.",
                         kNats)
                   : fmt::format(" Agrees: best and median within {:g} points of the paper's.", kSharePoints);
  page.table(table);
}

void add_claims(const std::vector<Claim>& claims, Page& page) {
  if (claims.empty()) return;
  PageTable table{.head = {"expected", "found", "holds"}, .rows = {}, .words = true};
  for (const Claim& c : claims)
    table.rows.push_back({{c.text},
                          {c.found},
                          {c.held ? "yes" : "no", c.held ? PageCell::Mark::kGood : PageCell::Mark::kBad}});
  page.table(table);
}

// Known causes of what differs, and of nothing else.
void add_differences(const Experiment& e, const Study& study, Page& page) {
  if (!e.differences) return;
  PageTable table{.head = {"differs", "known or likely cause", "evidence"}, .rows = {}, .words = true};
  for (const Difference& d : e.differences(study.effort)) {
    std::vector<std::string> cells;
    for (const std::string& row : study.rows)
      for (const std::string& column : study.columns) {
        if ((!d.row.empty() && d.row != row) || (!d.column.empty() && d.column != column)) continue;
        const std::optional<Agrees> a = agrees(e, study, row, column);
        if (a && *a != Agrees::kYes) cells.push_back(row);
      }
    if (cells.empty()) continue;
    std::string names;
    for (const std::string& c : cells) names += (names.empty() ? "" : "; ") + c;
    table.rows.push_back({{d.column.empty() ? names : d.column + ": " + names}, {d.why}, {d.status}});
  }
  if (!table.rows.empty()) page.table(table);
}

// "A", "A and B", "A, B and C".
std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size(); ++i)
    out += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return out;
}

// Of the column that tells most: with results of the most models, then one that some solve and some do not,
// then the one with the lowest mean.
std::string share_finding(const Experiment& e, const Study& study) {
  constexpr double kSolved = 95;
  std::string hardest;
  std::tuple<size_t, bool, double> most{};
  for (const std::string& column : study.columns) {
    double sum = 0;
    size_t n = 0, solved = 0;
    for (const std::string& row : study.rows)
      if (const double best = study.cell(row, column, true).best; std::isfinite(best))
        sum += best, ++n, solved += best >= kSolved;
    if (n == 0) continue;
    const std::tuple tells{n, solved > 0 && solved < n, -sum / static_cast<double>(n)};
    if (hardest.empty() || tells > most) most = tells, hardest = column;
  }
  std::vector<std::string> solvers;
  std::string best_row;
  double best = -std::numeric_limits<double>::infinity();
  size_t rows = 0;
  for (const std::string& row : study.rows) {
    const double value = study.cell(row, hardest, true).best;
    if (!std::isfinite(value)) continue;
    ++rows;
    if (value > best) best = value, best_row = row;
    if (value >= kSolved) solvers.push_back(row);
  }
  const std::string where = study.columns.size() > 1 ? " on " + hardest : "",
                    unit = e.measure.kind == Measure::Kind::kNormalised ? "% above chance" : "%";
  if (rows == 1) return fmt::format("{}: {:.1f} {}{}", best_row, best, unit, where);
  if (solvers.empty())
    return fmt::format("No model reaches {:g} {}{}; the best is {} with {:.1f}", kSolved, unit, where,
                       best_row, best);
  if (solvers.size() == 1)
    return fmt::format("Only {} reaches {:g} {}{}: {:.1f}", solvers[0], kSolved, unit, where, best);
  if (solvers.size() == rows) return fmt::format("All {} models reach {:g} {}{}", rows, kSolved, unit, where);
  return fmt::format("{} of {} models reach {:g} {}{}{}", solvers.size(), rows, kSolved, unit, where,
                     solvers.size() <= 3 ? ": " + joined(solvers) : "");
}

std::string loss_finding(const Study& study) {
  struct Cell {
    double loss;
    std::string name;
  };
  std::vector<Cell> cells;
  for (const std::string& row : study.rows)
    for (const std::string& column : study.columns)
      if (const double loss = study.cell(row, column, false).best; std::isfinite(loss))
        cells.push_back({loss, study.columns.size() > 1 ? row + ", " + column : row});
  std::ranges::sort(cells, {}, &Cell::loss);
  const size_t equal =
      std::ranges::count_if(cells, [&](const Cell& c) { return c.loss - cells[0].loss <= kNats; });
  const double span = cells.back().loss - cells[0].loss;
  if (cells.size() > 1 && equal == cells.size())
    return fmt::format("All {} losses are equal within {:.3f} nats: lowest {:.3f}, {}", cells.size(), span,
                       cells[0].loss, cells[0].name);
  return fmt::format("Lowest loss {:.3f}: {}{}", cells[0].loss, cells[0].name,
                     equal > 1 ? fmt::format("; {} more within {:g} nats", equal - 1, kNats) : "");
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

Made made_here(const Program& program) {
  const std::time_t now = std::time(nullptr);
  char date[16];
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  return {program, cpu_model(), std::string(isa_name(program.isa)), date};
}

Json to_json(const Made& m) {
  return {{"command", m.program.command},
          {"version", m.program.version},
          {"commit", m.program.commit},
          {"compiler", m.program.compiler},
          {"cpu", m.cpu},
          {"isa", m.isa},
          {"date", m.date}};
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
  if (object.contains("date"))
    if (Status s = read_field(object, "date", m.date, file, "made."); !s) return s.error();
  return m;
}

void add_made(const Made& made, const std::string& more, Page& page) {
  const Program& p = made.program;
  page.begin_details("How to do it again: command, program, machine");
  page.code(p.command);
  // What studies of earlier versions were made by is not known.
  page.paragraph(more + (p.version.empty()
                             ? std::string()
                             : fmt::format(" Braid {} ({}), {}; {}, {}{}{}.", p.version, p.commit, p.compiler,
                                           made.cpu, made.isa, made.date.empty() ? "" : "; ", made.date)));
  page.end_details();
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
  const std::vector<PaperFigure> paper = paper_figures(e);
  for (const std::string& row : study.rows)
    for (const std::string& column : study.columns) {
      const CellResult c = study.cell(row, column, e.measure.larger_is_better());
      if (c.planned == 0) continue;
      const PaperFigure* f = paper_figure(paper, row, column);
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

std::string study_title(const Experiment& e, const Study& study) {
  size_t done = 0;
  bool values = false;
  for (const TrialResult& t : study.trials)
    done += t.result.has_value(), values |= t.result && std::isfinite(t.value);
  if (!values) return fmt::format("No result yet: {} of {} runs done", done, study.trials.size());
  size_t all = 0, yes = 0;
  for (const PaperFigure& f : paper_figures(e))
    if (const std::optional<Agrees> a = agrees(e, study, f.row, f.column)) ++all, yes += *a == Agrees::kYes;
  std::string out = all > 1      ? fmt::format("{} of {} results agree with the paper", yes, all)
                    : is_loss(e) ? loss_finding(study)
                                 : share_finding(e, study);
  if (done < study.trials.size()) out += fmt::format(" ({} of {} runs done)", done, study.trials.size());
  return out;
}

Page report_page(const Experiment& e, const Study& study, const Made& made) {
  Page page(study_title(e, study));
  page.topic(fmt::format("{}, {}: {}", e.name, effort_name(study.effort), e.title));
  if (e.more) e.more(study, page);
  add_dots(e, study, page);
  page.paragraph(e.shows);
  if (!e.paper.empty()) page.paragraph(fmt::format("Paper: {}.", e.paper));
  add_table(e, study, page);
  add_differences(e, study, page);
  add_claims(study_claims(e, study), page);
  const bool fold = study.columns.size() > 2;
  if (fold) page.begin_details("Curves of every column");
  for (const std::string& column : study.columns) {
    add_training_curves(e, study, column, page);
    add_lengths(e, study, column, page);
  }
  if (fold) page.end_details();
  add_repeat(study, made, page);
  return page;
}

std::string table_text(const Experiment& e, const Study& study) {
  const std::vector<PaperFigure> paper = paper_figures(e);
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
      const PaperFigure* f = paper_figure(paper, row, column);
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
