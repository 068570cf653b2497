#include "report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "io/html.h"

namespace braid {
namespace {

constexpr const char* kDashes[kPlotColours] = {"",        "7 3",          "2 3", "9 3 2 3",
                                               "1 2 6 2", "12 4 2 4 2 4", "5 5", "3 2 8 2"};
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Sizes of a frame in its own units, which are pixels where the page has just this width.
struct Sizes {
  double width, height, font, small, label_share;  // label_share: what of the width labels may take

  double line() const { return font + 4; }
};
constexpr Sizes kWideSizes{720, 330, 12, 11.5, 0.4}, kNarrowSizes{360, 270, 13, 12, 0.4},
    kPanelSizes{800, 250, 12, 11.5, 0.4}, kStackedSizes{360, 235, 13, 12, 0.4};
const Sizes& sizes_of(Frame f) { return f == Frame::kWide ? kWideSizes : kNarrowSizes; }

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
  if (size >= 1e9) {
    std::string text = fmt::format("{:.0e}", x);
    return text.erase(text.find('+'), 1);
  }
  if (size >= 1e6) return fmt::format("{:g}M", x / 1e6);
  if (size >= 1e4) return fmt::format("{:g}k", x / 1e3);
  return fmt::format("{:g}", x);
}

// What a range must hold.
struct Extent {
  bool log = false;
  double low = std::numeric_limits<double>::infinity(), high = -low;

  void take(double v) {
    if (std::isfinite(v) && (!log || v > 0)) low = std::min(low, v), high = std::max(high, v);
  }
  void take(const std::vector<double>& all) {
    for (const double v : all) take(v);
  }

  // With some air around data that no requested range covers, and never less than `least_span`.
  std::pair<double, double> range(const std::optional<std::pair<double, double>>& at_least,
                                  double least_span) const {
    double a = low, b = high;
    if (!(a <= b)) {
      if (at_least) return *at_least;
      return log ? std::pair(1.0, 10.0) : std::pair(0.0, 1.0);
    }
    if (log) {
      std::tie(a, b) = a < b ? std::pair(a / 1.1, b * 1.1) : std::pair(a / 2, b * 2);
    } else {
      const double span = std::max(b - a, least_span), middle = (a + b) / 2;
      if (b - a < least_span) a = middle - span / 2, b = middle + span / 2;
      const double air = span > 0 ? 0.04 * span : std::max(0.5, std::fabs(a) * 0.1);
      a -= air, b += air;
    }
    if (!at_least) return {a, b};
    return {low < at_least->first ? a : at_least->first, high > at_least->second ? b : at_least->second};
  }
};

std::pair<double, double> x_range(const Chart& c) {
  Extent e{.log = c.log_x};
  for (const Series& s : c.series) e.take(s.x);
  // Nothing was drawn left of the first point or right of the last one.
  if (!c.log_x && !c.x_range && e.low < e.high) return {e.low, e.high};
  return e.range(c.x_range, 0);
}

std::pair<double, double> y_range(const Chart& c) {
  Extent e{.log = c.log_y};
  for (const Series& s : c.series) e.take(s.y), e.take(s.low), e.take(s.high);
  for (const auto& rule : c.rules) e.take(rule.first);
  return e.range(c.y_range, c.least_span);
}

// Beyond eight series the colours come again with other dashes and markers.
struct Look {
  int colour, dash, shape;

  explicit Look(int style)
      : colour(style % kPlotColours),
        dash((style + 3 * (style / kPlotColours)) % kPlotColours),
        shape((style + style / kPlotColours) % 4) {}

  std::string dashes() const {
    return *kDashes[dash] ? fmt::format(R"( stroke-dasharray="{}")", kDashes[dash]) : std::string();
  }
};

std::string marker(const Look& look, double x, double y) {
  const double r = 3.4;
  const auto path = [&](std::string_view points) {
    return fmt::format(R"(<polygon class="m c{}" points="{}"/>)", look.colour, points);
  };
  switch (look.shape) {
    case 0:
      return fmt::format(R"(<circle class="m c{}" cx="{:.1f}" cy="{:.1f}" r="{:.1f}"/>)", look.colour, x, y,
                         r);
    case 1:
      return fmt::format(R"(<rect class="m c{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>)",
                         look.colour, x - r, y - r, 2 * r, 2 * r);
    case 2:
      return path(fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}", x, y - 1.3 * r, x + 1.2 * r, y + r,
                              x - 1.2 * r, y + r));
    default:
      return path(fmt::format("{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}", x, y - 1.4 * r,
                              x + 1.4 * r, y, x, y + 1.4 * r, x - 1.4 * r, y));
  }
}

