// The recurrent form: one pass over the state per token, in panels of columns that stay in L1. Included once
// per target.
#ifndef BRAID_FAST_WEIGHT_RECURRENT_SIZES
#define BRAID_FAST_WEIGHT_RECURRENT_SIZES
#include <algorithm>
#include <type_traits>

#include "kernels/fast_weight/fast_weight.h"

namespace braid {

// A panel is the slice of a state that one pass over the tokens carries: dk rows of up to 64 value columns.
// Four vectors of columns give the FMA ports enough sums; above 160 rows two, so that dk = 512 is 64 KB.
constexpr size_t kWideRows = 160, kPanelFloats = 16 * 1024;

constexpr size_t panel_columns(const FastWeightShape& s) {
  return std::min(kFastWeightBlock, (s.dv + 15) / 16 * 16);
}
// Tokens whose states backward keeps at once: at most 512 KB of them, 128 KB with AVX2, whose panels are
// narrower: inside L2.
constexpr size_t bwd_chunk(const FastWeightShape& s) {
  return std::clamp<size_t>(128 * 1024 / (s.dk * panel_columns(s)), 8, 128);
}

// Backward's memory for one task: start states of the chunks, states inside a chunk, e of its tokens, dS, and
// sums over a row of the state.
struct BwdScratch {
  size_t panel, chunk, chunks, starts, states, errors, dS, sums, floats;
  BwdScratch(const FastWeightShape& s, size_t tokens)
      : panel(s.dk * panel_columns(s)),
        chunk(bwd_chunk(s)),
        chunks((tokens + chunk - 1) / chunk),
        starts(0),
        states(starts + chunks * panel),
        errors(states + (std::min(chunk, tokens) + 1) * panel),
        dS(errors + std::min(chunk, tokens) * panel_columns(s)),
        sums(dS + panel),
        floats((sums + 3 * s.dk + 15) / 16 * 16) {}
};

}  // namespace braid
#endif

#if defined(BRAID_FAST_WEIGHT_RECURRENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_FAST_WEIGHT_RECURRENT_INL_H_
#undef BRAID_FAST_WEIGHT_RECURRENT_INL_H_
#else
#define BRAID_FAST_WEIGHT_RECURRENT_INL_H_
#endif

#include "kernels/common/gemm-inl.h"
#include "kernels/fast_weight/head-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

// Most vectors of columns in a panel. Backward has more sums than 16 registers hold: there four vectors took
// 10 to 60 % more time than two with AVX2.
constexpr size_t kWideFwd = 4, kWideBwd = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
static_assert(kWideRows * kWideFwd * kLanes <= kPanelFloats &&
              kFastWeightMaxDim * 2 * kLanes <= kPanelFloats);

// What a token does to the state before it writes: nothing, one factor for all, or one for each key channel.
enum class Fading { kNone, kOne, kChannels };

// The columns of a panel: W vectors, of which the last may be partial.
template <size_t W>
struct Columns {
  size_t begin, width;
  bool whole() const { return width == W * kLanes; }

  HWY_INLINE VFull load(const float* p, size_t w) const {
    p += begin + w * kLanes;
    return (w + 1) * kLanes <= width ? hn::LoadU(Full(), p) : load_first(Full(), p, width - w * kLanes);
  }
  HWY_INLINE void store(VFull x, float* p, size_t w) const {
    p += begin + w * kLanes;
    if ((w + 1) * kLanes <= width)
      hn::StoreU(x, Full(), p);
    else
      store_first(x, Full(), p, width - w * kLanes);
  }
  // A state's columns to a panel, zeros after the last and for no state; and back.
  void take(size_t rows, const float* state, size_t dv, float* panel) const {
    for (size_t i = 0; i < rows; ++i)
      for (size_t w = 0; w < W; ++w)
        hn::StoreU(state ? load(state + i * dv, w) : hn::Zero(Full()), Full(), panel + (i * W + w) * kLanes);
  }
  void put(size_t rows, const float* panel, float* state, size_t dv) const {
    for (size_t i = 0; i < rows; ++i)
      for (size_t w = 0; w < W; ++w)
        store(hn::LoadU(Full(), panel + (i * W + w) * kLanes), state + i * dv, w);
  }
};

// Rows of W vectors, `stride` numbers apart.
struct Rows {
  float* at;
  size_t stride;
};
struct ConstRows {
  const float* at;
  size_t stride;
  ConstRows(const float* p, size_t n) : at(p), stride(n) {}
  ConstRows(Rows r) : at(r.at), stride(r.stride) {}  // NOLINT: Rows reads as ConstRows
};

