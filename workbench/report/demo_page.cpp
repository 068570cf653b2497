#include "report/demo_page.h"

#include <fmt/format.h>

#include <algorithm>

namespace braid {

bool DemoModel::part_as_expected(size_t part) const {
  return scores[part] >= expected[part].at_least && scores[part] <= expected[part].at_most;
}
bool DemoModel::as_expected() const {
  for (size_t part = 0; part < scores.size(); ++part)
    if (!part_as_expected(part)) return false;
  return true;
}

std::string demo_title(const std::vector<DemoModel>& models) {
  if (models.empty()) return "No model was trained";
  const double both = models.back().scores.back();
  if (std::ranges::all_of(models, &DemoModel::as_expected))
    return fmt::format("Only the hybrid solves both parts: {:.1f} %", both);
  return fmt::format("Not the expected result: the hybrid solves {:.1f} % of both parts", both);
}

Panels demo_figure(const std::vector<DemoModel>& models) {
  Panels out{.title = "Right answers while training, %", .charts = {}};
  const char* titles[] = {"count: is the count odd?", "recall: look up a key", "both at once"};
  for (size_t part = 0; part < kDemoParts.size(); ++part) {
    Chart chart{.title = titles[part], .x_label = "training step", .y_range = std::pair(0.0, 100.0)};
    chart.rules.emplace_back(kDemoChance[part], "chance");
    for (const DemoModel& m : models) {
      Series s{.name = m.name, .value = fmt::format("{:.1f}", m.scores[part])};
      for (const auto& [step, scores] : m.curve) s.x.push_back(step), s.y.push_back(scores[part]);
      chart.series.push_back(std::move(s));
    }
    out.charts.push_back(std::move(chart));
  }
  return out;
}

std::string demo_picture(const std::vector<DemoModel>& models, Theme theme) {
  Panels figure = demo_figure(models);
  figure.title = demo_title(models) + ". " + figure.title;
  return picture(std::move(figure), theme);
}

Page demo_page(const std::vector<DemoModel>& models) {
  Page page(demo_title(models));
  page.topic("Braid demo: three models of the same size, one task that needs two memories");
  page.panels(demo_figure(models));
  PageTable table{.head = {"model"}, .rows = {}};
  for (const char* part : kDemoParts) table.head.push_back(part);
  bool met = true;
  for (const DemoModel& m : models) {
    std::vector<PageCell> row{{m.name}};
    for (size_t part = 0; part < m.scores.size(); ++part) {
      const bool solved = m.expected[part].at_least > 0, as_expected = m.part_as_expected(part);
      met &= as_expected;
      row.push_back({fmt::format("{:.1f}", m.scores[part]), !as_expected ? PageCell::Mark::kBad
                                                            : solved     ? PageCell::Mark::kGood
                                                                         : PageCell::Mark::kNone});
    }
    table.rows.push_back(std::move(row));
  }
  std::vector<PageCell> chance{{"chance", PageCell::Mark::kMissing}};
  for (const double c : kDemoChance) chance.push_back({fmt::format("{:.1f}", c), PageCell::Mark::kMissing});
  table.rows.push_back(std::move(chance));
  table.caption = met ? "Right answers at the end, %. ✓ solved. No other cell is above 85 %."
                      : "Right answers at the end, %. ✓ solved. ✗ outside the expected range.";
  page.table(table);
  page.paragraph(
      "A sequence has a table of 48 keys and values, then bits and questions. count: is the number of ones "
      "so "
      "far odd? recall: which value has this key? both: the value of a key, moved on by one if the count is "
      "odd.");
  page.paragraph(
      "Attention keeps every pair, but a few layers of it cannot count over long sequences. The state of "
      "Gated "
      "DeltaNet changes its sign with each one, so counting is easy, but it is too small for the table. A "
      "layer "
      "of each does both.");
  page.begin_details("Settings and commands");
  page.paragraph(
      "Trained on 8 to 32 questions per sequence, tested on 32 to 64. Each command repeats one model.");
  for (const DemoModel& m : models) {
    page.paragraph(fmt::format("{}, {} parameters", m.name, m.parameters));
    page.code(m.command);
  }
  page.end_details();
  return page;
}

}  // namespace braid