// The font size is an attribute and not in the page's style, so that a file of its own has it, too.
std::string text_at(double x, double y, std::string_view anchor, std::string_view words, double size,
                    std::string_view kind = "") {
  return fmt::format(R"(<text{} x="{:.1f}" y="{:.1f}" text-anchor="{}" font-size="{:g}">{}</text>)",
                     kind.empty() ? std::string() : fmt::format(R"( class="{}")", kind), x, y, anchor, size,
                     escape_html(words));
}

// Words in as many lines as the width needs.
std::vector<std::string> wrapped(std::string_view words, double size, double width) {
  std::vector<std::string> out{""};
  while (!words.empty()) {
    const size_t end = std::min(words.find(' ', 1), words.size());
    const std::string_view word = words.substr(0, end);
    if (!out.back().empty() && text_width(out.back() + std::string(word), size) > width)
      out.emplace_back(word.substr(word.find_first_not_of(' ')));
    else
      out.back() += word;
    words.remove_prefix(end);
  }
  return out;
}

std::string line_at(std::string_view kind, double x1, double y1, double x2, double y2) {
  return fmt::format(R"(<line class="{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>)", kind, x1, y1,
                     x2, y2);
}

std::string open_svg(std::string_view kind, double width, double height, std::string_view title) {
  return fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" class="chart {0}" viewBox="0 0 {1:.0f} {2:.0f}" width="{1:.0f}" )"
      R"(height="{2:.0f}" role="img" aria-label="{3}">)",
      kind, width, height, escape_html(title));
}
const char* frame_class(Frame f) { return f == Frame::kWide ? "wide" : "narrow"; }

int style_of(const Chart& c, size_t i) {
  const int style = c.series[i].style;
  return style < 0 ? static_cast<int>(i) : style;
}

std::string draw_series(const Series& s, const Look& look, const Scale& sx, const Scale& sy) {
  std::string out;
  const size_t n = std::min(s.x.size(), s.y.size());
  if (s.low.size() == n && s.high.size() == n && n > 1) {
    std::string there, back;
    for (size_t i = 0; i < n; ++i) {
      if (!sx.holds(s.x[i]) || !sy.holds(s.low[i]) || !sy.holds(s.high[i])) continue;
      there += fmt::format("{:.1f},{:.1f} ", sx(s.x[i]), sy(s.high[i]));
      back = fmt::format("{:.1f},{:.1f} ", sx(s.x[i]), sy(s.low[i])) + back;
    }
    out += fmt::format(R"(<polygon class="band c{}" points="{}{}"/>)", look.colour, there, back);
  }
  std::string run;
  size_t length = 0;
  const auto flush = [&] {
    if (s.line && length > 1)
      out += fmt::format(R"(<polyline class="l{} c{}"{} points="{}"/>)", s.thin ? " thin" : "", look.colour,
                         look.dashes(), run);
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
    if (s.markers && !s.thin && (i % every == 0 || i + 1 == n)) marks += marker(look, x, y);
  }
  flush();
  return out + marks;
}

// The last point that is drawn; NaN if there is none.
std::pair<double, double> end_of(const Series& s, const Scale& sx, const Scale& sy) {
  for (size_t i = std::min(s.x.size(), s.y.size()); i-- > 0;)
    if (sx.holds(s.x[i]) && sy.holds(s.y[i])) return {sx(s.x[i]), sy(s.y[i])};
  return {kNone, kNone};
}

bool is_named(const Series& s) { return !s.thin && !(s.name.empty() && s.value.empty()); }

// At a line's end the value is below the name.
std::string key_text(const Series& s) {
  return s.value.empty() || s.name.empty() ? s.name + s.value : s.name + ": " + s.value;
}

constexpr double kSample = 12;  // marker and gap before a label
constexpr double kKeySample = 32;

// What is at the right of a plot, and what is below it.
struct Labels {
  bool direct = true;       // names at the ends of lines
  bool rules_right = true;  // and labels of rules beside them
  bool names = true;        // or values alone
  double right = 10;        // the margin
  double height = 0;        // of a label
};

