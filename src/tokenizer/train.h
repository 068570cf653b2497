// Trains a byte-level BPE.
//
// Words are what the pattern cuts the text into. Ids: special tokens in their order, the 256 bytes in the
// order of their stand-ins, then one token for each merge. The most frequent adjacent pair is merged first;
// of pairs with the same count the one with the smaller left id, then the smaller right id. A merge whose
// text is a token already gives that token.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace braid {

struct BpeTraining {
  int64_t vocab = 32000;  // tokens in all; fewer if the text has no pair left
  std::string pattern;    // how words are cut; empty: as GPT-2 does
  std::vector<std::string> special;
  int64_t min_count = 2;                                             // a rarer pair is not merged
  std::function<bool(uint64_t merges, uint64_t all)> progress = {};  // false stops
};
struct TrainedBpe {
  std::string json;  // a tokenizer.json
  int64_t vocab = 0, words = 0, distinct_words = 0;
};
Result<TrainedBpe> train_bpe(std::string_view text, const BpeTraining& options);

// The tokenizer.json of one token per byte, for other engines: a byte-level BPE without merges.
std::string byte_tokenizer_json();

}  // namespace braid
