// fast_weight - one linear recurrence with two switches, decay and write; linear attention, RetNet, Mamba-2,
// GLA, DeltaNet, Gated DeltaNet and Kimi Delta Attention are its settings (table in docs/explanation/math).
//   S~  = exp(g_t) S_{t-1}                 S: [dk, dv], key index slow; the decay comes first
//   u_t = v_t                              additive
//   u_t = beta_t (v_t - S~^T k_t)          delta: beta in (0, 2)
//   S_t = S~ + k_t u_t^T
//   o_t = scale S_t^T q_t                  read after the write
// g <= 0 is a natural log-decay. Value head h reads key head h / (value_heads / key_heads); every value head
// has a state. Keys need not be normalised. arXiv:2412.06464 eq. (10); the papers' S is our transpose.
// Symbols: docs/reference/glossary.md   Backward and memory: docs/explanation/math/fast_weight.md
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/parallel.h"
#include "kernels/common/impl_table.h"
#include "kernels/matmul/matmul.h"
#include "tensor/tensor.h"

namespace braid {

enum class FastWeightDecay : uint8_t { kNone, kHead, kToken, kChannel };
enum class FastWeightWrite : uint8_t { kAdditive, kDelta };
// Two ways to the same numbers: token by token, or C tokens at a time as matrix products. kAuto takes the
// faster one for each sequence's length.
enum class FastWeightForm : uint8_t { kAuto, kRecurrent, kChunk };

struct FastWeightShape {
  size_t value_heads, key_heads;  // key_heads divides value_heads
  size_t dk, dv;                  // above kFastWeightMaxDim only the reference runs
  FastWeightDecay decay;
  FastWeightWrite write;
  float scale = 1;
  FastWeightForm form = FastWeightForm::kAuto;
  size_t chunk = 0;  // tokens per chunk, up to kFastWeightMaxChunk; 0 = fast_weight_chunk()
  // kBf16: the chunk form's products take numbers rounded to bf16. Sums, decays, the triangular inverse and
  // the states stay f32. The recurrent form has no products and is f32 all the same.
  Precision precision = Precision::kF32;
};
inline constexpr size_t kFastWeightMaxDim = 512, kFastWeightChunk = 16, kFastWeightMaxChunk = 128;
size_t fast_weight_chunk(const FastWeightShape& s, Par par = {});  // tokens per chunk, never 0

// Ragged batch: sequence s is rows offsets[s] .. offsets[s + 1] - 1. Any of the matrices may be a view into a
// wider one. Batches of single steps are sequences of one token.
struct FastWeightIn {
  Mat<const float> q, k, v;  // [N, key_heads * dk] twice, [N, value_heads * dv]
  // kHead: [1, value_heads], kToken: [N, value_heads], kChannel: [N, value_heads * dk]
  Mat<const float> g;
  Mat<const float> beta;  // [N, value_heads], delta only
  std::span<const uint32_t> offsets;
  // Initial states [value_heads, dk, dv], one pointer per sequence; null, or no pointers at all, means zeros.
  std::span<const float* const> s0;
  // Instead of q, k and v. They are widened to f32 on reading; the chunk form runs.
  Mat<const bf16> q_bf16 = {}, k_bf16 = {}, v_bf16 = {};
  size_t seqs() const { return offsets.empty() ? 0 : offsets.size() - 1; }
};

// States on the way: of each sequence those after `every`, 2 `every`, .. tokens, [count, value_heads, dk,
// dv]. They cost no extra pass; with them backward needs none either.
struct FastWeightEmit {
  size_t every = 0;  // 0: none
  std::span<float* const> to = {};
};

// o: [N, value_heads * dv]. s_end: where to leave each sequence's final state; null, or no pointers at all,
// drops it. A sequence's s_end may be its s0: then the state advances in place. scratch:
// fast_weight_fwd_scratch() numbers for as many threads, whatever is in it; without it kAuto is recurrent.
void fast_weight_fwd(const FastWeightShape& shape, const FastWeightIn& in, Mat<float> o,
                     std::span<float* const> s_end = {}, const FastWeightEmit& emit = {},
                     std::span<float> scratch = {}, Par par = {});
size_t fast_weight_fwd_scratch(const FastWeightShape& shape, Par par = {});

struct FastWeightGrad {  // all overwritten
  Mat<float> dq, dk, dv;
  Mat<float> dg, dbeta;         // like g and beta; dg without data is not computed
  std::span<float* const> ds0;  // like s_end; may be the same memory as ds_end
};

// What forward emitted, and cotangents of it; either may be missing. Cotangents need the chunk form.
struct FastWeightKept {
  size_t every = 0;
  std::span<const float*const> states = {}, dstates = {};
};

// dout: cotangent of o; ds_end: of the final states, null or none for zeros. States are computed again from
// s0 or the kept ones, so o is not needed. scratch: fast_weight_bwd_scratch() numbers for as many threads;
// what is in it does not matter.
void fast_weight_bwd(const FastWeightShape& shape, const FastWeightIn& in, const FastWeightKept& kept,
                     Mat<const float> dout, std::span<const float* const> ds_end, const FastWeightGrad& grad,
                     std::span<float> scratch, Par par = {});
size_t fast_weight_bwd_scratch(const FastWeightShape& shape, std::span<const uint32_t> offsets,
                               const FastWeightKept& kept = {}, Par par = {});

// Sparse-query variant. `asked`: ascending rows of k that need an output; q, o and their gradients have one
// row per entry. O(dk + dv) per query and preceding token, where a state costs O(dk dv) per token. No initial
// or final state, f32 inputs only.
void fast_weight_asked_fwd(const FastWeightShape& shape, const FastWeightIn& in,
                           std::span<const uint32_t> asked, Mat<float> o, Par par = {});
void fast_weight_asked_bwd(const FastWeightShape& shape, const FastWeightIn& in,
                           std::span<const uint32_t> asked, Mat<const float> dout, const FastWeightGrad& grad,
                           std::span<float> scratch, Par par = {});
size_t fast_weight_asked_scratch(const FastWeightShape& shape, std::span<const uint32_t> offsets,
                                 Par par = {});  // of backward

// What runs for a sequence of so many tokens: the form, never kAuto, and its chunk.
struct FastWeightPlan {
  FastWeightForm form;
  size_t chunk;
};
// The name of what runs for this shape: the table's choice, or "ref" above kFastWeightMaxDim.
std::string_view fast_weight_impl(const FastWeightShape& shape, Par par = {});
struct FastWeightUse {
  bool backward = false;
  bool alone = false;  // zero initial state, no final or intermediate states requested: one chunk needs no S
};
FastWeightPlan fast_weight_plan(const FastWeightShape& shape, size_t tokens, FastWeightUse use, Par par = {});

// One sequence's part of FastWeightEmit and FastWeightKept, and which kernels multiply.
struct FastWeightMarks {
  size_t every = 0;
  float* to = nullptr;
  const float *states = nullptr, *dstates = nullptr;
  Par par = {};
};

struct FastWeightFns {
  // Value columns [begin, end) of one value head of sequence s: at most kFastWeightBlock, in the chunk form
  // kFastWeightChunkBlock.
  using Fwd = void(const FastWeightShape&, const FastWeightIn&, size_t s, size_t head, size_t begin,
                   size_t end, Mat<float> o, float* s_end, const FastWeightMarks&, float* scratch);
  // All value heads of one key head of sequence s. dg_head: [value_heads], this sequence's share of dg for
  // kHead.
  using Bwd = void(const FastWeightShape&, const FastWeightIn&, Mat<const float> dout, const float* ds_end,
                   const FastWeightGrad&, size_t s, size_t key_head, float* ds0, float* dg_head,
                   const FastWeightMarks&, float* scratch);
  // One value head; all value heads of one key head.
  using AskedFwd = void(const FastWeightShape&, const FastWeightIn&, std::span<const uint32_t> asked,
                        size_t s, size_t head, Mat<float> o);
  using AskedBwd = void(const FastWeightShape&, const FastWeightIn&, std::span<const uint32_t> asked,
                        Mat<const float> dout, const FastWeightGrad&, size_t s, size_t key_head,
                        float* dg_head, float* scratch);
  Fwd *fwd, *chunk_fwd, *narrow_fwd;  // narrow: the chunk form with products of bf16
  Bwd *bwd, *chunk_bwd, *narrow_bwd;
  AskedFwd* asked_fwd;
  AskedBwd* asked_bwd;
};
inline constexpr size_t kFastWeightChunkBlock = 128;
inline constexpr size_t kFastWeightBlock = 64;
const Impls<FastWeightFns>& fast_weight_impls();

}  // namespace braid
