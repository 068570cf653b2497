// attention - causal softmax attention with grouped queries and a sliding window or chunks.
//   o_i = sum_j p_ij v_j     p_ij = exp(scale q_i . k_j - lse_i)     lse_i = log sum_j exp(scale q_i . k_j)
// over the keys j a query at position i sees: j <= i, and with a window i - j < window, with chunks
// j >= i - i % chunk. Query head h reads kv head h / (heads / kv_heads). A query that sees nothing gives
// o = 0, lse = -inf.
// arXiv:1706.03762 eq. (1), computed in tiles as in arXiv:2205.14135; no T x T matrix is ever stored.
// Symbols: docs/reference/glossary.md   Backward and tiling: docs/explanation/math/attention.md
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/parallel.h"
#include "kernels/attention/drop.h"
#include "kernels/common/impl_table.h"
#include "tensor/tensor.h"

namespace braid {

struct AttentionShape {
  size_t heads, kv_heads;  // kv_heads divides heads
  size_t dk, dv;           // above kAttentionMaxDim only the reference runs
  size_t window = 0;       // 0 = all; else a query sees itself and the window - 1 positions before it
  float scale = 1;
  size_t chunk = 0;  // 0 = off; else a query sees nothing before its own chunk of positions. Not with window
  AttentionDrop drop = {};  // of the weights p_ij, after the sum in lse
};
inline constexpr size_t kAttentionMaxDim = 512;

// Cached rows at positions first .. first + count - 1; a row holds kv_heads * dk (dv) numbers.
struct KvSegment {
  const float* k;
  const float* v;
  size_t count;
  int64_t first;
  size_t k_stride, v_stride;
};

// Rows begin .. begin + count - 1 of q and o, at positions first >= 0 ..; their keys, which include their
// own, lie in any number of segments in any order (rings, pages).
struct AttentionSeq {
  size_t begin, count;
  int64_t first;
  std::span<const KvSegment> kv;
};

// q: [N, heads * dk], o: [N, heads * dv], lse: [N * heads] or null. Any mix of prefill pieces and single
// steps; rows of no sequence are left alone.
void attention_fwd(const AttentionShape& shape, Mat<const float> q, std::span<const AttentionSeq> seqs,
                   Mat<float> o, float* lse, Par par = {});

// Ragged batch for training: sequence s is rows offsets[s] .. offsets[s + 1] - 1, at positions 0 ... Any of
// the matrices may be a view into a wider one.
struct AttentionPacked {
  Mat<const float> q, k, v;  // [N, heads * dk], [N, kv_heads * dk], [N, kv_heads * dv]
  std::span<const uint32_t> offsets;
  size_t seqs() const { return offsets.empty() ? 0 : offsets.size() - 1; }
};

struct AttentionSaved {
  Mat<const float> o;  // [N, heads * dv]
  const float* lse;    // [N * heads]
};

struct AttentionGrad {  // all overwritten
  Mat<float> dq, dk, dv;
};

// scratch: attention_fwd_scratch() numbers, about (dk + dv) times the longest sequence for each thread, for
// copies of a head's keys; none also works, slower where rows hold many heads. Never changes a bit.
void attention_packed_fwd(const AttentionShape& shape, const AttentionPacked& in, Mat<float> o, float* lse,
                          std::span<float> scratch = {}, Par par = {});
size_t attention_fwd_scratch(const AttentionShape& shape, std::span<const uint32_t> offsets, Par par = {});
// scratch: attention_bwd_scratch() numbers, about 2 (dk + dv) times the longest sequence for each thread;
// what is in it does not matter.
void attention_packed_bwd(const AttentionShape& shape, const AttentionPacked& in, const AttentionSaved& saved,
                          Mat<const float> dout, const AttentionGrad& grad, std::span<float> scratch,
                          Par par = {});
size_t attention_bwd_scratch(const AttentionShape& shape, std::span<const uint32_t> offsets, Par par = {});

// A column is one query: column c of a sequence is query row c / group, head kv_head * group + c % group,
// with group = heads / kv_heads.
struct AttentionFns {
  // Columns [begin, end) of one kv head; begin is a multiple of attention_block(shape). With scratch the
  // sequence has one segment, whose rows of this head are first copied there.
  void (*fwd)(const AttentionShape&, Mat<const float> q, const AttentionSeq&, size_t kv_head, size_t begin,
              size_t end, Mat<float> o, float* lse, float* scratch);
  // Sequence s of the batch, one kv head.
  void (*bwd)(const AttentionShape&, const AttentionPacked&, const AttentionSaved&, Mat<const float> dout,
              const AttentionGrad&, size_t s, size_t kv_head, float* scratch);
  // The same for packed sequences, without scratch, of the shapes that is_narrow() takes: small windows.
  bool (*is_narrow)(const AttentionShape&);
  decltype(fwd) narrow_fwd;
  decltype(bwd) narrow_bwd;
};
size_t attention_block(const AttentionShape& shape);
// The name of what runs for this shape: the table's choice, or "ref" above kAttentionMaxDim.
std::string_view attention_impl(const AttentionShape& shape, Par par = {});
const Impls<AttentionFns>& attention_impls();

}  // namespace braid
