// Backward of the recurrent form.
#include "kernels/fast_weight/fast_weight.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/fast_weight/recurrent_backward.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/fast_weight/parts-inl.h"
#include "kernels/fast_weight/recurrent-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

// f(R, i) for the rows [0, n) in groups of R = 4, then 1.
template <class F>
HWY_INLINE void for_rows(size_t n, const F& f) {
  size_t i = 0;
  for (; i + 4 <= n; i += 4) f(std::integral_constant<size_t, 4>(), i);
  for (; i < n; ++i) f(std::integral_constant<size_t, 1>(), i);
}

// What the last token's read sends back: dS += q up^T, dq = S up, du = dS^T k.
template <size_t W>
HWY_INLINE void back_read(size_t dk, const float* S, float* dS, const float* q, const float* k,
                          const VFull (&up)[W], VFull (&du)[W], float* dq) {
  const Full d;
  for (size_t w = 0; w < W; ++w) du[w] = hn::Zero(d);
  for_rows(dk, [&](auto R, size_t row) {
    VFull sum[R];
    for (size_t r = 0; r < R; ++r) {
      const size_t i = row + r;
      sum[r] = hn::Zero(d);
      HWY_UNROLL(4)
      for (size_t w = 0; w < W; ++w) {
        const size_t at = (i * W + w) * kLanes;
        const VFull x = hn::MulAdd(hn::Set(d, q[i]), up[w], hn::LoadU(d, dS + at));
        hn::StoreU(x, d, dS + at);
        sum[r] = hn::MulAdd(hn::LoadU(d, S + at), up[w], sum[r]);
        du[w] = hn::MulAdd(hn::Set(d, k[i]), x, du[w]);
      }
    }
    store_sums<R>(sum, dq + row);
  });
}

// One token's write and decay and the read of the token before it, in one pass over dS and over S, the state
// between the two. dr = -beta du (kDelta); before: q, k and cotangent `up` of the earlier token, whose du
// comes out. dg: per row for channels; for one factor the sum of all is returned.
template <size_t W, bool kDelta, Fading kFading>
HWY_INLINE float back_token(size_t dk, const float* S, float* dS, float alpha, const float* alphas,
                            const float* k, const VFull (&u)[W], const VFull (&dr)[W], const float* q_before,
                            const float* k_before, const VFull (&up)[W], VFull (&du)[W], float* dk_sum,
                            float* dg_sum, float* dq_sum) {
  const Full d;
  constexpr bool kChannel = kFading == Fading::kChannels, kFades = kFading != Fading::kNone;
  VFull all = hn::Zero(d);
  for (size_t w = 0; w < W; ++w) du[w] = hn::Zero(d);
  const VFull alpha_all = hn::Set(d, alpha);
  for_rows(dk, [&](auto R, size_t row) {
    VFull sk[R], sg[R], sq[R];
    for (size_t r = 0; r < R; ++r) {
      const size_t i = row + r;
      sk[r] = sg[r] = sq[r] = hn::Zero(d);
      const VFull a = kChannel ? hn::Set(d, alphas[i]) : alpha_all;
      HWY_UNROLL(4)
      for (size_t w = 0; w < W; ++w) {
        const size_t at = (i * W + w) * kLanes;
        const VFull s = hn::LoadU(d, S + at), decayed = kFades ? hn::Mul(a, s) : s;
        VFull x = hn::LoadU(d, dS + at);
        sk[r] = hn::MulAdd(x, u[w], sk[r]);
        if constexpr (kDelta) {
          sk[r] = hn::MulAdd(decayed, dr[w], sk[r]);
          x = hn::MulAdd(hn::Set(d, k[i]), dr[w], x);
        }
        if constexpr (kFades) {
          sg[r] = hn::MulAdd(x, decayed, sg[r]);
          x = hn::Mul(a, x);
        }
        x = hn::MulAdd(hn::Set(d, q_before[i]), up[w], x);
        hn::StoreU(x, d, dS + at);
        sq[r] = hn::MulAdd(s, up[w], sq[r]);
        du[w] = hn::MulAdd(hn::Set(d, k_before[i]), x, du[w]);
      }
    }
    store_sums<R>(sk, dk_sum + row);
    store_sums<R>(sq, dq_sum + row);
    if constexpr (kChannel) {
      store_sums<R>(sg, dg_sum + row);
    } else if constexpr (kFades) {
      for (size_t r = 0; r < R; ++r) all = hn::Add(all, sg[r]);
    }
  });
  return kFading == Fading::kOne ? hn::GetLane(hn::SumOfLanes(d, all)) : 0.0f;
}

