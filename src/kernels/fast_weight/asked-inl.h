// Sparse queries: a query is evaluated backward in time over the preceding tokens, without the state. dk + dv
// elements per token and query instead of dk dv per token. Included once per target.
//   w = scale q, then for t from the query's token down to the first:
//   a_t = beta_t k_t . w     o += a_t v_t     w = alpha_t (w - a_t k_t)     delta
//   a_t = k_t . w            o += a_t v_t     w = alpha_t w                 additive
// because S_t^T w = (alpha_t S_{t-1})^T (w - a_t k_t) + a_t v_t.
#if defined(BRAID_FAST_WEIGHT_ASKED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_FAST_WEIGHT_ASKED_INL_H_
#undef BRAID_FAST_WEIGHT_ASKED_INL_H_
#else
#define BRAID_FAST_WEIGHT_ASKED_INL_H_
#endif

#include <algorithm>

#include "kernels/fast_weight/head-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE float dot(const float* x, const float* y, size_t n) {
  return sum_lanes(n, [&](auto d, size_t i) { return hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, y + i)); });
}
// to += a x
HWY_INLINE void add_times(float a, const float* x, float* to, size_t n) {
  for_lanes(n, [&](auto d, size_t i) {
    hn::StoreU(hn::MulAdd(hn::Set(d, a), hn::LoadU(d, x + i), hn::LoadU(d, to + i)), d, to + i);
  });
}
HWY_INLINE void set_times(float a, const float* x, float* to, size_t n) {
  for_lanes(n, [&](auto d, size_t i) { hn::StoreU(hn::Mul(hn::Set(d, a), hn::LoadU(d, x + i)), d, to + i); });
}
// w = alpha_t w, one factor for all or one for each key channel.
HWY_INLINE void fade(const Head& h, size_t t, float* w) {
  if (h.s.decay == Decay::kNone) return;
  if (h.s.decay != Decay::kChannel) return set_times(h.alpha(t), w, w, h.s.dk);
  const float* g = h.g_channels(t);
  for_lanes(h.s.dk, [&](auto d, size_t i) {
    hn::StoreU(hn::Mul(exp_v(d, hn::LoadU(d, g + i)), hn::LoadU(d, w + i)), d, w + i);
  });
}

// f(row of q, token of its sequence) for the queries of sequence `seq`.
template <class F>
HWY_INLINE void for_asked(const FastWeightIn& in, std::span<const uint32_t> asked, size_t seq, const F& f) {
  const uint32_t begin = in.offsets[seq], end = in.offsets[seq + 1];
  const auto first = std::lower_bound(asked.begin(), asked.end(), begin);
  for (auto it = first; it != asked.end() && *it < end; ++it)
    f(static_cast<size_t>(it - asked.begin()), static_cast<size_t>(*it - begin));
}

void asked_fwd(const FastWeightShape& s, const FastWeightIn& in, std::span<const uint32_t> asked, size_t seq,
               size_t head, Mat<float> o) {
  const Head h(s, in, seq, head);
  const bool delta = s.write == FastWeightWrite::kDelta;
  HWY_ALIGN float w[kFastWeightMaxDim];
  for_asked(in, asked, seq, [&](size_t row, size_t token) {
    float* to = o.row(row) + head * s.dv;
    std::fill_n(to, s.dv, 0.0f);
    set_times(s.scale, in.q.row(row) + h.key_head * s.dk, w, s.dk);
    for (size_t t = token + 1; t-- > 0;) {
      const float* k = h.k(t);
      const float a = (delta ? h.beta(t) : 1.0f) * dot(k, w, s.dk);
      add_times(a, h.v(t), to, s.dv);
      if (t == 0) break;
      if (delta) add_times(-a, k, w, s.dk);
      fade(h, t, w);
    }
  });
}

