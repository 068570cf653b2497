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

// What is put in the place of a match has the offset of the match's last byte.
class Replacing {
 public:
  Replacing(std::string_view text, std::string_view content, size_t origin)
      : text_(text), content_(content), origin_(origin) {}
  void match(size_t begin, size_t end) {
    keep(begin);
    out_ += content_;
    if (end <= origin_) kept_ += content_.size();
    done_ = end;
  }
  std::string finish(size_t& origin) {
    keep(text_.size());
    origin = kept_;
    return std::move(out_);
  }

 private:
  void keep(size_t until) {
    out_.append(text_, done_, until - done_);
    if (done_ < origin_) kept_ += std::min(until, origin_) - done_;
  }

  std::string_view text_, content_;
  size_t origin_, kept_ = 0, done_ = 0;
  std::string out_;
};

// The length of what the first `origin` bytes have become, where each character is changed by itself.
template <class Change>
std::string each_by_itself(const std::string& text, size_t& origin, const Change& change) {
  if (origin) origin = change(text.substr(0, origin)).size();
  return change(text);
}

std::string normal_form(const std::string& text, NormalForm form, size_t& origin) {
  std::string out = normal_form(text, form);
  if (!origin) return out;
  const std::string first = normal_form(text.substr(0, origin), form);
  origin = first.size();
  if (out.starts_with(first) || first.empty()) return out;
  // Its last character became one with what follows.
  size_t last = first.size() - 1;
  while ((static_cast<uint8_t>(first[last]) & 0xC0) == 0x80) --last;
  next_code(out, last);
  origin = last;
  return out;
}

std::string strip_accents(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();)
    if (const uint32_t c = next_code(text, at); !(char_classes()[c] & kMark)) append_utf8(out, c);
  return out;
}

std::string apply(const NormStep& s, std::string text, const Regex::Scratch& scratch, size_t& origin) {
  switch (s.kind) {
    case NormStep::kForm:
      return normal_form(text, s.form, origin);
    case NormStep::kLowercase:
      return each_by_itself(text, origin, [](const std::string& t) { return lowercase(t); });
    case NormStep::kByteLevel:
      return each_by_itself(text, origin, to_byte_level);
    case NormStep::kStripAccents:
      return each_by_itself(text, origin, strip_accents);
    case NormStep::kStrip: {
      const std::string_view rest = strip(text, s.left, s.right);
      const size_t removed = static_cast<size_t>(rest.data() - text.data());
      origin = std::min(rest.size(), origin - std::min(origin, removed));
      return std::string(rest);
    }
    case NormStep::kPrepend:
      if (text.empty()) return text;
      if (origin) origin += s.content.size();
      return s.content + text;
    case NormStep::kReplace: {
      Replacing r(text, s.content, origin);
      for (size_t at = 0; (at = text.find(s.pattern, at)) != text.npos; at += s.pattern.size())
        r.match(at, at + s.pattern.size());
      return r.finish(origin);
    }
    case NormStep::kReplaceRegex: {
      Replacing r(text, s.content, origin);
      s.regex->for_each(text, scratch, [&](Regex::Match m) { r.match(m.begin, m.end); });
      return r.finish(origin);
    }
  }
  return text;
}

}  // namespace

std::string normalize(const std::vector<NormStep>& steps, std::string_view text,
                      const Regex::Scratch& scratch, size_t& origin) {
  std::string out(text);
  for (const NormStep& s : steps) out = apply(s, std::move(out), scratch, origin);
  return out;
}

}  // namespace braid
