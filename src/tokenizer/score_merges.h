// BPE by scores instead of a list of merges: the adjacent pair whose text is the token of highest score goes
// first.
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "tokenizer/merges.h"

namespace braid {

struct ScoredToken {
  std::string_view text;
  float score;
  int32_t id;
};

// A rule for every way to make a token of two others. With `extra_chars` also of characters that are no token
// themselves: they get ids from next_id on.
MergeTable merges_by_score(const std::vector<ScoredToken>& tokens,
                           std::unordered_map<uint32_t, int32_t>* extra_chars, int32_t next_id);

}  // namespace braid
