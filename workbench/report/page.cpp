#include "report/page.h"

#include <fmt/format.h>

#include "io/file.h"
#include "io/html.h"

namespace braid {
namespace {

// The colours are Okabe and Ito's, which readers with any kind of colour vision can tell apart, lightened for
// dark mode.
constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--soft:#5b6570;--line:#d8dee4;--head:#f3f5f7;--good:#0b7a4b;--bad:#b3261e;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc5fa0;--c4:#b07d00;--c5:#3a9bd9;--c6:#444;--c7:#7a4fbf}
@media (prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e3e7eb;--soft:#9aa5b1;--line:#343b43;--head:#1e2328;--good:#56d39b;--bad:#ff8a80;
--c0:#56b4e9;--c1:#ff8c42;--c2:#2fc9a0;--c3:#e79ac4;--c4:#e6b422;--c5:#8cc8f5;--c6:#c5ccd3;--c7:#b79bf0}}
body{background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.7rem;line-height:1.2}h2{font-size:1.2rem;margin-top:2.2rem}
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}
caption{caption-side:bottom;color:var(--soft);font-size:.9rem;text-align:left;padding-top:.4rem}
th,td{border-bottom:1px solid var(--line);padding:.3rem .8rem;text-align:right}
th{background:var(--head)}th:first-child,td:first-child{text-align:left}
.words th,.words td{text-align:left;vertical-align:top}
.good{color:var(--good);font-weight:600}.bad{color:var(--bad);font-weight:600}.missing{color:var(--soft)}
pre{background:var(--head);padding:.7rem 1rem;overflow-x:auto;border-radius:6px;font-size:.85rem}
.wide{overflow-x:auto}details{margin:1rem 0}summary{cursor:pointer;color:var(--soft)}a{color:var(--c0)}
.chart{width:100%;height:auto;margin:1rem 0}.chart text{fill:var(--fg);font:12px system-ui,sans-serif}
.chart .title{font-weight:600;font-size:14px}.chart .small{font-size:11px;fill:var(--soft)}
.chart .grid{stroke:var(--line);stroke-width:1}.chart .axis{fill:none;stroke:var(--soft)}
.chart .cell{stroke:var(--line)}.chart .plus{fill:var(--c0)}.chart .minus{fill:var(--c1)}.chart .none{fill:none}
.chart .rule{stroke:var(--soft);stroke-dasharray:4 4}.chart .l{fill:none;stroke-width:2}.chart .band{opacity:.15;stroke:none}
@media print{body{max-width:none}pre{white-space:pre-wrap}}
)";

std::string series_style() {
  std::string out;
  for (int i = 0; i < kPlotStyles; ++i)
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

}  // namespace

void Page::heading(std::string_view text) { body_ += fmt::format("<h2>{}</h2>\n", escape_html(text)); }
void Page::paragraph(std::string_view text) { body_ += fmt::format("<p>{}</p>\n", escape_html(text)); }
void Page::code(std::string_view text) { body_ += fmt::format("<pre>{}</pre>\n", escape_html(text)); }
void Page::chart(const Chart& chart) { body_ += svg(chart) + "\n"; }
void Page::grid(const Grid& grid) { body_ += svg(grid) + "\n"; }
void Page::append(const Page& other) { body_ += other.body_; }
void Page::begin_details(std::string_view summary) {
  body_ += fmt::format("<details><summary>{}</summary>\n", escape_html(summary));
}
void Page::end_details() { body_ += "</details>\n"; }
void Page::link(std::string_view href, std::string_view text) {
  body_ += fmt::format("<p><a href=\"{}\">{}</a></p>\n", escape_html(href), escape_html(text));
}

void Page::table(const PageTable& t) {
  body_ += fmt::format("<div class=\"wide\"><table{}>\n", t.words ? " class=\"words\"" : "");
  if (!t.caption.empty()) body_ += fmt::format("<caption>{}</caption>", escape_html(t.caption));
  body_ += "<thead><tr>";
  for (const std::string& h : t.head) body_ += fmt::format("<th>{}</th>", escape_html(h));
  body_ += "</tr></thead>\n<tbody>\n";
  for (const auto& row : t.rows) {
    body_ += "<tr>";
    for (const PageCell& c : row)
      body_ += fmt::format("<td{}>{}</td>", mark_class(c.mark), escape_html(c.text));
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table></div>\n";
}

std::string Page::html() const {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">{4}\n<meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\">\n<title>{0}</title>\n<style>{1}{2}</style></"
      "head>\n<body>\n"
      "<h1>{0}</h1>\n{3}</body></html>\n",
      escape_html(title_), kStyle, series_style(), body_,
      refresh_ ? fmt::format("\n<meta http-equiv=\"refresh\" content=\"{}\">", refresh_) : "");
}

Status Page::save(const std::string& path) const {
  const std::string text = html();
  return write_atomic(path, std::as_bytes(std::span(text)));
}

}  // namespace braid
