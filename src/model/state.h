// State: what a model remembers of a sequence. A value: it can be copied, compared and kept; copies share
// memory until one of them writes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/attention/attention.h"
#include "tensor/tensor.h"

namespace braid {

// Keys and values of the past, in pages of kPageTokens rows. With a window, pages that no future query can
// see are reused: a ring of pages.
class KvCache {
 public:
  static constexpr size_t kPageTokens = 128;

  KvCache() = default;
  explicit KvCache(int64_t first) : first_(first), end_(first) {}  // has forgotten all before `first`

  // Appends rows (all with the same strides as the Mats) at the next positions.
  void append(Mat<const float> k, Mat<const float> v);
  // Forgets pages that no query at position end() or later can see; the newest always stays.
  void drop_before_window(size_t window);
  void segments(std::vector<KvSegment>& out) const;

  int64_t end() const { return end_; }  // position of the next token
  size_t bytes() const;
  bool operator==(const KvCache& other) const;

 private:
  struct Page {
    Tensor k, v;  // [kPageTokens, width]
  };
  int64_t first_ = 0, end_ = 0;  // positions held: [first_, end_); first_ is the start of pages_[0]
  std::vector<std::shared_ptr<Page>> pages_;
};

// Numbers of fixed count that a mixer carries from token to token; zeros until first written. Copies share
// them until one writes.
class Memory {
 public:
  float* write(size_t count);  // for this copy alone
  std::span<const float> numbers() const;
  size_t bytes() const { return numbers_ ? numbers_->bytes() : 0; }
  bool operator==(const Memory& other) const;

 private:
  std::shared_ptr<Tensor> numbers_;
};

// What one layer's mixer remembers. A mixer uses what it needs of this.
struct LayerState {
  KvCache kv;         // keys and values
  Memory fast;        // fast-weight matrices [value_heads, dk, dv]
  Memory normaliser;  // of linear attention: sums of keys [heads, dk]
  Memory conv;        // the last inputs of a short convolution [channels, taps - 1]
  Memory scan;        // states of a selective scan [channels, state]
  Memory delayed;     // keys and values on their way to the fast weights [window, width]

  size_t bytes() const;
  bool operator==(const LayerState&) const = default;
};
struct NamedMemory {
  const char* name;
  Memory LayerState::*which;
};
inline constexpr NamedMemory kMemories[] = {{"fast", &LayerState::fast},
                                            {"normaliser", &LayerState::normaliser},
                                            {"conv", &LayerState::conv},
                                            {"scan", &LayerState::scan},
                                            {"delayed", &LayerState::delayed}};

struct State {
  int64_t position = 0;  // tokens seen
  std::vector<LayerState> layers;
  size_t bytes() const;
  bool operator==(const State&) const = default;
};

}  // namespace braid
