#include "lab/results_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>

#include "base/progress.h"
#include "lab/agreement.h"
#include "report/page.h"

namespace braid {
namespace {

constexpr std::string_view kArxiv = "arXiv:";

// The number of an arXiv paper that begins at `at`, behind kArxiv.
std::string_view arxiv_number(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && (std::isdigit(static_cast<unsigned char>(text[end])) || text[end] == '.'))
    ++end;
  if (end > at && text[end - 1] == '.') --end;  // of the sentence
  return text.substr(at, end - at);
}

std::string markdown_row(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const std::string& c : cells)
    out += " " + (c.starts_with("`") || c.starts_with("[") ? c : markdown_cell(c)) + " |";
  return out + "\n";
}
std::string markdown_table(const std::vector<std::string>& head,
                           const std::vector<std::vector<std::string>>& rows) {
  std::string out = markdown_row(head) + "|";
  for (size_t i = 0; i < head.size(); ++i) out += "---|";
  out += "\n";
  for (const std::vector<std::string>& row : rows) out += markdown_row(row);
  return out;
}

std::string wrapped(const std::string& text) {
  constexpr size_t kWidth = 116;
  std::string out;
  size_t column = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (column > 0 && column + 1 + end - at > kWidth) out += '\n', column = 0;
    if (column > 0) out += ' ', ++column;
    out += text.substr(at, end - at), column += end - at;
    at = end + 1;
  }
  return out + "\n";
}

std::string plain_command(const Experiment& e, Effort effort) {
  return fmt::format("braid lab run {}{}", e.name,
                     effort == Effort::kQuick   ? " --quick"
                     : effort == Effort::kPaper ? " --paper"
                                                : "");
}

// "HQLT, Table 3", to the paper.
std::string paper_link(const Experiment& e) {
  const size_t at = e.paper.find(kArxiv);
  const std::string place(e.place);
  if (at == e.paper.npos) return place;
  return fmt::format("[{}](https://arxiv.org/abs/{})", place, arxiv_number(e.paper, at + kArxiv.size()));
}

std::string cell_text(const Kept& k, const std::string& row, const std::string& column) {
  const Measure& m = k.experiment->measure;
  const CellResult c = k.study.cell(row, column, m.larger_is_better());
  if (c.values.empty()) return "-";
  std::string text = c.values.size() > 1 ? figure_text(m, c.best, c.median) : figure_text(m, c.best);
  if (c.values.size() < c.planned) text += fmt::format(", {} of {} runs", c.values.size(), c.planned);
  return text;
}

// The table of cells, with the paper's figures where it has some.
std::string cells_table(const Kept& k) {
  const Experiment& e = *k.experiment;
  const std::vector<PaperFigure> figures = paper_figures(e);
  const auto has_figure = [&](const std::string& column) {
    return std::ranges::find(figures, column, &PaperFigure::column) != figures.end();
  };
  const bool loss = e.measure.kind == Measure::Kind::kLoss;
  std::vector<std::string> head{"row"};
  for (const std::string& column : k.study.columns) {
    if (has_figure(column)) {
      head.insert(head.end(), {column + ": paper", "ours"});
      if (loss) head.insert(head.end(), {"paper, more than the first row", "ours, more than the first row"});
      head.push_back("agrees");
    } else
      head.push_back(column);
  }
  std::vector<std::vector<std::string>> rows;
  for (const std::string& row : k.study.rows) {
    std::vector<std::string> cells{row};
    for (const std::string& column : k.study.columns) {
      if (has_figure(column)) {
        const PaperFigure* f = paper_figure(figures, row, column);
        cells.push_back(f ? figure_text(e.measure, f->best, f->median) : "-");
      }
      cells.push_back(cell_text(k, row, column));
      if (has_figure(column)) {
        if (loss) {
          const std::optional<Distances> d = loss_distances(e, k.study, row, column);
          cells.insert(cells.end(), {d ? fmt::format("{:+.3f}", d->paper) : "-",
                                     d ? fmt::format("{:+.3f}", d->ours) : "-"});
        }
        const std::optional<Agrees> a = agrees(e, k.study, row, column);
        cells.push_back(a ? agrees_text(*a) : "-");
      }
    }
    rows.push_back(std::move(cells));
  }
  return markdown_table(head, rows);
}

