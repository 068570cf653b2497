// Folders of token ids: what `braid data tokenize` writes and training reads without loading it.
//
//   data.json          what is in it: tokenizer, shards with their hashes, how far the work has come
//   00000.bin          ids of 16 bits (32 if the vocabulary is larger), little endian, documents one after
//   another 00000.ends         where they end in it: counts of ids, 64 bits, little endian tokenizer.json ..
//   the tokenizer's files
//
//   numpy.memmap("shards/00000.bin", dtype=numpy.uint16)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/documents.h"
#include "io/file.h"
#include "tokenizer/tokenizer.h"

namespace braid {

struct Shard {
  std::string name;  // of both files, without extension
  uint64_t tokens = 0, documents = 0, text_bytes = 0;
  std::string ids_hash, ends_hash;
};

// data.json.
struct ShardIndex {
  std::string dir;
  std::string tokenizer = {}, tokenizer_hash = {};  // a path, or kByteTokens; and what tells two apart
  uint64_t vocab_size = 0;
  std::optional<int32_t> end = {};  // the id behind each document
  std::vector<std::string> files = {};
  std::vector<uint64_t> file_sizes = {};
  DocumentOptions documents = {};
  uint64_t shard_tokens = 0;  // a shard ends with the first part of a document that makes it this long
  std::vector<Shard> shards = {};
  DocumentPlace next = {};  // where the shard after the last begins
  bool complete = false;

  uint64_t id_bytes() const { return vocab_size <= 65536 ? 2 : 4; }
  uint64_t tokens() const;
  uint64_t document_count() const;
  uint64_t text_bytes() const;
};

inline constexpr const char* kByteTokens = "bytes";  // in the place of a tokenizer's path: a token per byte

Result<ShardIndex> load_shard_index(const std::string& dir);
Status save_shard_index(const ShardIndex& index);

// The tokenizer at a path, or of bytes; and a hash of all its tokens, whatever files they come from.
Result<Tokenizer> load_tokens(const std::string& path);
std::string tokens_hash(const Tokenizer& tokenizer);

// The ids of a finished folder as one sequence.
class ShardData {
 public:
  // Refuses a folder that is not complete and files that are not as data.json says. Hashes are compared if
  // all is at most `hashed` bytes; else sizes alone.
  static Result<ShardData> open(const std::string& dir, uint64_t hashed = kHashedBytes);

  const ShardIndex& index() const { return index_; }
  uint64_t tokens() const { return starts_.back(); }
  void copy(uint64_t first, std::span<int32_t> to) const;  // of ids first ..
  // How many of the ids first .. belong to the document of the first one, at most `limit`.
  uint64_t rest_of_document(uint64_t first, uint64_t limit) const;

  static constexpr uint64_t kHashedBytes = uint64_t{16} << 30;

 private:
  size_t shard_of(uint64_t token) const;
  ShardIndex index_;
  std::vector<MappedFile> ids_, ends_;
  std::vector<uint64_t> starts_;  // of each shard, and the end
};

}  // namespace braid
