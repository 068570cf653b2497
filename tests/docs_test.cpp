// The Markdown pages: links, generated blocks, lengths, line widths, sentences and words. The words of --help
// and of header comments, too. Each check is a function from a text to findings; the first tests below show
// that they find what they should.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <span>
#include <sstream>

#include "process.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

// phrase (regular expression over lower-case text), what to write instead
struct Phrase {
  const char *pattern, *instead;
};
constexpr Phrase kPhrases[] = {
    // Metaphors: things that stand, lie, meet, go back, remember.
    {R"(\bby heart\b)", "accuracy of 100 %"},
    {R"(\b(stands?|stood|standing) (beside|around|behind|between|before|in front|below|above|next to|there|at)\b)",
     "is, precedes, follows, is stored in"},
    {R"(\b(lies?|lay|lying) (beside|side by side|together|apart|one after)\b)", "is adjacent to, is stored"},
    {R"(\bmeets?\b)", "is multiplied with, satisfies, is compared with"},
    {R"(\bgo(es)? back through\b)", "runs backward over"},
    {R"(\bthe way back\b)", "rollback"},
    {R"(\bback to a coin\b)", "to chance"},
    {R"(\bbegins? (alike|like)\b)", "has a common prefix"},
    {R"(\btokens go on\b|\bnothing beside it\b)", "are computed; idle machine"},
    {R"(\bremembers\b)", "keeps, stores"},
    {R"(\brooms\b)", "modules"},
    {R"(\bgoes? along\b)", "is copied"},
    {R"(\bheld up\b|\bholds? \w+ up\b)", "is limited by, delays"},
    {R"(\bquiet (minute|hour)|\bbest pace\b)", "idle machine; p10, p50, p90"},
    // Persons inside the machine: what is asked, wanted, known.
    {R"(\bnobody\b|\beverybody\b|\bwhoever\b)", "the operation and its object"},
    {R"(\bwho (asks?|wants?|ignores?|meets?)\b|\b(that|few|they|tokens|queries) ask\b)",
     "queries; output rows"},
    {R"((^|[.;:] )who (is|has|does)\b)", "models that"},
    {R"(\basked for\b|\b(is|are|was|were) (not )?asked\b)", "requested"},
    {R"(\b(is|are|was|were|be) (not )?wanted\b|\bwanted (rows?|tokens?|outputs?|by|alone)\b)", "output rows"},
    {R"(\b(caller|kernel|model|op|layer|family|mixer|thread|task|machine) (wants|asks|knows|likes)\b)",
     "needs, requests"},
    {R"(\bknows? nothing\b)", "is independent of"},
};

// The longest a page may be, in lines; 0: any length. The first prefix that fits counts.
struct Limit {
  std::string_view page;
  size_t lines;
};
constexpr Limit kLimits[] = {
    {"README.md", 150},
    {"CONTRIBUTING.md", 60},
    {"CHANGELOG.md", 0},
    {"docs/tour.md", 150},
    {"docs/howto/train.md", 120},
    {"docs/howto/run.md", 120},
    {"docs/howto/data.md", 100},
    {"docs/howto/eval.md", 120},
    {"docs/howto/convert.md", 100},
    {"docs/howto/reproduce.md", 60},
    {"docs/howto/embed.md", 120},
    {"docs/howto/extend.md", 120},
    {"docs/reference/cli.md", 0},
    {"docs/reference/experiments.md", 0},
    {"docs/reference/models.md", 150},
    {"docs/reference/tasks.md", 200},
    {"docs/reference/", 60},
    {"docs/explanation/design.md", 130},
    {"docs/explanation/theory.md", 60},
    {"docs/explanation/math/", 100},
    {"docs/results/notes/", 0},
    {"docs/results/", 60},
    {"examples/", 0},
};
constexpr std::string_view kAbbreviations[] = {"e.g.", "(e.g.", "i.e.", "(i.e.", "vs.", "cf.", "..", "..."};
constexpr size_t kLineWidth = 120, kSentenceWords = 40;
constexpr std::string_view kBlockBegin = "<!-- braid ", kCommentEnd = " -->", kBlockEnd = "<!-- end -->";

struct Finding {
  size_t line;
  std::string what;
};
using Findings = std::vector<Finding>;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

std::string lower(std::string s) {
  for (char& c : s)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return s;
}

