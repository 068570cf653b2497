#include "report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "io/html.h"

namespace braid {
namespace {

constexpr double kWidth = 720, kHeight = 380, kLeft = 62, kTop = 34, kBottom = 48, kLegend = 190;
constexpr const char* kDashes[kPlotStyles] = {"",        "7 3",          "2 3", "9 3 2 3",
                                              "1 2 6 2", "12 4 2 4 2 4", "5 5", "3 2 8 2"};

// Data to pixels along one axis.
struct Scale {
  double low, high, from, to;
  bool log;

  double operator()(double x) const {
    const double a = log ? std::log10(low) : low, b = log ? std::log10(high) : high,
                 v = log ? std::log10(x) : x;
    return from + (v - a) / (b - a) * (to - from);
  }
  bool holds(double x) const { return std::isfinite(x) && (!log || x > 0); }
};

std::string tick_text(double x) {
  const double size = std::fabs(x);
  if (size >= 1e6) return fmt::format("{:g}M", x / 1e6);
  if (size >= 1e4) return fmt::format("{:g}k", x / 1e3);
  return fmt::format("{:g}", x);
}

// The range of the data with some air, or the one asked for.
std::pair<double, double> range_of(const Chart& c, bool y) {
  const auto& asked = y ? c.y_range : c.x_range;
  if (asked) return *asked;
  const bool log = y ? c.log_y : c.log_x;
  double low = std::numeric_limits<double>::infinity(), high = -low;
  const auto take = [&](double v) {
    if (std::isfinite(v) && (!log || v > 0)) low = std::min(low, v), high = std::max(high, v);
  };
  for (const Series& s : c.series) {
    for (const double v : y ? s.y : s.x) take(v);
    if (y) {
      for (const double v : s.low) take(v);
      for (const double v : s.high) take(v);
    }
  }
  if (y)
    for (const auto& rule : c.rules) take(rule.first);
  if (!(low <= high)) return log ? std::pair(1.0, 10.0) : std::pair(0.0, 1.0);
  if (log) return low < high ? std::pair(low / 1.1, high * 1.1) : std::pair(low / 2, high * 2);
  const double air = low < high ? 0.04 * (high - low) : std::max(0.5, std::fabs(low) * 0.1);
  return {low - air, high + air};
}

std::string marker(int style, double x, double y) {
  const double r = 3.4;
  const auto path = [&](std::string_view points) {
    return fmt::format(R"(<polygon class="m c{}" points="{}"/>)", style, points);
  };
  switch (style % 4) {
    case 0:
      return fmt::format(R"(<circle class="m c{}" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"/>)", style, x, y, r);
    case 1:
      return fmt::format(R"(<rect class="m c{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)",
                         style, x - r, y - r, 2 * r, 2 * r);
    case 2:
      return path(fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}", x, y - 1.3 * r, x + 1.2 * r, y + r,
                              x - 1.2 * r, y + r));
    default:
      return path(fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}", x, y - 1.4 * r,
                              x + 1.4 * r, y, x, y + 1.4 * r, x - 1.4 * r, y));
  }
}

std::string line_style(int style) {
  return *kDashes[style] ? fmt::format(R"( stroke-dasharray="{}")", kDashes[style]) : std::string();
}

std::string text_at(double x, double y, std::string_view anchor, std::string_view words,
                    std::string_view extra = "") {
  return fmt::format(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>)", x, y, anchor, extra,
                     escape_html(words));
}

std::string draw_series(const Series& s, int style, const Scale& sx, const Scale& sy) {
  std::string out;
  const size_t n = std::min(s.x.size(), s.y.size());
  if (s.low.size() == n && s.high.size() == n && n > 1) {
    std::string there, back;
    for (size_t i = 0; i < n; ++i) {
      if (!sx.holds(s.x[i]) || !sy.holds(s.low[i]) || !sy.holds(s.high[i])) continue;
      there += fmt::format("{:.1f},{:.1f} ", sx(s.x[i]), sy(s.high[i]));
      back = fmt::format("{:.1f},{:.1f} ", sx(s.x[i]), sy(s.low[i])) + back;
    }
    out += fmt::format(R"(<polygon class="band c{}" points="{}{}"/>)", style, there, back);
  }
  std::string run;
  size_t length = 0;
  const auto flush = [&] {
    if (s.line && length > 1)
      out += fmt::format(R"(<polyline class="l c{}"{} points="{}"/>)", style, line_style(style), run);
    run.clear(), length = 0;
  };
  const size_t every = std::max<size_t>(1, n / 24);  // more markers than this would hide the line
  std::string marks;
  for (size_t i = 0; i < n; ++i) {
    if (!sx.holds(s.x[i]) || !sy.holds(s.y[i])) {
      flush();
      continue;
    }
    const double x = sx(s.x[i]), y = sy(s.y[i]);
    run += fmt::format("{:.1f},{:.1f} ", x, y), ++length;
    if (s.markers && (i % every == 0 || i + 1 == n)) marks += marker(style, x, y);
  }
  flush();
  return out + marks;
}

}  // namespace

std::vector<double> axis_ticks(double low, double high, bool log, int count) {
  std::vector<double> out;
  if (!(high > low) || (log && !(low > 0))) return out;
  if (log) {
    const double decades = std::log10(high / low);
    // Few decades: powers of two tell more.
    const double base = decades < 3 ? 2 : 10;
    const int every = std::max(1, static_cast<int>(std::ceil(decades / std::log10(base) / count)));
    const int first = static_cast<int>(std::ceil(std::log(low) / std::log(base) - 1e-9));
    for (int i = first;; i += every) {
      const double x = std::pow(base, i);
      if (x > high * (1 + 1e-12)) break;
      out.push_back(x);
    }
    return out;
  }
  const double raw = (high - low) / count, power = std::pow(10, std::floor(std::log10(raw)));
  const double step = power * (raw / power > 5 ? 10 : raw / power > 2 ? 5 : raw / power > 1 ? 2 : 1);
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i)
    out.push_back(i == 0 ? 0 : i * step);
  return out;
}

