// The ops of a model: each runs a kernel and, when recording, records its backward. x: [rows, width]; inputs
// with different row maps (row_map.h) are brought to common rows. Ops with a state take `states`, one pointer
// per sequence, and update them in place; without states every sequence starts at zero. Gradients do not flow
// through states.
#pragma once

#include <initializer_list>
#include <span>

#include "autograd/exec.h"
#include "kernels/attention/attention.h"
#include "kernels/delta_former/delta_former.h"
#include "kernels/fast_weight/fast_weight.h"
#include "kernels/pointwise/pointwise.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/rope/rope.h"
#include "kernels/swiglu/swiglu.h"

namespace braid {

// Rows (row_map.h): x with a row per token, or with the rows `to`. Does nothing where x has them.
Var every_token(Exec& e, Var x);
Var with_rows(Exec& e, Var x, const RowMap* to);
// Gives values that enter one op common rows: the output rows if one of them has these, else one per token.
void common_rows(Exec& e, std::initializer_list<Var*> values);

// Rows of a table. ids must be in range.
Var embedding(Exec& e, std::span<const int32_t> ids, size_t table);

// residual + x W^T; `residual` may be absent.
Var linear(Exec& e, Var x, size_t w, Var residual = {});
// The same with a bias, which is added unless it is -1.
Var linear_bias(Exec& e, Var x, size_t w, int bias, Var residual = {});
// [x W0^T | x W1^T | ...]: several projections of the same input side by side.
Var linear_concat(Exec& e, Var x, std::span<const size_t> ws);
// residual + (silu(g) * u) W^T with [g | u] = gu. One op, so that the product need not be kept: backward
// makes it again.
Var swiglu_linear(Exec& e, Var gu, size_t w, Var residual = {});

struct NormOptions {
  float eps = 1e-6f;
  float offset = 0;               // 1: zero-centred weights
  size_t groups = 1;              // heads that share the weight
  bool weight_per_group = false;  // or have one each
};
// With a gate z: norm(x) * f(z), or norm(x * f(z)).
struct NormGate {
  Var z = {};
  RmsNormGate gate = RmsNormGate::kSilu;
  RmsNormOrder order = RmsNormOrder::kNormFirst;
};
Var rmsnorm(Exec& e, Var x, size_t w, const NormOptions& options = {}, const NormGate& gate = {});

Var add(Exec& e, Var a, Var b);
// Does nothing unless the executor has a dropout stream and p > 0.
Var dropout(Exec& e, Var x, float p);
// Chosen rows of x.
Var rows(Exec& e, Var x, std::span<const uint32_t> which);

// Columns [begin, end) of x, without a copy. x must then be read through such parts only, each made once.
Var cols(Exec& e, Var x, size_t begin, size_t end);
// Consecutive parts of x of these widths.
template <size_t n>
std::array<Var, n> split(Exec& e, Var x, const std::array<size_t, n>& widths) {
  std::array<Var, n> parts;
  size_t at = 0;
  for (size_t i = 0; i < n; ++i) {
    if (widths[i] > 0) parts[i] = cols(e, x, at, at + widths[i]);
    at += widths[i];
  }
  return parts;
}
// The same numbers in rows of another length, without a copy. x must be dense.
Var reshape(Exec& e, Var x, size_t rows, size_t cols);
// x in columns [begin, ...) of a matrix of zeros that is `cols` wide.
Var place(Exec& e, Var x, size_t cols, size_t begin);

// Ops that remember may copy a state on the way: after the first `rows` rows of a sequence. Several come by
// sequence, then by rows. The results have the same bits as without, if `rows` are multiples of kCutRows.
struct StateCut {
  size_t sequence, rows;
  float* to;
};
inline constexpr size_t kCutRows = kFastWeightChunk;

// Row t of each sequence is row t - by of x; zeros, or the states' [by, width], come first.
Var delay(Exec& e, Var x, size_t by, std::span<const uint32_t> offsets, std::span<float* const> states = {},
          std::span<const StateCut> cuts = {});

// kernels/pointwise
Var map(Exec& e, Var x, Map f, float scale = 1, int bias = -1);
Var scale_heads(Exec& e, Var x, Var s);              // x * s, one s per head
Var scale_heads_by(Exec& e, Var x, size_t s);        // x * s with a parameter, one number per head
Var divide_heads(Exec& e, Var x, Var s, float eps);  // x / (s + eps)
Var blend(Exec& e, Var a, Var b, Var z);             // sigmoid(z) a + (1 - sigmoid(z)) b
Var decay(Exec& e, Var dt, size_t a_log);            // -exp(A_log) dt
// [g | k]: log-decay and key of HGRN2 in layer `layer`; bounds: [layers, width].
Var forget(Exec& e, Var x, size_t bounds, size_t layer);
Var l2norm(Exec& e, Var x, size_t heads);
Var l1norm(Exec& e, Var x, size_t heads);

// u * silu(g) or u * sigmoid(g): an output gate. Without a tape u is overwritten.
Var gated(Exec& e, Var u, Var g, Gate gate);

// [g | beta]: log-decay and write strength of Gated DeltaNet, see kernels/delta_gates.
Var delta_gates(Exec& e, Var a, Var b, size_t a_log, size_t dt_bias, float beta_max);

// Depthwise causal convolution with w: [width of x, taps], then silu, then heads of l2_dim scaled to
// length one in the first l2_channels. States: [width of x, taps - 1].
struct ConvOptions {
  bool silu = false;
  size_t l2_dim = 0, l2_channels = 0;
};
Var short_conv(Exec& e, Var x, size_t w, const ConvOptions& options, std::span<const uint32_t> offsets,
               std::span<float* const> states = {}, std::span<const StateCut> cuts = {});

// Mamba's recurrence; A = -exp(A_log), skip: [width]. States: [width, state].
struct ScanVars {
  Var x, dt, B, C;
  size_t a_log, skip;
  float low = 0;  // -1: negative eigenvalues
};
Var selective_scan(Exec& e, const ScanVars& in, std::span<const uint32_t> offsets,
                   std::span<float* const> states = {}, std::span<const StateCut> cuts = {});

// The fast-weight recurrence. g is absent without decay, beta with additive writes; a constant decay per head
// is given by g_head. With several writes per token k, v and beta hold them side by side; g decays the state
// once per token, before its first write, g_head before every write; the last write is followed by the read.
// States: [value_heads, dk, dv].
struct FastWeightVars {
  Var q, k, v, g, beta;
  const float* g_head = nullptr;
  size_t writes = 1;
};
Var fast_weight(Exec& e, const FastWeightShape& shape, const FastWeightVars& in,
                std::span<const uint32_t> offsets, std::span<float* const> states = {},
                std::span<const StateCut> cuts = {});
// The same memory, but a token reads what was written before its chunk: chunks of `chunk` positions, counted
// from the start of the sequence. States: [2, value_heads, dk, dv], what is read and what is written.
Var fast_weight_chunks(Exec& e, const FastWeightShape& shape, const FastWeightVars& in, size_t chunk,
                       std::span<const int32_t> positions, std::span<const uint32_t> offsets,
                       std::span<float* const> states = {}, std::span<const StateCut> cuts = {});

// DeltaFormer. a and b may be absent: ones. past: see DeltaFormerIn; not while recording.
struct DeltaFormerVars {
  Var q, k, v, a, b;
};
struct DeltaFormerResult {
  Var o;
  Mat<float> u;  // what was written
};
DeltaFormerResult delta_former(Exec& e, const DeltaFormerShape& shape, const DeltaFormerVars& in,
                               std::span<const uint32_t> offsets,
                               std::span<const std::span<const KvSegment>> past = {});

// Mixture of experts: which ones each row goes to, and with what weight (kernels/router).
struct Routing {
  std::span<const int32_t> chosen;  // [rows, k]
  Var weights;                      // [rows, k]
};
Routing route(Exec& e, Var logits, size_t k);
// Numbers of x, counted row by row, as a column.
Var pick(Exec& e, Var x, std::span<const uint32_t> which);
// A matrix with `n` rows: row which[p][i] is the sum of all parts' rows i that name it; zeros where none
// does.
Var sum_rows(Exec& e, std::span<const Var> parts, std::span<const std::span<const uint32_t>> which, size_t n,
             size_t cols);

// Normalises (if weights are given) and rotates q and k; see attention(). `in_place`: q and k are
// overwritten, so no other op may read them.
struct QkOptions {
  size_t heads, kv_heads, dk;
  int q_norm = -1, k_norm = -1;  // parameters, or -1
  bool norm_heads = true;        // each head by itself, or the whole projection
  NormOptions norm = {};
  const RopeTable* rope = nullptr;
  bool in_place = true;
};
struct Qk {
  Var q, k;
};
Qk qk_prepare(Exec& e, Var q, Var k, std::span<const int32_t> positions, const QkOptions& options);

// Causal softmax attention over a packed batch. p: dropout of the attention weights in training.
Var attention(Exec& e, Var q, Var k, Var v, std::span<const uint32_t> offsets, const AttentionShape& shape,
              float p = 0);

// Sum over rows of weight * cross-entropy(x W^T, target). Rows are processed in blocks, so that all logits
// never exist at once. When recording, the gradients are computed in the same pass: `weights` already holds
// the scale of the loss. z_loss: CrossEntropyIn::z, in the gradient alone.
struct LossResult {
  double loss = 0;                // weighted sum
  std::span<float> row_loss;      // unweighted, per row
  std::span<int32_t> row_argmax;  // the likeliest class, per row
};
LossResult linear_cross_entropy(Exec& e, Var x, size_t w, std::span<const int32_t> targets,
                                std::span<const float> weights, float z_loss = 0);

}  // namespace braid
