// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
//
// A stream is named by a seed and a purpose ("init", "data", "dropout"); a draw by its position in the
// stream. Any position can be computed directly, so nothing depends on the order in which threads draw, and a
// saved run needs to save only the position.
//
//   Rng rng(seed, "data");
//   rng.seek(sample_index);          // an independent substream per sample
//   int bit = rng.below(2);
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace braid {

using Philox = std::array<uint32_t, 4>;
Philox philox4x32(Philox counter, std::array<uint32_t, 2> key);

class Rng {
 public:
  Rng(uint64_t seed, std::string_view purpose);

  // Goes to the start of substream `index`; substreams hold 2^64 draws each and do not overlap.
  void seek(uint64_t index) { substream_ = index, draw_ = 0, have_ = 0; }

  uint32_t next();
  uint64_t next64() { return (static_cast<uint64_t>(next()) << 32) | next(); }
  uint64_t below(uint64_t n);  // uniform on 0 .. n-1, without bias
  int64_t between(int64_t low, int64_t high) { return low + static_cast<int64_t>(below(high - low + 1)); }
  float uniform() { return (next() >> 8) * 0x1p-24f; }  // [0, 1)
  float normal();                                       // mean 0, variance 1

  // The four words of block `block` of substream `index`, without moving.
  Philox block(uint64_t index, uint64_t block) const;

 private:
  std::array<uint32_t, 2> key_;
  uint64_t substream_ = 0, draw_ = 0;
  Philox buffer_{};
  int have_ = 0;  // words of buffer_ not yet given out
};

// A keyed permutation of 0 .. n-1 that needs no memory: shuffles an epoch, any position at once.
class Permutation {
 public:
  Permutation(uint64_t n, uint64_t seed, uint64_t epoch);
  uint64_t operator()(uint64_t i) const;

 private:
  uint64_t n_;
  int half_bits_;
  std::array<uint32_t, 2> key_;
};

}  // namespace braid