size_t characters(const std::string& utf8) {
  return static_cast<size_t>(
      std::ranges::count_if(utf8, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// ---- Lines and paragraphs

enum class Kind { kBlank, kProse, kHeading, kTable, kCode, kComment };

struct Line {
  std::string text;
  Kind kind;
  bool generated;  // inside a block
};

std::vector<Line> parse(const std::string& text) {
  std::vector<Line> out;
  std::string fence;
  bool generated = false;
  for (const std::string& l : lines_of(text)) {
    const std::string words = l.substr(std::min(l.find_first_not_of(' '), l.size()));
    const Kind before = out.empty() ? Kind::kBlank : out.back().kind;
    Kind kind = Kind::kProse;
    if (!fence.empty()) {
      kind = Kind::kCode;
      if (words.starts_with(fence)) fence.clear();
    } else if (words.starts_with("```") || words.starts_with("~~~")) {
      kind = Kind::kCode, fence = words.substr(0, 3);
    } else if (words.empty()) {
      kind = Kind::kBlank;
    } else if (l.starts_with("    ") && (before == Kind::kBlank || before == Kind::kCode)) {
      kind = Kind::kCode;
    } else if (words.starts_with("|")) {
      kind = Kind::kTable;
    } else if (l.starts_with("#")) {
      kind = Kind::kHeading;
    } else if (words.starts_with("<!--")) {
      kind = Kind::kComment;
    }
    if (kind == Kind::kComment && words == kBlockEnd) generated = false;
    // A blank line between two lines of code belongs to the code.
    if (kind == Kind::kCode)
      for (size_t i = out.size(); i > 0 && out[i - 1].kind == Kind::kBlank; --i)
        if (i > 1 && out[i - 2].kind == Kind::kCode) out[i - 1].kind = Kind::kCode;
    out.push_back({l, kind, generated});
    if (kind == Kind::kComment && words.starts_with(kBlockBegin)) generated = true;
  }
  return out;
}

// Text of several lines, joined by blanks.
struct Paragraph {
  Kind kind;
  std::string text;
  std::vector<std::pair<size_t, size_t>> starts;  // offset in text, number of the line
  void add(const std::string& line, size_t number) {
    if (!text.empty()) text += ' ';
    starts.emplace_back(text.size(), number);
    text += line.substr(std::min(line.find_first_not_of(" >"), line.size()));
  }
  size_t line_at(size_t offset) const {
    size_t line = 0;
    for (const auto& [start, number] : starts)
      if (start <= offset) line = number;
    return line;
  }
};

std::vector<Paragraph> paragraphs(const std::vector<Line>& lines) {
  static const std::regex item(R"(^\s*([*+-]|\d+\.)\s.*)");
  std::vector<Paragraph> all;
  bool open = false;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Line& l = lines[i];
    const bool prose = l.kind == Kind::kProse;
    if (!prose || std::regex_match(l.text, item)) open = false;
    if (l.kind == Kind::kBlank || l.kind == Kind::kCode || l.kind == Kind::kComment) continue;
    if (!open) all.push_back({l.kind, "", {}});
    all.back().add(l.text, i + 1);
    open = prose;
  }
  return all;
}

// Replaces every match by as many characters, so that offsets stay: `first` of them, and then blanks.
std::string blank_out(const std::string& text, const std::regex& what, char first) {
  std::string out = text;
  for (std::sregex_iterator at(text.begin(), text.end(), what), end; at != end; ++at) {
    const auto begin = static_cast<size_t>(at->position()), size = static_cast<size_t>(at->length());
    out.replace(begin, size, std::string(1, first) + std::string(size - 1, ' '));
  }
  return out;
}

std::string without_code(const std::string& text) {
  static const std::regex code("``[^`]+(`[^`]+)*``|`[^`]+`");
  return blank_out(text, code, 'X');  // a word
}

// What a person reads: no code, no addresses.
std::string readable(const std::string& text) {
  static const std::regex address(R"(\]\([^)]*\)|<[a-zA-Z/!][^>]*>|https?://\S+)");
  return blank_out(without_code(text), address, ' ');
}

// ---- Checks of one text

Findings wide_lines(const std::string& text) {
  Findings out;
  const std::vector<Line> lines = parse(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t width = characters(lines[i].text);
    if (width > kLineWidth && lines[i].kind != Kind::kTable && lines[i].kind != Kind::kCode)
      out.push_back({i + 1, "has " + std::to_string(width) + " characters, more than " +
                                std::to_string(kLineWidth) + ": wrap it"});
  }
  return out;
}

Findings long_sentences(const std::string& text) {
  Findings out;
  for (const Paragraph& p : paragraphs(parse(text))) {
    if (p.kind != Kind::kProse) continue;
    const std::string words = readable(p.text);
    size_t count = 0, start = 0;
    const auto end_sentence = [&] {
      if (count > kSentenceWords)
        out.push_back({p.line_at(start), "a sentence of " + std::to_string(count) + " words, more than " +
                                             std::to_string(kSentenceWords) + ": split it"});
      count = 0;
    };
    for (size_t at = words.find_first_not_of(' '); at != std::string::npos;) {
      const size_t end = std::min(words.find(' ', at), words.size());
      std::string_view word(words.data() + at, end - at);
      if (count == 0) start = at;
      count += std::ranges::any_of(word, [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) || static_cast<unsigned char>(c) >= 0x80;
      });
      while (!word.empty() && std::string_view(")\"'*_]").find(word.back()) != std::string_view::npos)
        word.remove_suffix(1);
      const bool ends = word.ends_with('.') || word.ends_with('!') || word.ends_with('?');
      if (ends && std::ranges::find(kAbbreviations, word) == std::end(kAbbreviations)) end_sentence();
      at = words.find_first_not_of(' ', end);
    }
    end_sentence();
  }
  return out;
}

Findings phrases_in(const Paragraph& p) {
  struct Compiled {
    std::regex pattern;
    const char* instead;
  };
  static const std::vector<Compiled> all = [] {
    std::vector<Compiled> out;
    for (const Phrase& f : kPhrases)
      out.push_back({std::regex(f.pattern, std::regex::ECMAScript | std::regex::optimize), f.instead});
    return out;
  }();
  Findings out;
  // One blank between words: an expression does not count them.
  std::string words;
  std::vector<size_t> from;  // offset in the paragraph
  const std::string text = lower(readable(p.text));
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] != ' ' || (!words.empty() && words.back() != ' ')) words += text[i], from.push_back(i);
  for (const Compiled& c : all)
    for (std::sregex_iterator at(words.begin(), words.end(), c.pattern), end; at != end; ++at)
      out.push_back({p.line_at(from[static_cast<size_t>(at->position())]),
                     "'" + at->str() + "': write, for example: " + c.instead});
  return out;
}

