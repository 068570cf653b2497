// Sizes and memory of the chunk form.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/elementwise/elementwise.h"
#include "kernels/fast_weight/fast_weight.h"
#include "kernels/matmul/matmul.h"

namespace braid {

// Tokens whose chunk states backward keeps at once, when forward has not emitted any.
constexpr size_t kSegment = 128;

constexpr size_t pad16(size_t n) { return (n + 15) / 16 * 16; }
// Numbers between rows of a state: an odd number of cache lines, or a panel of 16 columns would fall into few
// sets of L1.
constexpr size_t state_stride(size_t cols) { return pad16(cols) / 16 % 2 ? pad16(cols) : pad16(cols) + 16; }

// The memory of one task, whose shape says its chunk. With base null only `floats` means something.
struct ChunkBuffers {
  size_t C, cp, kp, W, ld, state, floats = 0;
  // Rows of q (scaled) above rows of k; the same decayed; Kd; k transposed; alphas; A_i; A_C per channel;
  // P above L; quotients of scalar decays; (I + beta L)^-1, and times beta.
  float *raw, *gated, *kd, *kt, *alpha, *gamma, *keep, *pair, *ratio, *inverse, *inverse_beta, *beta;
  float *y, *r, *u, *S;
  // Backward: start states of segments; states, R and U of a segment's chunks; dS; do above -dR; Z; dU;
  // things transposed; gradients of gated, Kd, the pairs, and of q, of k as a factor of A_i and of
  // 1 / A_i.
  float *starts, *states, *rs, *us, *dS, *up, *z, *du, *up_t, *u_t, *product_t, *d_gated, *d_kd, *d_pair;
  float *d_col, *d_g;
  // Operands of a product rounded to bf16, and which kernels multiply them.
  float *narrow_a = nullptr, *narrow_b = nullptr;
  Par par;

  ChunkBuffers(const FastWeightShape& s, float* base)
      : C(s.chunk),
        cp(pad16(C)),
        kp(pad16(s.dk)),
        W(pad16(std::min(s.dv, kFastWeightChunkBlock))),
        ld(state_stride(W)),
        state(s.dk * ld) {
    const bool channel = s.decay == FastWeightDecay::kChannel;
    take(base, raw, 2 * C * kp), take(base, gated, 2 * C * kp), take(base, kd, C * kp);
    take(base, kt, s.dk * cp), take(base, alpha, channel ? (C + 1) * kp : cp), take(base, gamma, cp);
    take(base, keep, kp), take(base, pair, 2 * C * cp), take(base, ratio, C * cp);
    take(base, inverse, C * cp), take(base, inverse_beta, C * cp), take(base, beta, cp);
    take(base, y, 2 * C * W), take(base, r, C * W), take(base, u, C * W), take(base, S, state);
    if (s.precision == Precision::kBf16) {
      const size_t most = std::max(2 * C, s.dk) * std::max({kp, W, 2 * cp});
      take(base, narrow_a, most / 2), take(base, narrow_b, most / 2);
    }
  }
  // every: tokens of a segment; segments: how many start states to keep.
  ChunkBuffers(const FastWeightShape& s, size_t every, size_t segments, float* base) : ChunkBuffers(s, base) {
    const size_t chunks = (every + C - 1) / C;
    take(base, starts, segments * state), take(base, states, chunks * state);
    take(base, rs, chunks * C * W), take(base, us, chunks * C * W), take(base, dS, state);
    take(base, up, 2 * C * W), take(base, z, C * W), take(base, du, C * W);
    take(base, up_t, W * 2 * cp), take(base, u_t, W * cp), take(base, product_t, s.dk * 2 * cp);
    take(base, d_gated, 2 * C * kp), take(base, d_kd, C * kp), take(base, d_pair, 2 * C * cp);
    take(base, d_col, C * kp), take(base, d_g, (C + 1) * kp);
  }

 private:
  void take(float* base, float*& p, size_t n) {
    p = base ? base + floats : nullptr;
    floats += pad16(n);
  }
};

// Tokens of a segment of backward: what forward emitted, else so many whole chunks.
inline size_t segment_tokens(const FastWeightShape& s, size_t every) {
  const size_t C = s.chunk;
  return every ? every : std::max<size_t>(1, kSegment / C) * C;
}

}  // namespace braid