Labels place_labels(const Chart& c, const Sizes& z, bool names) {
  Labels out{.names = names, .height = z.line()};
  double widest = 0, widest_rule = 0;
  size_t count = c.rules.size();
  for (const Series& s : c.series) {
    if (!is_named(s)) continue;
    ++count;
    widest = std::max({widest, names ? text_width(s.name, z.font) : 0, text_width(s.value, z.font)});
    out.direct &= s.line;
    if (names && !s.name.empty() && !s.value.empty()) out.height = 2 * z.line();
  }
  for (const auto& rule : c.rules) widest_rule = std::max(widest_rule, text_width(rule.second, z.small));
  const double room = z.label_share * z.width - kSample - 8;
  out.direct &= widest <= room && static_cast<double>(count) * out.height <= z.height - 60;
  out.rules_right = widest_rule <= room;
  if (out.direct && widest > 0) out.right = std::max(out.right, kSample + widest + 10);
  if (out.rules_right && widest_rule > 0) out.right = std::max(out.right, kSample + widest_rule + 10);
  return out;
}

struct KeyItem {
  std::string text;
  int style;  // -1: a rule
  bool line, markers;
};

// Names below a plot, as many beside each other as fit; draws from `top` on and returns the height.
double draw_key(const std::vector<KeyItem>& items, const Sizes& z, double left, double top, double width,
                std::string& out) {
  double x = left, y = top + z.line() - 4;
  for (const KeyItem& item : items) {
    const double w = kKeySample + text_width(item.text, z.font) + 16;
    if (x > left && x + w > width) x = left, y += z.line();
    if (item.style < 0) {
      out += line_at("rule", x, y - 4, x + 26, y - 4);
    } else {
      const Look look(item.style);
      if (item.line)
        out += fmt::format(R"(<line class="l c{0}"{1} x1="{2:.1f}" x2="{3:.1f}" y1="{4:.1f}" y2="{4:.1f}"/>)",
                           look.colour, look.dashes(), x, x + 26, y - 4);
      if (item.markers) out += marker(look, x + 13, y - 4);
    }
    const std::vector<std::string> lines = wrapped(item.text, z.font, width - x - kKeySample);
    for (size_t i = 0; i < lines.size(); ++i, y += i < lines.size() ? z.line() : 0)
      out += text_at(x + kKeySample, y, "start", lines[i], z.font);
    x += w;
  }
  return items.empty() ? 0 : y - top + 6;
}

std::vector<KeyItem> key_of(const Chart& c, const Labels& labels) {
  std::vector<KeyItem> out;
  if (!labels.direct)
    for (size_t i = 0; i < c.series.size(); ++i)
      if (const Series& s = c.series[i]; is_named(s))
        out.push_back({key_text(s), style_of(c, i), s.line, s.markers});
  if (!labels.rules_right)
    for (const auto& rule : c.rules) out.push_back({rule.second, -1, true, false});
  return out;
}

struct Box {
  double left, top, right, bottom;
};

// The least left margin: of the tick labels of the y axis.
double left_margin(const Chart& c, const Sizes& z) {
  const auto [y0, y1] = y_range(c);
  double widest = 0;
  for (const double t : axis_ticks(y0, y1, c.log_y, 6))
    widest = std::max(widest, text_width(tick_text(t), z.font));
  return widest + 12;
}

// Stretches of the height: grid lines leave out what is written between them.
using Spans = std::vector<std::pair<double, double>>;

void draw_x_axis(const Scale& sx, const Box& b, const Spans& spans, const Sizes& z, std::string_view label,
                 double right_end, std::string& out) {
  const int count = b.right - b.left > 400 ? 6 : b.right - b.left > 200 ? 4 : 3;
  double free_from = -1e9;
  for (const double t : axis_ticks(sx.low, sx.high, sx.log, count)) {
    const double x = sx(t), half = text_width(tick_text(t), z.font) / 2;
    for (const auto& [from, to] : spans) out += line_at("grid", x, from, x, to);
    if (x - half < std::max(0.0, free_from) || x + half > right_end) continue;
    out += text_at(x, b.bottom + z.font + 5, "middle", tick_text(t), z.font);
    free_from = x + half + 6;
  }
  const double half = text_width(label, z.font) / 2;
  const double middle = std::max(half, std::min((b.left + b.right) / 2, right_end - half));
  if (!label.empty()) out += text_at(middle, b.bottom + 2 * z.font + 11, "middle", label, z.font);
}

