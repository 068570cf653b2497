// Text <-> token ids.
//
//   auto tokenizer = Tokenizer::load("model_folder");
//   if (!tokenizer) return tokenizer.error();
//   Result<std::vector<int32_t>> ids = tokenizer->encode("Hello");
//   Result<std::string> text = tokenizer->decode(*ids);
//
// Ids and text are those of the `tokenizers` package (tokenizer.json, vocab.json with merges.txt), of
// SentencePiece (tokenizer.model) or of llama2.c (its .bin); docs/reference/tokenizers.md says what is supported. Text
// that is not UTF-8 is read as Python's bytes.decode(errors="replace") does: each maximal invalid part is one
// U+FFFD.
//
// A Tokenizer is immutable and cheap to copy; threads may share it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace braid {

struct EncodeOptions {
  bool add_special = true;    // what the file puts around a text, e.g. a BOS token
  bool parse_special = true;  // "<|im_end|>" in the text is that token; false: plain text
};
struct DecodeOptions {
  bool skip_special = true;
};

class Tokenizer {
 public:
  // A folder with tokenizer.json, vocab.json and merges.txt, or tokenizer.model, in this order, and
  // tokenizer_config.json if there is one; or one such file, or llama2.c's .bin.
  static Result<Tokenizer> load(const std::string& path);
  // The text of a tokenizer.json. `name` stands for it in messages.
  static Result<Tokenizer> parse(std::string_view json, const std::string& name = "tokenizer.json");
  // Copies what load(path) reads into a folder, under the names that load(folder) looks for.
  static Status copy_files(const std::string& path, const std::string& folder);
  static Tokenizer bytes();  // 256 tokens, one for each byte: models without a tokenizer file

  // An error if a regular expression of the tokenizer does not come to an end on this text.
  Result<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Valid UTF-8. Ids without a token give nothing: a model may have more rows than its tokenizer has tokens.
  // An error as above.
  Result<std::string> decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  int32_t vocab_size() const;                 // the largest id plus one
  bool has(int32_t id) const;                 // some ids below may be unused
  const std::string& name(int32_t id) const;  // as the file spells it
  std::optional<int32_t> id(std::string_view name) const;
  const std::string& token_bytes(
      int32_t id) const;  // what it adds in the middle of a text; need not be whole characters
  bool is_special(int32_t id) const;
  std::vector<int32_t> special_ids() const;
  std::optional<int32_t> bos() const, eos() const, pad() const, unk() const;
  const std::string& kind() const;  // for people: "byte-level BPE" and so on

 private:
  friend class StreamDecoder;
  struct Shared;
  explicit Tokenizer(std::shared_ptr<const Shared> shared) : shared_(std::move(shared)) {}
  std::shared_ptr<const Shared> shared_;
};

// Decodes token by token. What it returns is whole characters; all of it together is decode() of all ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options = {});
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;

  std::string add(int32_t id);
  std::string finish();   // what was held back; then a new text may begin
  Status status() const;  // whether the decoder's regular expressions came to an end

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid
