// Theorem 1 of DeltaFormer (arXiv:2505.19488) through the real kernel: n slots in d < n dimensions, their
// contents swapped again and again and always read exactly.
//
//   SwapMemory m(hadamard_keys(128), {.kind = DeltaKind::kRound});     // 256 slots, written
//   SwapReport r = m.swap(1000, seed);                                 // then compressed to 256 pairs
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/parallel.h"
#include "kernels/delta_former/delta_former.h"
#include "tensor/tensor.h"

namespace braid {

// [2 d, d]: the unit vectors and a Hadamard matrix over sqrt(d); inner products 0 or 1 / sqrt(d). d: a power
// of two.
Tensor hadamard_keys(size_t d);

// [n, d] with inner products below 1/8, or nothing if `rounds` rounds do not get there: those that are too
// large are clipped, the keys follow to first order, as in tasks/keys.h, with the products in the matrix
// kernel.
struct KeySearch {
  std::optional<Tensor> keys;
  float coherence;  // the smallest that was reached
  int rounds;
};
KeySearch spread_keys(size_t n, size_t d, int rounds, uint64_t seed, Par par);
size_t welch_width(size_t n);  // no n unit vectors in fewer dimensions have all inner products below 1/8

inline constexpr float kTheoremCoherence = 1.0f / 8;

struct SwapKernel {
  DeltaKind kind = DeltaKind::kRound;
  bool bf16 = false;  // keys and what is cached are rounded to bf16 after every swap
};

struct SwapReport {
  uint64_t swaps = 0, reads = 0;
  uint64_t wrong = 0;                   // reads whose nearest value is not the right one
  uint64_t inexact = 0;                 // reads that are not the right value to the last bit
  std::optional<uint64_t> first_wrong;  // swaps done at the first wrong read
  size_t most_rows = 0;                 // of the cache
  void add(const SwapReport& next);
};

// Slot i holds object i at first. Values are the object's number in two digits of base 64.
class SwapMemory {
 public:
  SwapMemory(Tensor keys, const SwapKernel& kernel);

  size_t slots() const { return n_; }
  // Random swaps, `count` of them at most slots(), a read of a random slot after each; then the cache is
  // compressed and all slots are read. Block b of a seed is always the same swaps.
  SwapReport swap(size_t count, uint64_t seed, uint64_t block);

  // To go on later: the objects in the slots and the cached rows.
  const std::vector<uint32_t>& contents() const { return contents_; }
  const std::vector<float>& cached() const { return u_; }
  void restore(std::vector<uint32_t> contents, std::vector<float> cached);

  static size_t cache_bytes(size_t rows, size_t d);  // f32
 private:
  void run(Mat<const float> q, Mat<const float> k, std::span<const KvSegment> past, float* o, float* u,
           const float* v) const;
  void round_rows(std::vector<float>& x) const;

  size_t n_, d_;
  SwapKernel kernel_;
  DeltaFormerShape shape_;
  std::vector<float> keys_, u_;
  std::vector<uint32_t> contents_;
};

}  // namespace braid
