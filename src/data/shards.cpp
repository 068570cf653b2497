#include "data/shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "io/hash.h"
#include "io/strict_json.h"

namespace braid {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are mapped as they are stored");

constexpr uint64_t kShardVersion = 1;
constexpr const char* kShardFormat = "braid tokens";

template <class T>
T load_at(std::span<const std::byte> bytes, uint64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

uint64_t sum(const std::vector<Shard>& shards, uint64_t Shard::*field) {
  uint64_t all = 0;
  for (const Shard& s : shards) all += s.*field;
  return all;
}

Json place_json(const DocumentPlace& p) { return {{"file", p.file}, {"byte", p.byte}, {"line", p.line}}; }

Status read_place(const Json& json, DocumentPlace& p, const std::string& file) {
  if (Status s = read_field(json, "file", p.file, file, "next."); !s) return s;
  if (Status s = read_field(json, "byte", p.byte, file, "next."); !s) return s;
  return read_field(json, "line", p.line, file, "next.");
}

Status read_shard(const Json& json, Shard& shard, const std::string& file) {
  const std::string inside = "shards.";
  if (!json.is_object()) return field_error(file, "shards", &json, "a list of objects");
  for (const auto& [name, to] :
       {std::pair{"name", &shard.name}, {"ids_hash", &shard.ids_hash}, {"ends_hash", &shard.ends_hash}})
    if (Status s = read_field(json, name, *to, file, inside); !s) return s;
  for (const auto& [name, to] : {std::pair{"tokens", &shard.tokens},
                                 {"documents", &shard.documents},
                                 {"text_bytes", &shard.text_bytes}})
    if (Status s = read_field(json, name, *to, file, inside); !s) return s;
  // It becomes a path.
  if (shard.name.empty() || shard.name.find_first_not_of("0123456789") != std::string::npos)
    return field_error(file, inside + "name", &json["name"], "digits");
  // No sum of them overflows.
  if (shard.tokens > uint64_t{1} << 50 || shard.documents > shard.tokens)
    return field_error(file, inside + "tokens", &json["tokens"], "a count of ids that a file can have");
  return {};
}

}  // namespace

uint64_t ShardIndex::tokens() const { return sum(shards, &Shard::tokens); }
uint64_t ShardIndex::document_count() const { return sum(shards, &Shard::documents); }
uint64_t ShardIndex::text_bytes() const { return sum(shards, &Shard::text_bytes); }

Status save_shard_index(const ShardIndex& index) {
  Json shards = Json::array(), files = Json::array();
  for (const Shard& s : index.shards)
    shards.push_back({{"name", s.name},
                      {"tokens", s.tokens},
                      {"documents", s.documents},
                      {"text_bytes", s.text_bytes},
                      {"ids_hash", s.ids_hash},
                      {"ends_hash", s.ends_hash}});
  for (size_t i = 0; i < index.files.size(); ++i)
    files.push_back({{"path", index.files[i]}, {"bytes", index.file_sizes[i]}});
  return save_json(index.dir + "/data.json", {{"format", kShardFormat},
                                              {"version", kShardVersion},
                                              {"complete", index.complete},
                                              {"tokens", index.tokens()},
                                              {"documents", index.document_count()},
                                              {"text_bytes", index.text_bytes()},
                                              {"tokenizer", index.tokenizer},
                                              {"tokenizer_hash", index.tokenizer_hash},
                                              {"vocab_size", index.vocab_size},
                                              {"id_bytes", index.id_bytes()},
                                              {"end", index.end ? Json(*index.end) : Json(nullptr)},
                                              {"field", index.documents.field},
                                              {"separator", index.documents.separator},
                                              {"shard_tokens", index.shard_tokens},
                                              {"files", files},
                                              {"shards", shards},
                                              {"next", place_json(index.next)}});
}

Result<ShardIndex> load_shard_index(const std::string& dir) {
  const std::string file = dir + "/data.json";
  if (!path_exists(file))
    return Error{dir + ": no data.json in it, so it is not a folder of tokens",
                 "make one: braid data tokenize --tokenizer T --text FILE --out FOLDER"};
  const Result<Json> json = load_object(file);
  if (!json) return json.error();
  ShardIndex index{.dir = dir};
  std::string format;
  uint64_t version = 0;
  if (Status s = read_field(*json, "format", format, file); !s) return s.error();
  if (Status s = read_field(*json, "version", version, file); !s) return s.error();
  if (format != kShardFormat || version != kShardVersion)
    return Error{fmt::format("{}: {} version {} is not known here", file, in_quotes(format), version),
                 "tokenize the text again"};
  for (const auto& [name, to] : {std::pair{"tokenizer", &index.tokenizer},
                                 {"tokenizer_hash", &index.tokenizer_hash},
                                 {"field", &index.documents.field},
                                 {"separator", &index.documents.separator}})
    if (Status s = read_field(*json, name, *to, file); !s) return s.error();
  for (const auto& [name, to] :
       {std::pair{"vocab_size", &index.vocab_size}, {"shard_tokens", &index.shard_tokens}})
    if (Status s = read_field(*json, name, *to, file); !s) return s.error();
  if (Status s = read_field(*json, "complete", index.complete, file); !s) return s.error();
  if (index.vocab_size < 1 || index.vocab_size > INT32_MAX)
    return field_error(file, "vocab_size", &(*json)["vocab_size"], "from 1 to 2147483647");
  if (json->contains("end") && !(*json)["end"].is_null()) {
    int64_t end = 0;
    if (Status s = read_field(*json, "end", end, file); !s) return s.error();
    if (end < 0 || end >= static_cast<int64_t>(index.vocab_size))
      return field_error(file, "end", &(*json)["end"], "an id of the vocabulary");
    index.end = static_cast<int32_t>(end);
  }
  for (const char* name : {"files", "shards"})
    if (!json->contains(name) || !(*json)[name].is_array())
      return field_error(file, name, json->contains(name) ? &(*json)[name] : nullptr, "a list");
  for (const Json& each : (*json)["files"]) {
    if (!each.is_object()) return field_error(file, "files", &each, "a list of objects");
    if (Status s = read_field(each, "path", index.files.emplace_back(), file, "files."); !s) return s.error();
    if (Status s = read_field(each, "bytes", index.file_sizes.emplace_back(), file, "files."); !s)
      return s.error();
  }
  for (const Json& each : (*json)["shards"])
    if (Status s = read_shard(each, index.shards.emplace_back(), file); !s) return s.error();
  const Result<Json> next = object_field(*json, "next", file);
  if (!next) return next.error();
  if (Status s = read_place(*next, index.next, file); !s) return s.error();
  return index;
}

Result<Tokenizer> load_tokens(const std::string& path) {
  return path == kByteTokens ? Tokenizer::bytes() : Tokenizer::load(path);
}

std::string tokens_hash(const Tokenizer& tokenizer) {
  Hash hash;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    hash.number(tokenizer.has(id));
    if (tokenizer.has(id)) hash.text(tokenizer.token_bytes(id)).text(tokenizer.name(id));
  }
  return hash.hex();
}

