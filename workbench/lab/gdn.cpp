// Gated DeltaNet: what its parts are worth (Table 3), the order of layers (Table S.1), and loss far beyond
// the training length (Fig. 2). The paper trains 400M parameters on 15B tokens; here are small models on
// bytes of text, so that the order of rows and their distances can be compared, not the figures.
#include <cmath>

#include <fmt/format.h>

#include "lab/makers.h"
#include "report/page.h"

namespace braid {
namespace {

constexpr const char* kGdnPaper = "Gated Delta Networks (Yang, Kautz, Hatamizadeh, arXiv:2412.06464)";
constexpr const char* kLoss = "loss";

constexpr PaperText kText{.size = "400M", .length = 4096, .batch = 128, .steps = 28610};
double rate(Effort e) { return at(e, 4e-3, 2e-3, 4e-4); }

// ---- Table 3

struct Ablation {
  const char* row;
  std::vector<std::string> set;
  double perplexity;  // the paper's
};

std::vector<Ablation> ablations() {
  const std::string m = "pattern.0.mixer.";
  const auto features = [&](const std::string& map, const std::string& norm) {
    return std::vector<std::string>{m + "feature=" + map, m + "feature_norm=" + norm};
  };
  return {{"Gated DeltaNet", {}, 27.35},
          {"plain delta rule", {m + "decay=none"}, 30.87},
          {"no short convolution", {m + "conv=0"}, 28.95},
          {"no output gate", {m + "gate=none"}, 29.12},
          {"no output norm", {m + "out_norm=none"}, 27.55},
          {"L1 + ReLU", features("relu", "l1"), 30.79},
          {"L1 + (1 + ELU)", features("elu1", "l1"), 30.34},
          {"L1 + SiLU", features("silu", "l1"), 30.18},
          {"L2 + ReLU", features("relu", "l2"), 27.67},
          {"L2 + (1 + ELU)", features("elu1", "l2"), 27.58}};
}

std::vector<Trial> ablation(Effort e) {
  std::vector<Trial> out;
  for (const Ablation& a : ablations()) {
    TrainOptions o = on_text(e, kText);
    o.arch = "gated-deltanet", o.set = a.set;
    add_trials(out, a.row, kLoss, o, {rate(e)}, e == Effort::kQuick ? 1 : 2);
  }
  // Heads half and twice as wide: twice and half as many of them.
  for (const bool wide : {false, true}) {
    TrainOptions o = on_text(e, kText);
    o.arch = "gated-deltanet";
    const int64_t heads = at<int64_t>(e, 4, 4, 12), now = wide ? heads / 2 : 2 * heads;
    o.set = {fmt::format("pattern.0.mixer.heads={}", now)};
    add_trials(out, wide ? "heads twice as wide" : "heads half as wide", kLoss, o, {rate(e)},
               e == Effort::kQuick ? 1 : 2);
  }
  return out;
}

std::vector<PaperFigure> ablation_figures() {
  std::vector<PaperFigure> out;
  for (const Ablation& a : ablations()) out.push_back({a.row, kLoss, std::log(a.perplexity)});
  out.push_back({"heads half as wide", kLoss, std::log(28.31)});
  out.push_back({"heads twice as wide", kLoss, std::log(27.13)});
  return out;
}

std::vector<Difference> ablation_differences(Effort e) {
  std::vector<Difference> out;
  for (const char* row : {"L1 + ReLU", "L1 + (1 + ELU)", "L1 + SiLU"})
    out.push_back(
        {row, kLoss,
         "A key of n equal elements has length 1 / sqrt(n) after L1 scaling; the paper's heads are wider.",
         "measured: with one head of 128 L1 costs 0.030"});
  if (e != Effort::kPaper)
    out.push_back(
        {"plain delta rule", kLoss, "Texts of 256 bytes hold little that must be forgotten.", "not tested"});
  return out;
}

// ---- Table S.1

std::vector<Trial> order(Effort e) {
  std::vector<Trial> out;
  struct Order {
    const char *row, *arch;
    int window_at;  // the layer of the pattern that has a window
  };
  for (const Order& m : std::vector<Order>{{"Gated DeltaNet, window, Mamba2", "gdn-swa-mamba2", 1},
                                           {"Gated DeltaNet, Mamba2, window", "gdn-mamba2-swa", 2},
                                           {"Mamba2, window, Gated DeltaNet", "mamba2-swa-gdn", 1},
                                           {"Mamba2, Gated DeltaNet, window (H2)", "gdn-h2", 2},
                                           {"Gated DeltaNet, window (H1)", "gdn-h1", 1}}) {
    TrainOptions o = on_text(e, kText);
    o.arch = m.arch;
    // A window shorter than the sequence, as in the paper (2048 of 4096).
    o.set = {fmt::format("pattern.{}.mixer.window={}", m.window_at, o.length / 2)};
    add_trials(out, m.row, kLoss, o, {rate(e)}, e == Effort::kQuick ? 1 : 3);
  }
  return out;
}

// ---- Fig. 2

std::vector<Trial> lengths(Effort e) {
  std::vector<Trial> out;
  const int64_t train = at<int64_t>(e, 256, 256, 4096), test = at<int64_t>(e, 4096, 8192, 20480);
  for (const ModelChoice& m : std::vector<ModelChoice>{{"Transformer", "transformer"},
                                                       {"Mamba2", "mamba2"},
                                                       {"DeltaNet", "deltanet"},
                                                       {"Gated DeltaNet", "gated-deltanet"},
                                                       {"Samba", "samba"},
                                                       {"Gated DeltaNet H1", "gdn-h1"}}) {
    TrainOptions o = on_text(e, kText);
    o.arch = m.arch, o.length = train, o.eval_length = test;
    if (m.arch == "samba" || m.arch == "gdn-h1")
      o.set = {fmt::format("pattern.1.mixer.window={}", train / 2)};
    o.eval_every = o.steps / 4, o.checkpoint_every = o.eval_every;
    add_trials(out, m.row, kLoss, o, {rate(e)}, e == Effort::kQuick ? 1 : 2);
  }
  return out;
}

// A bin is named by its last position, p, and begins behind p / 2. Fills the chart's series, too.
PageTable position_table(const Study& study, Chart* chart) {
  PageTable table{.head = {"model"},
                  .rows = {},
                  .caption = "First seed: nats per byte up to this position, from half of it on."};
  for (const TrialResult& t : study.trials) {
    if (!t.result || t.trial.options.seed != 0 || !t.result->contains("loss_by_position")) continue;
    Series s{.name = t.trial.row, .x = {}, .y = {}};
    std::vector<PageCell> cells{{t.trial.row}};
    std::vector<std::string> head{"model"};
    for (const Json& bin : (*t.result)["loss_by_position"]) {
      const double position = bin[0].get<double>(), loss = bin[1].get<double>();
      if (position < 32) continue;  // too little text before it
      s.x.push_back(position), s.y.push_back(loss);
      head.push_back(fmt::format("{:.0f}", position)), cells.push_back({fmt::format("{:.3f}", loss)});
    }
    if (chart) chart->series.push_back(std::move(s));
    table.head = head, table.rows.push_back(std::move(cells));
  }
  return table;
}

std::vector<PageTable> position_tables(const Study& study) {
  PageTable table = position_table(study, nullptr);
  if (table.rows.empty()) return {};
  return {std::move(table)};
}

void loss_by_position(const Study& study, Page& page) {
  Chart chart{.title = "Loss by position, far beyond the training length",
              .x_label = "position in the text",
              .y_label = "nats per byte",
              .log_x = true,
              .series = {}};
  const PageTable table = position_table(study, &chart);
  if (table.rows.empty()) return;
  page.heading("Loss by position");
  page.chart(chart);
  page.table(table);
}

// The best order of the paper; and what does not rise far beyond the training length, with hybrids lowest.
std::vector<PaperOrder> order_orders(Effort) {
  std::vector<PaperOrder> out;
  for (const auto& [than, figure] : {std::pair{"Mamba2, window, Gated DeltaNet", "47.9"},
                                     {"Gated DeltaNet, window, Mamba2", "47.9"},
                                     {"Gated DeltaNet, Mamba2, window", "47.5"}})
    out.push_back({"Mamba2, Gated DeltaNet, window (H2)", PaperOrder::Kind::kNotWorse, than, kLoss,
                   fmt::format("average accuracy 48.7 against {}", figure)});
  return out;
}
std::vector<PaperOrder> length_orders(Effort) {
  return {{"Gated DeltaNet", PaperOrder::Kind::kBetter, "DeltaNet", kLoss},
          {"Gated DeltaNet", PaperOrder::Kind::kBetter, "Mamba2", kLoss},
          {"Mamba2", PaperOrder::Kind::kBetter, "DeltaNet", kLoss},
          {"Gated DeltaNet", PaperOrder::Kind::kBetter, "Transformer", kLoss},
          {"Gated DeltaNet H1", PaperOrder::Kind::kBetter, "Gated DeltaNet", kLoss}};
}

}  // namespace

std::span<const Experiment> gdn_experiments() {
  static const Experiment all[] = {
      {.name = "gdn-ablation",
       .title = "What the parts of Gated DeltaNet are worth",
       .paper = kGdnPaper,
       .shows = "Gated DeltaNet without its decay, convolution, gate or norm, with other feature maps and "
                "head widths, on text. The paper's column is the logarithm of its perplexity per word piece "
                "at 400M parameters: the order of rows and their distances are what can be compared.",
       .place = "Gated DeltaNet, Table 3",
       .quick_seconds = 420,
       .measure = {Measure::Kind::kLoss, "", "held-out nats per byte"},
       .trials = ablation,
       .figures = ablation_figures,
       .differences = ablation_differences},
      {.name = "gdn-order",
       .title = "In which order the layers of H2 stand",
       .paper = kGdnPaper,
       .shows = "Mamba2, Gated DeltaNet and windowed attention in four orders, and H1. The paper has average "
                "accuracies within 1.2 % of each other, Mamba2 first and the window last being the best.",
       .place = "Gated DeltaNet, Table S.1",
       .quick_seconds = 240,
       .measure = {Measure::Kind::kLoss, "", "held-out nats per byte"},
       .trials = order,
       .orders = order_orders},
      {.name = "gdn-length",
       .title = "Loss far beyond the training length",
       .paper = kGdnPaper,
       .shows = "Trained on short pieces of text, tested on long ones. In the paper DeltaNet and, less so, "
                "Mamba2 get worse with the position, Gated DeltaNet does not, hybrids stay lowest.",
       .place = "Gated DeltaNet, Fig. 2",
       .quick_seconds = 300,
       .measure = {Measure::Kind::kLoss, "", "held-out nats per byte, all positions"},
       .trials = lengths,
       .orders = length_orders,
       .tables = position_tables,
       .more = loss_by_position}};
  return all;
}

}  // namespace braid
