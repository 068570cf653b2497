#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "io/file.h"
#include "io/json.h"
#include "support/test_dir.h"
#include "support/test_kernels.h"
#include "lab/compute.h"
#include "lab/fit.h"
#include "lab/index_page.h"
#include "lab/makers.h"
#include "report/demo_page.h"
#include "report/page.h"
#include "lab/report.h"
#include "report/run_page.h"
#include "lab/runner.h"
#include "lab/sweep.h"
#include "tasks/make_source.h"

namespace braid {
namespace {

TEST(Plot, TicksAreRoundAndInside) {
  EXPECT_EQ(axis_ticks(0, 100, false, 5), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(axis_ticks(-3, 3, false, 6), (std::vector<double>{-3, -2, -1, 0, 1, 2, 3}));
  EXPECT_EQ(axis_ticks(40, 256, true), (std::vector<double>{64, 128, 256}));
  EXPECT_EQ(axis_ticks(1, 1e6, true), (std::vector<double>{1, 10, 100, 1000, 1e4, 1e5, 1e6}));
  EXPECT_TRUE(axis_ticks(1, 1, false).empty());
  EXPECT_TRUE(axis_ticks(-1, 5, true).empty());
}

TEST(Plot, SurvivesWhatRunsGive) {
  const double nan = std::nan("");
  const Chart charts[] = {{.title = "nothing"},
                          {.title = "one", .series = {{.name = "a", .x = {1}, .y = {2}}}},
                          {.title = "gap", .series = {{.name = "a", .x = {1, 2, 3}, .y = {2, nan, 4}}}},
                          {.title = "zero on a log axis",
                           .log_x = true,
                           .series = {{.name = "a", .x = {0, 2, 3}, .y = {2, 1, 4}}}}};
  for (const Chart& c : charts) {
    const std::string text = svg(c, Frame::kWide) + svg(c, Frame::kNarrow);
    EXPECT_EQ(text.find("nan"), std::string::npos) << c.title;
    EXPECT_EQ(text.find("inf"), std::string::npos) << c.title;
  }
  // A gap cuts the line: no polyline of two points is left.
  EXPECT_EQ(svg(charts[2], Frame::kWide).find("polyline"), std::string::npos);
}

// What a drawing has: boxes of its texts, its line segments, and its frame.
struct Rect {
  double left, top, right, bottom;
  bool overlaps(const Rect& o) const {
    return left < o.right && o.left < right && top < o.bottom && o.top < bottom;
  }
};
struct Drawing {
  struct Text {
    Rect box;
    std::string words;
    double size;
  };
  double width = 0, height = 0;
  std::vector<Text> texts;
  std::vector<std::array<double, 4>> segments;
};

double attribute(const std::string& tag, const std::string& name) {
  const size_t at = tag.find(" " + name + "=\"");
  return at == tag.npos ? NAN : std::stod(tag.substr(at + name.size() + 3));
}

Drawing drawing_of(const std::string& text) {
  Drawing d;
  const std::regex tags("<([a-z]+)( [^>]*)>([^<]*)");
  for (std::sregex_iterator it(text.begin(), text.end(), tags), end; it != end; ++it) {
    const std::string name = (*it)[1], tag = (*it)[2],
                      content = std::regex_replace((*it)[3].str(), std::regex("&[a-z]+;|&#[0-9]+;"), "<");
    if (name == "svg") {
      d.width = attribute(tag, "width"), d.height = attribute(tag, "height");
      if (std::isnan(d.width)) {  // a grid has a view box alone
        const size_t at = tag.find("viewBox=\"0 0 ") + 13;
        d.width = std::stod(tag.substr(at)), d.height = std::stod(tag.substr(tag.find(' ', at)));
      }
    } else if (name == "text" && !content.empty()) {
      const double x = attribute(tag, "x"), y = attribute(tag, "y"), size = attribute(tag, "font-size"),
                   w = text_width(content, size);
      const double left = tag.find("\"middle\"") != tag.npos ? x - w / 2
                          : tag.find("\"end\"") != tag.npos  ? x - w
                                                             : x;
      d.texts.push_back({{left, y - 0.75 * size, left + w, y + 0.2 * size}, content, size});
    } else if (name == "line") {
      d.segments.push_back(
          {attribute(tag, "x1"), attribute(tag, "y1"), attribute(tag, "x2"), attribute(tag, "y2")});
    } else if (name == "polyline") {
      const std::regex point("(-?[0-9.]+),(-?[0-9.]+)");
      std::vector<std::pair<double, double>> all;
      for (std::sregex_iterator p(tag.begin(), tag.end(), point); p != end; ++p)
        all.emplace_back(std::stod((*p)[1]), std::stod((*p)[2]));
      for (size_t i = 1; i < all.size(); ++i)
        d.segments.push_back({all[i - 1].first, all[i - 1].second, all[i].first, all[i].second});
    }
  }
  return d;
}

// Does the segment enter the box? By points along it.
bool crosses(const std::array<double, 4>& s, const Rect& box) {
  for (int i = 0; i <= 200; ++i) {
    const double t = i / 200.0, x = s[0] + t * (s[2] - s[0]), y = s[1] + t * (s[3] - s[1]);
    if (x > box.left && x < box.right && y > box.top && y < box.bottom) return true;
  }
  return false;
}

// What is wrong with a drawing: texts that overlap, are cut off, crossed by lines or too small.
std::vector<std::string> faults(const std::string& text) {
  const Drawing d = drawing_of(text);
  std::vector<std::string> out;
  constexpr double kPhone = 368;  // pixels for a chart on a phone of 400
  const bool narrow = text.find("class=\"chart narrow\"") != text.npos;
  for (size_t i = 0; i < d.texts.size(); ++i) {
    const Drawing::Text& t = d.texts[i];
    if (t.box.left < -0.5 || t.box.right > d.width + 0.5 || t.box.top < -0.5 || t.box.bottom > d.height + 0.5)
      out.push_back("outside: " + t.words);
    if (t.size * (narrow ? std::min(1.0, kPhone / d.width) : 1) < 11) out.push_back("small: " + t.words);
    for (size_t j = 0; j < i; ++j)
      if (t.box.overlaps(d.texts[j].box))
        out.push_back(fmt::format("overlap: {} | {}", d.texts[j].words, t.words));
    for (const auto& s : d.segments)
      if (crosses(s, t.box)) {
        out.push_back("line over: " + t.words);
        break;
      }
  }
  for (const auto& s : d.segments)
    for (const size_t k : {0u, 2u})
      if (s[k] < -0.5 || s[k] > d.width + 0.5 || s[k + 1] < -0.5 || s[k + 1] > d.height + 0.5) {
        out.push_back(fmt::format("line outside: {:.1f},{:.1f}", s[k], s[k + 1]));
        break;
      }
  return out;
}

std::vector<std::string> drawings_in(const std::string& html) {
  std::vector<std::string> out;
  for (size_t at = html.find("<svg"); at != html.npos; at = html.find("<svg", at + 1))
    out.push_back(html.substr(at, html.find("</svg>", at) - at));
  return out;
}

void expect_sound(const std::string& html, const std::string& what) {
  for (const std::string& drawing : drawings_in(html))
    for (const std::string& fault : faults(drawing)) ADD_FAILURE() << what << ": " << fault;
  EXPECT_FALSE(std::regex_search(html, std::regex("[\" ,>(+-](nan|inf)[\" ,<)]"))) << what;
}

TEST(Plot, LabelsSpreadKeepOrderAndDistance) {
  EXPECT_EQ(spread_labels({50, 10}, 10, 0, 100), (std::vector<double>{50, 10}));
  EXPECT_EQ(spread_labels({50, 50}, 10, 0, 100), (std::vector<double>{45, 55}));
  EXPECT_EQ(spread_labels({0, 0, 0}, 10, 0, 100), (std::vector<double>{0, 10, 20}));
  EXPECT_EQ(spread_labels({100, 99, 50}, 10, 0, 100), (std::vector<double>{100, 90, 50}));
  EXPECT_EQ(spread_labels({1, 2, 3}, 10, 0, 10), (std::vector<double>{0, 5, 10}));  // no room
  EXPECT_TRUE(spread_labels({}, 10, 0, 100).empty());
}

// Lines that end at the same place, long and many names, values, rules at the ends of the axis: nothing
// overlaps or is cut off, in either frame.
TEST(Plot, TextsAreWholeApartAndLargeEnough) {
  const auto lines = [](size_t n, const std::string& name, bool line) {
    Chart c{.title = "Chart",
            .x_label = "training step",
            .y_label = "answer right, and the scratchpad before it, %"};
    c.y_range = std::pair(0.0, 100.0);
    c.rules.emplace_back(0, "chance");
    for (size_t i = 0; i < n; ++i)
      c.series.push_back({.name = fmt::format("{} {}", name, i),
                          .x = {100, 200, 30000},
                          .y = {20, 60, 99.0 + 0.1 * static_cast<double>(i)},
                          .line = line,
                          .value = i % 2 ? "99.9" : ""});
    return c;
  };
  for (const Frame frame : {Frame::kWide, Frame::kNarrow}) {
    for (const size_t n : {1, 3, 7, 12})
      for (const char* name : {"A", "Gated DeltaNet", "Synchronous, linear attention, no output norm"})
        for (const bool line : {true, false}) {
          const std::vector<std::string> all = faults(svg(lines(n, name, line), frame));
          EXPECT_TRUE(all.empty()) << n << " " << name << ": " << all[0];
        }
    Chart odd{.title = "odd", .x_label = "6 N D", .y_label = "loss", .log_x = true, .log_y = true};
    odd.rules.emplace_back(1e-3, "a rule with a label that is too long for the margin of the chart");
    odd.series.push_back({.name = "x", .x = {1e10, 1e13}, .y = {1e-6, 1e6}});
    for (const std::string& f : faults(svg(odd, frame))) ADD_FAILURE() << f;
    const Panels panels{.title = "t",
                        .charts = {lines(3, "Gated DeltaNet", true), lines(3, "hybrid of the two", true)}};
    for (const std::string& f : faults(svg(panels, frame))) ADD_FAILURE() << f;
    DotChart dots{.title = "t", .x_label = "accuracy above chance, %", .x_range = std::pair(-5.0, 100.0)};
    for (const char* name : {"A", "Gated DeltaNet, Mamba2, window, no short convolution"}) {
      dots.groups.push_back({.name = "column", .rows = {}, .chance = 0.0});
      for (const double v : {-0.4, 50.0, 100.0})
        dots.groups.back().rows.push_back({.name = name,
                                           .value = v,
                                           .runs = {v, v - 10},
                                           .paper = 100 - v,
                                           .text = "99.9",
                                           .differs = v < 0});
      for (const std::string& f : faults(svg(dots, frame))) ADD_FAILURE() << f;
    }
  }
  Grid grid{.title = "g", .rows = {"parity"}, .columns = {}, .values = {{}}};
  for (int i = 0; i < 30; ++i)
    grid.columns.push_back(fmt::format("k{}-k1", i)), grid.values[0].push_back(-0.123 * i);
  EXPECT_EQ(faults(svg(grid)), std::vector<std::string>{});
  // The check sees what it should.
  EXPECT_EQ(
      faults(
          R"(<svg class="chart narrow" width="720" height="10"><text x="700" y="9" text-anchor="start" font-size="12">words</text>)")
          .size(),
      2u);
}

// Noise of a hundredth does not fill the axis, and no value is outside of a requested range.
TEST(Plot, RangesHaveALeastSpanAndHoldTheData) {
  Chart c{.title = "loss", .least_span = 0.2, .series = {{.name = "a", .x = {1, 2}, .y = {1.40, 1.41}}}};
  const auto height = [&](const Chart& chart) {
    const Drawing d = drawing_of(svg(chart, Frame::kWide));
    for (const auto& s : d.segments)
      if (s[0] != s[2] && s[1] != s[3]) return std::fabs(s[1] - s[3]);
    return 0.0;
  };
  EXPECT_LT(height(c), 20);
  c.least_span = 0;
  EXPECT_GT(height(c), 200);
  c.y_range = std::pair(0.0, 1.0);
  EXPECT_EQ(faults(svg(c, Frame::kWide)), std::vector<std::string>{});
}

TEST(Page, MarksHaveSignsAndPapersLinks) {
  Page page("found");
  page.topic("topic");
  page.paragraph("A paper (arXiv:2412.06464).");
  page.table({.head = {"a"},
              .rows = {{{"99.8", PageCell::Mark::kGood}},
                       {{"-0.4", PageCell::Mark::kBad}},
                       {{.text = "x<", .href = "a\"b"}}}});
  const std::string html = page.html();
  EXPECT_TRUE(has(html, "✓\u00a099.8"));
  EXPECT_TRUE(has(html, "✗\u00a0-0.4"));
  EXPECT_TRUE(has(html, "<a href=\"https://arxiv.org/abs/2412.06464\">arXiv:2412.06464</a>)."));
  EXPECT_TRUE(has(html, "<title>found</title>"));
  EXPECT_EQ(html.find("a\"b"), html.npos);
  for (const char* external : {"<script", "<link", "src=", "url(", "@import"})
    EXPECT_EQ(html.find(external), html.npos) << external;
}

std::vector<DemoModel> demo_models() {
  std::vector<DemoModel> out{{.name = "Transformer",
                              .command = "c",
                              .scores = {68.5, 99.4, 63.3},
                              .expected = {{{0, 85}, {90, 100}, {0, 85}}}},
                             {.name = "Gated DeltaNet",
                              .command = "c",
                              .scores = {100, 35.4, 29.1},
                              .expected = {{{95, 100}, {0, 60}, {0, 60}}}},
                             {.name = "hybrid of the two",
                              .command = "c",
                              .scores = {100, 99.8, 99.8},
                              .expected = {{{95, 100}, {95, 100}, {95, 100}}}}};
  for (DemoModel& m : out) m.curve = {{100, {50, 25, 25}}, {600, m.scores}};
  return out;
}

// The title follows the scores, and green are the cells of what is solved alone.
TEST(Demo, ThePageSaysWhatWasFound) {
  std::vector<DemoModel> models = demo_models();
  std::string html = demo_page(models).html();
  expect_sound(html, "demo");
  EXPECT_EQ(demo_title(models), "Only the hybrid solves both parts: 99.8 %");
  const auto count = [&](const std::string& part) {
    size_t n = 0;
    for (size_t at = html.find(part); at != html.npos; at = html.find(part, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("class=\"good\""), 5u);
  EXPECT_EQ(count("class=\"bad\""), 0u);
  EXPECT_LT(html.find("<figure>"), html.find("<table"));
  models[2].scores[2] = 71;
  html = demo_page(models).html();
  EXPECT_EQ(count("class=\"bad\""), 1u);
  EXPECT_TRUE(has(demo_title(models), "71.0 %"));
  for (const Theme theme : {Theme::kLight, Theme::kDark}) {
    const std::string drawing = demo_picture(models, theme);
    EXPECT_EQ(faults(drawing), std::vector<std::string>{});
    EXPECT_TRUE(drawing.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    EXPECT_EQ(drawing.find("prefers-color-scheme"), drawing.npos);
  }
}

TEST(Page, EscapesEverything) {
  Page page("<a> & b");
  page.paragraph("<script>");
  page.table({.head = {"<h>"}, .rows = {{{"<c>"}}}, .caption = "<k>"});
  page.chart({.title = "<t>", .series = {{.name = "<s>", .x = {1, 2}, .y = {1, 2}}}});
  page.code("<x>");
  const std::string html = page.html();
  for (const char* raw : {"<a>", "<script>", "<h>", "<c>", "<k>", "<t>", "<s>", "<x>"})
    EXPECT_EQ(html.find(raw), std::string::npos) << raw;
}

// A law with a little noise comes back, and the fits to resampled points lie around it.
TEST(Fit, FindsTheLawAgain) {
  const ScalingLaw law{.e = 1.2, .a = 30, .b = 80, .alpha = 0.35, .beta = 0.3};
  std::vector<ScalingPoint> points;
  double sign = 1;
  for (const double n : {5e4, 1e5, 2e5, 4e5})
    for (const double ratio : {10.0, 20.0, 40.0, 80.0}) {
      points.push_back({n, n * ratio, law.loss(n, n * ratio) * (1 + sign * 1e-4)});
      sign = -sign;
    }
  const ScalingLaw found = fit_scaling(points);
  EXPECT_LT(found.error, 3e-4);
  EXPECT_NEAR(found.e, law.e, 0.15);
  EXPECT_NEAR(found.alpha, law.alpha, 0.1);
  EXPECT_NEAR(found.beta, law.beta, 0.05);
  EXPECT_NEAR(found.tokens_for(4e5, 2.2) / law.tokens_for(4e5, 2.2), 1, 0.03);
  EXPECT_TRUE(std::isinf(law.tokens_for(4e5, 1.0)));
  std::vector<double> e;
  for (const ScalingLaw& l : resampled_fits(points, found, 20, 1)) e.push_back(l.e);
  EXPECT_LE(quantile(e, 0.025), found.e);
  EXPECT_GE(quantile(e, 0.975), found.e);
}

TEST(Study, BestAndMedianAreOfTheTrialsThatAreDone) {
  Study s{.effort = Effort::kQuick, .trials = {}, .rows = {"a"}, .columns = {"x"}};
  for (const double v : {3.0, 1.0, 2.0, 9.0}) {
    TrialResult t{.trial = {"a", "x", "v", {}}, .result = Json::object(), .curve = {}, .value = v};
    if (v == 9) t.result.reset();
    s.trials.push_back(t);
  }
  const CellResult c = s.cell("a", "x", true);
  EXPECT_EQ(c.best, 3);
  EXPECT_EQ(c.median, 2);
  EXPECT_EQ(c.planned, 4u);
  EXPECT_EQ(c.values.size(), 3u);
  EXPECT_EQ(s.cell("a", "x", false).best, 1);
  EXPECT_TRUE(std::isnan(s.cell("b", "x", true).best));
}

// Every trial of every experiment could start: its options, task, model and folder name are right.
TEST(Experiments, EveryTrialIsValid) {
  for (const Experiment& e : all_experiments()) {
    EXPECT_NE(e.trials == nullptr, e.compute == nullptr) << e.name;
    if (!e.trials) continue;
    for (const Effort effort : {Effort::kQuick, Effort::kDefault, Effort::kPaper}) {
      std::set<std::string> ids;
      std::set<std::string> cells;
      for (const Trial& t : e.trials(effort)) {
        const std::string name = std::string(e.name) + " " + t.id();
        EXPECT_TRUE(ids.insert(t.id()).second) << name;
        cells.insert(t.row + "|" + t.column);
        const Status ok = validate(t.options);
        EXPECT_TRUE(ok) << name << ": " << (ok ? "" : ok.error().what);
        if (t.options.seed > 0) continue;
        const Result<std::unique_ptr<Source>> source = make_source(t.options);
        ASSERT_TRUE(source) << name << ": " << source.error().what;
        const Result<ModelConfig> config = make_config(t.options, **source);
        EXPECT_TRUE(config) << name << ": " << (config ? "" : config.error().what);
        bool found = e.measure.kind == Measure::Kind::kLoss;
        for (const Metric& m : (*source)->metrics()) found |= m.name == e.measure.metric;
        EXPECT_TRUE(found) << name << " has no metric " << e.measure.metric;
      }
      EXPECT_FALSE(ids.empty()) << e.name;
      // What is expected or printed is of cells that exist.
      const auto exists = [&](const auto& x) {
        EXPECT_TRUE(cells.contains(x.row + "|" + x.column)) << e.name << " " << x.row << " " << x.column;
      };
      if (e.expected) std::ranges::for_each(e.expected(effort), exists);
      // --quick may leave out columns of the paper.
      if (e.figures && effort != Effort::kQuick) std::ranges::for_each(e.figures(), exists);
    }
  }
}

// Results of every trial as they could come out: values that differ from row to row and seed to seed.
Study synthetic_study(const Experiment& e, Effort effort) {
  Study study{.effort = effort, .trials = {}, .rows = {}, .columns = {}};
  const auto once = [](std::vector<std::string>& all, const std::string& name) {
    if (std::ranges::find(all, name) == all.end()) all.push_back(name);
  };
  std::map<std::string, std::vector<Metric>> metrics;  // by column
  double n = 0;
  for (const Trial& t : e.trials(effort)) {
    once(study.rows, t.row), once(study.columns, t.column);
    if (!metrics.contains(t.column)) metrics[t.column] = (*make_source(t.options))->metrics();
    const double share = std::fmod(0.37 * ++n, 1), loss = 1.4 + 0.3 * share;
    TrialResult r{.trial = t, .result = Json::object(), .curve = {}};
    *r.result = {{"stopped", stop_text(Stop::kSteps)},
                 {"step", t.options.steps},
                 {"seconds", 60.0},
                 {"tokens", 1e6 * n},
                 {"parameters", 1e5 * n},
                 {"eval_loss", loss},
                 {"metrics", Json::object()}};
    for (const Metric& m : metrics[t.column])
      (*r.result)["metrics"][m.name] = {{"value", share}, {"chance", 0.25}};
    for (const int position : {64, 256, 1024, 8192})
      (*r.result)["loss_by_position"].push_back({position, loss});
    r.value = e.measure.kind == Measure::Kind::kLoss ? loss : 100 * share;
    for (int i = 1; i <= 10; ++i)
      r.curve.push_back(
          {{"step", t.options.steps * i / 10}, {"eval_loss", loss}, {"value", r.value * (i + 5) / 15}});
    study.trials.push_back(std::move(r));
  }
  return study;
}

TEST(Experiments, EveryPageIsSoundAndTitledByWhatWasFound) {
  std::vector<IndexRow> rows;
  for (const Experiment& e : all_experiments()) {
    if (!e.trials) continue;
    for (const Effort effort : {Effort::kQuick, Effort::kDefault}) {
      Study study = synthetic_study(e, effort);
      const std::string html = report_page(e, study, made_here({"braid lab run", "0", "0", "0"})).html();
      expect_sound(html, std::string(e.name));
      EXPECT_NE(html.find("<figure>"), html.npos) << e.name;
      EXPECT_LT(html.find("<figure>"), html.find("<table")) << e.name;
      EXPECT_FALSE(has(study_title(e, study), "runs done")) << study_title(e, study);
      rows.push_back(
          index_row(e, study, made_here({"braid lab run " + std::string(e.name), "0", "0", "0"}), "x.html"));
      // Half of it, and nothing.
      for (size_t i = 0; i < study.trials.size(); i += 2)
        study.trials[i].result.reset(), study.trials[i].value = NAN;
      EXPECT_TRUE(has(study_title(e, study), "runs done"));
      expect_sound(report_page(e, study, {}).html(), std::string(e.name));
      for (TrialResult& t : study.trials) t.result.reset(), t.value = NAN, t.curve.clear();
      EXPECT_TRUE(has(study_title(e, study), "No result yet"));
      expect_sound(report_page(e, study, {}).html(), std::string(e.name));
    }
  }
  const std::string index = index_page(rows).html();
  EXPECT_TRUE(has(index, "hqlt-table3, quick"));
  EXPECT_TRUE(has(index, "braid lab run words"));
  EXPECT_TRUE(has(index, "Not run in this folder: 4"));
}

// Known causes are shown beside cells that differ, and beside no others.
TEST(Experiments, DifferencesAreOfCellsThatDiffer) {
  for (const Experiment& e : all_experiments()) {
    if (!e.differences) continue;
    for (const Effort effort : {Effort::kQuick, Effort::kDefault, Effort::kPaper}) {
      std::set<std::string> rows{""}, columns{""};
      for (const Trial& t : e.trials(effort)) rows.insert(t.row), columns.insert(t.column);
      for (const Difference& d : e.differences(effort)) {
        EXPECT_TRUE(rows.contains(d.row)) << e.name << ": " << d.row;
        EXPECT_TRUE(columns.contains(d.column)) << e.name << ": " << d.column;
        EXPECT_FALSE(d.why.empty() || d.status.empty()) << e.name;
      }
    }
  }
}

// What these pages say of their models.
TEST(Experiments, HybridsHaveAsManyParametersAsThePureKinds) {
  for (const char* name : {"state-recall", "pcr-learn"})
    for (const Effort effort : {Effort::kQuick, Effort::kDefault, Effort::kPaper}) {
      std::map<std::string, std::vector<double>> counts;  // by column
      for (const Trial& t : find_experiment(name)->trials(effort)) {
        const Result<std::unique_ptr<Source>> source = make_source(t.options);
        ASSERT_TRUE(source) << source.error().what;
        const Result<ModelConfig> config = make_config(t.options, **source);
        ASSERT_TRUE(config) << config.error().what;
        counts[t.column].push_back(static_cast<double>(Model::create(*config)->params().block_size()));
      }
      for (const auto& [column, n] : counts)
        EXPECT_LT(std::ranges::max(n), 1.01 * std::ranges::min(n)) << name << ", " << column;
    }
}

TEST(Sweep, RowsAreTheCombinationsAndRunsTheSeeds) {
  SweepOptions o;
  o.base.task = "parity", o.base.set = {"dropout=0.1"}, o.base.seed = 5;
  o.grid = {"lr=1e-3,2e-3", "arch=transformer,deltanet,mamba", "--set=tie_embeddings=true"};
  o.seeds = 2;
  const auto sweep = Sweep::make(o);
  ASSERT_TRUE(sweep) << sweep.error().what;
  const std::vector<Trial> trials = (*sweep)->experiment().trials(Effort::kDefault);
  ASSERT_EQ(trials.size(), 12u);
  EXPECT_EQ(trials[0].row, "lr=1e-3 arch=transformer set=tie_embeddings=true");
  EXPECT_EQ(trials[11].row, "lr=2e-3 arch=mamba set=tie_embeddings=true");
  EXPECT_EQ(trials[11].options.lr, 2e-3);
  EXPECT_EQ(trials[11].options.arch, "mamba");
  EXPECT_EQ(trials[11].options.seed, 6);
  EXPECT_EQ(trials[11].options.set, (std::vector<std::string>{"dropout=0.1", "tie_embeddings=true"}));
  EXPECT_EQ(trials[0].column, "accuracy");
  std::set<std::string> ids;
  for (const Trial& t : trials) ids.insert(t.id());
  EXPECT_EQ(ids.size(), 12u);
  for (const char* bad :
       {"lr", "lr=", "lr=x", "rl=1", "seed=1", "arch=transformr", "tensorboard=maybe", "lr=-1"}) {
    o.grid = {bad};
    EXPECT_FALSE(Sweep::make(o)) << bad;
  }
}

std::vector<Trial> two_trials(Effort) {
  std::vector<Trial> out;
  TrainOptions o;
  o.arch = "transformer", o.size = "d16-l1-h2-f16", o.task = "parity", o.batch = 4, o.steps = 6,
  o.eval_every = 3;
  o.eval_size = 8, o.warmup = 1;
  add_trials(out, "a", "x", o, {1e-3}, 2);
  return out;
}

// Whatever is in the folder, or is not: a page comes out.
TEST(RunPage, SurvivesDamage) {
  const TestDir dir;
  const auto put = [&](const char* name, std::string_view text) {
    ASSERT_TRUE(write_atomic(dir.path() + "/" + name, std::as_bytes(std::span(text))));
  };
  EXPECT_NE(run_page(dir.path()).html().find("not finished"), std::string::npos);
  EXPECT_TRUE(
      has(run_page(dir.path()).html(), "<h1>No held-out result before the first step (not finished)</h1>"));
  put("metrics.jsonl",
      "{\"step\":1,\"loss\":null}\n7\n{\"step\":2,\"loss\":3,\"metrics\":4}\n"
      "{\"step\":3,\"eval_loss\":2,\"metrics\":{\"<count>\":{\"value\":0.5}}}\n{\"step\":4,\"lo");
  put("run.json", "[1]");
  put("result.json", R"({"stopped":"all steps done","step":3})");
  EXPECT_EQ(metric_lines(dir.path()).size(), 3u);
  std::string html = run_page(dir.path()).html();
  EXPECT_NE(html.find("all steps done"), std::string::npos);
  expect_sound(html, "damaged");
  EXPECT_EQ(html.find("<count>"), std::string::npos);
  put("result.json", R"({"stopped":"all steps done","step":3,"eval_loss":1.4321,"eval_accuracy":0.955})");
  EXPECT_TRUE(has(run_page(dir.path()).html(), "<h1>Loss 1.43 after 3 steps</h1>"));
  put("run.json", R"({"options":{"task":"parity"}})");
  html = run_page(dir.path()).html();
  EXPECT_TRUE(has(html, "<h1>Accuracy 95.5 % after 3 steps</h1>"));
  expect_sound(html, "task");
}

int computed = 0;
Result<Findings> two_claims(Stages& stages) {
  const Result<Json> r = stages("count", {{"a", int64_t{1}}, {"b", size_t{2}}, {"c", true}, {"d", "x"}},
                                [] { return Json(++computed); });
  if (!r) return r.error();
  Findings out;
  out.claims = {{"one", "<yes>", true}, {"two", "no", stages.model() == "right"}};
  out.figures["count"] = *r;
  out.page.grid({.title = "<g>", .rows = {"<r>"}, .columns = {"a", "b"}, .values = {{1, std::nan("")}}});
  return out;
}

TEST(Compute, ClaimsAreJudgedAndStagesKept) {
  const TestDir dir;
  const Experiment e{
      .name = "claims", .title = "Claims", .paper = "none", .shows = "nothing", .compute = two_claims};
  LabOptions o;
  o.dir = dir.path(), o.effort = Effort::kQuick, o.quiet = true;
  ThreadPool pool(1, test_kernels());
  const Program program{"braid lab run claims", "0", "0", "0"};
  EXPECT_FALSE(run_computation(e, o, program, pool, true));  // nothing is there yet
  for (int i = 0; i < 2; ++i) {
    const Result<Computed> r = run_computation(e, o, program, pool, i == 1);
    ASSERT_TRUE(r) << r.error().what;
    EXPECT_FALSE(r->held());
    EXPECT_EQ(computed_json(e, o, *r)["figures"]["count"], 1);  // computed once
  }
  o.model = "right";
  const Result<Computed> r = run_computation(e, o, program, pool);
  ASSERT_TRUE(r);
  EXPECT_TRUE(r->held());
  const Result<std::string> html = read_text(dir.path() + "/claims-quick/report.html");
  ASSERT_TRUE(html);
  for (const char* raw : {"<yes>", "<g>", "<r>", "nan"}) EXPECT_EQ(html->find(raw), std::string::npos) << raw;
}

// A report made later keeps the command, and a damaged stage is named, whatever it is.
TEST(Compute, CommandsAreKeptAndDamagedStagesNamed) {
  const TestDir dir;
  const Experiment e{
      .name = "claims", .title = "Claims", .paper = "none", .shows = "nothing", .compute = two_claims};
  LabOptions o;
  o.dir = dir.path(), o.effort = Effort::kQuick, o.quiet = true;
  ThreadPool pool(1);
  const Program run{"the command of the run", "0", "0", "0"}, report{"braid lab report", "1", "1", "1"};
  ASSERT_TRUE(run_computation(e, o, run, pool));
  ASSERT_TRUE(run_computation(e, o, report, pool, true));
  const std::string study = study_dir(e, o), page = get(study + "/report.html");
  EXPECT_TRUE(has(page, "the command of the run"));
  EXPECT_EQ(page.find("braid lab report"), page.npos);
  const std::string stage = std::filesystem::directory_iterator(study + "/stages")->path(),
                    whole = get(stage);
  std::string other = whole;
  const size_t value = other.find("\"value\": ") + 9;
  other[value] = other[value] == '7' ? '8' : '7';
  for (const std::string& text : {std::string("null"), std::string("[]"), std::string("{"), other,
                                  std::string("{\"settings\": null, \"seconds\": 0, \"value\": null}")}) {
    put(stage, text);
    for (const bool only_load : {false, true}) {
      const std::string error = what(run_computation(e, o, run, pool, only_load));
      EXPECT_TRUE(has(error, stage)) << text;
      EXPECT_TRUE(has(error, "delete the file to compute this stage again")) << text;
    }
  }
  put(stage, whole);
  EXPECT_TRUE(run_computation(e, o, run, pool, true));
}

// A row's whole name means this row alone; a part of it all rows that have it.
TEST(Runner, ChoosesRowsColumnsAndLearningRates) {
  const TestDir dir;
  const Experiment& e = *find_experiment("hqlt-table3");
  LabOptions o;
  o.dir = dir.path(), o.effort = Effort::kPaper;
  const auto count = [&] {
    const Result<Study> s = load_study(e, o);
    return s ? s->trials.size() : 0;
  };
  const size_t all = count();
  o.only = "Synchronous", o.column = "parity";
  EXPECT_EQ(count(), 12u);
  o.only = "Synch";
  EXPECT_EQ(count(), 24u);
  o.only = "Synchronous", o.lr = 1e-3, o.seeds = 1;
  EXPECT_EQ(count(), 1u);
  o.lr = 7e-3;
  EXPECT_EQ(count(), 0u);
  EXPECT_EQ(load_study(e, o).error().what,
            "lab run: hqlt-table3 has no training run with a row with 'Synchronous' and a column with "
            "'parity' and a learning "
            "rate of 0.007");
  o.only = o.column = "";
  EXPECT_EQ(load_study(e, o).error().what,
            "lab run: hqlt-table3 has no training run with a learning rate of 0.007");
  EXPECT_EQ(load_study(e, o).error().fix, "use, for --lr: 0.005; 0.001; 0.0005; 0.0001");
  EXPECT_GT(all, 24u);
}

Experiment test_experiment(std::vector<Trial> (*trials)(Effort)) {
  return {.name = "test",
          .title = "Test",
          .paper = "none",
          .shows = "nothing",
          .measure = {Measure::Kind::kNormalised, "accuracy", "accuracy"},
          .trials = trials};
}

TEST(Runner, RunsOnceAndResumes) {
  const TestDir dir;
  const Experiment e = test_experiment(two_trials);
  const LabOptions o{.dir = dir.path(),
                     .effort = Effort::kQuick,
                     .only = "",
                     .column = "",
                     .seeds = 0,
                     .lr = 0,
                     .text = "",
                     .precision = "",
                     .model = "",
                     .quiet = true};
  ThreadPool pool(1, test_kernels());
  const Program program{"braid lab run test", "0", "0", "0"};
  const Result<LabOutcome> first = run_experiment(e, o, program, pool);
  ASSERT_TRUE(first) << first.error().what;
  const CellResult cell = first->study.cell("a", "x", true);
  EXPECT_EQ(cell.values.size(), 2u);
  const std::string root = study_dir(e, o),
                    result = root + "/trials/" + e.trials(o.effort)[0].id() + "/result.json";
  EXPECT_TRUE(std::filesystem::exists(root + "/report.html"));
  EXPECT_FALSE(std::filesystem::exists(root + "/trials/" + e.trials(o.effort)[0].id() + "/state"));
  // A result is not computed twice: a changed one stays as it is.
  Result<Json> json = load_json(result);
  ASSERT_TRUE(json);
  (*json)["metrics"]["accuracy"]["value"] = 0.75;
  ASSERT_TRUE(save_json(result, *json));
  const Result<LabOutcome> again = run_experiment(e, o, program, pool);
  ASSERT_TRUE(again);
  EXPECT_NEAR(again->study.trials[0].value, 50, 1e-9);
  // A trial that was stopped goes on with the settings that its folder has.
  std::filesystem::remove(result);
  const Result<LabOutcome> resumed = run_experiment(e, o, program, pool);
  ASSERT_TRUE(resumed) << resumed.error().what;
  EXPECT_EQ(resumed->study.trials[0].value, first->study.trials[0].value);
  // Fewer seeds: what is left out is not loaded either.
  LabOptions one = o;
  one.seeds = 1;
  const Result<Study> fewer = load_study(e, one);
  ASSERT_TRUE(fewer);
  for (const TrialResult& t : fewer->trials) EXPECT_EQ(t.trial.options.seed, 0);
  EXPECT_LT(fewer->trials.size(), first->study.trials.size());
  // A folder from before an option was there goes on; one of other settings is refused.
  std::filesystem::remove(result);
  const std::string run = root + "/trials/" + e.trials(o.effort)[0].id() + "/run.json";
  Result<Json> before = load_json(run);
  ASSERT_TRUE(before);
  ASSERT_EQ((*before)["options"].erase("tokenizer"), 1u);
  ASSERT_TRUE(save_json(run, *before));
  EXPECT_TRUE(run_experiment(e, o, program, pool));
  std::filesystem::remove(result);
  const Result<Json> record = load_json(run);
  ASSERT_TRUE(record);
  Json other = *record;
  other["options"]["lr"] = 0.5;
  ASSERT_TRUE(save_json(run, other));
  const Result<LabOutcome> refused = run_experiment(e, o, program, pool);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().what.find("other settings"), std::string::npos);
}

// The first diverges and has a result; the second runs as if it were alone.
TEST(Runner, ATrialThatDivergesDoesNotStopTheOthers) {
  const TestDir dir;
  const Experiment e = test_experiment([](Effort effort) {
    std::vector<Trial> trials = two_trials(effort);
    TrainOptions& o = trials[0].options;
    o.set.push_back("init_std=50"), o.lr = 1000, o.clip = 0, o.bad_steps = 3;
    o.steps = 400, o.warmup = 0;
    return trials;
  });
  LabOptions o;
  o.dir = dir.path(), o.effort = Effort::kQuick, o.quiet = true;
  ThreadPool pool(1, test_kernels());
  const Result<LabOutcome> r = run_experiment(e, o, {"braid lab run test", "0", "0", "0"}, pool);
  ASSERT_TRUE(r) << r.error().what;
  ASSERT_TRUE(r->study.trials[0].result);
  EXPECT_EQ(r->study.trials[0].result->value("stopped", ""), stop_text(Stop::kNotFinite));
  ASSERT_TRUE(r->study.trials[1].result);
  EXPECT_EQ(r->study.trials[1].result->value("stopped", ""), stop_text(Stop::kSteps));
  EXPECT_NE(table_text(e, r->study).find("1 not finite"), std::string::npos) << table_text(e, r->study);
}

// Nothing on disk is read as something else than it is, and nothing is thrown.
TEST(Runner, DamagedResultsAreNamed) {
  const TestDir dir;
  const Experiment e = test_experiment(two_trials);
  LabOptions o;
  o.dir = dir.path(), o.effort = Effort::kQuick, o.quiet = true;
  ThreadPool pool(1);
  const Program program{"braid lab run test", "0", "0", "0"};
  ASSERT_TRUE(run_experiment(e, o, program, pool));
  const std::string trial = study_dir(e, o) + "/trials/" + e.trials(o.effort)[0].id(),
                    file = trial + "/result.json", whole = get(file);
  const auto refused = [&](const char* pointer, const Json& value, const std::string& part) {
    Json json = *load_json(file);
    json[Json::json_pointer(pointer)] = value;
    EXPECT_TRUE(save_json(file, json));
    for (const std::string& text : {what(run_experiment(e, o, program, pool)), what(load_study(e, o))})
      EXPECT_TRUE(has(text, file + ": " + part));
    put(file, whole);
  };
  refused("", nullptr, "is not a JSON object");
  refused("/seconds", nullptr, "seconds is null");
  refused("/stopped", 1, "stopped is 1");
  refused("/metrics", nullptr, "metrics is null");
  refused("/metrics/accuracy", nullptr, "metrics.accuracy is null");
  refused("/metrics/accuracy/value", "x", "metrics.accuracy.value is \"x\"");
  // Lines of a log may be of anything.
  put(trial + "/metrics.jsonl",
      "null\n{\"eval_loss\": null}\n{\"eval_loss\": 1, \"metrics\": null}\n"
      "{\"eval_loss\": 1, \"metrics\": {\"accuracy\": null}}\n"
      "{\"eval_loss\": 1, \"metrics\": {\"accuracy\": {\"value\": null}}}\n");
  EXPECT_TRUE(run_experiment(e, o, program, pool));
}

TEST(Runner, AStudyOfAnEarlierVersionGoesOn) {
  const TestDir dir;
  const Experiment e = test_experiment(two_trials);
  LabOptions o;
  o.dir = dir.path(), o.effort = Effort::kQuick, o.quiet = true;
  ThreadPool pool(1);
  const Program program{"braid lab run test", "0", "0", "0"};
  ASSERT_TRUE(run_experiment(e, o, program, pool));
  const std::string study = study_dir(e, o);
  EXPECT_EQ(load_made(e, o)->program.version, "0");
  ASSERT_TRUE(std::filesystem::remove(study + "/.braid"));
  Json result = *load_json(study + "/result.json");
  result.erase("made");
  ASSERT_TRUE(save_json(study + "/result.json", result));
  EXPECT_TRUE(is_study(e, o));
  EXPECT_TRUE(has(load_made(e, o)->program.command, "braid lab run test --quick"));
  EXPECT_TRUE(run_experiment(e, o, program, pool));
  // With a result of something else it is not a study.
  ASSERT_TRUE(std::filesystem::remove(study + "/.braid"));
  put(study + "/result.json", "{\"experiment\": \"another\"}");
  EXPECT_FALSE(is_study(e, o));
  EXPECT_TRUE(has(what(run_experiment(e, o, program, pool)), "--dir " + study));
}

}  // namespace
}  // namespace braid