// alpha per key channel and alpha k of one token.
struct Channels {
  HWY_ALIGN float alpha[kFastWeightMaxDim];
  HWY_ALIGN float key[kFastWeightMaxDim];

  void set(const Head& h, size_t t) {
    const float *g = h.g_channels(t), *k = h.k(t);
    for_lanes(h.s.dk, [&](auto d, size_t i) {
      const auto a = exp_v(d, hn::LoadU(d, g + i));
      hn::StoreU(a, d, alpha + i);
      hn::StoreU(hn::Mul(a, hn::LoadU(d, k + i)), d, key + i);
    });
  }
};

// S^T k
template <size_t W>
HWY_INLINE void read(size_t dk, ConstRows S, const float* k, VFull (&r)[W]) {
  const Full d;
  for (size_t w = 0; w < W; ++w) r[w] = hn::Zero(d);
  for (size_t i = 0; i < dk; ++i) {
    const VFull ki = hn::Set(d, k[i]);
    HWY_UNROLL(4)
    for (size_t w = 0; w < W; ++w)
      r[w] = hn::MulAdd(ki, hn::LoadU(d, S.at + i * S.stride + w * kLanes), r[w]);
  }
}

// One token in one pass: to = alpha from + k u^T, and of the new state o = to^T q (kRead) and r = to^T next
// (kDelta), with which the next token begins. So the state is loaded and stored once per token.
template <size_t W, bool kDelta, Fading kFading, bool kRead>
HWY_INLINE void advance(size_t dk, ConstRows from, Rows to, float alpha, const float* alphas, const float* k,
                        const float* q, const float* next, const VFull (&u)[W], VFull (&o)[W],
                        VFull (&r)[W]) {
  const Full d;
  for (size_t w = 0; w < W; ++w) o[w] = r[w] = hn::Zero(d);
  const VFull all = hn::Set(d, alpha);
  for (size_t i = 0; i < dk; ++i) {
    const VFull a = kFading == Fading::kChannels ? hn::Set(d, alphas[i]) : all, ki = hn::Set(d, k[i]),
                qi = kRead ? hn::Set(d, q[i]) : all, ni = kDelta ? hn::Set(d, next[i]) : all;
    const float* x = from.at + i * from.stride;
    float* y = to.at + i * to.stride;
    HWY_UNROLL(4)
    for (size_t w = 0; w < W; ++w) {
      VFull S = hn::LoadU(d, x + w * kLanes);
      if constexpr (kFading != Fading::kNone) S = hn::Mul(a, S);
      S = hn::MulAdd(ki, u[w], S);
      hn::StoreU(S, d, y + w * kLanes);
      if constexpr (kRead) o[w] = hn::MulAdd(qi, S, o[w]);
      if constexpr (kDelta) r[w] = hn::MulAdd(ni, S, r[w]);
    }
  }
}

// Tokens [begin, end) from the state `S`. Each new state goes to to(t); done(t, e, o) gets what was written
// (before beta) and read (before scale).
template <size_t W, bool kDelta, Fading kFading, bool kRead, class To, class Done>
HWY_INLINE void walk(const Head& h, const Columns<W>& cols, size_t begin, size_t end, ConstRows S,
                     const To& to, const Done& done) {
  if (begin == end) return;
  constexpr bool kChannel = kFading == Fading::kChannels;
  const size_t dk = h.s.dk;
  Channels channels[2];
  VFull e[W], u[W], o[W], r[W];
  if constexpr (kChannel) channels[begin % 2].set(h, begin);
  if constexpr (kDelta) read<W>(dk, S, kChannel ? channels[begin % 2].key : h.k(begin), r);
  for (size_t t = begin; t < end; ++t) {
    const float alpha = kChannel ? 1.0f : h.alpha(t);
    const float* next = h.k(t);  // of no use after the last token
    if (t + 1 < end) {
      next = h.k(t + 1);
      if constexpr (kChannel) {
        channels[(t + 1) % 2].set(h, t + 1);
        next = channels[(t + 1) % 2].key;
      }
      // Rows of one head are far apart: no hardware prefetcher follows them.
      const size_t soon = std::min(t + 2, end - 1);
      if constexpr (kRead) prefetch(h.q(soon), dk);
      prefetch(h.k(soon), dk);
      prefetch(h.v(soon) + cols.begin, cols.width);
      if constexpr (kChannel) prefetch(h.g_channels(soon), dk);
    }
    const float beta = kDelta ? h.beta(t) : 1.0f;
    for (size_t w = 0; w < W; ++w) {
      e[w] = cols.load(h.v(t), w);
      if constexpr (kDelta) e[w] = hn::NegMulAdd(hn::Set(Full(), alpha), r[w], e[w]);
      u[w] = kDelta ? hn::Mul(hn::Set(Full(), beta), e[w]) : e[w];
    }
    const Rows out = to(t);
    advance<W, kDelta, kFading, kRead>(dk, S, out, alpha, channels[t % 2].alpha, h.k(t), h.q(t), next, u, o,
                                       r);
    S = out;
    done(t, e, o);
  }
}

