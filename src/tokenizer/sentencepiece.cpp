// SentencePiece's tokenizer.model. The library trusts a file, so that everything is read and checked here
// before it gets the bytes. BPE without a normaliser table is encoded by our own merges, which give the same
// ids faster; everything else by the library.
#include <sentencepiece_processor.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "tokenizer/json_fields.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/score_merges.h"
#include "tokenizer/utf8.h"

namespace braid {
namespace {

// Protocol buffers, as far as needed: fields of a message in order.
class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}
  struct Field {
    uint64_t number = 0, value = 0;  // value: of a varint, or the bits of a fixed number
    std::string_view bytes;
  };
  bool whole() const { return whole_; }  // after the last field: nothing was cut or wrong
  bool next(Field& f) {
    if (rest_.empty()) return false;
    whole_ = read(f);
    return whole_;
  }

 private:
  bool read(Field& f) {
    uint64_t tag, size;
    if (!varint(tag)) return false;
    f = {tag >> 3, 0, {}};
    switch (tag & 7) {
      case 0:
        return varint(f.value);
      case 1:
        return fixed(8, f.value);
      case 5:
        return fixed(4, f.value);
      case 2:
        if (!varint(size) || size > rest_.size()) return false;
        f.bytes = rest_.substr(0, size);
        rest_.remove_prefix(size);
        return true;
      default:
        return false;
    }
  }

  bool varint(uint64_t& value) {
    value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto b = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      value |= uint64_t{b & 127u} << shift;
      if (b < 128) return true;
    }
    return false;
  }
  bool fixed(size_t n, uint64_t& value) {
    if (rest_.size() < n) return false;
    value = 0;
    std::memcpy(&value, rest_.data(), n);
    rest_.remove_prefix(n);
    return true;
  }
  std::string_view rest_;
  bool whole_ = true;
};

enum PieceType : uint64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct Piece {
  std::string text;
  float score = 0;
  uint64_t type = kNormal;
};

// The defaults are those of SentencePiece's own definition.
struct ModelFile {
  std::vector<Piece> pieces;
  uint64_t model_type = 1;  // 1: unigram, 2: BPE
  bool byte_fallback = false, suffix_space = false;
  bool dummy_prefix = true, remove_extra = true, escape = true, table = false, denormalizer = false;
  std::string unk_surface = " \xE2\x81\x87 ";
  bool whole = true;  // nothing was cut or wrong
};

// A normaliser table is a size, a trie of 32-bit units (a double array as darts-clone has it) and the texts
// that its leaves point to. Everything that a walk through the trie can reach must lie inside.
bool sound_table(std::string_view bytes) {
  uint32_t size = 0;
  if (bytes.size() < sizeof size) return false;
  std::memcpy(&size, bytes.data(), sizeof size);
  bytes.remove_prefix(sizeof size);
  if (size > bytes.size() || size % 4) return false;
  std::vector<uint32_t> units(size / 4);
  std::memcpy(units.data(), bytes.data(), size);
  const std::string_view texts = bytes.substr(size);
  if (texts.empty() || texts.back() != 0) return false;
  for (uint32_t i = 0; i < units.size(); ++i) {
    const uint32_t unit = units[i];
    if (unit >> 31) continue;                                                // a leaf
    const uint32_t first = i ^ ((unit >> 10) << ((unit & (1u << 9)) >> 6));  // of up to 256 next ones
    if ((first | 255) >= units.size()) return false;
    if ((unit >> 8 & 1) && (units[first] & 0x7FFFFFFF) >= texts.size()) return false;
  }
  return true;
}