std::string svg(const Chart& c) {
  const bool legend = !c.series.empty() && (c.series.size() > 1 || !c.series[0].name.empty());
  const double right = kWidth - (legend ? kLegend : 16);
  const auto [x0, x1] = range_of(c, false);
  const auto [y0, y1] = range_of(c, true);
  const Scale sx{x0, x1, kLeft, right, c.log_x}, sy{y0, y1, kHeight - kBottom, kTop, c.log_y};
  std::string out =
      fmt::format(R"(<svg class="chart" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">)", kWidth,
                  kHeight, escape_html(c.title));
  out += text_at(kLeft, 20, "start", c.title, R"( class="title")");
  for (const double t : axis_ticks(x0, x1, c.log_x)) {
    out += fmt::format(R"(<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="{1:.1f}" y2="{2:.1f}"/>)", sx(t),
                       kTop, kHeight - kBottom);
    out += text_at(sx(t), kHeight - kBottom + 16, "middle", tick_text(t));
  }
  for (const double t : axis_ticks(y0, y1, c.log_y, 5)) {
    out += fmt::format(R"(<line class="grid" x1="{0:.1f}" x2="{1:.1f}" y1="{2:.1f}" y2="{2:.1f}"/>)", kLeft,
                       right, sy(t));
    out += text_at(kLeft - 7, sy(t) + 4, "end", tick_text(t));
  }
  out += fmt::format(R"(<path class="axis" d="M{0:.1f},{1:.1f}V{2:.1f}H{3:.1f}"/>)", kLeft, kTop,
                     kHeight - kBottom, right);
  out += text_at((kLeft + right) / 2, kHeight - 10, "middle", c.x_label);
  const double middle = (kTop + kHeight - kBottom) / 2;
  out += text_at(16, middle, "middle", c.y_label,
                 fmt::format(R"x( transform="rotate(-90 16 {:.1f})")x", middle));
  if (c.diagonal) {
    const double a = std::max(x0, y0), b = std::min(x1, y1);
    if (a < b)
      out += fmt::format(R"(<line class="rule" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", sx(a),
                         sy(a), sx(b), sy(b));
  }
  for (const auto& [at, label] : c.rules) {
    if (!sy.holds(at) || at < y0 || at > y1) continue;
    out += fmt::format(R"(<line class="rule" x1="{0:.1f}" x2="{1:.1f}" y1="{2:.1f}" y2="{2:.1f}"/>)", kLeft,
                       right, sy(at));
    out += text_at(right - 4, sy(at) - 4, "end", label, R"( class="small")");
  }
  for (size_t i = 0; i < c.series.size(); ++i) {
    const Series& s = c.series[i];
    const int style = (s.style < 0 ? static_cast<int>(i) : s.style) % kPlotStyles;
    out += draw_series(s, style, sx, sy);
    if (!legend) continue;
    const double y = kTop + 12 + 18 * static_cast<double>(i), x = right + 14;
    if (s.line)
      out += fmt::format(R"(<line class="l c{0}"{1} x1="{2:.1f}" x2="{3:.1f}" y1="{4:.1f}" y2="{4:.1f}"/>)",
                         style, line_style(style), x, x + 26, y);
    if (s.markers) out += marker(style, x + 13, y);
    out += text_at(x + 33, y + 4, "start", s.name);
  }
  return out + "</svg>";
}

std::string svg(const Grid& g) {
  constexpr double kRow = 24, kMost = 52, kLeast = 18, kHead = 50;
  size_t longest = 0;
  for (const std::string& r : g.rows) longest = std::max(longest, r.size());
  const double left = 16 + 6.6 * static_cast<double>(longest),
               cell = std::clamp(
                   (kWidth - left - 8) / static_cast<double>(std::max<size_t>(1, g.columns.size())), kLeast,
                   kMost),
               width = std::max(kWidth, left + cell * static_cast<double>(g.columns.size()) + 8),
               height = kHead + kRow * static_cast<double>(g.rows.size()) + 6;
  std::string out =
      fmt::format(R"(<svg class="chart" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">)", width,
                  height, escape_html(g.title));
  out += text_at(8, 18, "start", g.title, R"( class="title")");
  const auto middle = [&](size_t c) { return left + cell * (static_cast<double>(c) + 0.5); };
  for (size_t c = 0; c < g.columns.size(); ++c)
    out += text_at(middle(c), kHead - 8, "middle", g.columns[c], R"( class="small")");
  for (size_t r = 0; r < g.rows.size(); ++r) {
    const double top = kHead + kRow * static_cast<double>(r);
    out += text_at(left - 6, top + 16, "end", g.rows[r], R"( class="small")");
    for (size_t c = 0; c < g.columns.size(); ++c) {
      const double v = c < g.values[r].size() ? g.values[r][c] : std::numeric_limits<double>::quiet_NaN();
      if (!std::isfinite(v)) continue;
      const double strength = std::min(1.0, std::fabs(v) / g.largest);
      out += fmt::format(
          R"(<rect class="cell {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill-opacity="{:.2f}"/>)",
          v > 0   ? "plus"
          : v < 0 ? "minus"
                  : "none",
          left + cell * static_cast<double>(c), top, cell, kRow, 0.15 + 0.45 * strength);
      out += text_at(middle(c), top + 16, "middle",
                     g.text.empty() ? (v == 0 ? std::string() : fmt::format("{:.3g}", v)) : g.text[r][c]);
    }
  }
  return out + "</svg>";
}

}  // namespace braid