Result<ShardData> ShardData::open(const std::string& dir, uint64_t hashed) {
  Result<ShardIndex> index = load_shard_index(dir);
  if (!index) return index.error();
  if (!index->complete)
    return Error{dir + ": tokenizing it did not come to its end", "run the same `braid data tokenize` again"};
  ShardData data;
  data.index_ = *std::move(index);
  data.starts_ = {0};
  const uint64_t width = data.index_.id_bytes();
  const bool check_hashes = data.index_.tokens() * width <= hashed;
  for (const Shard& shard : data.index_.shards) {
    const std::string path = dir + "/" + shard.name;
    for (const auto& [name, size, hash, to] :
         {std::tuple{path + ".bin", shard.tokens * width, &shard.ids_hash, &data.ids_},
          std::tuple{path + ".ends", shard.documents * 8, &shard.ends_hash, &data.ends_}}) {
      Result<MappedFile> file = MappedFile::open(name);
      if (!file) return file.error();
      if (file->bytes().size() != size)
        return Error{fmt::format("{}: has {} bytes, data.json says {}", name, file->bytes().size(), size),
                     "copy the file again, or tokenize the text again"};
      if (check_hashes) {
        const Result<std::string> found = file_hash(name);
        if (!found) return found.error();
        if (*found != *hash)
          return Error{name + ": was changed after it was written: it has another hash",
                       "copy the file again, or tokenize the text again"};
      }
      to->push_back(*std::move(file));
    }
    data.starts_.push_back(data.starts_.back() + shard.tokens);
  }
  if (data.tokens() == 0) return Error{dir + ": has no tokens", "tokenize a text that is not empty"};
  return data;
}

size_t ShardData::shard_of(uint64_t token) const {
  return static_cast<size_t>(std::ranges::upper_bound(starts_, token) - starts_.begin()) - 1;
}

void ShardData::copy(uint64_t first, std::span<int32_t> to) const {
  check(first <= tokens() && to.size() <= tokens() - first, "ShardData::copy out of range");
  // An id that no hash was compared for must not read outside of the embedding.
  const auto last = static_cast<uint32_t>(index_.vocab_size - 1);
  for (size_t done = 0; done < to.size();) {
    const size_t shard = shard_of(first + done);
    const uint64_t from = first + done - starts_[shard];
    const size_t count = std::min<uint64_t>(to.size() - done, starts_[shard + 1] - starts_[shard] - from);
    const std::span<const std::byte> bytes = ids_[shard].bytes();
    for (size_t i = 0; i < count; ++i)
      to[done + i] = static_cast<int32_t>(std::min<uint32_t>(last, index_.id_bytes() == 2
                                                                       ? load_at<uint16_t>(bytes, from + i)
                                                                       : load_at<uint32_t>(bytes, from + i)));
    done += count;
  }
}

uint64_t ShardData::rest_of_document(uint64_t first, uint64_t limit) const {
  uint64_t found = 0;
  while (found < limit && first + found < tokens()) {
    const size_t shard = shard_of(first + found);
    const uint64_t from = first + found - starts_[shard], count = index_.shards[shard].documents;
    const std::span<const std::byte> ends = ends_[shard].bytes();
    uint64_t low = 0, high = count;  // the first end behind `from`
    while (low < high) {
      const uint64_t middle = low + (high - low) / 2;
      if (load_at<uint64_t>(ends, middle) <= from)
        low = middle + 1;
      else
        high = middle;
    }
    // A document that goes on in the next shard has no end in this one.
    const uint64_t size = index_.shards[shard].tokens;
    if (low < count)
      return std::min(limit, found + std::clamp(load_at<uint64_t>(ends, low), from + 1, size) - from);
    found += size - from;
  }
  return std::min(limit, found);
}

}  // namespace braid
