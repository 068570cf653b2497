// The recurrent form: one pass over the state per token, in panels of columns that stay in L1. Included once
// per target.
#if defined(BRAID_FAST_WEIGHT_RECURRENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_FAST_WEIGHT_RECURRENT_INL_H_
#undef BRAID_FAST_WEIGHT_RECURRENT_INL_H_
#else
#define BRAID_FAST_WEIGHT_RECURRENT_INL_H_
#endif

#include "kernels/common/gemm-inl.h"
#include "kernels/fast_weight/recurrent_sizes.h"
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#endif
