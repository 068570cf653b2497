// The parts against plain forms of themselves.
#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"
#include "support/test_dir.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/train.h"
#include "tokenizer/utf8.h"

namespace braid {
namespace {

// The definition: apply the rule of the lowest rank at its leftmost place until there is none.
std::vector<int32_t> merge_reference(const std::map<std::pair<int32_t, int32_t>, MergeTable::Rule>& rules,
                                     std::vector<int32_t> ids) {
  for (;;) {
    uint32_t best = MergeTable::kNone;
    size_t where = 0;
    int32_t result = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i)
      if (const auto r = rules.find({ids[i], ids[i + 1]}); r != rules.end() && r->second.rank < best)
        best = r->second.rank, where = i, result = r->second.result;
    if (best == MergeTable::kNone) return ids;
    ids[where] = result;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(where) + 1);
  }
}

TEST(Merges, ShortAndLongWordsAreMergedAsDefined) {
  Rng rng(3, "test");
  int merged = 0;
  for (int round = 0; round < 400; ++round) {
    // Tokens are strings over three letters; a rule joins two of them. Some rules share a rank.
    std::vector<std::string> names{"a", "b", "c"};
    std::map<std::pair<int32_t, int32_t>, MergeTable::Rule> rules;
    MergeTable table;
    for (uint32_t rank = 0; rank < 30; ++rank) {
      const auto a = static_cast<int32_t>(rng.below(names.size())),
                 b = static_cast<int32_t>(rng.below(names.size()));
      const std::string name = names[static_cast<size_t>(a)] + names[static_cast<size_t>(b)];
      size_t id = 0;
      while (id < names.size() && names[id] != name) ++id;
      if (id == names.size()) names.push_back(name);
      const MergeTable::Rule rule{rank / 2, static_cast<int32_t>(id)};
      rules[{a, b}] = rule;
      table.put(a, b, rule);
    }
    const size_t length = rng.below(round % 2 ? 48 : 300);
    std::vector<int32_t> ids;
    std::vector<Symbol> symbols;
    for (size_t i = 0; i < length; ++i) ids.push_back(static_cast<int32_t>(rng.below(3)));
    for (const int32_t id : ids) symbols.push_back({id, 1});
    Merger().merge(table, symbols);
    std::vector<int32_t> got;
    size_t bytes = 0;
    for (const Symbol& s : symbols) got.push_back(s.id), bytes += s.bytes;
    EXPECT_EQ(got, merge_reference(rules, ids));
    EXPECT_EQ(bytes, length);
    merged += got.size() < length;
  }
  EXPECT_GT(merged, 300);
}

std::string random_text(Rng& rng) {
  static const char* const kPieces[] = {
      " ",      "  ",        "\n",     "\r\n",   "\t",     "'s", "'S",        "'ll",
      "'Re",    "'\xC5\xBF", "'",      "a",      "Zz",     "é",  "e\xCC\x81", "日本",
      "12",     "3",         "½",      "٣",      "!",      "..", "🙂",      "\u200d",
      "\u180e", "\u00a0",    "\u3000", "\u0085", "\u2028", "_",  "\xCC\x81"};
  std::string text;
  for (size_t n = 1 + rng.below(14); n > 0; --n) {
    if (rng.below(4)) {
      text += kPieces[rng.below(std::size(kPieces))];
    } else {
      uint32_t c = static_cast<uint32_t>(rng.below(rng.below(2) ? 0x3000 : kCodePoints));
      if (c >= 0xD800 && c < 0xE000) c = 'x';
      append_utf8(text, c);
    }
  }
  return text;
}

std::vector<std::string> pieces_of(const SplitStep& step, const std::string& text) {
  static Scratch scratch;
  std::vector<std::string> pieces;
  pre_tokenize({step}, text, true, scratch, [&](std::string_view p) { pieces.emplace_back(p); });
  return pieces;
}

TEST(Scanner, SplitsAsTheRegularExpressionDoes) {
  const char* const patterns[] = {kGpt2Pattern, kQwen2Pattern, kQwen35Pattern, kCl100kPattern};
  for (const char* pattern : patterns) {
    SplitStep scan{.kind = SplitStep::kScan}, regex{.kind = SplitStep::kRegex};
    scan.scan = known_scanner(pattern);
    ASSERT_NE(scan.scan, nullptr);
    regex.regex = *Regex::compile(pattern);
    Rng rng(11, "test");
    int mutants = 0;
    SplitStep other = scan;
    other.scan = known_scanner(pattern == kGpt2Pattern    ? kQwen2Pattern
                               : pattern == kQwen2Pattern ? kCl100kPattern
                                                          : kQwen2Pattern);
    for (int round = 0; round < 20000; ++round) {
      const std::string text = random_text(rng);
      ASSERT_EQ(pieces_of(scan, text), pieces_of(regex, text)) << pattern;
      mutants += pieces_of(other, text) != pieces_of(regex, text);
    }
    EXPECT_GT(mutants, 100);  // the test can tell patterns apart
    std::string all;          // every code point between a letter and a digit
    for (uint32_t c = 0; c < kCodePoints; ++c)
      if (c < 0xD800 || c >= 0xE000)
        all += 'a', append_utf8(all, c), all += "b1", append_utf8(all, c), all += '1';
    EXPECT_EQ(pieces_of(scan, all), pieces_of(regex, all)) << pattern;
  }
}

