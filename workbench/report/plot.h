// Charts as SVG, to be put into a page. Series differ by colour, dash and marker, so that they can be told
// apart in black and white; colours come from the page's CSS variables (report/page.h), so that a chart
// follows dark mode. Each chart has two frames: a wide one, and a narrow one for phones with the same sizes
// of text. Lines are labelled at their ends; where labels do not fit, a legend is below.
//
//   Chart chart{.title = "Accuracy by length", .x_label = "tokens", .y_label = "accuracy, %"};
//   chart.series.push_back({.name = "DeltaNet", .x = {40, 80}, .y = {99, 98}});
//   std::string text = svg(chart, Frame::kWide);
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braid {

enum class Frame { kWide, kNarrow };

struct Series {
  std::string name;                         // at the line's end or in the legend; empty: no label
  std::vector<double> x = {}, y = {};       // equally many; points that are not finite leave a gap
  std::vector<double> low = {}, high = {};  // a band around y, or empty
  bool line = true, markers = true;
  bool thin = false;       // one of several runs: a thin line without markers and label
  int style = -1;          // colour, dash and marker; -1: the series' number
  std::string value = {};  // follows the name in the label: "99.8"
};

struct Chart {
  std::string title = {}, x_label = {}, y_label = {};
  bool log_x = false, log_y = false;
  std::optional<std::pair<double, double>> x_range = {}, y_range = {};  // what the axis covers at least
  double least_span = 0;  // of the y axis: a difference that is noise must not fill it
  std::vector<Series> series = {};
  std::vector<std::pair<double, std::string>> rules =
      {};                 // horizontal lines with a label: chance, a paper's figure
  bool diagonal = false;  // the line y = x
};

std::string svg(const Chart& chart, Frame frame);

// Charts of the same series: side by side with names at the last one, or in the narrow frame stacked. The
// title of each is drawn above it.
struct Panels {
  std::string title = {};
  std::vector<Chart> charts = {};
  bool title_inside = false;  // for a picture of its own; a page has the title above the chart
};

std::string svg(const Panels& panels, Frame frame);

// A row per model: the value as a disc, single runs as ticks, their interval as a bar, and the paper's value
// as a hollow diamond.
struct DotRow {
  std::string name;
  double value;                   // not finite: the row is empty
  std::vector<double> runs = {};  // more than one: ticks and a bar
  std::optional<double> paper = {};
  std::string text = {};  // at the right: "99.8"
  bool differs = false;   // marked by a sign and a word
};

struct DotChart {
  std::string title = {}, x_label = {};
  std::optional<std::pair<double, double>> x_range = {};  // what the axis covers at least
  double least_span = 0;
  struct Group {
    std::string name;  // empty: no heading
    std::vector<DotRow> rows = {};
    std::optional<double> chance = {};
  };
  std::vector<Group> groups = {};
};

std::string svg(const DotChart& chart, Frame frame);

// Numbers as coloured squares: attention weights, states over time. Positive and negative ones differ by
// colour, and every square has its text, so that nothing depends on colour alone. One frame, which scrolls
// where it is too wide.
struct Grid {
  std::string title = {};
  std::vector<std::string> rows = {}, columns = {};
  std::vector<std::vector<double>> values = {};     // [row][column]; not finite: empty
  double largest = 1;                               // what the full colour stands for
  std::vector<std::vector<std::string>> text = {};  // what is written into the squares; empty: the values
};

std::string svg(const Grid& grid);

inline constexpr int kPlotColours = 8;

// Where an axis is labelled: round numbers inside [low, high], about `count` of them; powers on a log axis.
std::vector<double> axis_ticks(double low, double high, bool log, int count = 6);

// The width of a text in a wide sans-serif font: what is kept free for it.
double text_width(std::string_view utf8, double size);

// Moves labels of this height apart, as little as their order allows, inside [low, high]; a range too small
// for all of them is filled evenly.
std::vector<double> spread_labels(const std::vector<double>& positions, double height, double low,
                                  double high);

}  // namespace braid