Findings phrases_in_page(const std::string& text) {
  Findings out;
  for (const Paragraph& p : paragraphs(parse(text)))
    for (Finding& f : phrases_in(p)) out.push_back(std::move(f));
  return out;
}

Findings phrases_in_help(const std::string& text) {
  Paragraph all{Kind::kProse, "", {}};
  const std::vector<std::string> lines = lines_of(text);
  for (size_t i = 0; i < lines.size(); ++i) all.add(lines[i], i + 1);
  return phrases_in(all);
}

// Of the comments alone; comments on consecutive lines are read as one text.
Findings phrases_in_header(const std::string& text) {
  Findings out;
  Paragraph comment{Kind::kProse, "", {}};
  const auto end_comment = [&] {
    for (Finding& f : phrases_in(comment)) out.push_back(std::move(f));
    comment = {Kind::kProse, "", {}};
  };
  const std::vector<std::string> lines = lines_of(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    const size_t at = lines[i].find("//");
    const bool is = at != std::string::npos && (at == 0 || lines[i][at - 1] == ' ');
    if (is)
      comment.add(lines[i].substr(at + 2), i + 1);
    else
      end_comment();
  }
  end_comment();
  return out;
}

size_t counted_lines(const std::string& text, bool tables_count) {
  const std::vector<Line> lines = parse(text);
  return static_cast<size_t>(std::ranges::count_if(
      lines, [&](const Line& l) { return !l.generated && (tables_count || l.kind != Kind::kTable); }));
}