template <size_t W, bool kDelta, Fading kFading>
HWY_NOINLINE void fwd_panel(const Head& h, const Columns<W>& cols, const float* s0, float* s_end,
                            const FastWeightMarks& marks, Mat<float> o) {
  HWY_ALIGN float panel[kPanelFloats];
  const size_t dk = h.s.dk, dv = h.s.dv;
  const Rows local{panel, W * kLanes};
  // Whole panels are read from s0 by the first token and written to s_end by the last.
  const bool direct_in = s0 && cols.whole() && h.tokens > 0, direct_out = s_end && cols.whole() && !marks.to;
  if (!direct_in) cols.take(dk, s0, dv, panel);
  const ConstRows start = direct_in ? ConstRows(s0 + cols.begin, dv) : ConstRows(local);
  const VFull scale = hn::Set(Full(), h.s.scale);
  walk<W, kDelta, kFading, true>(
      h, cols, 0, h.tokens, start,
      [&](size_t t) {
        return direct_out && t + 1 == h.tokens ? Rows{s_end + cols.begin, dv} : local;
      },
      [&](size_t t, const VFull(&)[W], const VFull(&read)[W]) {
        float* to = o.row(h.row0 + t) + h.head * dv;
        for (size_t w = 0; w < W; ++w) cols.store(hn::Mul(scale, read[w]), to, w);
        if (marks.to && (t + 1) % marks.every == 0)
          cols.put(dk, panel, marks.to + (((t + 1) / marks.every - 1) * h.s.value_heads + h.head) * dk * dv,
                   dv);
      });
  if (s_end && (h.tokens == 0 || !direct_out)) cols.put(dk, panel, s_end, dv);
}

// f(W, kDelta, kFading, first column, columns) for the panels of columns [begin, end).
template <size_t kWide, class F>
HWY_INLINE void for_panels(const FastWeightShape& s, size_t begin, size_t end, const F& f) {
  const auto with = [&](auto W, size_t col, size_t width) {
    const auto with_fading = [&](auto fading) {
      s.write == FastWeightWrite::kDelta ? f(W, std::true_type(), fading, col, width)
                                         : f(W, std::false_type(), fading, col, width);
    };
    if (s.decay == Decay::kChannel)
      with_fading(std::integral_constant<Fading, Fading::kChannels>());
    else if (s.decay == Decay::kNone)
      with_fading(std::integral_constant<Fading, Fading::kNone>());
    else
      with_fading(std::integral_constant<Fading, Fading::kOne>());
  };
  const size_t most = s.dk <= kWideRows ? kWide : 2;
  for (size_t col = begin, width; col < end; col += width) {
    const size_t vectors = std::min(most, (end - col + kLanes - 1) / kLanes);
    const size_t W = vectors == 3 ? 2 : vectors;
    width = std::min(end - col, W * kLanes);
    if (W == 1)
      with(std::integral_constant<size_t, 1>(), col, width);
    else if (W == 2)
      with(std::integral_constant<size_t, 2>(), col, width);
    else
      with(std::integral_constant<size_t, kWide>(), col, width);
  }
}

void fwd(const FastWeightShape& s, const FastWeightIn& in, size_t seq, size_t head, size_t begin, size_t end,
         Mat<float> o, float* s_end, const FastWeightMarks& marks, float* /*scratch*/) {
  const Head h(s, in, seq, head);
  const float* s0 = state_of(s, in.s0.empty() ? nullptr : in.s0[seq], head);
  for_panels<kWideFwd>(s, begin, end, [&](auto W, auto delta, auto fading, size_t col, size_t width) {
    fwd_panel<W, delta, fading>(h, {col, width}, s0, state_of(s, s_end, head), marks, o);
  });
}

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

void bwd(const FastWeightShape& s, const FastWeightIn& in, Mat<const float> dout, const float* ds_end,
         const FastWeightGrad& grad, size_t seq, size_t key_head, float* ds0, float* dg_head,
         const FastWeightMarks& /*marks*/, float* scratch) {
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#endif
