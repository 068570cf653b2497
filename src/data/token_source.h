// Training data from folders of tokens (shards.h): one, or a mixture of several.
//
// A sample is a window of length + 1 ids (windows.h). Windows run across document ends unless
// `reset_at_documents` is set: then each document in a window is a sequence of its own, so that state,
// convolution and attention begin anew.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/mixture.h"
#include "data/shards.h"
#include "data/source.h"
#include "data/windows.h"

namespace braid {

struct NamedSet {
  std::string name, path;
};

struct TokenSourceOptions {
  size_t length = 256;
  size_t validation_length = 0;           // 0: the same
  double validation_share = 0.05;         // of each training set's end, where no held-out sets are given
  size_t validation_limit = SIZE_MAX;     // windows of each held-out set
  std::vector<NamedSet> validation = {};  // held-out sets; empty: the ends of the training sets
  bool reset_at_documents = false;
  uint64_t seed = 0;
};

class TokenSource final : public Source {
 public:
  static Result<std::unique_ptr<TokenSource>> open(const Mixture& mixture, const TokenSourceOptions& options);

  uint64_t train_tokens() const;  // of all sets
  const std::string& tokenizer_hash() const { return sets_[0].data->index().tokenizer_hash; }
  size_t validation_size() const override;
  std::vector<ValidationPart> validation_parts() const override;
  size_t vocab_size() const override;
  size_t max_length() const override { return std::max(options_.length, held_length_); }
  std::string fingerprint() const override { return fingerprint_; }
  std::string describe() const override;
  Status save_companions(const std::string& dir) const override;
  uint64_t text_bytes(std::span<const int32_t> tokens) const override;

 protected:
  void append_train(Batch& out, uint64_t sample) const override;
  void append_validation(Batch& out, size_t sample) const override;

 private:
  struct TrainSet {
    std::shared_ptr<const ShardData> data;
    EpochWindows windows = {};
    std::vector<uint32_t> place = {};  // in the order, how many of its samples come before
    uint64_t in_period = 0;
  };
  struct HeldOut {
    std::string name;
    std::shared_ptr<const ShardData> data;
    uint64_t first = 0;
    size_t windows = 0;
  };
  TokenSource() = default;
  void append_window(Batch& out, const ShardData& data, uint64_t first, uint64_t length) const;

  TokenSourceOptions options_;
  size_t held_length_ = 0;
  Mixture mixture_;
  std::vector<TrainSet> sets_;
  std::vector<HeldOut> held_;
  std::vector<uint32_t> token_bytes_;  // by id
  std::string fingerprint_;
};

}  // namespace braid
