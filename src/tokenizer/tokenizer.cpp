#include "tokenizer/tokenizer.h"

#include <filesystem>
#include <mutex>

#include "base/check.h"
#include "io/file.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/utf8.h"

namespace braid {

struct Tokenizer::Shared {
  std::unique_ptr<Pipeline> p;

  // Scratch is lent to one call at a time; a cache of words is worth keeping between calls.
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<Scratch>> idle;

  std::unique_ptr<Scratch> borrow() const {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return std::make_unique<Scratch>();
    std::unique_ptr<Scratch> s = std::move(idle.back());
    idle.pop_back();
    return s;
  }
  void give_back(std::unique_ptr<Scratch> s) const {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(s));
  }

  static Result<Tokenizer> make(Result<std::unique_ptr<Pipeline>> p, const std::string& name,
                                const std::string& config_path) {
    if (!p) return p.error();
    std::error_code ignored;
    if (std::filesystem::exists(config_path, ignored))
      if (Status s = apply_config(**p, config_path); !s) return s.error();
    if (Status s = (*p)->finish(name); !s) return s.error();
    auto shared = std::make_shared<Shared>();
    shared->p = std::move(*p);
    return Tokenizer(shared);
  }
};

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool folder = fs::is_directory(path, ignored);
  const std::string dir = folder ? path : fs::path(path).parent_path().string();
  const auto in_dir = [&](const char* name) { return (fs::path(dir) / name).string(); };
  const std::string config = in_dir("tokenizer_config.json");
  std::string file = path;
  if (folder) {
    if (fs::exists(in_dir("tokenizer.json"), ignored))
      file = in_dir("tokenizer.json");
    else if (fs::exists(in_dir("vocab.json"), ignored) && fs::exists(in_dir("merges.txt"), ignored))
      return Shared::make(pipeline_from_vocab(dir), in_dir("vocab.json"), config);
    else if (fs::exists(in_dir("tokenizer.model"), ignored))
      file = in_dir("tokenizer.model");
    else if (fs::exists(in_dir("tokenizer.bin"), ignored))
      file = in_dir("tokenizer.bin");
    else
      return Error{path + ": has no tokenizer",
                   "add tokenizer.json, vocab.json with merges.txt, tokenizer.model or tokenizer.bin"};
  } else if (fs::path(path).filename() == "vocab.json" || fs::path(path).filename() == "merges.txt") {
    return Shared::make(pipeline_from_vocab(dir.empty() ? "." : dir), path, config);
  }
  const Result<std::string> text = read_text(file);
  if (!text) return text.error();
  if (file.ends_with(".json")) return Shared::make(pipeline_from_json(*text, file), file, config);
  if (file.ends_with(".bin")) return Shared::make(pipeline_from_llama2c(*text, file), file, "");
  if (fs::path(file).filename().string().find(".model") != std::string::npos)
    return Shared::make(pipeline_from_sentencepiece(*text, file, config), file, config);
  return Error{file + ": not a tokenizer's name", "expected a folder, *.json, *.model or llama2.c's *.bin"};
}

Status Tokenizer::copy_files(const std::string& path, const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool whole = fs::is_directory(path, ignored);
  const fs::path from = path, dir = whole ? from : from.parent_path();
  std::vector<std::string> names{"tokenizer_config.json"};
  if (const std::string name = from.filename().string();
      whole || name == "vocab.json" || name == "merges.txt")
    for (const char* n : {"vocab.json", "merges.txt"}) names.emplace_back(n);
  if (whole)
    for (const char* n : {"tokenizer.json", "tokenizer.model", "tokenizer.bin"}) names.emplace_back(n);
  std::vector<std::pair<fs::path, std::string>> files;
  for (const std::string& n : names)
    if (fs::exists(dir / n, ignored)) files.emplace_back(dir / n, n);
  if (!whole && names.size() == 1) {
    const bool json = path.ends_with(".json"), bin = path.ends_with(".bin");
    files.emplace_back(from, json ? "tokenizer.json" : bin ? "tokenizer.bin" : "tokenizer.model");
  }
  for (const auto& [file, name] : files) {
    const Result<std::string> bytes = read_text(file.string());
    if (!bytes) return bytes.error();
    if (Status s = write_atomic((fs::path(folder) / name).string(), *bytes); !s) return s;
  }
  return {};
}

Result<Tokenizer> Tokenizer::parse(std::string_view json, const std::string& name) {
  return Shared::make(pipeline_from_json(json, name), name, "");
}

Tokenizer Tokenizer::bytes() { return *Shared::make(pipeline_of_bytes(), "bytes", ""); }

