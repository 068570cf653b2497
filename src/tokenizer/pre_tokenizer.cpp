#include <algorithm>

#include "base/check.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/utf8.h"

namespace braid {

const std::array<std::string, 256>& byte_level_chars() {
  static const auto kChars = [] {
    std::array<std::string, 256> chars;
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      chars[b] = to_utf8(printable ? b : next++);
    }
    return chars;
  }();
  return kChars;
}

std::string to_byte_level(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += byte_level_chars()[static_cast<uint8_t>(c)];
  return out;
}

std::optional<std::string> from_byte_level(std::string_view text) {
  static const auto kBytes = [] {
    std::array<int16_t, 512> bytes;
    bytes.fill(-1);
    for (int16_t b = 0; b < 256; ++b) {
      size_t at = 0;
      bytes[next_code(byte_level_chars()[static_cast<size_t>(b)], at)] = b;
    }
    return bytes;
  }();
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const uint32_t c = next_code(text, at);
    if (c >= kBytes.size() || kBytes[c] < 0) return std::nullopt;
    out.push_back(static_cast<char>(kBytes[c]));
  }
  return out;
}

namespace {

struct Part {
  size_t begin, end;
  bool match;
};

// Matches and what lies between them, covering the text.
class Parts {
 public:
  void match(size_t begin, size_t end) {
    if (begin > done_) parts_.push_back({done_, begin, false});
    parts_.push_back({begin, end, true});
    done_ = end;
  }
  std::vector<Part> finish(size_t size) {
    if (done_ < size) parts_.push_back({done_, size, false});
    return std::move(parts_);
  }

 private:
  std::vector<Part> parts_;
  size_t done_ = 0;
};

template <class Is>
std::vector<Part> match_chars(std::string_view text, const Is& is) {
  Parts parts;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (is(next_code(text, at))) parts.match(begin, at);
  }
  return parts.finish(text.size());
}

std::vector<Part> find_parts(const SplitStep& s, std::string_view text, const Regex::Scratch& scratch) {
  const uint8_t* classes = char_classes();
  Parts parts;
  switch (s.kind) {
    case SplitStep::kRegex:
      s.regex->for_each(text, scratch, [&](Regex::Match m) { parts.match(m.begin, m.end); });
      return parts.finish(text.size());
    case SplitStep::kLiteral:
    case SplitStep::kMetaspace:
      for (size_t at = 0; (at = text.find(s.pattern, at)) != text.npos; at += s.pattern.size())
        parts.match(at, at + s.pattern.size());
      return parts.finish(text.size());
    case SplitStep::kDigits:
      return match_chars(text, [&](uint32_t c) { return classes[c] & kNumber; });
    case SplitStep::kPunctuation:
      return match_chars(text, [&](uint32_t c) { return classes[c] & kPunctuation; });
    case SplitStep::kSpaces:
      return match_chars(text, [&](uint32_t c) { return classes[c] & kSpace; });
    case SplitStep::kWords:  // runs of word characters, runs of what is neither word nor space
      for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        const auto kind = [&](uint32_t c) { return classes[c] & kWord ? 1 : classes[c] & kSpace ? 2 : 3; };
        const int first = kind(next_code(text, at));
        for (size_t next = at; next < text.size(); at = next)
          if (kind(next_code(text, next)) != first) break;
        if (first != 2) parts.match(begin, at);
      }
      return parts.finish(text.size());
    default:
      break;
  }
  check(false, "not a step that splits");
  return {};
}

// `tokenizers`' five ways to cut at matches. Here `match` says whether to cut; afterwards it has no meaning.
std::vector<Part> combine(std::vector<Part> parts, Behavior behavior, bool invert) {
  for (Part& p : parts) p.match ^= invert;
  std::vector<Part> out;
  bool before = false;
  switch (behavior) {
    case Behavior::kIsolated:
      return parts;
    case Behavior::kRemoved:
      std::erase_if(parts, [](const Part& p) { return p.match; });
      return parts;
    case Behavior::kContiguous:
      for (const Part& p : parts) {
        if (p.match == before && !out.empty())
          out.back().end = p.end;
        else
          out.push_back(p);
        before = p.match;
      }
      return out;
    case Behavior::kMergedWithPrevious:
      for (const Part& p : parts) {
        if (p.match && !before && !out.empty())
          out.back().end = p.end;
        else
          out.push_back(p);
        before = p.match;
      }
      return out;
    case Behavior::kMergedWithNext:
      std::reverse(parts.begin(), parts.end());
      for (const Part& p : parts) {
        if (p.match && !before && !out.empty())
          out.back().begin = p.begin;
        else
          out.push_back(p);
        before = p.match;
      }
      std::reverse(out.begin(), out.end());
      return out;
  }
  return parts;
}

struct Run {
  const std::vector<SplitStep>& steps;
  Scratch& scratch;
  const PieceSink& sink;

  void go(size_t i, std::string_view text, bool at_start) {
    if (text.empty()) return;
    if (i == steps.size()) return sink(text);
    const SplitStep& s = steps[i];
    const auto pieces = [&](std::string_view all) {
      for (const Part& p : combine(find_parts(s, all, scratch.regex), s.behavior, s.invert))
        go(i + 1, all.substr(p.begin, p.end - p.begin), at_start && p.begin == 0);
    };
    std::string& own = scratch.texts[i];
    switch (s.kind) {
      case SplitStep::kScan:
        for (size_t at = 0; at < text.size();) {
          const size_t end = s.scan(text, at);
          go(i + 1, text.substr(at, end - at), at_start && at == 0);
          at = end;
        }
        return;
      case SplitStep::kRegex: {
        if (s.behavior != Behavior::kIsolated) return pieces(text);
        size_t done = 0;
        const auto piece = [&](size_t begin, size_t end) {
          if (begin < end) go(i + 1, text.substr(begin, end - begin), at_start && begin == 0);
        };
        s.regex->for_each(text, scratch.regex, [&](Regex::Match m) {
          piece(done, m.begin);
          piece(m.begin, m.end);
          done = m.end;
        });
        return piece(done, text.size());
      }
      case SplitStep::kPrefixSpace:
        if (text[0] == ' ') return go(i + 1, text, at_start);
        own.assign(" ").append(text);
        return go(i + 1, own, at_start);
      case SplitStep::kByteLevel:
        return own = to_byte_level(text), go(i + 1, own, at_start);
      case SplitStep::kMetaspace: {
        own.clear();
        for (const char c : text) c == ' ' ? own += s.pattern : own += c;
        const bool prepend = s.prepend == SplitStep::kAlways || (s.prepend == SplitStep::kFirst && at_start);
        if (prepend && !own.starts_with(s.pattern)) own.insert(0, s.pattern);
        return s.split ? pieces(own) : go(i + 1, own, at_start);
      }
      default:
        return pieces(text);
    }
  }
};

}  // namespace

void pre_tokenize(const std::vector<SplitStep>& steps, std::string_view text, bool at_start, Scratch& scratch,
                  const PieceSink& sink) {
  if (scratch.texts.size() < steps.size()) scratch.texts.resize(steps.size());
  Run{steps, scratch, sink}.go(0, text, at_start);
}

}  // namespace braid