// w of every token again, then forward in time with dw, the gradient of what token t made of w:
//   dg = dw . w_{t-1}     dw = alpha_t dw     da = v_t . do - k_t . dw (delta)     dv_t += a_t do
//   delta:     dk_t += beta_t da w_t - a_t dw     dbeta_t += da (k_t . w_t)     dw += beta_t da k_t
//   additive:  dk_t += da w_t     dw += da k_t
// At the token that asks dq = scale dw.
void asked_bwd(const FastWeightShape& s, const FastWeightIn& in, std::span<const uint32_t> asked,
               Mat<const float> dout, const FastWeightGrad& grad, size_t seq, size_t key_head, float* dg_head,
               float* scratch) {
  const size_t group = s.value_heads / s.key_heads, dk = s.dk, dv = s.dv, row0 = in.offsets[seq],
               tokens = in.offsets[seq + 1] - row0;
  const bool delta = s.write == FastWeightWrite::kDelta, dg = grad.dg.data && s.decay != Decay::kNone;
  float *const ws = scratch, *const reads = ws + tokens * dk;
  HWY_ALIGN float dw[kFastWeightMaxDim];
  for (size_t t = row0; t < row0 + tokens; ++t) {
    std::fill_n(grad.dk.row(t) + key_head * dk, dk, 0.0f);
    std::fill_n(grad.dv.row(t) + key_head * group * dv, group * dv, 0.0f);
    if (delta) std::fill_n(grad.dbeta.row(t) + key_head * group, group, 0.0f);
    if (dg && s.decay == Decay::kToken) std::fill_n(grad.dg.row(t) + key_head * group, group, 0.0f);
    if (dg && s.decay == Decay::kChannel)
      std::fill_n(grad.dg.row(t) + key_head * group * dk, group * dk, 0.0f);
  }
  for (size_t head = key_head * group; head < (key_head + 1) * group; ++head) {
    const Head h(s, in, seq, head);
    for_asked(in, asked, seq, [&](size_t row, size_t token) {
      float* w = ws + token * dk;
      set_times(s.scale, in.q.row(row) + key_head * dk, w, dk);
      for (size_t t = token + 1; t-- > 0;) {
        const float* k = h.k(t);
        reads[t] = dot(k, w, dk);
        if (t == 0) break;
        float* before = w - dk;
        set_times(1.0f, w, before, dk);
        if (delta) add_times(-h.beta(t) * reads[t], k, before, dk);
        fade(h, t, before);
        w = before;
      }
      const float* up = dout.row(row) + head * dv;
      std::fill_n(dw, dk, 0.0f);
      for (size_t t = 0; t <= token; ++t, w += dk) {
        const float *k = h.k(t), beta = delta ? h.beta(t) : 1.0f, a = beta * reads[t];
        float *to_dk = grad.dk.row(row0 + t) + key_head * dk, da = dot(h.v(t), up, dv);
        if (t > 0) {
          const float* before = w - dk;
          if (dg && s.decay == Decay::kToken) grad.dg.row(row0 + t)[head] += dot(dw, before, dk);
          if (dg && s.decay == Decay::kHead) dg_head[head] += dot(dw, before, dk);
          if (dg && s.decay == Decay::kChannel) {
            float* to = grad.dg.row(row0 + t) + head * dk;
            for_lanes(dk, [&](auto d, size_t i) {
              hn::StoreU(hn::MulAdd(hn::LoadU(d, dw + i), hn::LoadU(d, before + i), hn::LoadU(d, to + i)), d,
                         to + i);
            });
          }
          fade(h, t, dw);
          if (delta) da -= dot(k, dw, dk), add_times(-a, dw, to_dk, dk);
        }
        add_times(a, up, grad.dv.row(row0 + t) + head * dv, dv);
        if (delta) grad.dbeta.row(row0 + t)[head] += da * reads[t];
        add_times(beta * da, w, to_dk, dk);
        add_times(beta * da, k, dw, dk);
      }
      set_times(s.scale, dw, dw, dk);
      put(dw, grad.dq.row(row) + key_head * dk, dk, head == key_head * group ? Into::kOverwrite : Into::kAdd);
    });
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#endif