// Backtracking and recursion without end are errors, in bounded time; the next text is read as ever.
TEST(Regex, ComesToAnEnd) {
  for (const char* pattern : {"(a+)+$", "(?:a|a)*[bc]", "(a*)*[bc]", "((?1))", "(a|(?1)(?1))[bc]",
                              "(?:(?=(a+))a*)*[bc]", "(?:a{1,100}){1,100}[bc]"}) {
    const Result<Regex> r = Regex::compile(pattern);
    ASSERT_TRUE(r) << pattern;
    const Regex::Scratch scratch;
    Regex::Match m{};
    EXPECT_FALSE(r->find(std::string(4000, 'a') + "!", 0, false, m, scratch)) << pattern;
    ASSERT_FALSE(scratch.status()) << pattern;
    EXPECT_NE(scratch.status().error().what.find("regular expression"), std::string::npos);
    scratch.reset();
    EXPECT_TRUE(scratch.status());
  }
  // Long runs that are merely long are not taken for that.
  const Regex::Scratch scratch;
  Regex::Match m{};
  EXPECT_TRUE(Regex::compile("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
                  ->find(std::string(3'000'000, ' ') + "x", 0, false, m, scratch));
  EXPECT_EQ(m.end, 2'999'999u);
  EXPECT_TRUE(scratch.status());
}

TEST(Regex, ReadsWhatOnigurumaMeans) {
  const auto matches = [](const char* pattern, const std::string& text) {
    const Result<Regex> r = Regex::compile(pattern);
    EXPECT_TRUE(r) << (r ? "" : r.error().what);
    Regex::Match m{};
    return r && r->find(text, 0, false, m, Regex::Scratch()) && m.begin == 0 && m.end == text.size();
  };
  EXPECT_TRUE(matches(R"(\s)", "\u0085"));
  EXPECT_FALSE(matches(R"(\s)", "\u180e"));  // PCRE2 would
  EXPECT_TRUE(matches(R"(\S)", "\u180e"));
  EXPECT_TRUE(matches(R"([\S])", "\u180e"));
  EXPECT_TRUE(matches(R"([^\S\n])", " "));
  EXPECT_FALSE(matches(R"([^\S\n])", "\n"));
  EXPECT_TRUE(matches(R"([\S\n])", "\n"));
  EXPECT_TRUE(matches(R"(\w+)", "a\u0301_"));
  for (const char* c : {"\u00b2", "\u00b3", "\u00b9", "\u00bc", "\u00bd", "\u00be"}) {
    EXPECT_TRUE(matches(R"(\w)", c)) << c;
    EXPECT_FALSE(matches(R"(\W)", c)) << c;
    EXPECT_FALSE(matches(R"([\w])", c)) << c;
    EXPECT_TRUE(matches(R"([^\w\s])", c)) << c;
  }
  EXPECT_TRUE(matches(R"(\w+|[^\w\s]+)", "①½"));
  EXPECT_TRUE(matches(R"(\p{L})", "\U000105C0"));  // Unicode 16
  EXPECT_TRUE(matches(R"([^\p{L}])", "1"));
  EXPECT_FALSE(matches(R"([^\p{L}])", "\U000105C0"));
  EXPECT_TRUE(matches(R"(\p{Han}+)", "日本"));
  EXPECT_TRUE(matches(R"(\P{L})", "1"));
  EXPECT_TRUE(matches(R"(\h+)", "0aF"));
  EXPECT_TRUE(matches(R"((?i:'s))", "'\u017f"));
  for (const char* bad : {R"([[:alpha:]])", R"([a&&b])", R"((?m).)", R"(a{1,2}+)", R"(\R)", R"(\bx)",
                          R"([\W])", "(", "[", R"(\p)", "\\"})
    EXPECT_FALSE(Regex::compile(bad)) << bad;
}

// Count, merge the most frequent pair, and count again.
std::vector<std::string> train_reference(const std::vector<std::string>& words, size_t vocab) {
  std::vector<std::string> names(byte_level_chars().begin(), byte_level_chars().end());
  std::sort(names.begin(), names.end());
  std::vector<std::vector<size_t>> texts;
  for (const std::string& w : words) {
    std::vector<size_t> ids;
    for (const char c : w)
      ids.push_back(static_cast<size_t>(
          std::find(names.begin(), names.begin() + 256, byte_level_chars()[static_cast<uint8_t>(c)]) -
          names.begin()));
    texts.push_back(ids);
  }
  while (names.size() < vocab) {
    std::map<std::pair<size_t, size_t>, int> counts;
    for (const auto& t : texts)
      for (size_t i = 0; i + 1 < t.size(); ++i) ++counts[{t[i], t[i + 1]}];
    std::pair<size_t, size_t> best;
    int most = 1;
    for (const auto& [pair, n] : counts)
      if (n > most) best = pair, most = n;
    if (most < 2) break;
    const std::string name = names[best.first] + names[best.second];
    size_t id = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (id == names.size()) names.push_back(name);
    for (auto& t : texts)
      for (size_t i = 0; i + 1 < t.size(); ++i)
        if (t[i] == best.first && t[i + 1] == best.second)
          t[i] = id, t.erase(t.begin() + static_cast<ptrdiff_t>(i) + 1);
  }
  return names;
}

TEST(Train, FindsTheMergesOfThePlainWay) {
  Rng rng(5, "test");
  for (int round = 0; round < 20; ++round) {
    std::string text;
    for (int i = 0; i < 400; ++i) {
      if (i) text += ' ';
      for (size_t n = 1 + rng.below(8); n > 0; --n)
        text += static_cast<char>('a' + rng.below(round % 2 ? 2 : 5));
    }
    const Result<TrainedBpe> trained = train_bpe(text, {.vocab = 340, .pattern = {}, .special = {}});
    ASSERT_TRUE(trained);
    const std::vector<std::string> expected =
        train_reference(pieces_of(*isolate_step(kGpt2Pattern), text), static_cast<size_t>(trained->vocab));
    const Result<Tokenizer> t = Tokenizer::parse(trained->json);
    ASSERT_TRUE(t) << t.error().what;
    ASSERT_EQ(static_cast<size_t>(t->vocab_size()), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(t->name(static_cast<int32_t>(i)), expected[i]);
    EXPECT_EQ(*t->decode(*t->encode(text)), text);
    EXPECT_LT(t->encode(text)->size(), text.size() / 2);
  }
}

TEST(Train, SpecialTokensComeFirstAndWrongUseIsAnError) {
  const Result<TrainedBpe> t =
      train_bpe("to be or not to be", {.vocab = 270, .pattern = R"(\w+|\W)", .special = {"<x>", "<y>"}});
  ASSERT_TRUE(t) << t.error().what;
  const Result<Tokenizer> tokenizer = Tokenizer::parse(t->json);
  ASSERT_TRUE(tokenizer) << tokenizer.error().what;
  EXPECT_EQ(*tokenizer->encode("<y>"), std::vector<int32_t>{1});
  EXPECT_FALSE(train_bpe("a", {.vocab = 255, .pattern = {}, .special = {}}));
  EXPECT_FALSE(train_bpe("a", {.vocab = 300, .pattern = "(", .special = {}}));
  EXPECT_FALSE(train_bpe("a", {.vocab = 300, .pattern = {}, .special = {"a"}}));
  EXPECT_FALSE(train_bpe("a", {.vocab = 300, .pattern = {}, .special = {"<x>", "<x>"}}));
  EXPECT_FALSE(train_bpe("", {.vocab = 300, .pattern = {}, .special = {}}));
}

TEST(Utf8, InvalidPartsAreReplaced) {
  std::string s;
  EXPECT_EQ(valid_utf8("a\xF0\x9F\x99zz", s), "a\xEF\xBF\xBDzz");
  EXPECT_EQ(valid_utf8("\xED\xA0\x80", s), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(valid_utf8("0123456789é", s), "0123456789é");
}

TEST(Unicode, NormalForms) {
  EXPECT_EQ(normal_form("e\u0301", NormalForm::kC), "\u00e9");
  EXPECT_EQ(normal_form("\u00e9", NormalForm::kD), "e\u0301");
  EXPECT_EQ(normal_form("a\u0301\u0327", NormalForm::kD), "a\u0327\u0301");
  EXPECT_EQ(normal_form("\ufb01", NormalForm::kKC), "fi");
  EXPECT_EQ(normal_form("\u1100\u1161\u11a8", NormalForm::kC), "\uac01");
  EXPECT_EQ(normal_form("\u212b", NormalForm::kC), "\u00c5");
  EXPECT_EQ(lowercase("\u0130A"), "i\u0307a");
}

}  // namespace
}  // namespace braid
