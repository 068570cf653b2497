#include "tensor/arena.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace braid {
namespace {

constexpr size_t kAlign = 64, kFirstBlock = size_t{4} << 20;

}  // namespace

void* Arena::take_bytes(size_t bytes) {
  bytes = (bytes + kAlign - 1) / kAlign * kAlign;
  while (block_ < blocks_.size() && blocks_[block_].used + bytes > blocks_[block_].size) {
    if (block_ + 1 == blocks_.size()) break;
    ++block_;
    blocks_[block_].used = 0;
  }
  if (blocks_.empty() || blocks_[block_].used + bytes > blocks_[block_].size) {
    // Doubling keeps the number of blocks small whatever the pass needs.
    const size_t last = blocks_.empty() ? kFirstBlock / 2 : blocks_.back().size;
    const size_t size = std::max(2 * last, bytes);
    blocks_.push_back({RawMemory(aligned_memory(size)), size});
    block_ = blocks_.size() - 1;
  }
  Block& b = blocks_[block_];
  char* p = static_cast<char*>(b.memory.get()) + b.used;
  b.used += bytes;
  in_use_ += bytes;
  peak_ = std::max(peak_, in_use_);
  if (poison_)
    std::fill_n(reinterpret_cast<float*>(p), bytes / sizeof(float), std::numeric_limits<float>::quiet_NaN());
  return p;
}

void Arena::release(Mark m) {
  if (blocks_.empty()) return;
  check(m.block < block_ || (m.block == block_ && m.used <= blocks_[block_].used),
        "Arena::release: mark is ahead");
  for (size_t b = m.block; b <= block_; ++b) {
    const size_t keep = b == m.block ? m.used : 0;
    in_use_ -= blocks_[b].used - keep;
    blocks_[b].used = keep;
  }
  block_ = m.block;
}

}  // namespace braid
