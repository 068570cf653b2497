#include "tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <new>

#include "base/check.h"
#include "io/json.h"
#include "tokenizer/unicode.h"

namespace braid {
namespace {

// The insides of character classes. PCRE2's \s has U+180E, and its \w lacks marks and connectors.
constexpr std::string_view kSpaceClass = "\\x09-\\x0d\\x{85}\\p{Z}";

// Oniguruma counts superscripts and fractions of Latin-1 among \w by itself, but not inside a class.
std::string word_class(bool in_class) {
  return std::string("\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}") +
         (in_class ? "" : "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}") + missing_ranges("L") +
         missing_ranges("M") + missing_ranges("Nd");
}

// Limits of one attempt to match, so that no expression of a file runs for ever: steps of backtracking, and
// memory where the compiled code's own stack does not do.
constexpr uint64_t kSteps = 1'000'000, kStepsPerByte = 16;
constexpr uint32_t kHeapKib = 1 << 20;

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  Result<std::string> run() {
    while (at_ < in_.size()) {
      Status s;
      if (in_[at_] == '\\')
        s = escape(false);
      else if (in_[at_] == '[')
        s = char_class();
      else if (in_.substr(at_).starts_with("(?"))
        s = group();
      else if (in_[at_] == '}' && in_.substr(at_ + 1).starts_with("+"))
        s = refuse("{n,m}+, which is possessive in one dialect and not in the other");
      else
        out_ += in_[at_++];
      if (!s) return s.error();
    }
    return std::move(out_);
  }

 private:
  Error refuse(const std::string& what) const {
    return {fmt::format("the regular expression {} has {}", in_quotes(in_), what),
            "write it without, or open an issue with the tokenizer's name"};
  }

  // (?:  (?i:  (?=  (?!  (?<=  (?<!  (?>  (?<name>  are alike; option m is not.
  Status group() {
    size_t end = at_ + 2;
    while (end < in_.size() && (std::isalpha(static_cast<uint8_t>(in_[end])) || in_[end] == '-')) ++end;
    const std::string_view flags = in_.substr(at_ + 2, end - at_ - 2);
    if (end < in_.size() && (in_[end] == ':' || in_[end] == ')') &&
        flags.find_first_not_of("i-") != flags.npos)
      return refuse(fmt::format("the option group (?{})", flags));
    out_.append(in_, at_, 2);
    at_ += 2;
    return {};
  }

  // A set that stands for itself inside a class and needs brackets outside.
  void put_set(std::string_view inside, bool in_class, bool negated) {
    if (in_class)
      out_ += inside;
    else
      out_ += fmt::format("[{}{}]", negated ? "^" : "", inside);
  }

  Status escape(bool in_class) {
    if (at_ + 1 >= in_.size()) return refuse("a backslash at its end");
    const char c = in_[at_ + 1];
    if (c == 'p' || c == 'P') return property(in_class);
    at_ += 2;
    switch (c) {
      case 's':
        return put_set(kSpaceClass, in_class, false), Status();
      case 'w':
        return put_set(word_class(in_class), in_class, false), Status();
      case 'd':
        return put_set("\\p{Nd}" + missing_ranges("Nd"), in_class, false), Status();
      case 'h':
        return put_set("0-9a-fA-F", in_class, false), Status();
      case 'S':
        if (!in_class) return put_set(kSpaceClass, false, true), Status();
        break;  // char_class() has seen to it
      case 'W':
        if (!in_class) return put_set(word_class(false), false, true), Status();
        return refuse("\\W inside a class");
      case 'D':
        if (!in_class) return put_set("\\p{Nd}" + missing_ranges("Nd"), false, true), Status();
        return refuse("\\D inside a class");
      case 'b':
      case 'B':
        if (in_class && c == 'b') break;
        return refuse(fmt::format("\\{}", c));
      default:
        // Letters and digits with the same meaning in both, or punctuation that stands for itself.
        if (std::isalnum(static_cast<uint8_t>(c)) &&
            std::string_view("tnrfvaexAzZ0").find(c) == std::string_view::npos)
          return refuse(fmt::format("\\{}", c));
        if (c == 'v') return out_ += "\\x0b", Status();  // vertical tab there, any vertical space here
    }
    if (c != 'S') out_ += '\\', out_ += c;
    return {};
  }

  Status property(bool in_class) {
    bool negated = in_[at_ + 1] == 'P';
    const size_t close = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || close == in_.npos)
      return refuse("\\p without {name}");
    std::string name(in_.substr(at_ + 3, close - at_ - 3));
    at_ = close + 1;
    if (name.starts_with('^')) negated = !negated, name.erase(0, 1);
    // One or two letters are a general category. PCRE2 means script extensions by a script's bare name.
    if (name.size() > 2) {
      out_ += fmt::format("\\{}{{sc:{}}}", negated ? 'P' : 'p', name);
      return {};
    }
    const std::string more = missing_ranges(name);
    if (negated && in_class && !more.empty()) return refuse(fmt::format("\\P{{{}}} inside a class", name));
    if (more.empty())
      out_ += fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', name);
    else
      put_set(fmt::format("\\p{{{}}}{}", name, more), in_class, negated);
    return {};
  }

