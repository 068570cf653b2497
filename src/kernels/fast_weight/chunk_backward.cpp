// Backward of the chunk form.
#include "kernels/fast_weight/fast_weight.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fast_weight/chunk_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/fast_weight/chunk-inl.h"
#include "kernels/fast_weight/parts-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

// Of one chunk: from dS, the gradient of its end state, to that of its start state S in b.dS if it is wanted.
//   dU = P^T dO + Kd dS      Z = (I + beta L)^-T dU      dR = beta Z = dV
//   dQg = dO S^T      dKg = -dR S^T      dKd = U dS^T      dS <- A_C dS + Qg^T dO - Kg^T dR
//   dP = dO U^T       dL = -dR U^T       dbeta_i = Z_i . R_i - sum_j L_ij Z_i . U_j
template <class Products>
void ChunkTask<Products>::chunk_backward(const Chunk& at, bool wanted, const Gradients& out,
                                         const Ahead& ahead) const {
  const size_t c = at.c, m = delta ? 2 * c : c;
  const Ahead results = results_ahead(at.t, c, out.grad);
  const float* Z = values_backward(at, out, results);
  state_products_backward(at, ahead);
  results.touch(2, 3);
  to_lower(products, c, W, b.up, W, b.u_t, cp, b.d_pair, cp);
  if (!at.S) ahead.touch(0, 1);
  if (delta) strengths_backward(at, Z, out);
  const bool decays = h.s.decay != Decay::kNone;
  if (decays) state_decay_backward(at);
  if (wanted && at.dS)
    products.tn_keep(dk, W, m, b.gated, kp, b.up, W, b.keep, nullptr, b.dS, ld);
  else if (wanted)
    products.tn(dk, W, m, b.gated, kp, b.up, W, b.dS, ld, Into::kOverwrite);
  channel ? channel_pairs_backward(c) : scalar_pairs_backward(c);
  put_keys(at, out);
  if (decays) put_decays(at, out);
}

// dO, with -dR behind it, to b.up; dU to b.du, dV to its place. Gives Z.
template <class Products>
const float* ChunkTask<Products>::values_backward(const Chunk& at, const Gradients& out,
                                                  const Ahead& results) const {
  const size_t c = at.c;
  for (size_t i = 0; i < c; ++i)
    load_row(out.dout.row(h.row0 + at.t + i) + h.head * h.s.dv + begin, nullptr, cols, W, 1.0f, b.up + i * W);
  results.touch(0, 3);
  lower_t(products, c, W, b.pair, cp, b.up, W, b.du, W, Into::kOverwrite);
  results.touch(1, 3);
  if (at.dS) products.nn(c, W, dk, b.kd, kp, at.dS, ld, b.du, W, Into::kAdd);
  const float* Z = b.du;
  if (delta) {
    lower_t(products, c, W, b.inverse, cp, b.du, W, b.z, W, Into::kOverwrite);
    Z = b.z;
    for (size_t i = 0; i < c; ++i) scale_row(Z + i * W, -b.beta[i], W, b.up + (c + i) * W);
  }
  for (size_t i = 0; i < c; ++i) {
    float* dv = out.grad.dv.row(h.row0 + at.t + i) + h.head * h.s.dv + begin;
    for_lanes(cols, [&](auto d1, size_t x) {
      hn::StoreU(hn::Mul(hn::Set(d1, b.beta[i]), hn::LoadU(d1, Z + i * W + x)), d1, dv + x);
    });
  }
  return Z;
}

// dQg, dKg and dKd, and U transposed. The states stand on the left, so that they need no transpose.
template <class Products>
void ChunkTask<Products>::state_products_backward(const Chunk& at, const Ahead& ahead) const {
  const size_t c = at.c, m = delta ? 2 * c : c, mp = whole_vectors(m), n = whole_vectors(c), tp = 2 * cp;
  if (at.S) {
    transpose(m, W, b.up, W, b.up_t, tp);
    nn_ahead(ahead, dk, mp, W, at.S, ld, b.up_t, tp, b.product_t, tp);
    transpose(dk, m, b.product_t, tp, b.d_gated, kp);
  } else {
    std::fill_n(b.d_gated, m * kp, 0.0f);
  }
  transpose(c, W, at.U, W, b.u_t, cp);
  if (at.dS) {
    products.nn(dk, n, W, at.dS, ld, b.u_t, cp, b.product_t, tp, Into::kOverwrite);
    transpose(dk, c, b.product_t, tp, b.d_kd, kp);
  } else {
    std::fill_n(b.d_kd, c * kp, 0.0f);
  }
}