// A panel's share of all gradients. keys: whether dq and dk begin here; head: whether dg and dbeta do.
template <size_t W, bool kDelta, Fading kFading>
HWY_NOINLINE void bwd_panel(const Head& h, const Columns<W>& cols, const float* s0, Mat<const float> dout,
                            const float* ds_end, const FastWeightGrad& grad, float* ds0, float* dg_head,
                            float* scratch, Into keys, Into head) {
  const Full d;
  constexpr bool kChannel = kFading == Fading::kChannels;
  const size_t dk = h.s.dk, dv = h.s.dv, T = h.tokens, stride = W * kLanes;
  const BwdScratch layout(h.s, T);
  float *const starts = scratch + layout.starts, *const states = scratch + layout.states,
               *const errors = scratch + layout.errors, *const dS = scratch + layout.dS;
  float *const dk_sum = scratch + layout.sums, *const dg_sum = dk_sum + dk, *const dq_sum = dg_sum + dk;
  const size_t C = layout.chunk, chunks = layout.chunks;
  const auto start = [&](size_t c) { return starts + c * layout.panel; };
  const auto state = [&](size_t c, size_t i) { return i ? states + i * layout.panel : start(c); };
  cols.take(dk, ds_end, dv, dS);
  if (T == 0) {
    if (ds0) cols.put(dk, dS, ds0, dv);
    return;
  }
  // The states at the start of every chunk.
  cols.take(dk, s0, dv, start(0));
  walk<W, kDelta, kFading, false>(
      h, cols, 0, (chunks - 1) * C, {start(0), stride},
      [&](size_t t) {
        return Rows{(t + 1) % C == 0 ? start((t + 1) / C) : states, stride};
      },
      [](size_t, const VFull(&)[W], const VFull(&)[W]) {});
  VFull du[W], up[W];
  const VFull scale = hn::Set(d, h.s.scale);
  const auto load_up = [&](size_t t) {
    for (size_t w = 0; w < W; ++w) up[w] = hn::Mul(scale, cols.load(dout.row(h.row0 + t) + h.head * dv, w));
  };
  const auto put_dq = [&](size_t t) { put(dq_sum, grad.dq.row(h.row0 + t) + h.key_head * dk, dk, keys); };
  Channels channels;
  double dg_all = 0;
  for (size_t c = chunks; c-- > 0;) {
    const size_t begin = c * C, end = std::min(T, begin + C);
    walk<W, kDelta, kFading, false>(
        h, cols, begin, end, {start(c), stride},
        [&](size_t t) {
          return Rows{state(c, t + 1 - begin), stride};
        },
        [&](size_t t, const VFull(&e)[W], const VFull(&)[W]) {
          for (size_t w = 0; w < W; ++w) hn::StoreU(e[w], d, errors + ((t - begin) * W + w) * kLanes);
        });
    if (end == T) {
      load_up(T - 1);
      back_read<W>(dk, state(c, T - begin), dS, h.q(T - 1), h.k(T - 1), up, du, dq_sum);
      put_dq(T - 1);
    }
    for (size_t t = end; t-- > begin;) {
      const size_t row = h.row0 + t, before = t ? t - 1 : 0;
      const size_t soon = t > 2 ? t - 3 : 0, key = h.key_head * dk;
      prefetch(dout.row(h.row0 + soon) + h.head * dv + cols.begin, cols.width);
      prefetch(h.q(soon), dk);
      prefetch(grad.dq.row(h.row0 + soon) + key, dk);
      prefetch(grad.dk.row(h.row0 + soon) + key, dk);
      VFull u[W], dr[W], sum = hn::Zero(d);
      const float beta = kDelta ? h.beta(t) : 1.0f;
      for (size_t w = 0; w < W; ++w) {
        const VFull e = hn::LoadU(d, errors + ((t - begin) * W + w) * kLanes), b = hn::Set(d, beta);
        u[w] = hn::Mul(b, e);
        const VFull dv_w = hn::Mul(b, du[w]);
        dr[w] = hn::Neg(dv_w);
        sum = hn::MulAdd(du[w], e, sum);
        cols.store(dv_w, grad.dv.row(row) + h.head * dv, w);
      }
      if constexpr (kDelta) put(hn::GetLane(hn::SumOfLanes(d, sum)), grad.dbeta.row(row) + h.head, head);
      if constexpr (kChannel) channels.set(h, t);
      if (t)
        load_up(before);
      else
        for (size_t w = 0; w < W; ++w) up[w] = hn::Zero(d);
      const float dg = back_token<W, kDelta, kFading>(
          dk, state(c, t - begin), dS, kChannel ? 1.0f : h.alpha(t), channels.alpha, h.k(t), u, dr,
          h.q(before), h.k(before), up, du, dk_sum, dg_sum, dq_sum);
      put(dk_sum, grad.dk.row(row) + h.key_head * dk, dk, keys);
      if (t) put_dq(before);
      if (grad.dg.data) {
        if constexpr (kChannel)
          put(dg_sum, grad.dg.row(row) + h.head * dk, dk, head);
        else if (h.s.decay == Decay::kToken)
          put(dg, grad.dg.row(row) + h.head, head);
        dg_all += dg;
      }
    }
  }
  if (h.s.decay == Decay::kHead) dg_head[h.head] += static_cast<float>(dg_all);
  if (ds0) cols.put(dk, dS, ds0, dv);
}

}  // namespace

void recurrent_bwd(const FastWeightShape& s, const FastWeightIn& in, Mat<const float> dout,
                   const float* ds_end, const FastWeightGrad& grad, size_t seq, size_t key_head, float* ds0,
                   float* dg_head, const FastWeightMarks& /*marks*/, float* scratch) {
  const size_t group = s.value_heads / s.key_heads;
  for (size_t head = key_head * group; head < (key_head + 1) * group; ++head) {
    const Head h(s, in, seq, head);
    const float* s0 = state_of(s, in.s0.empty() ? nullptr : in.s0[seq], head);
    for_panels<kWideBwd>(s, 0, s.dv, [&](auto W, auto delta, auto fading, size_t col, size_t width) {
      const auto first = [](bool yes) { return yes ? Into::kOverwrite : Into::kAdd; };
      bwd_panel<W, delta, fading>(h, {col, width}, s0, dout, state_of(s, ds_end, head), grad,
                                  state_of(s, ds0, head), dg_head, scratch,
                                  first(col == 0 && head == key_head * group), first(col == 0));
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();
