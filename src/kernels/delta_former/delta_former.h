// delta_former - attention that first takes back what its memory already answers to a token's key.
//   u_t = a_t v_t - b_t sum_{i<t} kappa1(k_i, w_t) u_i        w = k (the paper) or q (fla)
//   o_t = sum_{i<=t} kappa2(k_i, q_t) u_i
// kappa(x, y) = f(scale x . y) for f linear, relu, exp or round; softmax normalises exp(scale x . y) over the
// i of the sum, and an empty sum is 0. b = 0 with kappa2 softmax is softmax attention; linear kappas with
// a = b are DeltaNet (fast_weight). arXiv:2505.19488 (DeltaFormer).
// A NaN or infinite u can reach the tokens up to a chunk before it, as in attention.
// Symbols: docs/reference/glossary.md   Chunks, solve, rounding, backward: docs/explanation/math/delta_former.md
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "base/parallel.h"
#include "kernels/attention/attention.h"
#include "kernels/common/impl_table.h"
#include "tensor/tensor.h"

namespace braid {

enum class DeltaKind : uint8_t { kLinear, kRelu, kExp, kSoftmax, kRound };
enum class DeltaSimilarity : uint8_t { kKey, kQuery };        // w = k or w = q
enum class DeltaSolve : uint8_t { kSubstitution, kProduct };  // of the triangular system of a chunk

struct DeltaKernel {
  DeltaKind kind;
  float scale = 1;
  // kRound only. Nearest multiple of 1 / resolution, ties to the even one: 1 (integers), 100 (two decimals).
  float resolution = 1;
  bool straight_through = true;  // the gradient passes a rounding as if it were linear; false: there is none
};
// The usual scale: softmax 1 / sqrt(dk), the others 1.
inline DeltaKernel delta_kernel(DeltaKind kind, size_t dk, float resolution = 1,
                                bool straight_through = true) {
  const float scale = kind == DeltaKind::kSoftmax ? 1.0f / std::sqrt(static_cast<float>(dk)) : 1.0f;
  return {kind, scale, resolution, straight_through};
}

struct DeltaFormerShape {
  size_t heads, dk, dv;
  DeltaKernel write, read;  // kappa1, kappa2
  DeltaSimilarity similarity = DeltaSimilarity::kKey;
  DeltaSolve solve = DeltaSolve::kSubstitution;
  size_t chunk = 0;  // tokens per solve, at most kDeltaMaxChunk; 0 = chosen from dk and dv
};
inline constexpr size_t kDeltaMaxChunk = 512;

// Ragged batch: sequence s is rows offsets[s] .. offsets[s + 1] - 1. Any of the matrices may be a view into a
// wider one.
struct DeltaFormerIn {
  Mat<const float> q = {}, k = {}, v = {};  // [N, heads * dk] twice, [N, heads * dv]
  Mat<const float> a = {}, b = {};          // [N, heads]; data == nullptr means 1
  std::span<const uint32_t> offsets = {};
  // Per sequence the cached rows (k_i, u_i), u in the place of v, all of them earlier than its tokens here;
  // their positions do not matter. No spans at all: no sequence has a past. Single steps are sequences of one
  // token; appending k_t and u_t to the cache is the caller's.
  std::span<const std::span<const KvSegment>> past = {};
  size_t seqs() const { return offsets.empty() ? 0 : offsets.size() - 1; }
};

// Without o nothing is read (q may be absent if w = k). Without u nothing is written: every token only reads
// the past. What backward needs, m and lse, may be null otherwise; lse only matters for softmax kernels.
struct DeltaFormerOut {
  Mat<float> o = {}, u = {};   // [N, heads * dv]; u may be v
  Mat<float> m = {};           // [N, heads * dv], the sum that b multiplies
  float* lse_write = nullptr;  // [N * heads]
  float* lse_read = nullptr;   // [N * heads]
};

struct DeltaFormerSaved {
  Mat<const float> o, u, m;
  const float *lse_write, *lse_read;
};

struct DeltaFormerGrad {  // all overwritten; da and db without data are not computed
  Mat<float> dq, dk, dv, da = {}, db = {};
};

// scratch: delta_former_fwd_scratch() numbers for as many threads, about dk + dv times the longest sequence
// for each; what is in it does not matter.
void delta_former_fwd(const DeltaFormerShape& shape, const DeltaFormerIn& in, const DeltaFormerOut& out,
                      std::span<float> scratch, Par par = {});
size_t delta_former_fwd_scratch(const DeltaFormerShape& shape, std::span<const uint32_t> offsets,
                                Par par = {});

// dout, du: cotangents of o and, unless absent, of u. Sequences must have no past. scratch:
// delta_former_bwd_scratch() numbers, about twice forward's.
void delta_former_bwd(const DeltaFormerShape& shape, const DeltaFormerIn& in, const DeltaFormerSaved& saved,
                      Mat<const float> dout, Mat<const float> du, const DeltaFormerGrad& grad,
                      std::span<float> scratch, Par par = {});
size_t delta_former_bwd_scratch(const DeltaFormerShape& shape, std::span<const uint32_t> offsets,
                                Par par = {});

// Rewrites a cache as one pair for each row of `keys`, [n, heads * dk]: the value that kappa2 reads from the
// past with that key, written as tokens with these keys and a = b = 1. u: [n, heads * dv]; (keys, u) is the
// new cache. Exact in the setting of the paper's theorem 1: both kernels round, keys near orthogonal. scratch
// as for a forward of one sequence of n tokens.
void delta_former_compress(const DeltaFormerShape& shape, Mat<const float> keys,
                           std::span<const KvSegment> past, Mat<float> u, std::span<float> scratch,
                           Par par = {});

struct DeltaFormerFns {  // sequence s, one head
  void (*fwd)(const DeltaFormerShape&, const DeltaFormerIn&, const DeltaFormerOut&, size_t s, size_t head,
              float* scratch);
  void (*bwd)(const DeltaFormerShape&, const DeltaFormerIn&, const DeltaFormerSaved&, Mat<const float> dout,
              Mat<const float> du, const DeltaFormerGrad&, size_t s, size_t head, float* scratch);
};
const Impls<DeltaFormerFns>& delta_former_impls();

}  // namespace braid