// A generated block: the output of `braid WORDS`, run in the root folder.
struct Block {
  size_t line;
  std::string words, text;
};
std::vector<Block> blocks_of(const std::string& page, Findings& wrong) {
  std::vector<Block> all;
  bool inside = false;
  const std::vector<std::string> lines = lines_of(page);
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& l = lines[i];
    if (l.starts_with(kBlockBegin) && l.ends_with(kCommentEnd)) {
      if (inside) wrong.push_back({i + 1, "a block begins inside another"});
      all.push_back(
          {i + 1, l.substr(kBlockBegin.size(), l.size() - kBlockBegin.size() - kCommentEnd.size()), ""});
      inside = true;
    } else if (l == kBlockEnd) {
      inside = false;
    } else if (inside) {
      all.back().text += l + "\n";
    }
  }
  if (inside) wrong.push_back({lines.size(), "the last block has no " + std::string(kBlockEnd)});
  return all;
}

// ---- Links

std::string slug(const std::string& heading) {  // as GitHub names anchors
  static const std::regex link(R"(\[([^\]]*)\]\([^)]*\))");
  std::string out;
  for (const char c : lower(std::regex_replace(heading, link, "$1"))) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ||
        static_cast<unsigned char>(c) >= 0x80)
      out += c;
    else if (c == ' ')
      out += '-';
  }
  return out;
}

std::set<std::string> anchors_of(const std::string& page) {
  static const std::regex named(R"re(<a (?:id|name)="([^"]+)")re");
  std::set<std::string> all;
  std::map<std::string, int> seen;
  for (const Line& l : parse(page)) {
    for (std::sregex_iterator at(l.text.begin(), l.text.end(), named), end; at != end; ++at)
      all.insert((*at)[1]);
    if (l.kind != Kind::kHeading) continue;
    const size_t from = l.text.find_first_not_of("# ");
    if (from == std::string::npos) continue;
    const std::string name = slug(l.text.substr(from));
    const int times = seen[name]++;
    all.insert(times ? name + "-" + std::to_string(times) : name);
  }
  return all;
}

struct Link {
  size_t line;
  std::string target;
};
std::vector<Link> links_of(const std::string& page) {
  static const std::regex link(
      R"re(\]\(([^)\s]+)(?:\s+"[^"]*")?\)|^\[[^\]]+\]:\s*(\S+)|(?:src|srcset|href)="([^"]+)")re");
  std::vector<Link> all;
  for (const Paragraph& p : paragraphs(parse(page))) {
    const std::string text = without_code(p.text);
    for (std::sregex_iterator at(text.begin(), text.end(), link), end; at != end; ++at)
      for (size_t group = 1; group <= 3; ++group)
        if ((*at)[group].matched)
          all.push_back({p.line_at(static_cast<size_t>(at->position())), (*at)[group]});
  }
  return all;
}

// `name`: the page's path below `root`.
Findings dead_links(const fs::path& root, const std::string& name, const std::string& page) {
  static const std::regex elsewhere("^(https?:|mailto:).*");
  Findings out;
  for (const Link& l : links_of(page)) {
    if (std::regex_match(l.target, elsewhere)) continue;
    const size_t hash = std::min(l.target.find('#'), l.target.size());
    const std::string path = l.target.substr(0, hash), anchor = l.target.substr(hash);
    const fs::path file = path.empty() ? fs::path(name) : (fs::path(name).parent_path() / path);
    const fs::path inside = file.lexically_normal();
    if (path.starts_with('/') || inside.string().starts_with("..")) {
      out.push_back({l.line, "'" + l.target + "' leads out of the tree"});
    } else if (!path.empty() && !fs::exists(root / inside)) {
      out.push_back({l.line, "'" + l.target + "': there is no " + inside.string()});
    } else if (!anchor.empty() && inside.extension() == ".md") {
      const std::string text = path.empty() ? page : slurp((root / inside).string());
      if (!anchors_of(text).contains(anchor.substr(1)))
        out.push_back({l.line, "'" + l.target + "': " + inside.string() + " has no heading for " + anchor});
    }
  }
  return out;
}

// ---- The tree

std::vector<std::string> files(std::initializer_list<const char*> folders, std::string_view extension) {
  std::vector<std::string> all;
  const fs::path root(BRAID_SOURCE);
  for (const char* folder : folders)
    for (const fs::directory_entry& e : fs::recursive_directory_iterator(root / folder))
      if (e.path().extension() == extension) all.push_back(e.path().lexically_relative(root).string());
  std::ranges::sort(all);
  return all;
}

