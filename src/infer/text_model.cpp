#include "infer/text_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "io/file.h"

#include "model/model.h"

namespace braid {
namespace {

bool has_tokenizer(const std::string& dir) {
  constexpr std::array kFiles{"tokenizer.json", "vocab.json", "tokenizer.model", "tokenizer.bin"};
  for (const char* name : kFiles)
    if (path_exists(dir + "/" + name)) return true;
  return false;
}

}  // namespace

std::vector<int32_t> chat_end_tokens(const TextModel& model) {
  constexpr std::array kNames{"<|im_end|>", "<|eot_id|>",    "<|eom_id|>",      "<|end|>", "<end_of_turn>",
                              "<|eot|>",    "<|endoftext|>", "<|end_of_text|>", "</s>"};
  std::vector<int32_t> ids = model.generation.eos;
  for (const char* name : kNames)
    if (const std::optional<int32_t> id = model.tokenizer->id(name);
        id && model.tokenizer->is_special(*id) && std::ranges::find(ids, *id) == ids.end())
      ids.push_back(*id);
  return ids;
}

Result<std::optional<Tokenizer>> load_tokenizer(const std::string& dir, int64_t vocabulary) {
  constexpr int64_t kBytes = 256;
  if (!has_tokenizer(dir))
    return vocabulary == kBytes ? std::optional(Tokenizer::bytes()) : std::optional<Tokenizer>();
  Result<Tokenizer> tokenizer = Tokenizer::load(dir);
  if (!tokenizer) return tokenizer.error();
  if (tokenizer->vocab_size() > vocabulary)
    return Error{fmt::format("{}: the tokenizer has ids up to {}, but the model only {} tokens", dir,
                             tokenizer->vocab_size() - 1, vocabulary),
                 "tokenizer and weights belong to different models: fetch both again"};
  return std::optional(*std::move(tokenizer));
}

Result<TextModel> TextModel::load(const std::string& dir, std::optional<WeightFormat> format, Par par,
                                  const MixerTable& mixers,
                                  const std::function<void(uint64_t done, uint64_t all)>& progress) {
  Result<std::unique_ptr<Model>> model = Model::load_stored(dir, format, par, mixers, progress);
  if (!model) return model.error();
  Result<std::optional<Tokenizer>> tokenizer = load_tokenizer(dir, (*model)->config().vocab_size);
  if (!tokenizer) return tokenizer.error();
  Result<GenerationConfig> generation = load_generation_config(dir);
  if (!generation) return generation.error();
  TextModel out{*std::move(model), *std::move(tokenizer), *std::move(generation)};
  if (out.generation.eos.empty() && out.tokenizer)
    if (const std::optional<int32_t> eos = out.tokenizer->eos()) out.generation.eos.push_back(*eos);
  return out;
}

}  // namespace braid
