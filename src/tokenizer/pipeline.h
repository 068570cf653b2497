// The parts that every tokenizer is made of, in the order in which a text passes them. The files that read a
// format (from_json.cpp and others) fill a Pipeline; tokenizer.cpp runs it.
#pragma once

#include <array>
#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "tokenizer/merges.h"
#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"
#include "tokenizer/word_cache.h"

namespace braid {

inline constexpr int32_t kMaxVocab = 1 << 22;  // a file with a larger id is refused: tables are indexed by id
inline constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // U+2581, a blank in SentencePiece's pieces

// Names <-> ids.
class Vocab {
 public:
  // False if the name or the id is taken.
  bool put(std::string name, int32_t id);
  std::optional<int32_t> find(std::string_view name) const;
  bool has(int32_t id) const { return id >= 0 && id < size() && present_[static_cast<size_t>(id)]; }
  const std::string& name(int32_t id) const { return names_[static_cast<size_t>(id)]; }
  int32_t size() const { return static_cast<int32_t>(names_.size()); }  // the largest id plus one

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return WordCache::hash(s); }
  };
  std::vector<std::string> names_;
  std::vector<bool> present_;
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
};

// What one thread needs to encode.
struct Scratch {
  WordCache cache;
  Merger merger;
  Regex::Scratch regex;
  std::vector<Symbol> symbols;
  std::vector<int32_t> ids;
  std::vector<std::string> texts;  // one for each step of the pre-tokenizer that changes the text
  std::string valid;
};

struct NormStep {
  enum Kind : uint8_t {
    kForm,
    kLowercase,
    kStripAccents,
    kStrip,
    kPrepend,
    kReplace,
    kReplaceRegex,
    kByteLevel
  } kind;
  NormalForm form = NormalForm::kC;
  bool left = true, right = true;          // kStrip
  std::string pattern = {}, content = {};  // kPrepend, kReplace
  std::optional<Regex> regex = {};
};
// origin: how many bytes at the start of the text stand for its very first character, before and after; the
// package's offsets of these are 0.
std::string normalize(const std::vector<NormStep>& steps, std::string_view text,
                      const Regex::Scratch& scratch, size_t& origin);
inline std::string normalize(const std::vector<NormStep>& steps, std::string_view text,
                             const Regex::Scratch& scratch) {
  size_t origin = 0;
  return normalize(steps, text, scratch, origin);
}

enum class Behavior : uint8_t { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

using Scanner = size_t (*)(std::string_view text, size_t at);  // the end of the piece that starts at `at`

struct SplitStep {
  enum Kind : uint8_t {
    kRegex,
    kLiteral,
    kDigits,
    kPunctuation,
    kWords,
    kSpaces,
    kScan,
    kMetaspace,
    kPrefixSpace,
    kByteLevel
  } kind;
  Behavior behavior = Behavior::kIsolated;
  bool invert = false;
  std::optional<Regex> regex = {};
  std::string pattern = {};  // kLiteral; kMetaspace: the replacement
  Scanner scan = nullptr;    // kScan
  enum Prepend : uint8_t { kAlways, kFirst, kNever } prepend = kAlways;  // kMetaspace
  bool split = true;                                                     // kMetaspace
};
using PieceSink = std::function<void(std::string_view)>;
void pre_tokenize(const std::vector<SplitStep>& steps, std::string_view text, bool at_start, Scratch& scratch,
                  const PieceSink& sink);

// GPT-2's printable stand-ins for bytes.
const std::array<std::string, 256>& byte_level_chars();
std::string to_byte_level(std::string_view bytes);
std::optional<std::string> from_byte_level(std::string_view text);  // nothing if a character is no stand-in

// The scanner for a well-known pattern, or null. It splits as the regular expression does, only faster.
Scanner known_scanner(std::string_view pattern);
extern const char* const kGpt2Pattern;
extern const char* const kQwen2Pattern;
extern const char* const kQwen35Pattern;
extern const char* const kCl100kPattern;  // also Llama 3
// Split(pattern, isolated), by a scanner where there is one.
Result<SplitStep> isolate_step(std::string_view pattern);

// Ids of one piece.
class WordModel {
 public:
  virtual ~WordModel() = default;
  virtual void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& out) const = 0;
};

struct BpeSettings {
  MergeTable merges{};
  bool byte_level = false;  // pieces are raw bytes; names in the vocabulary are stand-ins
  bool byte_fallback = false, fuse_unk = false, ignore_merges = false;
  std::optional<int32_t> unk = {};
  std::string prefix = {}, suffix = {};  // continuing_subword_prefix, end_of_word_suffix
  std::string_view
      space;  // if not empty: no token has this behind another character, so words are independent
  // SentencePiece: characters without a piece of their own, which merges may still use; they and what has no
  // rule become bytes or unk after merging.
  bool late_fallback = false;
  std::unordered_map<uint32_t, int32_t> extra_chars = {};
};
std::unique_ptr<WordModel> make_bpe(const Vocab& vocab, BpeSettings settings);
// Whether no result of a merge has `space` behind another character.
bool independent_words(const std::vector<std::string>& results, std::string_view space);