// dL and dbeta.
template <class Products>
void ChunkTask<Products>::strengths_backward(const Chunk& at, const float* Z, const Gradients& out) const {
  const size_t c = at.c;
  to_lower(products, c, W, Z, W, b.u_t, cp, b.d_pair + c * cp, cp);
  for (size_t i = 0; i < c; ++i) {
    float* dL = b.d_pair + (c + i) * cp;
    const float* L = b.pair + (c + i) * cp;
    float dbeta = dot_rows(Z + i * W, at.R + i * W, W);
    for (size_t j = 0; j < i; ++j) dbeta -= L[j] * dL[j], dL[j] *= -b.beta[i];
    std::fill(dL + i, dL + triangle_columns(i, c), 0.0f);
    put(dbeta, out.grad.dbeta.row(h.row0 + at.t + i) + h.head, out.head);
  }
}

// The share of A_C S in the gradients of decays, to the last row of d_g: per channel, or one number.
template <class Products>
void ChunkTask<Products>::state_decay_backward(const Chunk& at) const {
  float* const dg_end = b.d_g + b.C * kp;
  for (size_t i = 0; i < dk; ++i)
    dg_end[i] = at.S && at.dS ? b.keep[i] * dot_rows(at.S + i * ld, at.dS + i * ld, W) : 0.0f;
  if (!channel) *dg_end = std::accumulate(dg_end, dg_end + dk, 0.0f);
}

// dg of one decay for all channels, before the pairs have come to d_gated and d_col. g_t is in A_i for
// i >= t, and in A_i / A_j and A_C / A_j for j < t <= i. So no share is added that does not belong there
// and would have to be taken away again: under a strong decay dg_t is smaller than such a share's rounding.
template <class Products>
void ChunkTask<Products>::scalar_decay_backward(size_t c) const {
  const float* k = b.raw + c * kp;
  HWY_ALIGN float later[kFastWeightMaxChunk];  // shares of A_i / A_j and A_C / A_j for i >= t, by j
  for (size_t j = 0; j < c; ++j) later[j] = dot_rows(k + j * kp, b.d_col + j * kp, dk);
  double state = static_cast<double>(b.d_g[b.C * kp]);  // shares of A_i for i >= t
  for (size_t t = c; t-- > 0;) {
    float now = dot_rows(b.raw + t * kp, b.d_gated + t * kp, dk);
    if (delta) now += dot_rows(k + t * kp, b.d_gated + (c + t) * kp, dk);
    state += static_cast<double>(now);
    for (size_t row = t; row < (delta ? 2 * c : c); row += c) {
      const float *pair = b.pair + row * cp, *d_pair = b.d_pair + row * cp;
      for_lanes(t, [&](auto d1, size_t j) {
        hn::StoreU(hn::MulAdd(hn::LoadU(d1, pair + j), hn::LoadU(d1, d_pair + j), hn::LoadU(d1, later + j)),
                   d1, later + j);
      });
    }
    const float pairs = sum_lanes(t, [&](auto d1, size_t j) { return hn::LoadU(d1, later + j); });
    b.d_g[t] = static_cast<float>(state + static_cast<double>(pairs));
  }
}

