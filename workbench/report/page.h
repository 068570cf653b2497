// A self-contained HTML page: text, tables, charts. Follows the reader's light or dark mode, has a layout for
// phones, prints well, and needs no colour to be read. "arXiv:2412.06464" in a text becomes a link.
//
//   Page page("5 of 7 rows agree with the paper");
//   page.topic("Parity and modular arithmetic");
//   page.paragraph("Seven models ...");
//   page.chart(chart);
//   page.table({.head = {"model", "paper", "ours"}, .rows = {{{"DeltaNet"}, {"100"}, {"99.9"}}}});
//   page.save("report.html");
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "report/plot.h"

namespace braid {

struct PageCell {
  std::string text;
  enum class Mark { kNone, kGood, kBad, kMissing } mark = Mark::kNone;  // good and bad have a sign, too
  std::string href = {};                                                // the text is a link
  enum class Kind { kPlain, kCode } kind = Kind::kPlain;
  std::string before = {};  // a plain word before code
};

struct PageTable {
  std::vector<std::string> head;
  std::vector<std::vector<PageCell>> rows;
  std::string caption = {};
  bool words = false;  // cells hold sentences: to the left, and broken where they must be
};

class Page {
 public:
  explicit Page(std::string title) : title_(std::move(title)) {}  // what was found

  void topic(std::string_view text);  // above the title: what was examined
  void heading(std::string_view text);
  void paragraph(std::string_view text);
  void code(std::string_view text);
  void table(const PageTable& table);
  void chart(const Chart& chart);
  void panels(const Panels& panels);
  void dots(const DotChart& chart);
  void grid(const Grid& grid);
  void append(const Page& other);                // all of it but the title
  void begin_details(std::string_view summary);  // what most readers skip, up to end_details()
  void end_details();

  void refresh_every(int seconds) { refresh_ = seconds; }  // the reader's browser loads it again

  std::string html() const;
  Status save(const std::string& path) const;

 private:
  void figure(std::string_view caption, const std::string& content);

  std::string title_, topic_, body_;
  int refresh_ = 0;
};

// A chart as a file of its own, in fixed colours.
enum class Theme { kLight, kDark };
std::string picture(Panels panels, Theme theme);

}  // namespace braid