ModelFile read_model_file(std::string_view bytes) {
  ModelFile m;
  Message message(bytes);
  for (Message::Field f; message.next(f);) {
    Message inner(f.bytes);
    Message::Field g;
    if (f.number == 1) {
      Piece p;
      while (inner.next(g)) {
        if (g.number == 1) p.text = g.bytes;
        if (g.number == 2) p.score = std::bit_cast<float>(static_cast<uint32_t>(g.value));
        if (g.number == 3) p.type = g.value;
      }
      m.pieces.push_back(std::move(p));
    } else if (f.number == 2) {
      while (inner.next(g)) {
        if (g.number == 3) m.model_type = g.value;
        if (g.number == 24) m.suffix_space = g.value;
        if (g.number == 35) m.byte_fallback = g.value;
        if (g.number == 44) m.unk_surface = g.bytes;
      }
    } else if (f.number == 3) {
      while (inner.next(g)) {
        if (g.number == 2) m.table = !g.bytes.empty(), m.whole &= !m.table || sound_table(g.bytes);
        if (g.number == 3) m.dummy_prefix = g.value;
        if (g.number == 4) m.remove_extra = g.value;
        if (g.number == 5) m.escape = g.value;
      }
    } else if (f.number == 5) {
      while (inner.next(g))
        if (g.number == 2) m.denormalizer = !g.bytes.empty();
    }
    m.whole &= inner.whole();
  }
  m.whole &= message.whole();
  return m;
}

class Library final : public WordModel {
 public:
  explicit Library(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor)
      : processor_(std::move(processor)) {}
  void encode(std::string_view piece, Scratch&, std::vector<int32_t>& out) const override {
    const std::vector<int> ids = processor_->EncodeAsIds({piece.data(), piece.size()});
    out.insert(out.end(), ids.begin(), ids.end());
  }

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
};

}  // namespace

MergeTable merges_by_score(const std::vector<ScoredToken>& tokens,
                           std::unordered_map<uint32_t, int32_t>* extra_chars, int32_t next_id) {
  std::map<float, uint32_t, std::greater<>> ranks;  // the same score is the same rank
  std::unordered_map<std::string_view, int32_t> ids;
  for (const ScoredToken& t : tokens) ranks[t.score], ids.emplace(t.text, t.id);
  uint32_t rank = 0;
  for (auto& [score, r] : ranks) r = rank++;
  const auto id_of = [&](std::string_view text) {
    if (const auto at = ids.find(text); at != ids.end()) return at->second;
    if (!extra_chars || utf8_length(text[0]) != text.size()) return -1;
    size_t at = 0;
    const auto [slot, fresh] = extra_chars->try_emplace(next_code(text, at), next_id);
    next_id += fresh;
    return slot->second;
  };
  MergeTable merges(2 * tokens.size());
  for (const ScoredToken& t : tokens)
    for (size_t cut = utf8_length(t.text[0]); cut < t.text.size(); cut += utf8_length(t.text[cut])) {
      const int32_t left = id_of(t.text.substr(0, cut)), right = id_of(t.text.substr(cut));
      if (left >= 0 && right >= 0) merges.put(left, right, {ranks[t.score], t.id});
    }
  return merges;
}

