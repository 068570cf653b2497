#include "report/page.h"

#include <fmt/format.h>

#include "io/file.h"
#include "io/html.h"

namespace braid {
namespace {

// The colours are Okabe and Ito's, which readers with any kind of colour vision can tell apart, lightened for
// dark mode.
constexpr const char* kLightColours =
    "--bg:#fff;--fg:#1b1f24;--soft:#57606a;--line:#d8dee4;--head:#f3f5f7;--good:#0b7a4b;--bad:#b3261e;"
    "--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc5fa0;--c4:#b07d00;--c5:#3a9bd9;--c6:#444;--c7:#7a4fbf";
constexpr const char* kDarkColours =
    "--bg:#14171a;--fg:#e3e7eb;--soft:#9aa5b1;--line:#343b43;--head:#1e2328;--good:#56d39b;--bad:#ff8a80;"
    "--c0:#56b4e9;--c1:#ff8c42;--c2:#2fc9a0;--c3:#e79ac4;--c4:#e6b422;--c5:#8cc8f5;--c6:#c5ccd3;--c7:#b79bf0";

// Of everything inside a chart.
constexpr const char* kChartStyle = R"(
.chart text{fill:var(--fg);font-family:system-ui,sans-serif}.chart .title{font-weight:600}
.chart .small{fill:var(--soft)}.chart .bad{fill:var(--bad);font-weight:600}
.chart .grid{stroke:var(--line);stroke-width:1}.chart .axis{fill:none;stroke:var(--soft)}
.chart .cell{stroke:var(--line)}.chart .plus{fill:var(--c0)}.chart .minus{fill:var(--c1)}.chart .none{fill:none}
.chart .rule{stroke:var(--soft);stroke-dasharray:4 4}.chart .leader{fill:none;stroke:var(--soft);stroke-dasharray:1 3}
.chart .l{fill:none;stroke-width:2}.chart .thin{stroke-width:1;opacity:.55}.chart .band{opacity:.16;stroke:none}
.chart .paper{fill:var(--bg);stroke:var(--fg);stroke-width:1.5}.chart .run{stroke:var(--fg);stroke-width:1.2}
.chart .cross{stroke:var(--bad);stroke-width:2.2;fill:none}
)";

// Below 760 px the narrow charts are shown, whose text keeps its size there.
constexpr const char* kPageStyle = R"(
*{box-sizing:border-box}
body{background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
overflow-wrap:break-word}
h1{font-size:1.9rem;line-height:1.2;margin:.2rem 0 1rem;text-wrap:balance}h2{font-size:1.25rem;margin-top:2.2rem}
.topic{color:var(--soft);margin:0}
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}
caption{caption-side:bottom;color:var(--soft);font-size:.9rem;text-align:left;padding-top:.4rem}
th,td{border-bottom:1px solid var(--line);padding:.3rem .8rem;text-align:right}
th{background:var(--head)}th:first-child,td:first-child{text-align:left}
td+td{white-space:nowrap}.words th,.words td{text-align:left;vertical-align:top;white-space:normal}
.good{color:var(--good);font-weight:600}.bad{color:var(--bad);font-weight:600}.missing{color:var(--soft)}
pre,code{font-size:.85rem;background:var(--head);border-radius:6px}
pre{padding:.7rem 1rem;white-space:pre-wrap;overflow-wrap:anywhere}code{padding:.1rem .3rem;overflow-wrap:anywhere}
.scroll{overflow-x:auto}details{margin:1rem 0}summary{cursor:pointer;font-weight:600}a{color:var(--c0)}
figure{margin:1.2rem 0}figcaption{font-weight:600;margin-bottom:.3rem}
.chart{display:block;width:100%;height:auto}.narrow{display:none;max-width:30rem}.grid-chart{max-width:none}
@media screen and (max-width:760px){.wide{display:none}.narrow{display:block}h1{font-size:1.5rem}
body{margin:1rem auto}table{font-size:.88rem}th,td{padding:.25rem .4rem}.words td:nth-child(-n+2){min-width:8rem}}
@media print{body{max-width:none;margin:0}figure,tr{break-inside:avoid}}
)";

std::string series_style() {
  std::string out;
  for (int i = 0; i < kPlotColours; ++i)
    out += fmt::format(
        ".chart .l.c{0}{{stroke:var(--c{0})}}.chart .m.c{0},.chart .band.c{0}{{fill:var(--c{0})}}\n", i);
  return out;
}

const char* mark_class(PageCell::Mark mark) {
  switch (mark) {
    case PageCell::Mark::kGood:
      return R"( class="good")";
    case PageCell::Mark::kBad:
      return R"( class="bad")";
    case PageCell::Mark::kMissing:
      return R"( class="missing")";
    case PageCell::Mark::kNone:
      break;
  }
  return "";
}