double below_plot(const Sizes& z, std::string_view x_label) {
  return (x_label.empty() ? 1 : 2) * z.font + 16;
}

// Axes, rules, lines and the labels at the right.
void draw_plot(const Chart& c, const Sizes& z, const Box& b, const Labels& labels, bool y_ticks,
               double right_end, std::string& out) {
  const auto [x0, x1] = x_range(c);
  const auto [y0, y1] = y_range(c);
  const Scale sx{x0, x1, b.left, b.right, c.log_x}, sy{y0, y1, b.bottom, b.top, c.log_y};
  draw_x_axis(sx, b, {{b.top, b.bottom}}, z, c.x_label, right_end, out);
  for (const double t : axis_ticks(y0, y1, c.log_y, 6)) {
    out += line_at("grid", b.left, sy(t), b.right, sy(t));
    if (y_ticks) out += text_at(b.left - 7, sy(t) + 4, "end", tick_text(t), z.font);
  }
  out += fmt::format(R"(<path class="axis" d="M{0:.1f},{1:.1f}V{2:.1f}H{3:.1f}"/>)", b.left, b.top, b.bottom,
                     b.right);
  if (c.diagonal) {
    const double low = std::max(x0, y0), high = std::min(x1, y1);
    if (low < high) out += line_at("rule", sx(low), sy(low), sx(high), sy(high));
  }
  struct Label {
    double from, at;  // the end of the line; the height
    std::string name, value;
    int style;    // -1: a rule
    bool marked;  // by a marker at the line's end
  };
  std::vector<Label> all;
  for (const auto& [at, text] : c.rules) {
    if (!sy.holds(at)) continue;
    out += line_at("rule", b.left, sy(at), b.right, sy(at));
    if (labels.rules_right) all.push_back({b.right, sy(at), text, "", -1, false});
  }
  for (const bool thin : {true, false})
    for (size_t i = 0; i < c.series.size(); ++i) {
      const Series& s = c.series[i];
      if (s.thin != thin) continue;
      out += draw_series(s, Look(style_of(c, i)), sx, sy);
      const auto [x, y] = end_of(s, sx, sy);
      if (labels.direct && is_named(s) && std::isfinite(x))
        all.push_back({x, y, labels.names ? s.name : "", s.value, style_of(c, i), s.markers});
    }
  std::vector<double> heights;
  for (const Label& l : all) heights.push_back(l.at);
  const double half = (labels.height - z.line()) / 2;
  heights = spread_labels(heights, labels.height, b.top - 4 + half, b.bottom + 2 - half);
  for (size_t i = 0; i < all.size(); ++i) {
    const Label& l = all[i];
    const double y = heights[i], x = b.right + kSample;
    const bool moved = l.from < b.right - 1 || std::fabs(y - l.at) > 1.5;
    if (moved)
      out += fmt::format(R"(<path class="leader" d="M{:.1f},{:.1f}H{:.1f}L{:.1f},{:.1f}"/>)", l.from, l.at,
                         b.right, x - 6, y);
    if (l.style < 0) {
      out += text_at(x + 3, y + 4, "start", l.name, z.small, "small");
      continue;
    }
    if (moved || !l.marked) out += marker(Look(l.style), x - 4, y);
    const bool two = !l.name.empty() && !l.value.empty();
    if (!l.name.empty()) out += text_at(x + 3, y + (two ? -half + 4 : 4), "start", l.name, z.font);
    if (!l.value.empty()) out += text_at(x + 3, y + (two ? half + 4 : 4), "start", l.value, z.font, "title");
  }
}

constexpr double kCrossSize = 4;
std::string cross(double x, double y) {
  return fmt::format(
      R"(<path class="cross" d="M{0:.1f},{1:.1f}L{2:.1f},{3:.1f}M{0:.1f},{3:.1f}L{2:.1f},{1:.1f}"/>)",
      x - kCrossSize, y - kCrossSize, x + kCrossSize, y + kCrossSize);
}
std::string diamond(double x, double y) {
  const double r = 6;
  return fmt::format(
      R"(<polygon class="paper" points="{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}"/>)", x,
      y - r, x + r, y, x, y + r, x - r, y);
}
std::string disc(double x, double y) {
  return fmt::format(R"(<circle class="m c0" cx="{:.1f}" cy="{:.1f}" r="4.2"/>)", x, y);
}
std::string tick_mark(double x, double y) { return line_at("run", x, y - 6, x, y + 6); }

