// llama2.c's tokenizer files (tokenizer.bin, tok512.bin): the length of the longest token, then score, length
// and text of each. Blanks are blanks; a character that is no token becomes bytes before anything is merged.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "tokenizer/pipeline.h"
#include "tokenizer/score_merges.h"
#include "tokenizer/utf8.h"

namespace braid {

Result<std::unique_ptr<Pipeline>> pipeline_from_llama2c(std::string_view bytes, const std::string& name) {
  const auto broken = [&](const std::string& why) {
    return Error{name + ": " + why, "expected a tokenizer of llama2.c; fetch the file again"};
  };
  const auto take = [&](auto& value) {
    if (bytes.size() < sizeof(value)) return false;
    std::memcpy(&value, bytes.data(), sizeof(value));
    bytes.remove_prefix(sizeof(value));
    return true;
  };
  int32_t longest = 0;
  if (!take(longest) || longest <= 0) return broken("no length of the longest token");
  auto p = std::make_unique<Pipeline>();
  std::vector<float> scores;
  while (!bytes.empty()) {
    const auto id = static_cast<int32_t>(scores.size());
    float score = 0;
    int32_t size = 0;
    if (!take(score) || !take(size) || size <= 0 || size > longest ||
        static_cast<size_t>(size) > bytes.size())
      return broken(fmt::format("token {} is cut", id));
    const std::string text(bytes.substr(0, static_cast<size_t>(size)));
    bytes.remove_prefix(text.size());
    std::string scratch;
    if (!std::isfinite(score) || valid_utf8(text, scratch).data() != text.data() || id >= kMaxVocab)
      return broken(fmt::format("token {} is damaged", id));
    if (!p->vocab.put(text, id)) return broken(fmt::format("token {} appears twice", id));
    scores.push_back(score);
  }
  // The program has these ids built in: 0 unknown, 1 BOS, 2 EOS, 3 to 258 the bytes.
  if (scores.size() < 259) return broken("fewer than 259 tokens");
  for (int32_t b = 0; b < 256; ++b)
    if (p->vocab.name(b + 3) != fmt::format("<0x{:02X}>", b))
      return broken(fmt::format("token {} is not a byte", b + 3));
  std::vector<ScoredToken> tokens;
  std::vector<std::string> names;
  for (int32_t id = 0; id < p->vocab.size(); ++id) {
    tokens.push_back({p->vocab.name(id), scores[static_cast<size_t>(id)], id});
    names.push_back(p->vocab.name(id));
  }
  BpeSettings bpe;
  bpe.merges = merges_by_score(tokens, nullptr, 0);
  bpe.late_fallback = bpe.byte_fallback = true;
  if (p->vocab.find(" ") && independent_words(names, " ")) bpe.space = " ";
  p->model = make_bpe(p->vocab, std::move(bpe));
  p->kind = "llama2.c";
  p->blank = " ";
  p->blank_prefix = Pipeline::kEachPart;
  p->bos = 1;
  p->eos = 2;
  p->before = {1};
  for (const int32_t id : {1, 2})
    if (Status s = put_added(*p, {.content = p->vocab.name(id), .id = id, .special = true}, name); !s)
      return s.error();
  DecodeStep decode{.kind = DecodeStep::kSentencePiece};
  decode.strip_one = true;
  decode.after = 1;
  p->decoder.push_back(std::move(decode));
  return p;
}

}  // namespace braid