// Not parted from the text by a line break.
const char* mark_sign(PageCell::Mark mark) {
  return mark == PageCell::Mark::kGood ? "✓\u00a0" : mark == PageCell::Mark::kBad ? "✗\u00a0" : "";
}

// Escaped, with links to arXiv.
std::string linked(std::string_view text) {
  constexpr std::string_view kArxiv = "arXiv:";
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t found = std::min(text.find(kArxiv, at), text.size());
    size_t end = std::min(found + kArxiv.size(), text.size());
    while (end < text.size() &&
           ((text[end] >= '0' && text[end] <= '9') ||
            (text[end] == '.' && end + 1 < text.size() && text[end + 1] >= '0' && text[end + 1] <= '9')))
      ++end;
    out += escape_html(text.substr(at, found - at));
    if (end > found + kArxiv.size())
      out += fmt::format(R"(<a href="https://arxiv.org/abs/{0}">arXiv:{0}</a>)",
                         text.substr(found + kArxiv.size(), end - found - kArxiv.size()));
    else
      out += escape_html(text.substr(found, end - found));
    at = end;
  }
  return out;
}

std::string cell_html(const PageCell& c) {
  std::string text = c.href.empty()
                         ? linked(c.text)
                         : fmt::format(R"(<a href="{}">{}</a>)", escape_html(c.href), escape_html(c.text));
  if (c.kind == PageCell::Kind::kCode) text = escape_html(c.before) + " <code>" + text + "</code>";
  return fmt::format("<td{}>{}{}</td>", mark_class(c.mark), mark_sign(c.mark), text);
}

}  // namespace

void Page::topic(std::string_view text) { topic_ = text; }
void Page::heading(std::string_view text) { body_ += fmt::format("<h2>{}</h2>\n", escape_html(text)); }
void Page::paragraph(std::string_view text) { body_ += fmt::format("<p>{}</p>\n", linked(text)); }
void Page::code(std::string_view text) { body_ += fmt::format("<pre>{}</pre>\n", escape_html(text)); }
void Page::chart(const Chart& c) { figure(c.title, svg(c, Frame::kWide) + "\n" + svg(c, Frame::kNarrow)); }
void Page::panels(const Panels& p) { figure(p.title, svg(p, Frame::kWide) + "\n" + svg(p, Frame::kNarrow)); }
void Page::dots(const DotChart& c) { figure(c.title, svg(c, Frame::kWide) + "\n" + svg(c, Frame::kNarrow)); }
void Page::grid(const Grid& g) { figure(g.title, "<div class=\"scroll\">" + svg(g) + "</div>"); }
void Page::append(const Page& other) { body_ += other.body_; }
void Page::begin_details(std::string_view summary) {
  body_ += fmt::format("<details><summary>{}</summary>\n", escape_html(summary));
}
void Page::end_details() { body_ += "</details>\n"; }

void Page::figure(std::string_view caption, const std::string& content) {
  body_ += fmt::format("<figure><figcaption>{}</figcaption>\n{}</figure>\n", escape_html(caption), content);
}

void Page::table(const PageTable& t) {
  body_ += fmt::format("<div class=\"scroll\"><table{}>\n", t.words ? " class=\"words\"" : "");
  if (!t.caption.empty()) body_ += fmt::format("<caption>{}</caption>", escape_html(t.caption));
  body_ += "<thead><tr>";
  for (const std::string& h : t.head) body_ += fmt::format("<th>{}</th>", escape_html(h));
  body_ += "</tr></thead>\n<tbody>\n";
  for (const auto& row : t.rows) {
    body_ += "<tr>";
    for (const PageCell& c : row) body_ += cell_html(c);
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table></div>\n";
}

std::string Page::html() const {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">{8}\n<meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\">\n<title>{0}</title>\n<style>\n"
      ":root{{color-scheme:light dark;{1}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{2}}}}}"
      "{3}{4}{5}</style></head>\n<body>\n{6}<h1>{0}</h1>\n{7}</body></html>\n",
      escape_html(title_), kLightColours, kDarkColours, kPageStyle, kChartStyle, series_style(),
      topic_.empty() ? std::string() : fmt::format("<p class=\"topic\">{}</p>\n", escape_html(topic_)), body_,
      refresh_ ? fmt::format("\n<meta http-equiv=\"refresh\" content=\"{}\">", refresh_) : "");
}

Status Page::save(const std::string& path) const {
  const std::string text = html();
  return write_atomic(path, std::as_bytes(std::span(text)));
}

std::string picture(Panels panels, Theme theme) {
  panels.title_inside = true;
  std::string out = svg(panels, Frame::kWide);
  out.insert(out.find('>') + 1,
             fmt::format("\n<style>svg{{{}}}{}{}</style>\n<rect width=\"100%\" height=\"100%\" "
                         "style=\"fill:var(--bg)\"/>\n",
                         theme == Theme::kLight ? kLightColours : kDarkColours, kChartStyle, series_style()));
  return out + "\n";
}

}  // namespace braid
