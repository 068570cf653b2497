// Regular expressions as the `tokenizers` package reads them (Oniguruma, Ruby syntax), run by PCRE2. What the
// two understand differently is rewritten, or refused where that is not possible.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"

namespace braid {

// The same expression for PCRE2.
Result<std::string> pcre_pattern(std::string_view pattern);

class Regex {
 public:
  // What one thread needs to match. An expression that tries for too long, or recurses too deeply, finds
  // nothing from there on, and status() says so until it is reset.
  class Scratch {
   public:
    Scratch();
    ~Scratch();
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    const Status& status() const { return status_; }
    void reset() const { status_ = {}; }

   private:
    friend class Regex;
    void *match_data_, *context_;
    mutable Status status_;
  };
  struct Match {
    size_t begin, end;
  };

  static Result<Regex> compile(std::string_view pattern);

  // The first match that begins at `from` or later; `not_empty` skips an empty match at `from`. `text` is
  // valid UTF-8.
  bool find(std::string_view text, size_t from, bool not_empty, Match& match, const Scratch& scratch) const;

  // Calls `each(match)` for every match, left to right. An empty match right behind another does not count.
  template <class F>
  void for_each(std::string_view text, const Scratch& scratch, const F& each) const {
    size_t at = 0;
    bool matched = false;
    for (Match m; at <= text.size() && find(text, at, matched, m, scratch);) {
      each(m);
      at = m.end;
      matched = true;
    }
  }

 private:
  std::shared_ptr<void> code_;
  std::string pattern_;  // for messages
};

}  // namespace braid
