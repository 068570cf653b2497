// The ops a model is made of: each runs a kernel and, when recording, remembers how to run it backward. x:
// [tokens, width].
#pragma once

#include <span>

#include "autograd/exec.h"
#include "kernels/attention/attention.h"
#include "kernels/rope/rope.h"

namespace braid {

// Rows of a table. ids must be in range.
Var embedding(Exec& e, std::span<const int32_t> ids, size_t table);

// residual + x W^T; `residual` may be absent.
Var linear(Exec& e, Var x, size_t w, Var residual = {});
// [x W0^T | x W1^T | ...]: several projections of the same input side by side.
Var linear_concat(Exec& e, Var x, std::span<const size_t> ws);
// residual + (silu(g) * u) W^T with [g | u] = gu. One op, so that the product need not be kept: backward
// makes it again.
Var swiglu_linear(Exec& e, Var gu, size_t w, Var residual = {});

// sigmoid(g) * u, an output gate. Without a tape u is overwritten.
Var sigmoid_gate(Exec& e, Var u, Var g);

struct NormOptions {
  float eps = 1e-6f;
  float offset = 0;   // 1: zero-centred weights
  size_t groups = 1;  // heads that share the weight
};
Var rmsnorm(Exec& e, Var x, size_t w, const NormOptions& options = {});

Var add(Exec& e, Var a, Var b);
// Does nothing unless the executor has a dropout stream and p > 0.
Var dropout(Exec& e, Var x, float p);
// Chosen rows of x.
Var rows(Exec& e, Var x, std::span<const uint32_t> which);

// Normalises (if weights are given) and rotates the q and k parts of qkv = [q | k | v] in place; see
// attention().
struct QkOptions {
  size_t heads, kv_heads, dk, dv;
  int q_norm = -1, k_norm = -1;  // parameters, or -1
  bool norm_heads = true;        // each head by itself, or the whole projection
  NormOptions norm = {};
  const RopeTable* rope = nullptr;
};
Var qk_prepare(Exec& e, Var qkv, std::span<const int32_t> positions, const QkOptions& options);

// Causal softmax attention of packed sequences on qkv = [q | k | v], each sequence by itself.
Var attention(Exec& e, Var qkv, std::span<const uint32_t> offsets, const AttentionShape& shape);

// Sum over rows of weight * cross-entropy(x W^T, target). Rows are processed in blocks, so that all logits
// never exist at once. When recording, the gradients are computed in the same pass: `weights` already holds
// the scale of the loss.
struct LossResult {
  double loss = 0;                // weighted sum
  std::span<float> row_loss;      // unweighted, per row
  std::span<int32_t> row_argmax;  // the likeliest class, per row
};
LossResult linear_cross_entropy(Exec& e, Var x, size_t w, std::span<const int32_t> targets,
                                std::span<const float> weights);

}  // namespace braid