  Status char_class() {
    const size_t start = out_.size();
    ++at_;
    bool negated = false, not_space = false;
    if (at_ < in_.size() && in_[at_] == '^') negated = true, ++at_;
    out_ += negated ? "[^" : "[";
    const size_t inside = out_.size();
    for (bool first = true;; first = false) {
      if (at_ >= in_.size()) return refuse("a [ that is not closed");
      const char c = in_[at_];
      if (c == ']' && !first) break;
      if (c == '[') return refuse("a [ inside a class");
      if (in_.substr(at_).starts_with("&&")) return refuse("&& inside a class");
      if (c == '\\') {
        not_space |= in_.substr(at_).starts_with("\\S");
        if (Status s = escape(true); !s) return s;
      } else {
        out_ += c;
        ++at_;
      }
    }
    ++at_;
    out_ += ']';
    if (!not_space) return {};
    // [^\Sab] is a space but a and b; [\Sab] is no space, or a or b.
    const std::string rest = out_.substr(inside, out_.size() - inside - 1);
    out_.resize(start);
    if (negated)
      out_ += rest.empty() ? fmt::format("[{}]", kSpaceClass)
                           : fmt::format("(?:(?![{}])[{}])", rest, kSpaceClass);
    else
      out_ +=
          rest.empty() ? fmt::format("[^{}]", kSpaceClass) : fmt::format("(?:[^{}]|[{}])", kSpaceClass, rest);
    return {};
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> pcre_pattern(std::string_view pattern) { return Translator(pattern).run(); }

Regex::Scratch::Scratch() {
  match_data_ = pcre2_match_data_create(1, nullptr);
  auto* context = pcre2_match_context_create(nullptr);
  if (!match_data_ || !context) throw std::bad_alloc();
  pcre2_set_heap_limit(context, kHeapKib);
  context_ = context;
}
Regex::Scratch::~Scratch() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(match_data_));
  pcre2_match_context_free(static_cast<pcre2_match_context*>(context_));
}

Result<Regex> Regex::compile(std::string_view pattern) {
  Result<std::string> text = pcre_pattern(pattern);
  if (!text) return text.error();
  int code = 0;
  size_t where = 0;
  pcre2_code* re = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text->data()), text->size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code,
                                 &where, nullptr);
  if (!re) {
    PCRE2_UCHAR why[256] = {};
    pcre2_get_error_message(code, why, sizeof(why));
    return Error{fmt::format("the regular expression {} cannot be used: {}", in_quotes(pattern),
                             reinterpret_cast<const char*>(why)),
                 "correct it"};
  }
  pcre2_jit_compile(re, PCRE2_JIT_COMPLETE);  // where it is not possible the interpreter serves
  Regex r;
  r.pattern_ = pattern;
  r.code_ = std::shared_ptr<void>(re, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
  return r;
}

bool Regex::find(std::string_view text, size_t from, bool not_empty, Match& match,
                 const Scratch& scratch) const {
  if (!scratch.status_) return false;
  const auto* re = static_cast<const pcre2_code*>(code_.get());
  auto* data = static_cast<pcre2_match_data*>(scratch.match_data_);
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const uint32_t options = PCRE2_NO_UTF_CHECK | (not_empty ? PCRE2_NOTEMPTY_ATSTART : 0);
  auto* context = static_cast<pcre2_match_context*>(scratch.context_);
  // A run of blanks or letters is taken back character by character; more than that is without end.
  const uint32_t limit =
      static_cast<uint32_t>(std::min<uint64_t>(kSteps + kStepsPerByte * text.size(), UINT32_MAX));
  pcre2_set_match_limit(context, limit);
  pcre2_set_depth_limit(context, limit);
  int n = pcre2_match(re, subject, text.size(), from, options, data, context);
  if (n == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its stack on the heap
    n = pcre2_match(re, subject, text.size(), from, options | PCRE2_NO_JIT, data, context);
  if (n == PCRE2_ERROR_NOMATCH) return false;
  if (n < 0) {
    const bool steps = n == PCRE2_ERROR_MATCHLIMIT || n == PCRE2_ERROR_DEPTHLIMIT;
    scratch.status_ = Error{fmt::format("the tokenizer's regular expression {} {} at byte {} of a text of {}",
                                        in_quotes(pattern_),
                                        steps ? fmt::format("takes more than {} steps", limit)
                                              : "recurses without end or needs too much memory",
                                        from, text.size()),
                            "use a tokenizer whose expression does not backtrack without end"};
    return false;
  }
  const size_t* o = pcre2_get_ovector_pointer(data);
  match = {o[0], o[1]};
  return true;
}

}  // namespace braid