std::string claims_table(const std::vector<Claim>& claims) {
  std::vector<std::vector<std::string>> rows;
  for (const Claim& c : claims) rows.push_back({c.text, c.found, c.held ? "yes" : "no"});
  return markdown_table({"claim", "found", "holds"}, rows);
}

// The last number in a name: "accuracy, 33-64 tokens" -> 64.
double length_in(const std::string& name) {
  size_t end = name.size();
  while (end > 0 && !std::isdigit(static_cast<unsigned char>(name[end - 1]))) --end;
  size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(name[begin - 1]))) --begin;
  return begin < end && end - begin < 10 ? std::stod(name.substr(begin, end - begin)) : std::nan("");
}

// Of one column: the metrics by length of each row's best run.
std::string lengths_table(const Kept& k, const std::string& column) {
  const Experiment& e = *k.experiment;
  std::map<double, std::string> lengths;  // and their names
  std::vector<std::pair<std::string, std::map<double, double>>> rows;
  for (const std::string& row : k.study.rows) {
    const TrialResult* best = nullptr;
    for (const TrialResult& t : k.study.trials)
      if (t.trial.row == row && t.trial.column == column && t.result && t.result->contains("metrics") &&
          (!best || (e.measure.larger_is_better() ? t.value > best->value : t.value < best->value)))
        best = &t;
    if (!best) continue;
    auto& values = rows.emplace_back(row, std::map<double, double>()).second;
    for (const auto& [name, metric] : (*best->result)["metrics"].items()) {
      const double length = length_in(name), value = metric["value"].get<double>(),
                   chance = metric["chance"].get<double>();
      if (!std::isfinite(length)) continue;
      const size_t from = name.find_first_not_of(' ', e.length_metric.size());
      lengths[length] = name.substr(from);
      values[length] =
          100 * (e.measure.kind == Measure::Kind::kNormalised ? (value - chance) / (1 - chance) : value);
    }
  }
  if (lengths.size() < 2) return "";
  std::vector<std::string> head{fmt::format("{}, best run, by length", column)};
  for (const auto& [length, name] : lengths)
    head.push_back(e.length_metric == "first " ? "first " + name : name);
  std::vector<std::vector<std::string>> table;
  for (const auto& [row, values] : rows) {
    std::vector<std::string> cells{row};
    for (const auto& [length, name] : lengths)
      cells.push_back(values.contains(length) ? fmt::format("{:.1f}", values.at(length)) : "-");
    table.push_back(std::move(cells));
  }
  return markdown_table(head, table);
}

std::string settings_text(const Json& settings) {
  std::string out;
  for (const auto& [name, value] : settings.items()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    out += fmt::format("{}`{}` {}", out.empty() ? "" : ", ", name, text);
  }
  return out;
}

// How it was made.
std::string facts_table(const Kept& k, const std::string& agreement) {
  const Experiment& e = *k.experiment;
  const Made& m = k.made;
  std::vector<std::vector<std::string>> rows{
      {"agrees", agreement},
      {e.compute ? "computing" : "training",
       (e.compute ? std::string() : k.runs_text() + ", ") + human_time(k.seconds)},
      {"machine",
       fmt::format("{}, {}{}", m.cpu, m.isa,
                   k.threads > 0 ? fmt::format(", {} thread{}", k.threads, k.threads > 1 ? "s" : "") : "")},
      {"program",
       fmt::format("Braid {}, commit {}, {}", m.program.version, k.commits, k.date.substr(0, 10))}};
  if (!k.settings.empty()) rows.push_back({"settings of all runs", settings_text(k.settings)});
  return markdown_table({"effort", effort_name(k.study.effort)}, rows);
}

