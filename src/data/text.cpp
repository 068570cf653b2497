#include "data/text.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "base/rng.h"
#include "data/embedded.h"
#include "data/fingerprint.h"

namespace braid {
namespace {

Result<std::string> read_file(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ec;
  const fs::file_status status = fs::status(path, ec);
  if (status.type() == fs::file_type::not_found) return Error{path + ": no such file", "check the path"};
  if (ec) return Error{path + ": " + ec.message()};
  if (status.type() == fs::file_type::directory)
    return Error{path + ": is a directory", "name one text file inside it"};
  if (status.type() != fs::file_type::regular)  // a device might never end
    return Error{path + ": is not a regular file", "copy its content to a file first"};

  errno = 0;
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in) {
    const int why = errno;
    return Error{path + ": cannot be opened: " + std::strerror(why),
                 why == EACCES ? "grant read permission (chmod +r)" : ""};
  }
  const std::streamoff size = in.tellg();
  if (size < 0) return Error{path + ": its size cannot be read"};
  std::string text(static_cast<size_t>(size), '\0');
  in.seekg(0);
  if (!in.read(text.data(), size))
    return Error{fmt::format("{}: read {} of {} bytes", path, in.gcount(), size),
                 "the file changed or its disk failed; try again"};
  return text;
}

// Bytes for training. The rest is held out: the asked share, but each side keeps at least one window.
uint64_t train_size(uint64_t bytes, uint64_t window, uint64_t held_window, double share) {
  const auto held = static_cast<uint64_t>(static_cast<double>(bytes) * share);
  return bytes - std::clamp(held, held_window, bytes - window);
}

size_t held_length(const TextOptions& o) { return o.validation_length ? o.validation_length : o.length; }

// As many windows as fit behind every offset below one window, so that each epoch has the same number. A text
// of less than two windows gets one, and fewer offsets.
uint64_t windows_per_epoch(uint64_t train, uint64_t window) {
  return std::max<uint64_t>(1, (train - (window - 1)) / window);
}

}  // namespace

Result<std::unique_ptr<TextSource>> TextSource::from_file(const std::string& path,
                                                          const TextOptions& options) {
  if (path == kShakespeare) return make(std::string(shakespeare()), path, options);
  Result<std::string> text = read_file(path);
  if (!text) return text.error();
  return make(*std::move(text), path, options);
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

  const size_t half = text.size() / 2;  // compared this way round, no length can overflow
  if (const size_t longer = std::max(options.length, held_length(options)); longer >= half) {
    std::string fix = "use a longer text";
    if (half >= 2) fix += fmt::format(" or a sequence length of at most {}", half - 1);
    return Error{
        fmt::format("{}: {} bytes are too few for sequences of {} tokens; one to train on and one to "
                    "hold out take 2 x (length + 1) bytes",
                    name, text.size(), longer),
        fix};
  }
  return std::unique_ptr<TextSource>(new TextSource(std::move(text), name, options));
}

TextSource::TextSource(std::string text, std::string name, const TextOptions& options)
    : text_(std::move(text)),
      name_(std::move(name)),
      seed_(options.seed),
      window_(options.length + 1),
      held_window_(held_length(options) + 1),
      train_(train_size(text_.size(), window_, held_window_, options.validation_share)),
      windows_(windows_per_epoch(train_, window_)),
      validation_limit_(options.validation_limit),
      fingerprint_(Fingerprint()
                       .text("text 1")
                       .text(text_)
                       .number(window_)
                       .number(held_window_)
                       .number(train_)
                       .number(seed_)
                       .hex()) {}

std::string TextSource::describe() const {
  return fmt::format("{}: {} bytes to train on ({} sequences of {} tokens per epoch), {} bytes held out",
                     name_, train_, windows_, window_ - 1, text_.size() - train_);
}

void TextSource::append_train(Batch& out, uint64_t sample) const {
  const uint64_t epoch = sample / windows_;
  Rng rng(seed_, "text offset");
  rng.seek(epoch);
  const uint64_t offset = rng.below(train_ - windows_ * window_ + 1);
  append_window(out, offset + window_ * Permutation(windows_, seed_, epoch)(sample % windows_), window_);
}

void TextSource::append_validation(Batch& out, size_t sample) const {
  append_window(out, train_ + sample * held_window_, held_window_);
}

void TextSource::append_window(Batch& out, uint64_t first_byte, uint64_t bytes) const {
  for (uint64_t i = first_byte; i + 1 < first_byte + bytes; ++i) {
    out.tokens.push_back(static_cast<unsigned char>(text_[i]));
    out.targets.push_back(static_cast<unsigned char>(text_[i + 1]));
  }
  out.close();
}

}  // namespace braid
