// A model folder: weights, tokenizer and recommended sampling settings.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "infer/generation_config.h"
#include "kernels/weight_matmul/weight_matmul.h"
#include "tokenizer/tokenizer.h"

namespace braid {

class MixerTable;
class Model;
const MixerTable& built_in_mixers();

struct TextModel {
  std::shared_ptr<Model> model;
  std::optional<Tokenizer> tokenizer;  // none: a model of a task, whose tokens are not text
  GenerationConfig generation;

  // Weights and mixers as Model::load_stored has them.
  static Result<TextModel> load(const std::string& dir, std::optional<WeightFormat> format = {}, Par par = {},
                                const MixerTable& mixers = built_in_mixers(),
                                const std::function<void(uint64_t done, uint64_t all)>& progress = {});
};

// Tokens that end an answer in a chat: the model's own, and those special tokens whose names say that they
// end a turn, because many folders name only the end of a text.
std::vector<int32_t> chat_end_tokens(const TextModel& model);

// The tokenizer of a model folder; one token per byte for a vocabulary of 256 without a tokenizer file.
Result<std::optional<Tokenizer>> load_tokenizer(const std::string& dir, int64_t vocabulary);

}  // namespace braid
