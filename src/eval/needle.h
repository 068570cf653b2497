// Needles in a haystack, after RULER (arXiv:2404.06654): sentences with a magic number are hidden in a text
// of a given length, and the numbers of one or several of them are requested.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace braid {

class Tokenizer;

struct NeedleKind {
  bool essay = false;  // the haystack: Shakespeare's scenes, else five sentences repeated
  bool uuids = false;  // values: UUIDs, else numbers of seven digits
  int needles = 1;     // with keys of their own
  int values = 1;      // of each key
  int queries = 1;     // keys that are requested
};
struct NeedleSample {
  std::string prompt = {};
  std::vector<std::string> answers = {};  // all of them are requested
  int64_t tokens = 0;                     // of the prompt
};
// A function of its arguments alone. The longest haystack whose prompt has at most `length` tokens; an error
// if the needles alone have more.
Result<NeedleSample> make_needle(const NeedleKind& kind, int64_t length, uint64_t seed, uint64_t index,
                                 const Tokenizer& tokenizer);

}  // namespace braid
