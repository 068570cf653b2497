#include "eval/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <set>

#include "eval/python_text.h"
#include "tokenizer/unicode.h"
#include "tokenizer/utf8.h"

namespace braid {
namespace {

bool is_word_char(uint32_t code) { return code == '_' || (char_classes()[code] & (kLetter | kNumber)); }

// Calls word(begin, end) for each maximal run of word characters.
template <class F>
void each_word(std::string_view text, const F& word) {
  size_t begin = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const size_t here = at;
    if (is_word_char(next_code(text, at)) == inside) continue;
    if (inside) word(begin, here);
    inside = !inside, begin = here;
  }
  if (inside) word(begin, text.size());
}

// re.sub(r"\b(a|an|the)\b", " ", text)
std::string articles_to_spaces(std::string_view text) {
  std::string out;
  size_t done = 0;
  each_word(text, [&](size_t begin, size_t end) {
    const std::string_view w = text.substr(begin, end - begin);
    if (w != "a" && w != "an" && w != "the") return;
    out += text.substr(done, begin - done);
    out += ' ';
    done = end;
  });
  return out += text.substr(done);
}

std::string one_space(std::string_view text) { return joined(split_spaces(text), " "); }

std::string drop_token(std::string_view token) {
  std::string t = lowercase(token);
  if (!python_float(t)) t = without_punctuation(t);
  if (const std::optional<double> number = python_float(t)) t = python_float_text(*number);
  return one_space(articles_to_spaces(t));
}

std::string drop_normal(std::string_view text) {
  std::vector<std::string> tokens;
  const std::string spaces = replace_all(text, "-", " ");
  for (const std::string& piece : split_at(spaces, ' '))
    if (std::string t = drop_token(piece); !strip(t).empty()) tokens.push_back(std::move(t));
  return std::string(strip(joined(tokens, " ")));
}

using Bag = std::set<std::string>;
Bag bag_of(std::string_view text) {
  const std::vector<std::string> words = split_spaces(text);
  return {words.begin(), words.end()};
}

size_t in_both(const Bag& a, const Bag& b) {
  return static_cast<size_t>(std::ranges::count_if(a, [&](const std::string& w) { return b.contains(w); }));
}

double f1_of(double precision, double recall) {
  return precision + recall > 0 ? 2 * precision * recall / (precision + recall) : 0;
}

double bag_f1(const Bag& answer, const Bag& gold) {
  const auto both = static_cast<double>(in_both(answer, gold));
  return f1_of(answer.empty() ? 1 : both / static_cast<double>(answer.size()),
               gold.empty() ? 1 : both / static_cast<double>(gold.size()));
}

// Of the numbers in a right answer one must be in the answer.
bool numbers_agree(const Bag& answer, const Bag& gold) {
  bool any = false;
  for (const std::string& w : gold) {
    if (!python_float(w)) continue;
    any = true;
    if (answer.contains(w)) return true;
  }
  return !any;
}

std::vector<std::string> squad_words(std::string_view text) {
  return split_spaces(articles_to_spaces(without_punctuation(lowercase(text))));
}

}  // namespace

std::optional<double> python_float(std::string_view text) {
  std::string_view t = strip(text);
  bool negative = false;
  if (!t.empty() && (t[0] == '+' || t[0] == '-')) negative = t[0] == '-', t.remove_prefix(1);
  const std::string low = lowercase(t);
  if (low == "inf" || low == "infinity" || low == "nan") {
    const double x =
        low == "nan" ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    return negative ? -x : x;
  }
  std::string digits;  // without the "_" that Python allows between digits
  for (size_t i = 0; i < low.size(); ++i) {
    const auto is_digit = [&](size_t k) { return k < low.size() && low[k] >= '0' && low[k] <= '9'; };
    if (low[i] == '_' && i > 0 && is_digit(i - 1) && is_digit(i + 1)) continue;
    if (!is_digit(i) && std::string_view("+-.e").find(low[i]) == std::string_view::npos) return std::nullopt;
    digits += low[i];
  }
  if (digits.empty() || digits[0] == '+' || digits[0] == '-' || digits[0] == 'e') return std::nullopt;
  double x = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), x);
  if (end != digits.data() + digits.size() || error == std::errc::invalid_argument) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    x = digits.find("e-") != std::string::npos ? 0 : std::numeric_limits<double>::infinity();
  return negative ? -x : x;
}

std::string python_float_text(double x) {
  if (std::isnan(x)) return "nan";
  std::string s = fmt::format("{}", x);
  return s.find_first_of(".en") == std::string::npos ? s + ".0" : s;
}

AnswerScore drop_score(std::string_view answer, const std::vector<std::string>& gold) {
  const std::string normal = drop_normal(answer);
  const Bag words = bag_of(normal);
  AnswerScore score;
  for (const std::string& part : gold) {
    const std::string right = drop_normal(part);
    if (gold.size() == 1 && right == normal) score.exact = 1;
    const Bag bag = bag_of(right);
    if (numbers_agree(words, bag)) score.f1 = std::max(score.f1, bag_f1(words, bag));
  }
  // One answer is aligned with one of the parts; the others count as missed.
  score.f1 = std::nearbyint(score.f1 / static_cast<double>(std::max<size_t>(gold.size(), 1)) * 100) / 100;
  return score;
}

AnswerScore squad_score(std::string_view answer, std::string_view gold) {
  const std::vector<std::string> a = squad_words(answer), g = squad_words(gold);
  AnswerScore score{.exact = a == g ? 1.0 : 0.0};
  if (a.empty() || g.empty()) return score.f1 = score.exact, score;
  std::map<std::string, size_t> left;
  for (const std::string& w : g) ++left[w];
  size_t both = 0;
  for (const std::string& w : a)
    if (const auto at = left.find(w); at != left.end() && at->second > 0) --at->second, ++both;
  score.f1 = f1_of(static_cast<double>(both) / static_cast<double>(a.size()),
                   static_cast<double>(both) / static_cast<double>(g.size()));
  return score;
}

bool same_ignoring_case_and_punctuation(std::string_view a, std::string_view b) {
  return without_punctuation(lowercase(a)) == without_punctuation(lowercase(b));
}

std::string without_leading_articles(std::string_view text) {
  constexpr std::array<std::string_view, 6> kArticles{"The", "the", "An", "A", "a", "an"};
  std::string out;
  size_t done = 0;
  each_word(text, [&](size_t begin, size_t end) {
    const std::string_view w = text.substr(begin, end - begin);
    if (std::ranges::find(kArticles, w) == kArticles.end() || end >= text.size() || text[end] != ' ') return;
    out += text.substr(done, begin - done);
    done = end + 1;
  });
  return out += text.substr(done);
}

}  // namespace braid