Result<std::unique_ptr<Pipeline>> pipeline_from_sentencepiece(std::string_view bytes, const std::string& name,
                                                              const std::string& config_path) {
  const auto broken = [&](const std::string& why) {
    return Error{name + ": " + why, "fetch the file again"};
  };
  const ModelFile m = read_model_file(bytes);
  if (!m.whole || m.pieces.empty()) return broken("not a SentencePiece model, or a damaged one");
  if (m.pieces.size() > static_cast<size_t>(kMaxVocab)) return broken("too many pieces");
  if (m.model_type != 1 && m.model_type != 2)
    return Error{name + ": neither a BPE nor a unigram model",
                 "words and characters as tokens are not supported"};
  if (m.denormalizer) return Error{name + ": has a denormaliser table", "not supported"};

  auto p = std::make_unique<Pipeline>();
  std::vector<ScoredToken> normal;
  bool own = m.model_type == 2 && !m.table && m.escape && !m.remove_extra && !m.suffix_space;
  for (int32_t id = 0; id < static_cast<int32_t>(m.pieces.size()); ++id) {
    const Piece& piece = m.pieces[static_cast<size_t>(id)];
    std::string scratch;
    if (piece.text.empty() || piece.text.find('\0') != std::string::npos ||
        valid_utf8(piece.text, scratch).data() != piece.text.data() || !std::isfinite(piece.score))
      return broken(fmt::format("piece {} is damaged", id));
    if (!p->vocab.put(piece.text, id)) return broken(fmt::format("piece {} appears twice", id));
    if (piece.type == kNormal) normal.push_back({piece.text, piece.score, id});
    if (piece.type == kUnknown) p->unk = id;
    if (piece.type == kControl)
      if (Status s = put_added(*p, {.content = piece.text, .id = id, .special = true}, name); !s)
        return s.error();
    own &= piece.type != kUserDefined && piece.type != kUnused;
  }
  for (int b = 0; b < 256 && m.byte_fallback; ++b)
    if (!p->vocab.find(fmt::format("<0x{:02X}>", b)))
      return broken(fmt::format("no piece for the byte {:02X}", b));

  auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  try {
    if (const auto s = processor->LoadFromSerializedProto({bytes.data(), bytes.size()}); !s.ok())
      return broken("not a SentencePiece model: " + s.ToString());
  } catch (const std::exception& e) {
    return broken(std::string("not a SentencePiece model: ") + e.what());
  }
  if (m.pieces.size() != static_cast<size_t>(processor->GetPieceSize())) return broken("cut or damaged");

  bool add_bos = true, add_eos = false, legacy = true;
  std::error_code ignored;
  if (std::filesystem::exists(config_path, ignored)) {
    const Result<nlohmann::json> config = load_sorted_json(config_path);
    if (!config) return config.error();
    JsonFields f(*config, config_path + ": ");
    add_bos = f.flag("add_bos_token", true);
    add_eos = f.flag("add_eos_token", false);
    legacy = f.flag("legacy", true);
    if (f.problem()) return *f.problem();
  }
  if (const int id = processor->bos_id(); id >= 0) p->bos = id;
  if (const int id = processor->eos_id(); id >= 0) p->eos = id;
  if (const int id = processor->pad_id(); id >= 0) p->pad = id;
  if (add_bos && p->bos) p->before.push_back(*p->bos);
  if (add_eos && p->eos) p->after.push_back(*p->eos);

  if (own) {
    BpeSettings bpe;
    bpe.merges = merges_by_score(normal, &bpe.extra_chars, p->vocab.size());
    bpe.late_fallback = true;
    bpe.byte_fallback = m.byte_fallback;
    bpe.unk = p->unk;
    std::vector<std::string> names;
    for (const ScoredToken& t : normal) names.emplace_back(t.text);
    if (p->vocab.find(kSpaceSymbol) && independent_words(names, kSpaceSymbol)) bpe.space = kSpaceSymbol;
    p->model = make_bpe(p->vocab, std::move(bpe));
    p->blank = kSpaceSymbol;
    p->blank_prefix = !m.dummy_prefix ? Pipeline::kBlanksOnly
                      : legacy        ? Pipeline::kEachPart
                                      : Pipeline::kFirstPart;
  } else {
    if (!legacy && m.dummy_prefix)
      return Error{
          config_path + ": legacy is false, which is supported for BPE models without a normaliser only",
          "use a folder with tokenizer.json"};
    p->model = std::make_unique<Library>(std::move(processor));
  }
  p->kind = m.model_type == 1 ? "SentencePiece unigram" : "SentencePiece BPE";
  DecodeStep decode{.kind = DecodeStep::kSentencePiece};
  decode.pattern = kSpaceSymbol;
  decode.content = m.unk_surface;
  decode.strip_one = m.dummy_prefix || m.remove_extra;
  decode.strip_all = m.remove_extra;
  p->decoder.push_back(std::move(decode));
  return p;
}

}  // namespace braid