constexpr const char* kDiffers = "differs";

}  // namespace

double text_width(std::string_view utf8, double size) {
  double em = 0;
  for (const char c : utf8) {
    if ((static_cast<unsigned char>(c) & 0xC0) == 0x80) continue;  // inside a character
    if (std::string_view("ijlI|.,:;'!()[]ftr -").find(c) != std::string_view::npos)
      em += 0.4;
    else if (std::string_view("mwMW%@").find(c) != std::string_view::npos)
      em += 0.97;
    else
      em += c >= 'A' && c <= 'Z' ? 0.7 : 0.62;
  }
  return em * size;
}

std::vector<double> spread_labels(const std::vector<double>& positions, double height, double low,
                                  double high) {
  const size_t n = positions.size();
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return positions[i]; });
  if (n > 1) height = std::min(height, (high - low) / static_cast<double>(n - 1));
  // Labels that touch form a block around the mean of the positions of its members.
  struct Block {
    double sum;
    size_t first, count;
  };
  const auto top = [&](const Block& b) {
    const auto k = static_cast<double>(b.count);
    return std::clamp(b.sum / k - (k - 1) * height / 2, low, std::max(low, high - (k - 1) * height));
  };
  std::vector<Block> blocks;
  for (size_t i = 0; i < n; ++i) {
    blocks.push_back({positions[order[i]], i, 1});
    while (blocks.size() > 1) {
      Block &last = blocks.back(), &before = blocks[blocks.size() - 2];
      if (top(before) + static_cast<double>(before.count) * height <= top(last)) break;
      before.sum += last.sum, before.count += last.count;
      blocks.pop_back();
    }
  }
  std::vector<double> out(n);
  for (const Block& b : blocks)
    for (size_t i = 0; i < b.count; ++i) out[order[b.first + i]] = top(b) + static_cast<double>(i) * height;
  return out;
}

