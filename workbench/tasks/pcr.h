// Parity-conditioned retrieval: its tokens and its instances, for the task and for constructions that solve
// it. The questions are in pcr.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"

namespace braid {

// Single tokens, then 2^L addresses A and as many scratch tokens S.
namespace pcr {
enum : int32_t { kBos, kX, kTable = 3, kValue, kAsked = 6, kAsk = 8, kParity, kAddress = 11 };
}

struct PcrInstance {
  std::vector<int32_t> tokens;     // BOS .. ASK
  std::array<int32_t, 3> answers;  // what follows: the parity P, the address S, the value V
};
// `bits` random bits and `pairs` >= 2 different addresses of 2^address_bits, each with a random value.
PcrInstance draw_pcr(Rng& rng, int64_t bits, size_t pairs, int64_t address_bits);

inline int64_t pcr_vocabulary(int64_t address_bits) { return pcr::kAddress + (int64_t{2} << address_bits); }
std::string pcr_token_text(int32_t token, int64_t address_bits);

}  // namespace braid
