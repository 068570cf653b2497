// Ends a streamed generation at a stop string.
//
//   auto stops = StopStrings::make({"</s>", "\nUser:"});
//   for each token:  show(stops->feed(bytes));  if (stops->stopped()) break;
//   show(stops->finish());
//
// Tokens may cut stop strings and UTF-8 characters anywhere. What feed() returns is safe to show: it is not
// the beginning of a stop string and ends with a whole character. The result does not depend on the cuts: the
// stop string that is complete first wins, the longest if several are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace braid {

class StopStrings {
 public:
  static Result<StopStrings> make(std::vector<std::string> stops);  // fails on an empty string

  std::string feed(std::string_view bytes);  // bytes that may be shown now; nothing after a match
  std::string finish();                      // what is still held back, when the text ends without a match

  bool stopped() const { return !match_.empty(); }
  const std::string& match() const { return match_; }  // the stop string found, or empty

 private:
  explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  size_t safe() const;

  std::vector<std::string> stops_;
  std::string held_, match_;
};

}  // namespace braid
