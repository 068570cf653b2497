#include "data/text.h"

#include <fmt/format.h>

#include "data/embedded.h"
#include "io/file.h"
#include "io/hash.h"
#include "tokenizer/tokenizer.h"

namespace braid {
namespace {

// Tokens for training. The rest is held out: the asked share, but each side keeps at least one window.
uint64_t train_size(uint64_t tokens, uint64_t window, uint64_t held_window, double share) {
  const auto held = static_cast<uint64_t>(static_cast<double>(tokens) * share);
  return tokens - std::clamp(held, held_window, tokens - window);
}

size_t held_length(const TextOptions& o) { return o.validation_length ? o.validation_length : o.length; }

}  // namespace

Result<std::unique_ptr<TextSource>> TextSource::from_file(const std::string& path,
                                                          const TextOptions& options) {
  if (path == kShakespeare) return make(std::string(shakespeare()), path, options);
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  const std::span<const std::byte> bytes = file->bytes();
  return make(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), path, options);
}

Result<std::unique_ptr<TextSource>> TextSource::from_text(std::string_view text, const std::string& name,
                                                          const TextOptions& options) {
  return make(std::string(text), name, options);
}

Result<std::unique_ptr<TextSource>> TextSource::make(std::string text, const std::string& name,
                                                     const TextOptions& options) {
  std::vector<Problem> problems;
  if (options.length == 0) problems.push_back({"length", "is 0", "use 1 or more"});
  if (!(options.validation_share >= 0 && options.validation_share < 1))
    problems.push_back({"validation_share", fmt::format("is {}", options.validation_share),
                        "use a share from 0 up to, but not including, 1"});
  if (!problems.empty()) return to_error("text data: wrong options", problems);

  Content content{.bytes = std::move(text)};
  size_t size = content.bytes.size();
  if (!options.tokenizer.empty()) {
    const Result<Tokenizer> tokenizer = Tokenizer::load(options.tokenizer);
    if (!tokenizer) return tokenizer.error();
    Result<std::vector<int32_t>> ids = tokenizer->encode(content.bytes, {.add_special = false});
    if (!ids) return Error{name + ": " + ids.error().what, ids.error().fix};
    content.ids = *std::move(ids);
    content.vocab_size = static_cast<size_t>(tokenizer->vocab_size());
    size = content.ids.size();
  }
  const size_t half = size / 2;  // compared this way round, no length can overflow
  if (const size_t longer = std::max(options.length, held_length(options)); longer >= half) {
    std::string fix = "use a longer text";
    if (half >= 2) fix += fmt::format(" or a sequence length of at most {}", half - 1);
    return Error{fmt::format("{}: {} {} are too few for sequences of {} tokens; one to train on and one to "
                             "hold out take 2 x (length + 1)",
                             name, size, options.tokenizer.empty() ? "bytes" : "tokens", longer),
                 fix};
  }
  return std::unique_ptr<TextSource>(new TextSource(std::move(content), name, options));
}

TextSource::TextSource(Content content, std::string name, const TextOptions& options)
    : name_(std::move(name)),
      tokenizer_(options.tokenizer),
      text_(tokenizer_.empty() ? std::move(content.bytes) : std::string()),
      ids_(std::move(content.ids)),
      vocab_size_(content.vocab_size),
      bytes_per_token_(tokenizer_.empty() ? 1
                                          : static_cast<double>(content.bytes.size()) /
                                                static_cast<double>(std::max<size_t>(1, ids_.size()))),
      seed_(options.seed),
      window_(options.length + 1),
      held_window_(held_length(options) + 1),
      train_(train_size(tokens(), window_, held_window_, options.validation_share)),
      windows_(train_, window_, seed_),
      validation_limit_(options.validation_limit),
      fingerprint_(Hash()
                       .text(tokenizer_.empty() ? "text 1" : "tokens 1")
                       .text(tokenizer_.empty() ? std::string_view(text_)
                                                : std::string_view(reinterpret_cast<const char*>(ids_.data()),
                                                                   ids_.size() * sizeof(int32_t)))
                       .number(window_)
                       .number(held_window_)
                       .number(train_)
                       .number(seed_)
                       .hex()) {}

std::string TextSource::describe() const {
  return fmt::format(
      "{}: {} {} to train on ({} sequences of {} tokens per epoch), {} held out{}", name_, train_,
      tokenizer_.empty() ? "bytes" : "tokens", windows_.count(), window_ - 1, tokens() - train_,
      tokenizer_.empty()
          ? ""
          : fmt::format("; a vocabulary of {}, {:.2f} bytes per token", vocab_size_, bytes_per_token_));
}

Status TextSource::save_companions(const std::string& dir) const {
  return tokenizer_.empty() ? Status() : Tokenizer::copy_files(tokenizer_, dir);
}

void TextSource::append_train(Batch& out, uint64_t sample) const {
  append_window(out, windows_.first_token(sample), window_);
}

void TextSource::append_validation(Batch& out, size_t sample) const {
  append_window(out, train_ + sample * held_window_, held_window_);
}

void TextSource::append_window(Batch& out, uint64_t first, uint64_t count) const {
  for (uint64_t i = first; i + 1 < first + count; ++i)
    out.tokens.push_back(token(i)), out.targets.push_back(token(i + 1));
  out.close();
}

}  // namespace braid
