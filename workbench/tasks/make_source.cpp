#include "tasks/make_source.h"

#include <algorithm>
#include <array>

#include "data/text.h"
#include "data/token_source.h"
#include "io/file.h"
#include "tasks/task_source.h"

namespace braid {

namespace {

bool has_tokenizer(const std::string& dir) {
  return !dir.empty() && std::ranges::any_of(std::array{"/tokenizer.json", "/vocab.json", "/tokenizer.model"},
                                             [&](const char* name) { return path_exists(dir + name); });
}

Result<std::unique_ptr<Source>> token_source(const TrainOptions& o) {
  const Result<Mixture> mixture = parse_mixture(o.data, "--data");
  if (!mixture) return mixture.error();
  TokenSourceOptions with{.length = static_cast<size_t>(o.length),
                          .validation_length = static_cast<size_t>(o.eval_length),
                          .validation_limit = static_cast<size_t>(o.eval_size),
                          .reset_at_documents = o.reset_at_documents,
                          .seed = static_cast<uint64_t>(o.seed)};
  for (const std::string& word : o.eval_data) {
    const size_t path = word.find('=') + 1;  // 0 without a name
    with.validation.push_back({word.substr(0, path ? path - 1 : 0), word.substr(path)});
  }
  auto source = TokenSource::open(*mixture, with);
  if (!source) return source.error();
  // A run's folder has the tokenizer of its data anyway.
  if (!o.resume && has_tokenizer(o.model)) {
    const Result<Tokenizer> own = Tokenizer::load(o.model);
    if (!own) return own.error();
    if (tokens_hash(*own) != (*source)->tokenizer_hash())
      return Error{"--data: was made with another tokenizer than that of --model " + o.model,
                   "tokenize the text with it: braid data tokenize --tokenizer " + o.model};
  }
  return std::unique_ptr<Source>(std::move(*source));
}

}  // namespace

Result<std::unique_ptr<Source>> make_source(const TrainOptions& o) {
  const auto seed = static_cast<uint64_t>(o.seed);
  if (!o.data.empty()) return token_source(o);
  if (!o.text.empty()) {
    std::string tokenizer = !o.tokenizer.empty() ? o.tokenizer : has_tokenizer(o.model) ? o.model : "";
    // A run has a copy of its tokenizer, so that it can go on without the original.
    if (o.resume && has_tokenizer(o.run)) tokenizer = o.run;
    auto text = TextSource::from_file(o.text, {.length = static_cast<size_t>(o.length),
                                               .validation_length = static_cast<size_t>(o.eval_length),
                                               .validation_limit = static_cast<size_t>(o.eval_size),
                                               .seed = seed,
                                               .tokenizer = tokenizer});
    if (!text) return text.error();
    return std::unique_ptr<Source>(std::move(*text));
  }
  auto task = make_task(o.task, o.task_set);
  if (!task) return task.error();
  return std::unique_ptr<Source>(std::make_unique<TaskSource>(
      std::move(*task),
      TaskSourceOptions{.seed = seed, .validation_size = static_cast<size_t>(o.eval_size)}));
}

}  // namespace braid
