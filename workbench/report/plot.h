// Charts as SVG, to be put into a page. Series differ by colour, dash and marker, so that they can be told
// apart in black and white; colours come from the page's CSS variables (lab/page.h), so that a chart follows
// dark mode.
//
//   Chart chart{.title = "Accuracy by length", .x_label = "tokens", .y_label = "accuracy, %"};
//   chart.series.push_back({.name = "DeltaNet", .x = {40, 80}, .y = {99, 98}});
//   std::string text = svg(chart);
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace braid {

struct Series {
  std::string name;
  std::vector<double> x = {}, y = {};       // equally many; points that are not finite leave a gap
  std::vector<double> low = {}, high = {};  // a band around y, or empty
  bool line = true, markers = true;
  int style = -1;  // colour, dash and marker; -1: the series' number
};

struct Chart {
  std::string title = {}, x_label = {}, y_label = {};
  bool log_x = false, log_y = false;
  std::optional<std::pair<double, double>> x_range = {}, y_range = {};  // else what the data needs
  std::vector<Series> series = {};
  std::vector<std::pair<double, std::string>> rules =
      {};                 // horizontal lines with a label: chance, a paper's figure
  bool diagonal = false;  // the line y = x
};

std::string svg(const Chart& chart);

// Numbers as coloured squares: attention weights, states over time. Positive and negative ones differ by
// colour, and every square has its text, so that nothing depends on colour alone.
struct Grid {
  std::string title = {};
  std::vector<std::string> rows = {}, columns = {};
  std::vector<std::vector<double>> values = {};     // [row][column]; not finite: empty
  double largest = 1;                               // what the full colour stands for
  std::vector<std::vector<std::string>> text = {};  // what is written into the squares; empty: the values
};

std::string svg(const Grid& grid);

inline constexpr int kPlotStyles = 8;

// Where an axis is labelled: round numbers inside [low, high], about `count` of them; powers on a log axis.
std::vector<double> axis_ticks(double low, double high, bool log, int count = 6);

}  // namespace braid
