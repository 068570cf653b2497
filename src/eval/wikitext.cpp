#include "eval/wikitext.h"

#include "eval/python_text.h"

namespace braid {
namespace {

bool is_title(std::string_view line) {
  const std::string text = replace_all(replace_all(line, "= = =", "==="), "= =", "==");
  const std::string_view words = strip(text);
  return words.starts_with("= ") && words.ends_with(" =");
}

// Removes white space behind `open` and before the next `close`, pair by pair from the left.
std::string tight(std::string_view text, char open, char close) {
  std::string out;
  for (size_t at = 0;;) {
    const size_t begin = text.find(open, at);
    const size_t end = begin == std::string_view::npos ? begin : text.find(close, begin + 1);
    if (end == std::string_view::npos) return out += text.substr(at);
    out += text.substr(at, begin + 1 - at);
    out += strip(text.substr(begin + 1, end - begin - 1));
    out += close;
    at = end + 1;
  }
}

}  // namespace

std::vector<std::string> wikitext_pages(std::string_view raw) {
  std::vector<std::string> pages;
  std::string page;
  bool first = true;
  const auto end_page = [&] {
    if (!strip(page).empty()) pages.push_back(page);
    page.clear();
    first = true;
  };
  for (const std::string& line : split_at(raw, '\n')) {
    if (is_title(line)) end_page();
    if (!first) page += '\n';
    page += line;
    first = false;
  }
  end_page();
  return pages;
}

std::string wikitext_detokenized(std::string_view page) {
  std::string s(page);
  const auto replace = [&](std::string_view what, std::string_view by) { s = replace_all(s, what, by); };
  replace("s '", "s'");
  replace(" @-@ ", "-"), replace(" @,@ ", ","), replace(" @.@ ", ".");
  replace(" : ", ": "), replace(" ; ", "; "), replace(" . ", ". ");
  replace(" ! ", "! "), replace(" ? ", "? "), replace(" , ", ", ");
  s = tight(s, '(', ')'), s = tight(s, '[', ']'), s = tight(s, '{', '}');
  s = tight(s, '"', '"'), s = tight(s, '\'', '\'');
  replace("= = = =", "===="), replace("= = =", "==="), replace("= =", "==");
  replace(" \xC2\xB0 ", "\xC2\xB0");
  replace(" \n", "\n"), replace("\n ", "\n");
  replace(" N ", " 1 "), replace(" 's", "'s");
  return s;
}

}  // namespace braid
