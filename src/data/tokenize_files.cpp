#include "data/tokenize_files.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/nearest.h"
#include "io/folder.h"
#include "io/hash.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr size_t kBlockBytes = size_t{8} << 20;  // of text that is tokenized at a time

std::string absolute(const std::string& path) {
  std::error_code ec;
  const fs::path whole = fs::absolute(path, ec);
  return ec ? path : whole.lexically_normal().string();
}

Result<std::optional<int32_t>> end_token(const Tokenizer& tokenizer, const std::string& name) {
  if (name == kNoEnd) return std::optional<int32_t>();
  if (name.empty()) return tokenizer.eos();
  const std::optional<int32_t> id = tokenizer.id(name);
  if (id) return id;
  std::vector<std::string> names;
  for (const int32_t special : tokenizer.special_ids()) names.push_back(tokenizer.name(special));
  return Error{fmt::format("--end: the tokenizer has no token '{}'", name),
               names.empty() ? "use --end none, or a tokenizer with special tokens" : suggest(name, names)};
}

Result<ShardIndex> planned(const TokenizeFilesOptions& o, const Tokenizer& tokenizer) {
  const Result<std::optional<int32_t>> end = end_token(tokenizer, o.end);
  if (!end) return end.error();
  ShardIndex index{.dir = o.out,
                   .tokenizer = o.tokenizer == kByteTokens ? o.tokenizer : absolute(o.tokenizer),
                   .tokenizer_hash = tokens_hash(tokenizer),
                   .vocab_size = static_cast<uint64_t>(tokenizer.vocab_size()),
                   .end = *end,
                   .documents = o.documents,
                   .shard_tokens = o.shard_tokens};
  for (const std::string& file : o.files) {
    const Result<uint64_t> size = file_size(file);
    if (!size) return size.error();
    index.files.push_back(absolute(file)), index.file_sizes.push_back(*size);
  }
  return index;
}

// What was begun with other options is not gone on with.
Status compare(const ShardIndex& asked, const ShardIndex& begun) {
  std::string what;
  if (asked.files != begun.files)
    what = "--text";
  else if (asked.file_sizes != begun.file_sizes)
    what = "the size of a text file";
  else if (asked.tokenizer_hash != begun.tokenizer_hash)
    what = "--tokenizer";
  else if (asked.end != begun.end)
    what = "--end";
  else if (asked.documents.field != begun.documents.field)
    what = "--field";
  else if (asked.documents.separator != begun.documents.separator)
    what = "--separator";
  else if (asked.shard_tokens != begun.shard_tokens)
    what = "--shard-tokens";
  if (what.empty()) return {};
  return Error{fmt::format("--out {}: was begun with another value of {}", asked.dir, what),
               "give the same options again, or another folder"};
}

// The files of a shard that is being written.
class ShardWriter {
 public:
  static Result<ShardWriter> open(const ShardIndex& index) {
    ShardWriter w;
    w.shard_.name = fmt::format("{:05}", index.shards.size());
    w.path_ = index.dir + "/" + w.shard_.name;
    w.wide_ = index.id_bytes() == 4;
    for (const char* extension : {".bin", ".ends"}) {
      Result<AtomicFile> file = AtomicFile::open(w.path_ + extension);
      if (!file) return file.error();
      w.files_.push_back(*std::move(file));
    }
    return w;
  }

  Status add(std::span<const int32_t> ids, uint64_t text_bytes, bool ends) {
    shard_.text_bytes += text_bytes, shard_.tokens += ids.size();
    if (ends && shard_.tokens > last_end_) {
      ++shard_.documents, last_end_ = shard_.tokens;
      if (Status s = files_[1].write(std::as_bytes(std::span(&last_end_, 1))); !s) return s;
    }
    if (wide_) return files_[0].write(std::as_bytes(ids));
    narrow_.assign(ids.begin(), ids.end());
    return files_[0].write(std::as_bytes(std::span(narrow_)));
  }

  uint64_t tokens() const { return shard_.tokens; }

  Result<Shard> finish() {
    for (AtomicFile& file : files_)
      if (Status s = file.commit(); !s) return s.error();
    const Result<std::string> ids = file_hash(path_ + ".bin"), ends = file_hash(path_ + ".ends");
    if (!ids) return ids.error();
    if (!ends) return ends.error();
    shard_.ids_hash = *ids, shard_.ends_hash = *ends;
    return shard_;
  }

 private:
  ShardWriter() = default;
  Shard shard_;
  std::string path_;
  bool wide_ = false;
  uint64_t last_end_ = 0;
  std::vector<AtomicFile> files_;
  std::vector<uint16_t> narrow_;
};

// Parts of documents that are tokenized side by side.
struct Block {
  std::vector<DocumentPart> parts;
  std::vector<DocumentPlace> after;  // each of them
  std::vector<std::vector<int32_t>> ids;
  std::vector<uint64_t> text_bytes;
  std::vector<std::optional<Error>> errors;