std::vector<std::string> pages() {
  std::vector<std::string> all = files({"docs", "examples", "bench", "share", "tools"}, ".md");
  for (const fs::directory_entry& e : fs::directory_iterator(BRAID_SOURCE))
    if (e.path().extension() == ".md") all.push_back(e.path().filename().string());
  std::ranges::sort(all);
  return all;
}

std::string source(const std::string& name) { return slurp(BRAID_SOURCE "/" + name); }
bool is_note(const std::string& page) { return page.starts_with("docs/results/notes/"); }

void expect_none(const std::string& name, const Findings& findings) {
  for (const Finding& f : findings) ADD_FAILURE() << name << ":" << f.line << ": " << f.what;
}

// ---- The checks find what they should

TEST(DocsChecks, FindWideLinesOutsideTablesAndCode) {
  const std::string wide(kLineWidth + 1, 'x'), fits(kLineWidth, 'x');
  EXPECT_EQ(wide_lines("# Page\n\n" + wide + "\n").size(), 1u);
  EXPECT_EQ(wide_lines("# Page\n\n" + wide + "\n")[0].line, 3u);
  EXPECT_EQ(wide_lines("* " + wide + "\n").size(), 1u);
  EXPECT_TRUE(wide_lines(fits + "\n").empty());
  EXPECT_TRUE(wide_lines("| " + wide + " |\n").empty());
  EXPECT_TRUE(wide_lines("Text:\n\n    first\n\n    " + wide + "\n").empty());
  EXPECT_TRUE(wide_lines("```\n" + wide + "\n```\n").empty());
  EXPECT_EQ(wide_lines("```\ncode\n```\n" + wide + "\n").size(), 1u);
  std::string umlauts;
  for (size_t i = 0; i < kLineWidth; ++i) umlauts += "ü";
  EXPECT_TRUE(wide_lines(umlauts).empty());
}

TEST(DocsChecks, FindLongSentences) {
  const auto words = [](size_t n) {
    std::string s;
    for (size_t i = 0; i < n; ++i) s += "word ";
    return s;
  };
  EXPECT_EQ(long_sentences(words(41) + ".\n").size(), 1u);
  EXPECT_TRUE(long_sentences(words(40) + ".\n").empty());
  EXPECT_TRUE(long_sentences(words(30) + "end.\n" + "Next " + words(30) + ".\n").empty());
  EXPECT_EQ(long_sentences(words(30) + "e.g. " + words(30) + ".\n").size(), 1u);  // no sentence ends here
  EXPECT_EQ(long_sentences("Text.\n\n" + words(20) + "\n" + words(21) + "\n")[0].line, 3u);
  EXPECT_TRUE(long_sentences("* " + words(30) + "\n* " + words(30) + "\n").empty());
  EXPECT_TRUE(long_sentences("| " + words(50) + " |\n").empty());
  EXPECT_TRUE(long_sentences("    " + words(50) + "\n").empty());
  EXPECT_TRUE(long_sentences(words(39) + "`one two three`.\n").empty());
  EXPECT_TRUE(long_sentences(words(38) + "[a b](https://example.org/a%20b) .\n").empty());
  EXPECT_EQ(long_sentences(words(39) + "[a b](https://example.org/) .\n").size(), 1u);
}

TEST(DocsChecks, FindPhrases) {
  EXPECT_EQ(phrases_in_page("Text.\nIt knows them\nby heart.\n")[0].line, 3u);
  for (const char* bad : {"Nobody reads the state.",
                          "what stands beside it",
                          "bf16 weights meet 8 bits",
                          "the way back",
                          "a query goes back through the tokens",
                          "memory is asked for in order",
                          "only wanted rows",
                          "where few tokens ask",
                          "states that are wanted",
                          "only supervised tokens go on",
                          "one that begins like an earlier one",
                          "only they ask attention",
                          "what stands around the sums",
                          "the rows that are wanted alone",
                          "whose end nobody needs",
                          "one step throws the model back to a coin",
                          "half below 0.288 s with nothing beside it",
                          "Who is at 1.5 % has not begun",
                          "the caller wants",
                          "| a table | is held up there |",
                          "# Who asks",
                          "those which begin alike",
                          "modules and rooms"})
    EXPECT_EQ(phrases_in_page(bad).size(), 1u) << bad;
  for (const char* good :
       {"The state is not read.", "`nobody` and `meets`", "ask a question", "users who have a GPU",
        "room for 16 tokens", "0 stands for the default", "I want to train", "it asks the question again",
        "    code that meets nobody", "[a link](nobody/meets.md)", "chart holds the values"})
    EXPECT_TRUE(phrases_in_page(good).empty()) << good;
  EXPECT_EQ(phrases_in_help("  --x    what is asked\n         for by --y").size(), 1u);
  EXPECT_EQ(phrases_in_header("int a;  // what nobody\nint b;  // reads, and\n// meets\n").size(), 2u);
  EXPECT_EQ(phrases_in_header("int a;  // goes back\n        // through\n")[0].line, 1u);
  EXPECT_TRUE(phrases_in_header("int nobody = meets;\n").empty());
  for (const Phrase& p : kPhrases) EXPECT_NO_THROW(std::regex(p.pattern)) << p.pattern;
}