// d_gated, d_kd and d_pair to gradients of the rows of raw: d_gated becomes [dq; dk that meets A_i], d_col
// the rest of dk, d_g those of the log-decays. The diagonal of P is left out.
template <class Products>
void ChunkTask<Products>::scalar_pairs_backward(size_t c) const {
  const float* k = b.raw + c * kp;
  const size_t dkp = whole_vectors(dk);
  const float* to_end = b.ratio + (c - 1) * cp;
  for (size_t i = 0; i < c; ++i) {
    scale_row(b.d_gated + i * kp, b.gamma[i], dkp, b.d_gated + i * kp);
    if (delta) scale_row(b.d_gated + (c + i) * kp, b.gamma[i], dkp, b.d_gated + (c + i) * kp);
    scale_row(b.d_kd + i * kp, to_end[i], dkp, b.d_col + i * kp);
  }
  if (h.s.decay != Decay::kNone) scalar_decay_backward(c);
  HWY_ALIGN float diagonal[kFastWeightMaxChunk];
  for (size_t i = 0; i < c; ++i) {
    float* dP = b.d_pair + i * cp;
    const size_t filled = triangle_columns(i, c);
    diagonal[i] = dP[i];
    mul_rows(dP, b.ratio + i * cp, filled, dP);
    dP[i] = 0;
    if (delta) mul_rows(dP + c * cp, b.ratio + i * cp, filled, dP + c * cp);
  }
  for (size_t part = 0; part < (delta ? 2 : 1); ++part) {
    const size_t row = part * c;
    lower(products, c, dkp, b.d_pair + row * cp, cp, k, kp, b.d_gated + row * kp, kp, Into::kAdd);
    lower_t(products, c, dkp, b.d_pair + row * cp, cp, b.raw + row * kp, kp, b.d_col, kp, Into::kAdd);
  }
  for (size_t i = 0; i < c; ++i) b.d_pair[i * cp + i] = diagonal[i];
}

// dg_t is made as in scalar_decay_backward: while rows i go down to t, d_col holds for each j < t the
// shares of A_i / A_j and A_C / A_j with i >= t, and dg_end those of A_i.
template <class Products>
void ChunkTask<Products>::channel_pairs_backward(size_t c) const {
  const Full d;
  const float* k = b.raw + c * kp;
  float *const dg_end = b.d_g + b.C * kp, *const run = b.alpha + b.C * kp;
  const size_t dkp = whole_vectors(dk);
  std::fill_n(run, kp, 1.0f);
  for (size_t i = c; i-- > 0;) {
    mul_rows(b.d_kd + i * kp, run, dkp, b.d_col + i * kp);
    mul_rows(run, b.alpha + i * kp, kp, run);
  }
  for (size_t i = 0; i < c; ++i) {
    if (i)
      mul_rows(run, b.alpha + i * kp, kp, run);
    else
      std::copy_n(b.alpha, kp, run);
    mul_rows(b.d_gated + i * kp, run, dkp, b.d_gated + i * kp);
    if (delta) mul_rows(b.d_gated + (c + i) * kp, run, dkp, b.d_gated + (c + i) * kp);
  }
  for (size_t i = c; i-- > 0;) {
    const float *dP = b.d_pair + i * cp, *dL = b.d_pair + (c + i) * cp;
    float *dq_i = b.d_gated + i * kp, *dk_i = b.d_gated + (c + i) * kp;
    for (size_t x = 0; x < dkp; x += kLanes) {
      const VFull q = hn::LoadU(d, b.raw + i * kp + x), ki = hn::LoadU(d, k + i * kp + x);
      VFull ratio = hn::LoadU(d, b.alpha + i * kp + x), dq = hn::LoadU(d, dq_i + x),
            dr = delta ? hn::LoadU(d, dk_i + x) : hn::Zero(d), pairs = hn::Zero(d);
      const VFull state = hn::MulAdd(q, dq, hn::MulAdd(ki, dr, hn::LoadU(d, dg_end + x)));
      for (size_t j = i; j-- > 0;) {
        const VFull p = hn::Set(d, dP[j]), l = delta ? hn::Set(d, dL[j]) : hn::Zero(d);
        const VFull kj = hn::LoadU(d, k + j * kp + x), decayed = hn::Mul(ratio, kj);
        float* col = b.d_col + j * kp + x;
        dq = hn::MulAdd(p, decayed, dq);
        dr = hn::MulAdd(l, decayed, dr);
        const VFull dc = hn::MulAdd(ratio, hn::MulAdd(p, q, hn::Mul(l, ki)), hn::LoadU(d, col));
        hn::StoreU(dc, d, col);
        pairs = hn::MulAdd(kj, dc, pairs);
        ratio = hn::Mul(ratio, hn::LoadU(d, b.alpha + j * kp + x));
      }
      hn::StoreU(dq, d, dq_i + x);
      if (delta) hn::StoreU(dr, d, dk_i + x);
      hn::StoreU(state, d, dg_end + x);
      hn::StoreU(hn::Add(state, pairs), d, b.d_g + i * kp + x);
    }
  }
}