std::string kept_block(const Kept& k) {
  const Experiment& e = *k.experiment;
  std::string out;
  const auto part = [&](const std::string& text) {
    if (!text.empty()) out += (out.empty() ? "" : "\n") + text;
  };
  Agreement agreed;
  if (e.compute) {
    agreed.all = k.claims.size();
    agreed.yes = static_cast<size_t>(std::ranges::count_if(k.claims, &Claim::held));
  } else {
    agreed = agreement(e, k.study, k.claims);
    part(wrapped(fmt::format(
        "{}: best of all runs, in brackets the median.",
        std::string(1, static_cast<char>(std::toupper(e.measure.unit[0]))) + e.measure.unit.substr(1))));
    part(cells_table(k));
  }
  if (!k.claims.empty()) part(claims_table(k.claims));
  if (!e.length_metric.empty())
    for (const std::string& column : k.study.columns) part(lengths_table(k, column));
  if (e.tables && !e.compute)
    for (const PageTable& t : e.tables(k.study)) {
      std::vector<std::vector<std::string>> rows;
      for (const std::vector<PageCell>& row : t.rows) {
        rows.emplace_back();
        for (const PageCell& c : row) rows.back().push_back(c.text);
      }
      part(wrapped(t.caption) + "\n" + markdown_table(t.head, rows));
    }
  part("    " + k.made.program.command + "\n");
  part(facts_table(k, agreed.text() + (k.unfinished() ? ", unfinished" : "")));
  return out;
}

}  // namespace

std::string markdown_cell(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with(kArxiv)) {
      const std::string_view id = arxiv_number(text, at + kArxiv.size());
      out += fmt::format("[arXiv:{}](https://arxiv.org/abs/{})", id, id);
      at += kArxiv.size() + id.size();
      continue;
    }
    if (text[at] == '|') out += '\\';
    out += text[at++];
  }
  return out;
}

std::string results_index(std::span<const Kept> all) {
  std::vector<std::vector<std::string>> rows;
  for (const Experiment& e : all_experiments()) {
    const auto at = std::ranges::find(all, &e, &Kept::experiment);
    const Kept* k = at == all.end() ? nullptr : &*at;
    const std::vector<PaperFigure> figures = paper_figures(e);
    // The first figure or claim for which there is a result stands for the experiment.
    std::string theirs = "-", ours = "not kept yet", agreed = "-";
    if (k && e.compute) {
      const auto held = static_cast<size_t>(std::ranges::count_if(k->claims, &Claim::held));
      theirs = fmt::format("{} claims", k->claims.size());
      ours = fmt::format("{} hold", held == k->claims.size() ? "all" : std::to_string(held));
      agreed = Agreement{held, 0, k->claims.size()}.text();
    } else if (k) {
      ours = "-";
      for (const PaperFigure& f : figures)
        if (agrees(e, k->study, f.row, f.column)) {
          theirs = fmt::format("{}, {}: {}", f.row, f.column, figure_text(e.measure, f.best, f.median));
          ours = cell_text(*k, f.row, f.column);
          if (const std::optional<Distances> d = loss_distances(e, k->study, f.row, f.column);
              d && e.measure.kind == Measure::Kind::kLoss) {
            theirs = fmt::format("{}, more than the first row: {:+.3f}", f.row, d->paper);
            ours = fmt::format("{:+.3f}", d->ours);
          }
          break;
        }
      if (theirs == "-" && !k->claims.empty()) theirs = k->claims[0].text, ours = k->claims[0].found;
      agreed = agreement(e, k->study, k->claims).text();
      if (k->unfinished()) agreed += ", " + k->runs_text();
    } else if (!figures.empty()) {
      const PaperFigure& f = figures[0];
      theirs = fmt::format("{}, {}: {}", f.row, f.column, figure_text(e.measure, f.best, f.median));
    } else if (e.orders) {
      theirs = order_text(e.orders(Effort::kQuick)[0]);
    } else if (e.expected) {
      theirs = expectation_text(e.expected(Effort::kQuick)[0]);
    }
    rows.push_back({paper_link(e), fmt::format("[`{}`]({}.md)", e.name, e.name), theirs, ours, agreed,
                    "`" + (k ? k->made.program.command : plain_command(e, Effort::kQuick)) + "`",
                    k ? k->commits : "-"});
  }
  return markdown_table(
      {"paper and place", "experiment", "figure or claim", "ours", "agrees", "command", "commit"}, rows);
}

std::string results_block(const Experiment& e, std::span<const Kept> all) {
  std::string out;
  for (const Kept& k : all)
    if (k.experiment == &e) out += (out.empty() ? "" : "\n") + kept_block(k);
  if (!out.empty()) return out;
  return fmt::format("Not kept yet:\n\n    {}\n    braid lab keep runs/lab/{}-quick && make docs\n",
                     plain_command(e, Effort::kQuick), e.name);
}

}  // namespace braid
