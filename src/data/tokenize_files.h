// From text files to a folder of token ids (shards.h), in parallel.
//
// The ids do not depend on the number of threads, nor on where the work was interrupted: a call with the same
// options goes on behind the last finished shard.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "data/shards.h"

namespace braid {

struct TokenizeFilesOptions {
  std::vector<std::string> files;
  std::string tokenizer;  // folder or file, or kByteTokens
  std::string out;
  DocumentOptions documents;
  std::string end;  // the token behind each document; empty: the tokenizer's EOS if it has one; kNoEnd: none
  uint64_t shard_tokens = 100'000'000;
};
inline constexpr const char* kNoEnd = "none";

struct TokenizeProgress {
  uint64_t bytes = 0, total_bytes = 0;  // of the files as they are stored
  uint64_t tokens = 0;
};

// The folder's index; not complete if tick() returned false. Of a folder that is complete already: what it
// has.
Result<ShardIndex> tokenize_files(const TokenizeFilesOptions& options, Par par,
                                  const std::function<bool(const TokenizeProgress&)>& tick = {});

}  // namespace braid