TEST(DocsChecks, FindDeadLinks) {
  const TempDir dir;
  const fs::path root(dir / "tree");
  fs::create_directories(root / "docs/math");
  spit((root / "docs/b.md").string(),
       "# B\n\n## Two `words`: (here)\n\n## Two words here\n\n<a id=\"own\">\n");
  const auto dead = [&](const std::string& page) { return dead_links(root, "docs/a.md", page).size(); };
  EXPECT_EQ(dead("[x](c.md)"), 1u);
  EXPECT_EQ(dead("[x](b.md) and\n[y](../docs/b.md) and [z](math)"), 0u);
  EXPECT_EQ(dead("[x](b.md#two-words-here), [x](b.md#two-words-here-1), [x](b.md#own)"), 0u);
  EXPECT_EQ(dead("[x](b.md#two-words)"), 1u);
  EXPECT_EQ(dead("# A b\n\n[x](#a-b) [y](#c)"), 1u);
  EXPECT_EQ(dead("[x](../../outside.md) [y](/etc/passwd)"), 2u);
  EXPECT_EQ(dead("[x](https://example.org/nothing.md) [y](mailto:a@b.c)"), 0u);
  EXPECT_EQ(dead("[![x](no.svg)](b.md \"title\")"), 1u);
  EXPECT_EQ(dead("<img src=\"no.svg\"> <a href=\"b.md\">"), 1u);
  EXPECT_EQ(dead("[x][y]\n\n[y]: no.md"), 1u);
  EXPECT_EQ(dead("`[x](no.md)`\n\n    [x](no.md)\n"), 0u);
  EXPECT_EQ(dead("| [x](no.md) |"), 1u);
  EXPECT_EQ(dead_links(root, "docs/a.md", "one\n\ntwo\n[x](c.md)")[0].line, 4u);
}

TEST(DocsChecks, FindBlocksAndCountLines) {
  const std::string page = "# P\n\n<!-- braid --markdown tasks -->\n\n| a |\n\n<!-- end -->\ntext\n| b |\n";
  Findings wrong;
  const std::vector<Block> blocks = blocks_of(page, wrong);
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].words, "--markdown tasks");
  EXPECT_EQ(blocks[0].text, "\n| a |\n\n");
  EXPECT_TRUE(wrong.empty());
  EXPECT_EQ(counted_lines(page, true), 6u);
  EXPECT_EQ(counted_lines(page, false), 5u);
  blocks_of("<!-- braid --markdown a -->\n<!-- braid --markdown b -->\n", wrong);
  EXPECT_EQ(wrong.size(), 2u);
}

// ---- The pages

TEST(Docs, NoLinkIsDead) {
  const std::vector<std::string> all = pages();
  EXPECT_GE(all.size(), 30u);
  for (const std::string& name : all) expect_none(name, dead_links(BRAID_SOURCE, name, source(name)));
}

TEST(Docs, EveryGeneratedBlockIsCurrent) {
  size_t blocks = 0;
  for (const std::string& name : pages()) {
    Findings findings;
    for (const Block& b : blocks_of(source(name), findings)) {
      std::istringstream words(b.words);
      const Finished f =
          run_braid({std::istream_iterator<std::string>(words), std::istream_iterator<std::string>()},
                    {.cwd = BRAID_SOURCE});
      ++blocks;
      if (f.code != 0)
        findings.push_back({b.line, f.err});
      else if ("\n" + f.out + "\n" != b.text)
        findings.push_back({b.line, "the block '" + b.words + "' is stale: run make docs"});
    }
    expect_none(name, findings);
  }
  EXPECT_GE(blocks, 28u);
}