  Status read(DocumentReader& reader) {
    parts.clear(), after.clear();
    for (size_t bytes = 0; bytes < kBlockBytes; bytes += parts.back().raw.size()) {
      Result<std::optional<DocumentPart>> part = reader.next();
      if (!part) return part.error();
      if (!*part) break;
      parts.push_back(**std::move(part)), after.push_back(reader.place());
    }
    return {};
  }

  Status tokenize(const Tokenizer& tokenizer, const ShardIndex& index, Par par) {
    ids.assign(parts.size(), {}), text_bytes.assign(parts.size(), 0), errors.assign(parts.size(), {});
    par.tasks(parts.size(), [&](size_t i) {
      DocumentPart& part = parts[i];
      const bool ends = part.ends;
      const std::string name = index.files[part.file] + (part.json ? ":" + std::to_string(part.line) : "");
      const Result<std::string> text =
          document_text(std::move(part), index.documents, index.files[part.file]);
      if (!text) return void(errors[i] = text.error());
      Result<std::vector<int32_t>> found =
          tokenizer.encode(*text, {.add_special = false, .parse_special = false});
      if (!found) return void(errors[i] = Error{name + ": " + found.error().what, found.error().fix});
      ids[i] = *std::move(found), text_bytes[i] = text->size();
      if (ends && index.end && !text->empty()) ids[i].push_back(*index.end);
    });
    for (const std::optional<Error>& e : errors)
      if (e) return *e;
    return {};
  }
};

Status clean(const std::string& dir) {  // what a kill left behind
  for (const std::string& name : names_in(dir))
    if (name.starts_with(".braid-tmp-"))
      if (Status s = remove_tree(dir + "/" + name); !s) return s;
  return {};
}

}  // namespace

Result<ShardIndex> tokenize_files(const TokenizeFilesOptions& o, Par par,
                                  const std::function<bool(const TokenizeProgress&)>& tick) {
  if (o.files.empty()) return Error{"--text: no file is given", "give one or more files of text"};
  if (o.shard_tokens == 0) return Error{"--shard-tokens is 0", "give a number of at least 1"};
  const Result<Tokenizer> tokenizer = load_tokens(o.tokenizer);
  if (!tokenizer) return tokenizer.error();
  Result<ShardIndex> plan = planned(o, *tokenizer);
  if (!plan) return plan;
  if (Status s = claim_folder("--out", o.out, FolderKind::kData); !s) return s.error();
  const Result<FolderLock> lock = FolderLock::take("--out", o.out);
  if (!lock) return lock.error();
  ShardIndex index = *std::move(plan);
  if (path_exists(o.out + "/data.json")) {
    Result<ShardIndex> begun = load_shard_index(o.out);
    if (!begun) return begun;
    if (Status s = compare(index, *begun); !s) return s.error();
    index = *std::move(begun);
    if (index.complete) return index;
  } else if (o.tokenizer != kByteTokens) {
    if (Status s = Tokenizer::copy_files(o.tokenizer, o.out); !s) return s.error();
  }
  if (Status s = clean(o.out); !s) return s.error();
  Result<DocumentReader> reader = DocumentReader::open(index.files, index.documents, index.next);
  if (!reader) return reader.error();

  TokenizeProgress progress{.tokens = index.tokens()};
  for (const uint64_t size : index.file_sizes) progress.total_bytes += size;
  Block block;
  std::optional<ShardWriter> writer;
  const auto finish_shard = [&](const DocumentPlace& next) -> Status {
    Result<Shard> shard = writer->finish();
    if (!shard) return shard.error();
    index.shards.push_back(*std::move(shard)), index.next = next;
    writer.reset();
    return save_shard_index(index);
  };
  for (;;) {
    if (Status s = block.read(*reader); !s) return s.error();
    if (block.parts.empty()) break;
    if (Status s = block.tokenize(*tokenizer, index, par); !s) return s.error();
    for (size_t i = 0; i < block.ids.size(); ++i) {
      if (!writer) {
        Result<ShardWriter> opened = ShardWriter::open(index);
        if (!opened) return opened.error();
        writer.emplace(*std::move(opened));
      }
      if (Status s = writer->add(block.ids[i], block.text_bytes[i], block.parts[i].ends); !s)
        return s.error();
      progress.tokens += block.ids[i].size();
      if (writer->tokens() >= index.shard_tokens)
        if (Status s = finish_shard(block.after[i]); !s) return s.error();
    }
    progress.bytes = reader->file_bytes_read();
    if (tick && !tick(progress)) return index;
  }
  if (writer && writer->tokens() > 0)
    if (Status s = finish_shard(reader->place()); !s) return s.error();
  index.complete = true;
  if (Status s = save_shard_index(index); !s) return s.error();
  return index;
}

}  // namespace braid
