// Parity by attention alone, at constant precision: how far counting goes, and a scratchpad that helps.
#pragma once

#include <memory>

#include "model/model.h"
#include "theory/number_model.h"

namespace braid {

// One head looks at all of n bits alike; what it gives goes to the best read-out there is, any function
// at all. Its error: of all inputs for n <= kCountAll, else of random ones, where half of them find the
// read-out and the other half test it.
inline constexpr int64_t kCountAll = 18;
double counting_error(const Arithmetic& a, int64_t n, size_t samples, uint64_t seed);

// A decoder of attention alone that writes the parities of the first b, 2b, .. n bits: `block` = b heads read
// one bit each. Bits carry their position, as positional encodings of log n numbers would. b divides n.
//   tokens: 0 ASK, then bit x at position i: 1 + 2 i + x, then the scratch tokens: step k, with the parity
//   before the block and the block's bits, y = parity 2^b + bits: 1 + 2 n + k 2^(b+1) + y
// The exclusive or is nowhere computed: it stands in the embeddings of the scratch tokens.
struct ParityScratch {
  int64_t bits, block;
  int64_t steps() const { return bits / block; }
  int64_t vocabulary() const { return 1 + 2 * bits + steps() * (int64_t{2} << block); }
  int32_t input(int64_t position, int64_t bit) const { return static_cast<int32_t>(1 + 2 * position + bit); }
  int64_t step_of(int32_t token) const { return (token - 1 - 2 * bits) >> (block + 1); }
  int parity_of(int32_t token) const;  // after the block
};
std::unique_ptr<Model> parity_model(const ParityScratch& c);

// The parity that greedy decoding ends with: 0 or 1, or -1 if a token is not of its step.
int parity_by_scratchpad(const NumberModel& model, const ParityScratch& c, std::span<const int> bits);

}  // namespace braid
