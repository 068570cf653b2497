// A small scaling ladder after Olmo Hybrid: five variants, four sizes, several amounts of text.
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "data/text.h"
#include "lab/fit.h"
#include "lab/makers.h"
#include "report/page.h"

namespace braid {
namespace {

constexpr int64_t kBatch = 16, kLength = 256;

// Widths; four layers, heads of 16 or 24, an inner width of 8/3.
struct Rung {
  const char* size;
  int64_t d;
};
constexpr Rung kRungs[] = {
    {"d32-l4-h2-f88", 32}, {"d48-l4-h2-f128", 48}, {"d64-l4-h4-f176", 64}, {"d96-l4-h4-f256", 96}};
// The paper's first rungs (60M to 370M); its larger ones need a cluster.
constexpr Rung kPaperRungs[] = {{"d384-l8-h8-f1536", 384},
                                {"d512-l12-h8-f2048", 512},
                                {"d768-l12-h12-f3072", 768},
                                {"d1024-l16-h16-f4096", 1024}};

std::vector<ModelChoice> variants() {
  return {{"Transformer", "transformer"},
          {"hybrid, one attention in four", "olmo-hybrid"},
          {"hybrid, one attention in two", "gdn-h1", {"pattern.1.mixer.window=0"}},
          {"Gated DeltaNet", "gated-deltanet"},
          {"Mamba2", "mamba2"}};
}

std::vector<Trial> ladder(Effort e) {
  std::vector<Trial> out;
  const std::vector<int> ratios = e == Effort::kQuick     ? std::vector<int>{10, 20}
                                  : e == Effort::kDefault ? std::vector<int>{10, 20, 40}
                                                          : std::vector<int>{10, 20, 40, 80, 160};
  const std::span<const Rung> rungs = e == Effort::kPaper ? std::span(kPaperRungs) : std::span(kRungs);
  for (const Rung& rung : rungs.first(e == Effort::kQuick ? 3 : 4))
    for (const int ratio : ratios)
      for (const ModelChoice& m : variants()) {
        TrainOptions o;
        o.arch = m.arch, o.set = m.set, o.size = rung.size, o.text = kShakespeare;
        o.length = e == Effort::kPaper ? 8192 : kLength, o.batch = kBatch;
        // As many tokens as this times the weights of the Transformer's layers, the same for all variants.
        const auto weights = static_cast<double>(48 * rung.d * rung.d);
        o.steps = static_cast<int64_t>(ratio * weights / static_cast<double>(o.batch * o.length)) + 1;
        o.warmup = std::min<int64_t>(o.steps / 10, 200), o.min_lr_ratio = 0.01, o.beta2 = 0.95;
        o.eval_every = 0, o.checkpoint_every = o.steps, o.keep = 1;
        const double lr = 4e-3 * std::pow(static_cast<double>(rung.d) / 32, -2.0 / 3);
        add_trials(out, m.row, fmt::format("width {}, {} tokens per weight", rung.d, ratio), o,
                   {std::round(lr * 1e5) / 1e5}, 1);
      }
  return out;
}

using Points = std::map<std::string, std::vector<ScalingPoint>>;  // by row
Points points_of(const Study& study) {
  Points points;
  for (const TrialResult& t : study.trials) {
    if (!t.result || !std::isfinite(t.value)) continue;
    points[t.trial.row].push_back(
        {t.result->value("parameters", 0.0), t.result->value("tokens", 0.0), t.value});
  }
  return points;
}

// A law may never reach a loss, and a share of nothing is no number.
std::string shown(double x) { return std::isfinite(x) ? fmt::format("{:.3g}", x) : std::string("-"); }

std::vector<PageTable> fit_tables(const Study& study) {
  Points points = points_of(study);
  std::vector<double> losses;
  for (const auto& [row, list] : points)
    for (const ScalingPoint& p : list) losses.push_back(p.loss);
  constexpr size_t kLeast = 6, kTimes = 200;
  std::map<std::string, ScalingLaw> laws;
  std::map<std::string, std::vector<ScalingLaw>> resampled;
  for (const std::string& row : study.rows)
    if (points[row].size() >= kLeast) {
      laws[row] = fit_scaling(points[row]);
      resampled[row] = resampled_fits(points[row], laws[row], kTimes, 1);
    }
  if (laws.empty()) return {};
  PageTable table{.head = {"variant", "E", "A", "alpha", "B", "beta", "error of log loss", "text needed"},
                  .rows = {},
                  .caption =
                      "Loss = E + A N^-alpha + B D^-beta, N parameters and D bytes of text, fitted to each "
                      "variant; in brackets 95 % of 200 fits to resampled runs. Text needed: bytes to reach "
                      "the median loss of all runs at the largest size, as a "
                      "share of what the Transformer needs."};
  const double wanted = quantile(losses, 0.5);
  double largest = 0;
  for (const auto& [row, list] : points)
    for (const ScalingPoint& p : list) largest = std::max(largest, p.parameters);
  const auto interval = [](const std::vector<ScalingLaw>& all, auto&& value) {
    std::vector<double> v;
    for (const ScalingLaw& l : all) v.push_back(value(l));
    return std::pair(quantile(v, 0.025), quantile(v, 0.975));
  };
  const auto cell = [&](const std::string& row, auto&& value) {
    const auto [low, high] = interval(resampled[row], value);
    return PageCell{fmt::format("{} ({} to {})", shown(value(laws[row])), shown(low), shown(high))};
  };
  const std::string& reference = study.rows.front();
  for (const std::string& row : study.rows) {
    if (!laws.contains(row)) continue;
    PageCell needed{"-", PageCell::Mark::kMissing};
    if (laws.contains(reference)) {
      std::vector<double> shares;
      for (size_t i = 0; i < kTimes; ++i)
        shares.push_back(resampled[row][i].tokens_for(largest, wanted) /
                         resampled[reference][i].tokens_for(largest, wanted));
      std::erase_if(shares, [](double s) { return std::isnan(s); });  // neither of the two gets there
      const double share =
          laws[row].tokens_for(largest, wanted) / laws[reference].tokens_for(largest, wanted);
      needed = {row == reference || shares.empty()
                    ? shown(share)
                    : fmt::format("{} ({} to {})", shown(share), shown(quantile(shares, 0.025)),
                                  shown(quantile(shares, 0.975)))};
    }
    table.rows.push_back({{row},
                          cell(row, [](const ScalingLaw& l) { return l.e; }),
                          cell(row, [](const ScalingLaw& l) { return l.a; }),
                          cell(row, [](const ScalingLaw& l) { return l.alpha; }),
                          cell(row, [](const ScalingLaw& l) { return l.b; }),
                          cell(row, [](const ScalingLaw& l) { return l.beta; }),
                          {shown(laws[row].error)},
                          needed});
  }
  return {std::move(table)};
}

void fits(const Study& study, Page& page) {
  const std::vector<PageTable> tables = fit_tables(study);
  if (tables.empty()) return;
  Points points = points_of(study);
  Chart chart{.title = "Loss against training flops",
              .x_label = "flops, 6 N D",
              .y_label = "nats per byte",
              .log_x = true,
              .least_span = 0.2,
              .series = {}};
  for (const std::string& row : study.rows) {
    Series s{.name = row, .x = {}, .y = {}, .line = false};
    for (const ScalingPoint& p : points[row])
      s.x.push_back(6 * p.parameters * p.tokens), s.y.push_back(p.loss);
    chart.series.push_back(std::move(s));
  }
  page.chart(chart);
  page.heading("Scaling laws");
  page.table(tables[0]);
}

// The paper's ranking: hybrid, Gated DeltaNet, Transformer, Mamba2.
std::vector<PaperOrder> scaling_orders(Effort e) {
  const std::string column = ladder(e).back().column, hybrid = "hybrid, one attention in four";
  return {{hybrid, PaperOrder::Kind::kBetter, "Transformer", column},
          {hybrid, PaperOrder::Kind::kBetter, "Gated DeltaNet", column},
          {"Gated DeltaNet", PaperOrder::Kind::kBetter, "Transformer", column},
          {"Transformer", PaperOrder::Kind::kBetter, "Mamba2", column}};
}

}  // namespace

std::span<const Experiment> scaling_experiments() {
  static const Experiment all[] = {
      {.name = "scaling",
       .title = "A small scaling ladder",
       .paper = "Olmo Hybrid (arXiv:2604.03444)",
       .shows = "Transformer, two hybrids, Gated DeltaNet and Mamba2 at four sizes and several amounts of "
                "text; a scaling law for each, and how much less text each needs than the Transformer.",
       .place = "Olmo Hybrid, scaling laws",
       .quick_seconds = 960,
       .measure = {Measure::Kind::kLoss, "", "held-out nats per byte"},
       .trials = ladder,
       .orders = scaling_orders,
       .tables = fit_tables,
       .more = fits}};
  return all;
}

}  // namespace braid