// q_i meets A_i, and so does k_i in one sum; in others k_j meets 1 / A_j. The pair (i, i) of P has no decay.
template <class Products>
void ChunkTask<Products>::put_keys(const Chunk& at, const Gradients& out) const {
  const size_t c = at.c;
  for (size_t i = 0; i < c; ++i) {
    const float *q = b.raw + i * kp, *k = b.raw + (c + i) * kp, diagonal = *(b.d_pair + i * cp + i);
    const float *dq = b.d_gated + i * kp, *row = b.d_gated + (c + i) * kp, *col = b.d_col + i * kp;
    float* const dq_out = out.grad.dq.row(h.row0 + at.t + i) + h.key_head * dk;
    float* const dk_out = out.grad.dk.row(h.row0 + at.t + i) + h.key_head * dk;
    for_lanes(dk, [&](auto d1, size_t x) {
      const auto qx = hn::LoadU(d1, q + x), kx = hn::LoadU(d1, k + x), dp = hn::Set(d1, diagonal);
      auto dqx = hn::LoadU(d1, dq + x), dc = hn::LoadU(d1, col + x);
      auto dr = delta ? hn::LoadU(d1, row + x) : hn::Zero(d1);
      dqx = hn::Mul(hn::Set(d1, h.s.scale), hn::MulAdd(dp, kx, dqx));
      dr = hn::Add(dr, hn::MulAdd(dp, qx, dc));
      if (out.keys == Into::kAdd)
        dqx = hn::Add(dqx, hn::LoadU(d1, dq_out + x)), dr = hn::Add(dr, hn::LoadU(d1, dk_out + x));
      hn::StoreU(dqx, d1, dq_out + x);
      hn::StoreU(dr, d1, dk_out + x);
    });
  }
}

// dg of the chunk's tokens, a row or a number each.
template <class Products>
void ChunkTask<Products>::put_decays(const Chunk& at, const Gradients& out) const {
  for (size_t i = at.c; i-- > 0;) {
    const size_t row = h.row0 + at.t + i;
    if (channel) {
      if (out.grad.dg.data) put(b.d_g + i * kp, out.grad.dg.row(row) + h.head * dk, dk, out.head);
      continue;
    }
    if (h.s.decay == Decay::kToken && out.grad.dg.data)
      put(b.d_g[i], out.grad.dg.row(row) + h.head, out.head);
    out.dg_all += static_cast<double>(b.d_g[i]);
  }
}

template <class Products>
auto ChunkTask<Products>::results_ahead(size_t t, size_t c, const FastWeightGrad& grad) const -> Ahead {
  Ahead a;
  a.rows = c;
  a.add(grad.dv, h.row0 + t, h.head * h.s.dv + begin, cols);
  a.add(grad.dq, h.row0 + t, h.key_head * dk, dk), a.add(grad.dk, h.row0 + t, h.key_head * dk, dk);
  return a;
}

