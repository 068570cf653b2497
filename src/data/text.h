// Text as bytes, 256 tokens, or as the tokens of a tokenizer.
//
// The last part of the text is held out for validation. Training visits the rest in windows of length + 1
// tokens (windows.h).
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/source.h"
#include "data/windows.h"

namespace braid {

inline constexpr const char* kShakespeare = "@shakespeare";  // the text that travels with the program

struct TextOptions {
  size_t length = 256;                 // tokens per sequence
  size_t validation_length = 0;        // of held-out ones; 0: the same
  double validation_share = 0.05;      // of the tokens; at least one sequence is held out
  size_t validation_limit = SIZE_MAX;  // sequences that are looked at
  uint64_t seed = 0;
  std::string tokenizer = {};  // its folder or file; empty: a token for each byte
};

class TextSource final : public Source {
 public:
  // A file, or kShakespeare.
  static Result<std::unique_ptr<TextSource>> from_file(const std::string& path, const TextOptions& options);
  // `name` stands for the file in messages.
  static Result<std::unique_ptr<TextSource>> from_text(std::string_view text, const std::string& name,
                                                       const TextOptions& options);

  uint64_t windows() const { return windows_.count(); }  // training samples per epoch
  uint64_t train_tokens() const { return train_; }

  size_t validation_size() const override {
    return std::min(validation_limit_, static_cast<size_t>((tokens() - train_) / held_window_));
  }
  size_t vocab_size() const override { return vocab_size_; }
  size_t max_length() const override { return std::max(window_, held_window_) - 1; }
  std::string fingerprint() const override { return fingerprint_; }
  std::string describe() const override;
  Status save_companions(const std::string& dir) const override;

 protected:
  void append_train(Batch& out, uint64_t sample) const override;
  void append_validation(Batch& out, size_t sample) const override;

 private:
  struct Content {
    std::string bytes;
    std::vector<int32_t> ids = {};  // with a tokenizer
    size_t vocab_size = 256;
  };
  TextSource(Content content, std::string name, const TextOptions& options);
  static Result<std::unique_ptr<TextSource>> make(std::string text, const std::string& name,
                                                  const TextOptions& options);
  uint64_t tokens() const { return tokenizer_.empty() ? text_.size() : ids_.size(); }
  int32_t token(uint64_t i) const {
    return tokenizer_.empty() ? static_cast<unsigned char>(text_[i]) : ids_[i];
  }
  void append_window(Batch& out, uint64_t first, uint64_t count) const;

  std::string name_, tokenizer_;
  std::string text_;          // without a tokenizer
  std::vector<int32_t> ids_;  // with one
  size_t vocab_size_;
  double bytes_per_token_;
  uint64_t seed_;
  uint64_t window_, held_window_;  // tokens per window: length + 1
  uint64_t train_;                 // tokens before the held-out part
  EpochWindows windows_;
  size_t validation_limit_;
  std::string fingerprint_;
};

}  // namespace braid
