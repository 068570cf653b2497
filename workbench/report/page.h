// A self-contained HTML page: text, tables, charts. Follows the reader's light or dark mode, prints well.
//
//   Page page("Parity and modular arithmetic");
//   page.paragraph("Seven models ...");
//   page.table({.head = {"model", "paper", "ours"}, .rows = {{{"DeltaNet"}, {"100"}, {"99.9"}}}});
//   page.chart(chart);
//   page.save("report.html");
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "report/plot.h"

namespace braid {

struct PageCell {
  std::string text;
  enum class Mark { kNone, kGood, kBad, kMissing } mark = Mark::kNone;
};

struct PageTable {
  std::vector<std::string> head;
  std::vector<std::vector<PageCell>> rows;
  std::string caption = {};
  bool words = false;  // cells hold sentences: to the left, and broken where they must be
};

class Page {
 public:
  explicit Page(std::string title) : title_(std::move(title)) {}

  void heading(std::string_view text);
  void paragraph(std::string_view text);
  void code(std::string_view text);
  void table(const PageTable& table);
  void chart(const Chart& chart);
  void grid(const Grid& grid);
  void append(const Page& other);                // all of it but the title
  void begin_details(std::string_view summary);  // what most readers skip, up to end_details()
  void end_details();
  void link(std::string_view href, std::string_view text);

  void refresh_every(int seconds) { refresh_ = seconds; }  // the reader's browser loads it again

  std::string html() const;
  Status save(const std::string& path) const;

 private:
  std::string title_, body_;
  int refresh_ = 0;
};

}  // namespace braid
