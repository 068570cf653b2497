#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/pipeline.h"
#include "tokenizer/utf8.h"

namespace braid {
namespace {

class Bpe final : public WordModel {
 public:
  Bpe(const Vocab& vocab, BpeSettings settings) : vocab_(vocab), s_(std::move(settings)) {
    for (size_t b = 0; b < 256; ++b) {
      byte_ids_[b] =
          vocab.find(s_.byte_level ? byte_level_chars()[b] : fmt::format("<0x{:02X}>", b)).value_or(-1);
      all_bytes_ &= byte_ids_[b] >= 0;
    }
    for (int32_t id = 0; id < vocab.size(); ++id)  // names of one character
      if (const std::string& name = vocab.name(id); !name.empty() && utf8_length(name[0]) == name.size()) {
        size_t at = 0;
        chars_.emplace(next_code(name, at), id);
      }
    for (uint32_t c = 0; c < 128; ++c)
      ascii_[c] = chars_.contains(c) ? chars_.at(c) : s_.extra_chars.contains(c) ? s_.extra_chars.at(c) : -1;
    if (s_.byte_level && s_.ignore_merges)
      for (int32_t id = 0; id < vocab.size(); ++id)
        if (vocab.has(id))
          if (auto bytes = from_byte_level(vocab.name(id))) whole_.put(std::move(*bytes), id);
  }

  void encode(std::string_view piece, Scratch& scratch, std::vector<int32_t>& out) const override {
    if (s_.space.empty()) return encode_word(piece, scratch, out);
    for (size_t at = 0; at < piece.size();) {  // a word: blanks, then what follows up to the next blank
      size_t end = at;
      while (piece.substr(end).starts_with(s_.space)) end += s_.space.size();
      end = std::min(piece.find(s_.space, end), piece.size());
      encode_word(piece.substr(at, end - at), scratch, out);
      at = end;
    }
  }

 private:
  void encode_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const {
    if (word.size() > WordCache::kLongest) return merge_word(word, scratch, out);
    const uint64_t hash = WordCache::hash(word);
    if (scratch.cache.find(word, hash, out)) return;
    const size_t start = out.size();
    merge_word(word, scratch, out);
    scratch.cache.put(word, hash, std::span(out).subspan(start));
  }

  void merge_word(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const {
    if (s_.ignore_merges)
      if (const auto id = (s_.byte_level ? whole_ : vocab_).find(word)) return out.push_back(*id);
    std::vector<Symbol>& symbols = scratch.symbols;
    symbols.clear();
    if (s_.late_fallback)
      start_sentencepiece(word, symbols);
    else if (s_.byte_level && s_.prefix.empty() && s_.suffix.empty() && all_bytes_)
      for (const char c : word) symbols.push_back({byte_ids_[static_cast<uint8_t>(c)], 1});
    else
      start_general(s_.byte_level ? to_byte_level(word) : std::string(word), symbols);
    scratch.merger.merge(s_.merges, symbols);
    if (s_.late_fallback)
      finish_sentencepiece(word, symbols, out);
    else
      for (const Symbol& s : symbols) out.push_back(s.id);
  }

  int32_t char_id(uint32_t code) const {
    if (code < 128) return ascii_[code];
    if (const auto at = chars_.find(code); at != chars_.end()) return at->second;
    const auto at = s_.extra_chars.find(code);
    return at == s_.extra_chars.end() ? -1 : at->second;
  }

  // One symbol for each character. The order in which unknown ones and bytes appear is that of `tokenizers`:
  // an unknown one waits for the next known one, and bytes do not count as such.
  void start_general(const std::string& word, std::vector<Symbol>& symbols) const {
    const bool plain = s_.prefix.empty() && s_.suffix.empty();
    Symbol waiting{-1, 0};
    const auto flush = [&] {
      if (waiting.bytes) symbols.push_back(waiting);
      waiting.bytes = 0;
    };
    for (size_t at = 0; at < word.size();) {
      const size_t begin = at;
      const uint32_t code = next_code(word, at);
      const auto bytes = static_cast<uint32_t>(at - begin);
      std::string name;
      int32_t id;
      if (plain) {
        id = char_id(code);
      } else {
        name =
            (begin > 0 ? s_.prefix : "") + word.substr(begin, bytes) + (at == word.size() ? s_.suffix : "");
        id = vocab_.find(name).value_or(-1);
      }
      if (id >= 0) {
        flush();
        symbols.push_back({id, bytes});
        continue;
      }
      if (plain) name = word.substr(begin, bytes);
      if (s_.byte_fallback && std::all_of(name.begin(), name.end(),
                                          [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] >= 0; })) {
        for (const char c : name) symbols.push_back({byte_ids_[static_cast<uint8_t>(c)], 1});
        continue;
      }
      if (!s_.unk) continue;  // dropped
      if (!s_.fuse_unk) flush();
      waiting = {*s_.unk, waiting.bytes + bytes};
    }
    flush();
  }

  void start_sentencepiece(std::string_view word, std::vector<Symbol>& symbols) const {
    for (size_t at = 0; at < word.size();) {
      const size_t begin = at;
      const uint32_t code = next_code(word, at);
      symbols.push_back({char_id(code), static_cast<uint32_t>(at - begin)});
    }
  }

  void finish_sentencepiece(std::string_view word, const std::vector<Symbol>& symbols,
                            std::vector<int32_t>& out) const {
    size_t at = 0;
    bool unknown = false;  // a run of unknown characters is one unk
    for (const Symbol& s : symbols) {
      const std::string_view text = word.substr(at, s.bytes);
      at += s.bytes;
      const bool known = vocab_.has(s.id);
      if (known)
        out.push_back(s.id);
      else if (s_.byte_fallback)
        for (const char c : text) out.push_back(byte_ids_[static_cast<uint8_t>(c)]);
      else if (!unknown && s_.unk)
        out.push_back(*s_.unk);
      unknown = !known;
    }
  }

  const Vocab& vocab_;
  BpeSettings s_;
  Vocab whole_;  // names as bytes
  std::array<int32_t, 256> byte_ids_{};
  std::array<int32_t, 128> ascii_{};
  std::unordered_map<uint32_t, int32_t> chars_;
  bool all_bytes_ = true;
};

}  // namespace

std::unique_ptr<WordModel> make_bpe(const Vocab& vocab, BpeSettings settings) {
  return std::make_unique<Bpe>(vocab, std::move(settings));
}

bool independent_words(const std::vector<std::string>& results, std::string_view space) {
  return std::none_of(results.begin(), results.end(), [&](const std::string& name) {
    for (size_t at = name.find(space); at != name.npos; at = name.find(space, at + 1))
      if (at > 0 && !std::string_view(name).substr(0, at).ends_with(space)) return true;
    return false;
  });
}

}  // namespace braid
