#include "eval/recall.h"

#include <algorithm>

#include "eval/python_text.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

namespace braid {
namespace {

constexpr int64_t kAnswerTokens = 50;  // room for the answer in the context

std::string without_trailing_key(std::string text, std::string_view key) {
  const std::string end = lowercase(std::string(key) + ":");
  while (lowercase(text).ends_with(end) && end.size() <= text.size()) text.resize(text.size() - end.size());
  return text;
}

std::string field_prompt(std::string text, std::string_view key) {
  std::string name(key);
  if (!name.empty() && name[0] >= 'a' && name[0] <= 'z') name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return text + " " + name + ":";
}

}  // namespace

Result<std::string> cut_passage(std::string_view passage, const Tokenizer& tokenizer, const CutOptions& o) {
  const std::string_view text = strip(passage);
  const Result<std::vector<int32_t>> tokens = tokenizer.encode(text);
  if (!tokens) return tokens.error();
  const auto count = static_cast<int64_t>(tokens->size());
  const int64_t room = std::max<int64_t>(1, o.context - kAnswerTokens);
  int64_t answer = 0;
  if (!o.keys.empty()) {
    size_t first = std::string_view::npos;
    for (const std::string& key : o.keys) first = std::min(first, find_ignoring_case(text, key));
    const bool found = first != std::string_view::npos;
    // The original cuts at position -1 then: all but the last character.
    size_t end = found ? first : text.size() - std::min<size_t>(text.size(), 1);
    while (!found && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    const Result<std::vector<int32_t>> before = tokenizer.encode(text.substr(0, end));
    if (!before) return before.error();
    answer = static_cast<int64_t>(before->size());
    if (!found && answer > room && o.answer_token) answer = *o.answer_token;
  }
  const int64_t begin = std::clamp<int64_t>(answer - room / 2, 0, count);
  const int64_t end = std::clamp<int64_t>(answer + room - (answer - begin), begin, count);
  return tokenizer.decode(
      std::span(*tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
}

std::string recall_cloze(std::string_view passage) { return std::string(strip(passage)); }

std::string recall_field(std::string_view passage, std::string_view key, bool page) {
  std::string text(passage);
  if (page) {
    text = text.substr(0, text.find("Summary of information above"));
    text = without_trailing_key(std::string(strip_chars(text, "\n ")), key);
    return field_prompt(std::string(strip_chars(strip_chars(text, "\n "), ".")) + ".", key);
  }
  text = without_trailing_key(std::move(text), key);
  text = std::string(strip_chars(strip_chars(text, "\n"), "."));
  return field_prompt(text.ends_with('.') ? text : text + ".", key);
}

std::string recall_question(std::string_view passage, std::string_view question) {
  std::string_view text = strip(passage);
  const std::string_view ask = strip(question);
  if (!ask.empty() && text.ends_with(ask)) text.remove_suffix(ask.size());
  return std::string(strip_chars(strip(text), ".")) + ". " + std::string(ask);
}

}  // namespace braid