// The whole sequence, segments last to first: the states of a segment's chunks are made again and kept.
template <class Products>
void ChunkTask<Products>::backward(const float* s0, const float* ds_end, float* ds0,
                                   const FastWeightMarks& marks, const Gradients& out) const {
  const size_t T = h.tokens, E = segment_tokens(h.s, marks.every), segments = (T + E - 1) / E;
  const auto chunk_end = [&](size_t t, size_t end) { return std::min(end, t + b.C); };
  const float* S0 = marks.states ? nullptr : load_state(s0, b.starts);
  if (!marks.states)
    for (size_t s = 0; s + 1 < segments; ++s) {
      const float* from = s ? b.starts + s * b.state : S0;
      float* const to = b.starts + (s + 1) * b.state;
      for (size_t t = s * E, next; t < (s + 1) * E; t = next, from = to) {
        next = chunk_end(t, (s + 1) * E);
        prepare(t, next - t);
        advance(t, next - t, from, to, b.r, b.u, false, inputs_ahead(next, std::min(T, next + b.C)));
      }
    }
  const float* dS = load_state(ds_end, b.dS);
  for (size_t s = segments; s-- > 0;) {
    const size_t first = s * E, end = std::min(T, first + E);
    if (marks.dstates && end == first + E) {
      const float* more = load_state(mark(marks.dstates, s), dS ? b.states : b.dS);
      for (size_t i = 0; dS && i < dk; ++i) mul_add_row(1.0f, more + i * ld, W, b.dS + i * ld);
      dS = b.dS;
    }
    const float* start = s ? b.starts + s * b.state : S0;
    if (marks.states) start = load_state(s ? mark(marks.states, s - 1) : s0, b.S);
    const size_t chunks = (end - first + b.C - 1) / b.C;
    const auto S = [&](size_t c) { return c ? b.states + c * b.state : start; };
    const auto R = [&](size_t c) { return b.rs + c * b.C * W; };
    const auto U = [&](size_t c) { return b.us + c * b.C * W; };
    for (size_t c = 0; c < chunks; ++c) {
      const size_t t = first + c * b.C, next = chunk_end(t, end);
      prepare(t, next - t);
      Ahead ahead;
      if (c + 1 < chunks) ahead = inputs_ahead(next, chunk_end(next, end));
      ahead.rows = ahead.count ? ahead.rows : next - t;
      if (c + 1 == chunks) ahead.add(out.dout, h.row0 + t, h.head * h.s.dv + begin, cols);
      advance(t, next - t, S(c), c + 1 < chunks ? b.states + (c + 1) * b.state : nullptr, R(c), U(c), false,
              ahead);
    }
    for (size_t c = chunks; c-- > 0;) {
      const size_t t = first + c * b.C, next = chunk_end(t, end);
      if (c + 1 < chunks) prepare(t, next - t);  // the last one is
      // The inputs of the chunk before, and its cotangent.
      const size_t before = c ? t - b.C : t;
      Ahead ahead = inputs_ahead(before, t);
      if (c) ahead.add(out.dout, h.row0 + before, h.head * h.s.dv + begin, cols);
      chunk_backward({t, next - t, S(c), dS, R(c), U(c)}, t > 0 || ds0, out, ahead);
      dS = b.dS;
    }
  }
  if (ds0) store_state(dS, ds0);
}

template <class Products>
void chunk_backward(const FastWeightShape& s, const FastWeightIn& in, Mat<const float> dout,
                    const float* ds_end, const FastWeightGrad& grad, size_t seq, size_t key_head, float* ds0,
                    float* dg_head, const FastWeightMarks& marks, float* scratch) {
  const size_t group = s.value_heads / s.key_heads;
  for (size_t head = key_head * group; head < (key_head + 1) * group; ++head) {
    const Head h(s, in, seq, head);
    const size_t E = segment_tokens(s, marks.every);
    ChunkBuffers b(s, std::min(E, h.tokens), marks.states ? 0 : (h.tokens + E - 1) / E, scratch);
    b.par = marks.par;
    double dg_all = 0;
    for (size_t begin = 0; begin < s.dv; begin += kFastWeightChunkBlock) {
      const auto first = [](bool yes) { return yes ? Into::kOverwrite : Into::kAdd; };
      const ChunkTask<Products> task{h, b, begin, std::min(s.dv, begin + kFastWeightChunkBlock)};
      task.backward(state_of(s, in.s0.empty() ? nullptr : in.s0[seq], head), state_of(s, ds_end, head),
                    state_of(s, ds0, head), marks,
                    {dout, grad, first(begin == 0 && head == key_head * group), first(begin == 0), dg_all});
    }
    if (s.decay == Decay::kHead) dg_head[head] += static_cast<float>(dg_all);
  }
}

}  // namespace

void chunk_bwd(const FastWeightShape& s, const FastWeightIn& in, Mat<const float> dout, const float* ds_end,
               const FastWeightGrad& grad, size_t seq, size_t key_head, float* ds0, float* dg_head,
               const FastWeightMarks& marks, float* scratch) {
  chunk_backward<Wide>(s, in, dout, ds_end, grad, seq, key_head, ds0, dg_head, marks, scratch);
}
void narrow_bwd(const FastWeightShape& s, const FastWeightIn& in, Mat<const float> dout, const float* ds_end,
                const FastWeightGrad& grad, size_t seq, size_t key_head, float* ds0, float* dg_head,
                const FastWeightMarks& marks, float* scratch) {
  chunk_backward<Narrow>(s, in, dout, ds_end, grad, seq, key_head, ds0, dg_head, marks, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();
