// rope - rotary position embedding, half-split pairing (GPT-NeoX, Hugging Face).
//   y[i]       = x[i] cos(p w_i) - x[i + h] sin(p w_i)        h = rot / 2, i < h
//   y[i + h]   = x[i + h] cos(p w_i) + x[i] sin(p w_i)        w_i = theta^(-2 i / rot)
// x, y: [rows, heads * dh], strided; p = positions[row]. Of each head the first rot <= dh numbers are
// rotated, the rest passes through. arXiv:2104.09864, which pairs neighbours (2i, 2i+1) instead. Backward:
// docs/explanation/math/rope.md
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/parallel.h"
#include "kernels/common/impl_table.h"
#include "kernels/common/into.h"
#include "tensor/tensor.h"

namespace braid {

// cos and sin of every position, angles computed in double. ensure() may be called from several threads while
// others read: rows that are there never move or change.
class RopeTable {
 public:
  RopeTable(size_t rot, double theta);  // rot: numbers rotated per head, even
  // Other frequencies, e.g. scaled for longer sequences; cos and sin are multiplied with `amplitude` (YaRN).
  explicit RopeTable(std::vector<double> frequency, double amplitude = 1)
      : frequency_(std::move(frequency)), amplitude_(amplitude) {}

  void ensure(size_t positions) const;  // makes rows 0 .. positions-1; before a kernel reads them
  size_t rot() const { return 2 * frequency_.size(); }
  size_t positions() const { return positions_.load(std::memory_order_acquire); }
  const float* cos(size_t position) const {  // [rot / 2]
    const size_t b = block_of(position);
    return blocks_[b].get() + (position - first_of(b)) * rot();
  }
  const float* sin(size_t position) const { return cos(position) + frequency_.size(); }  // [rot / 2]

 private:
  // Block b holds kFirst 2^b positions.
  static constexpr size_t kFirst = 256, kBlocks = 24;
  static size_t block_of(size_t position) { return std::bit_width(position / kFirst + 1) - 1; }
  static size_t first_of(size_t block) { return kFirst * ((size_t{1} << block) - 1); }

  std::vector<double> frequency_;
  double amplitude_ = 1;
  mutable std::mutex growing_;
  mutable std::array<std::unique_ptr<float[]>, kBlocks> blocks_;  // of [position, 2, rot / 2]
  mutable std::atomic<size_t> positions_ = 0;
};

struct RopeIn {
  Mat<const float> x;        // for the backward: dy
  const int32_t* positions;  // [rows], each below table->positions()
  const RopeTable* table;
  size_t heads = 1;
};

void rope_fwd(const RopeIn& in, Mat<float> y, Par par = {});  // y may be in.x
// in.x is dy. dx may be in.x when it overwrites.
void rope_bwd(const RopeIn& in, Mat<float> dx, Into mode, Par par = {});

struct RopeFns {  // rows [begin, end); direction +1 forward, -1 backward
  void (*rotate)(const RopeIn&, Mat<float> y, float direction, Into, size_t begin, size_t end);
};
const Impls<RopeFns>& rope_impls();

}  // namespace braid
