// Where batches come from. A source is a pure function of its seed and the sample's index: a resumed run
// needs only the position, and samples are independent of the thread or machine that requests them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/batch.h"
#include "data/metric.h"
#include "tensor/tensor.h"

namespace braid {

// Held-out samples begin .. end - 1 that are reported by themselves.
struct ValidationPart {
  std::string name;
  size_t begin, end;
};

class Source {
 public:
  virtual ~Source() = default;

  // Training samples first_sample .. first_sample + count - 1; the stream never ends.
  // count * max_length() must stay below 2^32.
  Batch batch(uint64_t first_sample, size_t count) const {
    Batch out;
    for (size_t i = 0; i < count; ++i) append_train(out, first_sample + i);
    return out;
  }

  // Held-out samples begin .. begin + count - 1, the same in every run with the same seed.
  Batch validation(size_t begin, size_t count) const {
    check(begin <= validation_size() && count <= validation_size() - begin, "no such validation samples");
    Batch out;
    for (size_t i = 0; i < count; ++i) append_validation(out, begin + i);
    return out;
  }

  // What else is to be counted, at zero, and one batch counted with a prediction per token.
  virtual std::vector<Metric> metrics() const { return {}; }
  virtual void measure(const Batch&, std::span<const int32_t> /*predicted*/, std::span<Metric>) const {}
  // The metric that says how good a model is; empty: the loss does.
  virtual std::string headline() const { return {}; }

  // A curriculum makes the training stream harder, so many times so far; false: as hard as it gets.
  virtual bool grow() { return false; }
  virtual size_t growths() const { return 0; }

  virtual size_t validation_size() const = 0;
  virtual std::vector<ValidationPart> validation_parts() const { return {}; }  // empty: all of it is one
  // Bytes of text that these tokens stand for, so that models of different tokenizers can be compared; 0: no
  // text.
  virtual uint64_t text_bytes(std::span<const int32_t> /*tokens*/) const { return 0; }
  virtual size_t vocab_size() const = 0;
  virtual size_t answers() const { return vocab_size(); }  // every target is below this
  // Input vectors by token, [vocab_size, any width], where the data has its own.
  virtual std::optional<Tensor> fixed_embedding() const { return std::nullopt; }
  // What a model of this data cannot be used without, copied into its folder: a tokenizer.
  virtual Status save_companions(const std::string& /*dir*/) const { return {}; }
  virtual size_t max_length() const = 0;        // longest sequence of both streams
  virtual std::string fingerprint() const = 0;  // hex; equal means the same samples at the same positions
  virtual std::string describe() const = 0;     // one line for people

 protected:
  virtual void append_train(Batch& out, uint64_t sample) const = 0;
  virtual void append_validation(Batch& out, size_t sample) const = 0;
};

}  // namespace braid