// What was measured and what the program says of the paper: `make docs` brings the latter up to date.
TEST(Docs, KeptResultsAreCurrent) {
  const TempDir dir;
  for (const std::string& name : files({"docs/results"}, ".json")) {
    const Finished f = run_braid({"lab", "keep", BRAID_SOURCE "/" + name, "--kept", dir / "data"});
    EXPECT_EQ(f.code, 0) << name << ": " << f.err;
    EXPECT_EQ(slurp(dir / "data/" + fs::path(name).filename().string()), source(name))
        << name << " is stale: run make docs";
  }
}

TEST(Docs, EveryExperimentHasAPageWithItsResults) {
  const std::string index = source("docs/results/README.md");
  size_t experiments = 0;
  for (const std::string& line : lines_of(run_braid({"lab", "list", "--json"}).out)) {
    const size_t begin = std::string_view("{\"name\":\"").size();
    const std::string name = line.substr(begin, line.find('"', begin) - begin);
    EXPECT_NE(source("docs/results/" + name + ".md").find("<!-- braid lab report --docs " + name + " -->"),
              std::string::npos)
        << name;
    EXPECT_NE(index.find("[`" + name + "`](" + name + ".md)"), std::string::npos) << name;
    ++experiments;
  }
  EXPECT_GE(experiments, 21u);
}

// In the first table of each topic. Exceptions: no MLP, and Braid's own task.
TEST(Docs, EveryModelTaskAndExperimentHasALinkToItsPaper) {
  constexpr size_t kHead = 2;  // lines of a table before its rows
  for (const auto& [topic, rows] : {std::pair{"mixers", 13u},
                                    {"mlps", 4u},
                                    {"presets", 25u},
                                    {"families", 14u},
                                    {"tasks", 14u},
                                    {"experiments", 21u}}) {
    std::vector<std::string> table = lines_of(run_braid({"--markdown", topic}).out);
    table.erase(std::ranges::find(table, ""), table.end());
    EXPECT_GE(table.size(), kHead + rows) << topic;
    for (size_t i = kHead; i < table.size(); ++i)
      if (!table[i].starts_with("| `none`") && !table[i].starts_with("| [`counted-recall`]")) {
        EXPECT_NE(table[i].find("](https://arxiv.org/abs/"), std::string::npos) << topic << ": " << table[i];
      }
  }
}

TEST(Docs, NoPageIsTooLong) {
  for (const std::string& name : pages()) {
    const auto limit =
        std::ranges::find_if(kLimits, [&](const Limit& l) { return name.starts_with(l.page); });
    if (limit == std::end(kLimits)) {
      ADD_FAILURE() << name << ": has no limit: add it to kLimits in tests/docs_test.cpp";
      continue;
    }
    const size_t lines = counted_lines(source(name), !name.starts_with("docs/results/"));
    if (limit->lines > 0) {
      EXPECT_LE(lines, limit->lines) << name;
    }
  }
}

TEST(Docs, LinesAndSentencesAreShort) {
  for (const std::string& name : pages()) {
    if (is_note(name)) continue;
    expect_none(name, wide_lines(source(name)));
    expect_none(name, long_sentences(source(name)));
  }
}

TEST(Docs, PagesUseTheWordsOfTheField) {
  for (const std::string& name : pages())
    if (!is_note(name) && name != "CHANGELOG.md") expect_none(name, phrases_in_page(source(name)));
}

TEST(Docs, HelpUsesTheWordsOfTheField) {
  expect_none("braid --help", phrases_in_help(run_braid({"--help"}).out));
  const std::string heading = "## braid ";
  size_t verbs = 0;
  for (const std::string& l : lines_of(run_braid({"--markdown", "cli"}).out)) {
    if (!l.starts_with(heading)) continue;
    const std::string verb = l.substr(heading.size());
    expect_none("braid " + verb + " --help", phrases_in_help(run_braid({verb, "--help"}).out));
    ++verbs;
  }
  EXPECT_GE(verbs, 18u);
}

TEST(Docs, HeadersUseTheWordsOfTheField) {
  for (const char* extension : {".h", ".hpp"})
    for (const std::string& name : files({"src", "include", "workbench", "cli"}, extension))
      expect_none(name, phrases_in_header(source(name)));
}

}  // namespace
}  // namespace braid::test