std::vector<double> axis_ticks(double low, double high, bool log, int count) {
  std::vector<double> out;
  if (!(high > low) || (log && !(low > 0))) return out;
  if (log) {
    const double decades = std::log10(high / low);
    // Few decades of lengths or counts: powers of two tell more.
    const double base = decades < 3 && high <= 1e6 ? 2 : 10;
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

std::string svg(const Chart& c, Frame frame) {
  const Sizes& z = sizes_of(frame);
  const Labels labels = place_labels(c, z, true);
  const double top = c.y_label.empty() ? 10 : z.line() + 10;
  const Box b{left_margin(c, z), top, z.width - labels.right, z.height - below_plot(z, c.x_label)};
  std::string body;
  if (!c.y_label.empty()) body += text_at(2, z.font + 1, "start", c.y_label, z.font);
  draw_plot(c, z, b, labels, true, z.width, body);
  const double key = draw_key(key_of(c, labels), z, 4, z.height, z.width, body);
  return open_svg(frame_class(frame), z.width, z.height + key, c.title) + body + "</svg>";
}

std::string svg(const Panels& p, Frame frame) {
  const bool beside = frame == Frame::kWide;
  const Sizes& z = beside ? kPanelSizes : kStackedSizes;
  const size_t n = std::max<size_t>(1, p.charts.size());
  const double gap = 14;
  std::string body;
  double x = 0, y = 0, height = 0;
  if (p.title_inside) {
    const double size = z.font + 3;
    for (const std::string& line : wrapped(p.title, 1.1 * size, z.width - 4))  // bold is wider
      y += size + 4, body += text_at(2, y, "start", line, size, "title");
    y += 12;
  }
  // Beside each other: plots of the same width, whatever their labels need, and numbers at the first alone.
  std::vector<Labels> labels;
  std::vector<double> lefts;
  double margins = gap * static_cast<double>(n - 1);
  for (size_t i = 0; i < p.charts.size(); ++i) {
    labels.push_back(place_labels(p.charts[i], z, !beside || i + 1 == n));
    lefts.push_back(beside && i > 0 ? 4 : left_margin(p.charts[i], z));
    margins += lefts.back() + labels.back().right;
  }
  const double plot = (z.width - margins) / static_cast<double>(n);
  for (size_t i = 0; i < p.charts.size(); ++i) {
    const Chart& c = p.charts[i];
    const double left = x + lefts[i], right = beside ? left + plot : z.width - labels[i].right,
                 end = right + labels[i].right;
    double top = y + z.font + 2;
    body += text_at(x + 2, top, "start", c.title, z.font, "title");
    if (!c.y_label.empty())
      top += z.line(),
          body += text_at(x + 2, top, "start", beside && i > 0 ? "" : c.y_label, z.small, "small");
    const Box b{left, top + 12, right, y + z.height - below_plot(z, c.x_label)};
    draw_plot(c, z, b, labels[i], !beside || i == 0, end, body);
    height =
        std::max(height, y + z.height + draw_key(key_of(c, labels[i]), z, x + 4, y + z.height, end, body));
    if (beside)
      x = end + gap;
    else
      y = height + gap;
  }
  return open_svg(frame_class(frame), z.width, height, p.title) + body + "</svg>";
}

std::string svg(const DotChart& c, Frame frame) {
  const Sizes& z = sizes_of(frame);
  Extent extent;
  double names = 0, texts = 0;
  bool papers = false, runs = false;
  for (const DotChart::Group& g : c.groups) {
    if (g.chance) extent.take(*g.chance);
    for (const DotRow& r : g.rows) {
      extent.take(r.value), extent.take(r.runs);
      if (r.paper) extent.take(*r.paper);
      papers |= r.paper.has_value(), runs |= r.runs.size() > 1;
      names = std::max(names, text_width(r.name, z.font));
      texts =
          std::max(texts, text_width(r.text, z.font) + (r.differs ? 26 + text_width(kDiffers, z.font) : 0));
    }
  }
  const auto [low, high] = extent.range(c.x_range, c.least_span);
  // Long names are above their rows.
  const bool above = names > 0.4 * z.width;
  size_t most_lines = 1;
  for (const DotChart::Group& g : c.groups)
    for (const DotRow& r : g.rows)
      most_lines = std::max(most_lines, wrapped(r.name, z.font, z.width - 4).size());
  const double left = above ? 10 : names + 14, right = z.width - texts - 16,
               tall = z.line() * static_cast<double>(most_lines) + 4,
               row = above ? tall + z.line() + 4 : z.line() + 8;
  const Scale sx{low, high, left, right, false};
  std::string body;
  double y = 4;
  for (const DotChart::Group& g : c.groups) {
    if (!g.name.empty()) body += text_at(2, y + z.font, "start", g.name, z.font, "title"), y += z.line() + 4;
    if (g.chance) {
      const double half = text_width("chance", z.small) / 2;
      body += text_at(std::clamp(sx(*g.chance), left + half - 8, right - half), y + z.small, "middle",
                      "chance", z.small, "small");
      y += z.line() + 2;
    }
    const double top = y, bottom = y + row * static_cast<double>(g.rows.size());
    const Box b{left, top, right, bottom};
    const auto middle_of = [&](size_t i) {
      return top + row * static_cast<double>(i) + (above ? row - 12 : row / 2);
    };
    Spans spans{{top, bottom}};
    if (above) {
      spans.clear();
      for (size_t i = 0; i < g.rows.size(); ++i) spans.emplace_back(middle_of(i) - 8, middle_of(i) + 8);
    }
    draw_x_axis(sx, b, spans, z, c.x_label, z.width, body);
    if (g.chance)
      for (const auto& [from, to] : spans) body += line_at("rule", sx(*g.chance), from, sx(*g.chance), to);
    for (size_t i = 0; i < g.rows.size(); ++i, y += row) {
      const DotRow& r = g.rows[i];
      const double middle = middle_of(i);
      if (!above) body += text_at(left - 10, middle + 4, "end", r.name, z.font);
      double name_y = y + z.font + 2;
      if (above)
        for (const std::string& line : wrapped(r.name, z.font, z.width - 4))
          body += text_at(2, name_y, "start", line, z.font), name_y += z.line();
      body += line_at("grid", left, middle, right, middle);
      if (std::isfinite(r.value)) {
        if (r.runs.size() > 1) {
          const auto [least, most] = std::ranges::minmax(r.runs);
          body += fmt::format(R"(<rect class="band c0" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="8"/>)",
                              sx(least), middle - 4, std::max(1.0, sx(most) - sx(least)));
          for (const double v : r.runs) body += tick_mark(sx(v), middle);
        }
        if (r.paper) body += diamond(sx(*r.paper), middle);
        body += disc(sx(r.value), middle);
      } else if (r.paper) {
        body += diamond(sx(*r.paper), middle);
      }
      const double end = right + 12 + text_width(r.text, z.font);
      body += text_at(end, middle + 4, "end", r.text, z.font);
      if (r.differs) {
        body += cross(end + 12, middle);
        body += text_at(end + 22, middle + 4, "start", kDiffers, z.font, "bad");
      }
    }
    y = bottom + below_plot(z, c.x_label) + 6;
  }
  // The key.
  double x = 4;
  const auto item = [&](std::string_view text, const auto& draw) {
    const double w = 16 + text_width(text, z.font) + 18;
    if (x > 4 && x + w > z.width) x = 4, y += z.line();
    body += draw(x + 6, y + z.font - 4);
    body += text_at(x + 16, y + z.font, "start", text, z.font, "small");
    x += w;
  };
  item("ours, best run", disc);
  if (papers) item("paper", diamond);
  if (runs) item("each run", tick_mark);
  return open_svg(frame_class(frame), z.width, y + z.line() + 4, c.title) + body + "</svg>";
}

std::string svg(const Grid& g) {
  constexpr double kRow = 24, kMost = 52, kLeast = 22, kHead = 24, kWidth = 720, kFont = 12, kSmall = 11.5;
  double left = 16, widest = kLeast;
  for (const std::string& r : g.rows) left = std::max(left, text_width(r, kSmall) + 16);
  for (const std::string& c : g.columns) widest = std::max(widest, text_width(c, kSmall) + 4);
  const auto shown = [&](size_t r, size_t c) {
    const double v = c < g.values[r].size() ? g.values[r][c] : kNone;
    if (!std::isfinite(v)) return std::string();
    return g.text.empty() ? (v == 0 ? std::string() : fmt::format("{:.3g}", v)) : g.text[r][c];
  };
  for (size_t r = 0; r < g.rows.size(); ++r)
    for (size_t c = 0; c < g.columns.size(); ++c)
      widest = std::max(widest, text_width(shown(r, c), kFont) + 4);
  const double columns = static_cast<double>(std::max<size_t>(1, g.columns.size())),
               cell = std::max(std::min((kWidth - left - 8) / columns, kMost), widest),
               width = left + cell * columns + 8,
               height = kHead + kRow * static_cast<double>(g.rows.size()) + 6;
  // Its own width, so that the text keeps its size; the page scrolls it.
  std::string out =
      fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" class="chart grid-chart" )"
                  R"(style="width:{0:.0f}px" viewBox="0 0 {0:.0f} {1:.0f}" role="img" aria-label="{2}">)",
                  width, height, escape_html(g.title));
  const auto middle = [&](size_t c) { return left + cell * (static_cast<double>(c) + 0.5); };
  for (size_t c = 0; c < g.columns.size(); ++c)
    out += text_at(middle(c), kHead - 8, "middle", g.columns[c], kSmall, "small");
  for (size_t r = 0; r < g.rows.size(); ++r) {
    const double top = kHead + kRow * static_cast<double>(r);
    out += text_at(left - 6, top + 16, "end", g.rows[r], kSmall, "small");
    for (size_t c = 0; c < g.columns.size(); ++c) {
      const double v = c < g.values[r].size() ? g.values[r][c] : kNone;
      if (!std::isfinite(v)) continue;
      const double strength = std::min(1.0, std::fabs(v) / g.largest);
      out += fmt::format(
          R"(<rect class="cell {}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" fill-opacity="{:.2f}"/>)",
          v > 0   ? "plus"
          : v < 0 ? "minus"
                  : "none",
          left + cell * static_cast<double>(c), top, cell, kRow, 0.15 + 0.45 * strength);
      out += text_at(middle(c), top + 16, "middle", shown(r, c), kFont);
    }
  }
  return out + "</svg>";
}

}  // namespace braid
