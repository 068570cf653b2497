// Why a recurrent model alone cannot do it: its state is a fixed number of bits, so different tables must
// lead to the same state, and from there on everything is the same.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/model.h"
#include "theory/number_model.h"

namespace braid {

// Tables of values 0 or 1 at the addresses 0, 1, .. in this order: bit j of a number is the value at address
// j.
using Table = uint64_t;
inline constexpr size_t kMostPairs = 64;

struct CollisionSearch {
  std::vector<size_t> states;  // [j]: different states after j + 1 pairs, of 2^(j+1) tables
  size_t tried = 0;            // tables looked at
  enum class How {
    kNone,
    kAll,
    kContinued,
    kRandom
  } how = How::kNone;                // found with the tables that were tried
  std::pair<Table, Table> tables{};  // unless kNone: lead to the same state
  size_t pairs = 0;                  // of these two
};

// Follows all tables pair by pair as long as there are at most `most` states, to at most `pairs` pairs. If
// no two are equal by then, all these states read the same further pairs: a memory that forgets or overwrites
// makes two of them equal. At last `most` random tables of all `pairs`, as the birthday paradox has it.
CollisionSearch find_collision(const NumberModel& model, int64_t address_bits, size_t pairs, size_t most,
                               uint64_t seed);

// Two inputs that differ in the tables alone, asking for an address where these differ; what the model says
// after each; and what would be right.
struct CollisionProof {
  std::vector<int32_t> input[2];
  int32_t said[2], right[2];
  bool same_logits;
  // Different answers are right and the same is given: one of them is wrong.
  bool holds() const { return same_logits && said[0] == said[1] && right[0] != right[1]; }
};
// With `scratchpad` the model writes P and S first, whatever it takes them to be; `said` is what comes then.
CollisionProof prove_collision(const NumberModel& model, int64_t address_bits, const CollisionSearch& found,
                               bool scratchpad);

// Bits of a state of `numbers` numbers of F_s, each one of 2^(2s+1) - 1.
double state_bits(size_t numbers, int s);

}  // namespace braid