namespace {

class Bytes final : public WordModel {
 public:
  void encode(std::string_view piece, Scratch&, std::vector<int32_t>& out) const override {
    for (const char c : piece) out.push_back(static_cast<uint8_t>(c));
  }
};

bool word_at_end(std::string_view text) {
  if (text.empty()) return false;
  size_t at = text.size() - 1;
  while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return char_classes()[next_code(text, at)] & kWord;
}

bool word_at_start(std::string_view text) {
  size_t at = 0;
  return !text.empty() && char_classes()[next_code(text, at)] & kWord;
}

size_t without_spaces_at_end(std::string_view text) {
  for (;;) {
    if (text.empty()) return 0;
    size_t begin = text.size() - 1;
    while ((static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80) --begin;
    size_t at = begin;
    if (!(char_classes()[next_code(text, at)] & kSpace)) return text.size();
    text.remove_suffix(text.size() - begin);
  }
}

size_t spaces_at_start(std::string_view text) {
  size_t at = 0;
  for (size_t next = 0; next < text.size(); at = next)
    if (!(char_classes()[next_code(text, next)] & kSpace)) break;
  return at;
}

// One call of encode().
struct Encoding {
  const Pipeline& p;
  const EncodeOptions& options;
  Scratch& scratch;
  std::vector<int32_t>& out;

  // Cuts the text at added tokens; `part` gets the rest with its place.
  template <class F>
  void cut(const AddedMatcher& matcher, std::string_view text, const F& part) {
    size_t done = 0, at = 0, begin = 0, end = 0;
    for (uint32_t which = 0; matcher.find(text, at, begin, end, which);) {
      at = end;
      const AddedToken& t = p.added[which];
      if (t.special && !options.parse_special) continue;
      if (t.single_word && (word_at_end(text.substr(0, begin)) || word_at_start(text.substr(end)))) continue;
      if (t.lstrip) begin = std::max(done, without_spaces_at_end(text.substr(0, begin)));
      if (t.rstrip) end += spaces_at_start(text.substr(end));
      if (done < begin) part(text.substr(done, begin - done), done);
      out.push_back(t.id);
      done = end;
    }
    if (done < text.size()) part(text.substr(done), done);
  }

  void run(std::string_view text) {
    cut(p.raw, text, [&](std::string_view part, size_t where) {
      size_t origin = where == 0 ? std::min(part.size(), utf8_length(part[0])) : 0;
      if (p.blank_prefix != Pipeline::kPlain) return after_normalizer(with_blanks(part, where == 0), origin);
      if (p.normalizer.empty()) return after_normalizer(part, origin);
      const std::string changed = normalize(p.normalizer, part, scratch.regex, origin);  // changes origin
      after_normalizer(changed, origin);
    });
  }

  std::string with_blanks(std::string_view part, bool first) const {
    std::string text;
    if (p.blank_prefix == Pipeline::kEachPart || (p.blank_prefix == Pipeline::kFirstPart && first))
      text = p.blank;
    for (const char c : part) c == ' ' ? text += p.blank : text += c;
    return text;
  }

  // origin: bytes that stand for the first character of the whole text. What begins with one of them counts
  // as the start of the text.
  void after_normalizer(std::string_view text, size_t origin) {
    cut(p.normalized, text, [&](std::string_view part, size_t where) {
      pre_tokenize(p.pre_tokenizer, part, where < origin, scratch,
                   [&](std::string_view piece) { p.model->encode(piece, scratch, out); });
    });
  }
};

}  // namespace

std::unique_ptr<Pipeline> pipeline_of_bytes() {
  auto p = std::make_unique<Pipeline>();
  p->kind = "bytes";
  p->raw_bytes = true;
  for (int32_t b = 0; b < 256; ++b) {
    const bool ok = p->vocab.put(byte_level_chars()[static_cast<size_t>(b)], b);
    check(ok, "stand-ins are different");
  }
  p->model = std::make_unique<Bytes>();
  p->decoder.push_back({.kind = DecodeStep::kByteLevel});
  return p;
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const Pipeline& p = *shared_->p;
  std::vector<int32_t> out;
  out.reserve(text.size() / 4 + 8);
  std::unique_ptr<Scratch> scratch = shared_->borrow();
  if (options.add_special) out = p.before;
  std::string valid;
  Encoding{p, options, *scratch, out}.run(p.raw_bytes ? text : valid_utf8(text, valid));
  if (options.add_special) out.insert(out.end(), p.after.begin(), p.after.end());
  const Status status = scratch->regex.status();
  scratch->regex.reset();
  shared_->give_back(std::move(scratch));
  if (!status) return status.error();
  return out;
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  StreamDecoder stream(*this, options);
  std::string text;
  for (const int32_t id : ids) text += stream.add(id);
  text += stream.finish();
  if (const Status s = stream.status(); !s) return s.error();
  return text;
}

int32_t Tokenizer::vocab_size() const { return shared_->p->vocab.size(); }
bool Tokenizer::has(int32_t id) const { return shared_->p->vocab.has(id); }
const std::string& Tokenizer::name(int32_t id) const {
  check(has(id), "no token has this id");
  return shared_->p->vocab.name(id);
}
std::optional<int32_t> Tokenizer::id(std::string_view name) const { return shared_->p->vocab.find(name); }
const std::string& Tokenizer::token_bytes(int32_t id) const {
  check(has(id), "no token has this id");
  return shared_->p->bytes[static_cast<size_t>(id)];
}
bool Tokenizer::is_special(int32_t id) const {
  return has(id) && shared_->p->special[static_cast<size_t>(id)];
}
std::vector<int32_t> Tokenizer::special_ids() const {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < vocab_size(); ++id)
    if (is_special(id)) ids.push_back(id);
  return ids;
}
std::optional<int32_t> Tokenizer::bos() const { return shared_->p->bos; }
std::optional<int32_t> Tokenizer::eos() const { return shared_->p->eos; }
std::optional<int32_t> Tokenizer::pad() const { return shared_->p->pad; }
std::optional<int32_t> Tokenizer::unk() const { return shared_->p->unk; }
const std::string& Tokenizer::kind() const { return shared_->p->kind; }

struct StreamDecoder::State {
  Tokenizer tokenizer;
  DecodeOptions options;
  DecodeRun run;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options)
    : state_(new State{tokenizer, options, DecodeRun(*tokenizer.shared_->p)}) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::add(int32_t id) {
  std::string out;
  const State& s = *state_;
  if (s.tokenizer.has(id) && !(s.options.skip_special && s.tokenizer.is_special(id)))
    state_->run.add(id, out);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  state_->run.finish(out);
  return out;
}

Status StreamDecoder::status() const { return state_->run.status(); }

}  // namespace braid