struct AddedToken {
  std::string content = {};
  int32_t id = 0;
  bool special = false, lstrip = false, rstrip = false, single_word = false, normalized = false;
};

// Finds added tokens: leftmost, and of those the longest.
class AddedMatcher {
 public:
  void put(std::string_view pattern, uint32_t token);  // a place in Pipeline::added
  // The longest pattern that starts at or after `from`.
  bool find(std::string_view text, size_t from, size_t& begin, size_t& end, uint32_t& token) const;

 private:
  std::unordered_map<uint64_t, uint32_t> edges_;  // (node, byte) -> node
  std::vector<int64_t> ends_ = {-1};              // by node: the token that ends there
  std::array<bool, 256> starts_{};
};

struct DecodeStep {
  enum Kind : uint8_t {
    kByteLevel,
    kReplace,
    kReplaceRegex,
    kByteFallback,
    kFuse,
    kStrip,
    kMetaspace,
    kSuffix,
    kJoin,
    kSentencePiece
  } kind;
  std::string pattern = {}, content = {};  // kReplace; kStrip, kMetaspace: the character; kSuffix: the suffix
  std::optional<Regex> regex = {};
  size_t start = 0, stop = 0;  // kStrip
  bool drop_first = true;      // kMetaspace: no blanks from the first token
  bool fused = false;          // the step sees parts of one token
  // kSentencePiece
  bool strip_one = false, strip_all = false;  // the blank that encoding put in front; all leading blanks
  std::optional<int32_t> after = {};          // llama2.c: also after this id
};

// Runs the decoder's steps token by token. Each gives away what later tokens cannot change.
class DecodeRun {
 public:
  explicit DecodeRun(const struct Pipeline& p);
  void add(int32_t id, std::string& out);
  void finish(std::string& out);
  Status status() const { return regex_.status(); }

 private:
  struct State {
    std::string pending;
    size_t count = 0;  // tokens, or characters stripped
    bool open = true;
  };
  void push(size_t step, std::string_view token, std::string& out);
  void end(size_t step, std::string& out);
  void add_piece(int32_t id, std::string& out);
  void end_bytes(size_t step, std::string& out);

  const Pipeline& p_;
  std::vector<State> states_;
  Regex::Scratch regex_;
  int32_t last_id_ = -1;
};

struct Pipeline {
  std::string kind;  // for people
  Vocab vocab;       // of the model and added tokens together
  std::vector<AddedToken> added;
  std::unordered_map<int32_t, size_t> added_at;  // id -> place in `added`
  AddedMatcher raw, normalized;
  std::vector<NormStep> normalizer;
  std::vector<SplitStep> pre_tokenizer;
  std::unique_ptr<WordModel> model;
  std::vector<int32_t> before, after;  // special tokens around a text
  std::vector<DecodeStep> decoder;
  std::vector<bool> special;       // by id
  std::vector<std::string> bytes;  // by id
  std::optional<int32_t> bos, eos, pad, unk;
  bool raw_bytes = false;  // text need not be UTF-8
  // SentencePiece and llama2.c: blanks become `blank`, and one is put in front of each part of the text, of
  // the first or of none.
  enum PrefixRule : uint8_t { kPlain, kBlanksOnly, kEachPart, kFirstPart } blank_prefix = kPlain;
  std::string_view blank;

  // After all of the above: the tables by id and the matchers.
  Status finish(const std::string& name);
};

// The readers. `name` stands for the file in messages.
Result<std::unique_ptr<Pipeline>> pipeline_from_json(std::string_view text, const std::string& name);
Result<std::unique_ptr<Pipeline>> pipeline_from_vocab(const std::string& folder);
Result<std::unique_ptr<Pipeline>> pipeline_from_sentencepiece(std::string_view model, const std::string& name,
                                                              const std::string& config_path);
Result<std::unique_ptr<Pipeline>> pipeline_from_llama2c(std::string_view bin, const std::string& name);
std::unique_ptr<Pipeline> pipeline_of_bytes();
// Special tokens of tokenizer_config.json: added tokens the pipeline lacks, bos, eos and the others by name.
// Before finish().
Status apply_config(Pipeline& p, const std::string& path);

// Shared by the readers: puts an added token into vocabulary and list; a merge into the table, its result's
// name to `results`.
class JsonFields;
AddedToken added_token(JsonFields& fields);  // without its id
Status put_added(Pipeline& p, AddedToken token, const std::string& where);
Status put_merge(BpeSettings& bpe, const Vocab& vocab, const std::string& left, const std::string& right,
                 uint32_t rank, const std::string& where, std::vector<std::string>& results);

}  // namespace braid
