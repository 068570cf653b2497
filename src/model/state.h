// State: what a model remembers of a sequence. A value: it can be copied, compared and kept; copies share
// pages of the key-value memory until one of them writes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/attention/attention.h"
#include "tensor/tensor.h"

namespace braid {

// Keys and values of the past, in pages of kPageTokens rows. With a window, pages that no future query can
// see are reused: a ring of pages.
class KvCache {
 public:
  static constexpr size_t kPageTokens = 128;

  // Appends rows (all with the same strides as the Mats) at the next positions.
  void append(Mat<const float> k, Mat<const float> v);
  // Forgets what a query at position end() or later cannot see.
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

struct LayerState {
  KvCache kv;
  bool operator==(const LayerState&) const = default;
};

struct State {
  int64_t position = 0;  // tokens seen
  std::vector<LayerState> layers;
  size_t bytes() const;
  bool operator==(const State&) const = default;
};

}  // namespace braid
