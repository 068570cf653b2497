#include "tokenizer/pipeline.h"
#include "tokenizer/utf8.h"

namespace braid {
namespace {

bool is_space_code(uint32_t c) { return char_classes()[c] & kSpace; }

std::string_view strip(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    size_t at = 0;
    if (!is_space_code(next_code(text, at))) break;
    text.remove_prefix(at);
  }
  while (right && !text.empty()) {
    size_t begin = text.size() - 1;
    while ((static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    size_t at = begin;
    if (!is_space_code(next_code(text, at))) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

std::string replace_literal(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  for (size_t at = 0;;) {
    const size_t hit = text.find(pattern, at);
    out.append(text, at, std::min(hit, text.size()) - at);
    if (hit == text.npos) return out;
    out += content;
    at = hit + pattern.size();
  }
}

std::string apply(const NormStep& s, std::string text, const Regex::Scratch& scratch) {
  switch (s.kind) {
    case NormStep::kForm:
      return normal_form(text, s.form);
    case NormStep::kLowercase:
      return lowercase(text);
    case NormStep::kStrip:
      return std::string(strip(text, s.left, s.right));
    case NormStep::kPrepend:
      return text.empty() ? text : s.content + text;
    case NormStep::kReplace:
      return replace_literal(text, s.pattern, s.content);
    case NormStep::kByteLevel:
      return to_byte_level(text);
    case NormStep::kStripAccents: {
      std::string out;
      for (size_t at = 0; at < text.size();)
        if (const uint32_t c = next_code(text, at); !(char_classes()[c] & kMark)) append_utf8(out, c);
      return out;
    }
    case NormStep::kReplaceRegex: {
      std::string out;
      size_t done = 0;
      s.regex->for_each(text, scratch, [&](Regex::Match m) {
        out.append(text, done, m.begin - done);
        out += s.content;
        done = m.end;
      });
      return out.append(text, done);
    }
  }
  return text;
}

}  // namespace

std::string normalize(const std::vector<NormStep>& steps, std::string_view text,
                      const Regex::Scratch& scratch) {
  std::string out(text);
  for (const NormStep& s : steps) out = apply(s, std::move(out), scratch);
  return out;
}

}  // namespace braid
