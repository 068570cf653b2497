// fast_weight - one linear recurrence with two switches, decay and write; linear attention, RetNet, Mamba-2,
// GLA, DeltaNet, Gated DeltaNet and Kimi Delta Attention are its settings (table in docs/math).
//   S~  = exp(g_t) S_{t-1}                 S: [dk, dv], key index slow; the decay comes first
//   u_t = v_t                              additive
//   u_t = beta_t (v_t - S~^T k_t)          delta: beta in (0, 2)
//   S_t = S~ + k_t u_t^T
//   o_t = scale S_t^T q_t                  read after the write
// g <= 0 is a natural log-decay. Value head h reads key head h / (value_heads / key_heads); every value head
// has a state. Keys need not be normalised. arXiv:2412.06464 eq. (10); the papers' S is our transpose.
// Symbols: docs/notation.md   Backward and memory: docs/math/fast_weight.md
#pragma once

#include <cstdint>
#include <span>

#include "base/parallel.h"
#include "kernels/common/compare.h"
#include "kernels/common/impl_table.h"
#include "tensor/tensor.h"

namespace braid {

enum class FastWeightDecay : uint8_t { kNone, kHead, kToken, kChannel };
enum class FastWeightWrite : uint8_t { kAdditive, kDelta };

}  // namespace braid
