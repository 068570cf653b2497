// What the SIMD files share: loops over any length, and vectorised exp and kin. Included once per target; see
// rmsnorm.cpp for the pattern. No reads or writes beyond the given length: the tail runs through one-lane
// vectors.
//
// Error bounds against double over all of float, held by simd_math_test.cpp: exp 1.1 ulp, log 1 ulp, sigmoid
// and silu 2.5 ulp, softplus 2 ulp, also where the result is denormal. Exception: below x = -88.72 sigmoid
// and silu give 0 (off by less than 3e-39 and 3e-37). NaN in gives NaN out (Highway's own Exp gives 0);
// exp(-inf) = 0, exp(> 88.73) = inf, log(0) = -inf, silu(-inf) = NaN.
#if defined(BRAID_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_SIMD_INL_H_
#undef BRAID_SIMD_INL_H_
#else
#define BRAID_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Full = hn::ScalableTag<float>;
using One = hn::CappedTag<float, 1>;
using VFull = hn::Vec<Full>;

// f(tag, i) for whole vectors, then for the single numbers that are left.
template <class F>
HWY_INLINE void for_lanes(size_t n, const F& f) {
  const Full d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) f(d, i);
  for (; i < n; ++i) f(One(), i);
}

// Sum of f(tag, i), where f returns a vector.
template <class F>
HWY_INLINE float sum_lanes(size_t n, const F& f) {
  const Full d;
  const size_t lanes = hn::Lanes(d);
  // Two accumulators hide the latency of the addition.
  auto a = hn::Zero(d), b = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    a = hn::Add(a, f(d, i));
    b = hn::Add(b, f(d, i + lanes));
  }
  if (i + lanes <= n) {
    a = hn::Add(a, f(d, i));
    i += lanes;
  }
  float s = hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b)));
  for (; i < n; ++i) s += hn::GetLane(f(One(), i));
  return s;
}

// Maximum of f(tag, i); -inf for n = 0.
template <class F>
HWY_INLINE float max_lanes(size_t n, const F& f) {
  const Full d;
  auto a = hn::Set(d, -HUGE_VALF);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) a = hn::Max(a, f(d, i));
  float m = hn::GetLane(hn::MaxOfLanes(d, a));
  for (; i < n; ++i) {
    const float x = hn::GetLane(f(One(), i));
    m = x > m ? x : m;
  }
  return m;
}

// Sums of R vectors to R numbers.
template <size_t R>
HWY_INLINE void store_sums(const VFull (&x)[R], float* to) {
  const Full d;
  if constexpr (R == 4) {
    // A 4 x 4 transpose that adds on the way; then the 128-bit blocks hold shares of the same four sums.
    const hn::RepartitionToWide<Full> dw;
    const auto pair = [&](VFull a, VFull b) {
      return hn::BitCast(dw, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
    };
    const auto ab = pair(x[0], x[1]), cd = pair(x[2], x[3]);
    const VFull sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(dw, ab, cd)),
                               hn::BitCast(d, hn::InterleaveUpper(dw, ab, cd)));
    const hn::CappedTag<float, 4> d4;
#if HWY_TARGET <= HWY_AVX3
    const hn::CappedTag<float, 8> d8;
    const auto half = hn::Add(hn::LowerHalf(d8, sums), hn::UpperHalf(d8, sums));
    hn::StoreU(hn::Add(hn::LowerHalf(d4, half), hn::UpperHalf(d4, half)), d4, to);
#elif HWY_TARGET <= HWY_AVX2
    hn::StoreU(hn::Add(hn::LowerHalf(d4, sums), hn::UpperHalf(d4, sums)), d4, to);
#else
    hn::StoreU(sums, d4, to);
#endif
  } else {
    for (size_t r = 0; r < R; ++r) to[r] = hn::GetLane(hn::SumOfLanes(d, x[r]));
  }
}

// 2^n for integers n of either sign, |n| <= 126.
template <class D, class V>
HWY_INLINE V pow2(D d, hn::VFromD<hn::RebindToSigned<D>> n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// exp(c - n ln 2), for n the whole number next to c / ln 2: what is left of exp(c) when 2^n is taken out.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_remainder(D d, V c, V n) {
  // ln 2 in two parts: the first has few bits, so n * hi is exact.
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), c);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  return hn::Add(hn::MulAdd(hn::Mul(r, r), p, r), hn::Set(d, 1.0f));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_v(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V c = hn::Min(hn::Max(x, hn::Set(d, -104.0f)), hn::Set(d, 89.0f));
  const V n = hn::Round(hn::Mul(c, hn::Set(d, 1.44269504088896341f)));
  const V p = exp_remainder(d, c, n);
  // In two steps, so that results below 2^-126 and above 2^127 come out right.
  const auto ni = hn::ConvertTo(di, n), half = hn::ShiftRight<1>(ni);
  const V y = hn::Mul(hn::Mul(p, pow2<D, V>(d, half)), pow2<D, V>(d, hn::Sub(ni, half)));
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// exp(x) for x <= 0, give or take rounding; what would be below 2^-126 is 0, NaN stays NaN. 15 operations
// where exp_v needs 24 for its wider range: with heads of 32 the exponentials take as long as the products.
HWY_INLINE VFull exp_weight(VFull x) {
  const Full d;
  const hn::RebindToSigned<Full> di;
  // x86 gives the second operand if one is NaN. At -88 n is -127, whose power of two below is 0.
  const VFull c = hn::Max(hn::Set(d, -88.0f), x);
  // Adding 1.5 * 2^23 rounds to an integer and leaves it, with the exponent's bias of 127, in the low bits.
  const VFull magic = hn::Set(d, 12582912.0f + 127.0f);
  const VFull shifted = hn::MulAdd(c, hn::Set(d, 1.44269504088896341f), magic), n = hn::Sub(shifted, magic);
  return hn::Mul(exp_remainder(d, c, n), hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
}

// Natural logarithm of positive normal numbers; anything else gives some number.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_normal_v(D d, V x) {
  const hn::RebindToSigned<D> di;
  // x = m 2^e with m in [sqrt(1/2), sqrt(2)).
  const auto bits = hn::BitCast(di, x);
  const auto shifted = hn::Sub(bits, hn::Set(di, 0x3f3504f3));
  const V e = hn::ConvertTo(d, hn::ShiftRight<23>(shifted));
  const V m = hn::BitCast(d, hn::Add(hn::And(shifted, hn::Set(di, 0x007fffff)), hn::Set(di, 0x3f3504f3)));
  const V f = hn::Sub(m, hn::Set(d, 1.0f));
  V p = hn::Set(d, 7.0376836292e-2f);
  p = hn::MulAdd(p, f, hn::Set(d, -1.1514610310e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.1676998740e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, -1.2420140846e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.4249322787e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, -1.6668057665e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 2.0000714765e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, -2.4999993993e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 3.3333331174e-1f));
  const V f2 = hn::Mul(f, f);
  V y = hn::Mul(hn::Mul(p, f), f2);
  y = hn::MulAdd(e, hn::Set(d, -2.12194440e-4f), y);
  y = hn::NegMulAdd(hn::Set(d, 0.5f), f2, y);
  y = hn::Add(f, y);
  return hn::MulAdd(e, hn::Set(d, 0.693359375f), y);
}

// Natural logarithm of everything: log(0) = -inf, of negative numbers NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_v(D d, V x) {
  const V inf = hn::Set(d, HUGE_VALF), zero = hn::Zero(d);
  const auto tiny =
      hn::Lt(x, hn::Set(d, 0x1p-126f));  // scaled to normal: by 2^23, whose logarithm is 15.9424
  const V y = log_normal_v(d, hn::IfThenElse(tiny, hn::Mul(x, hn::Set(d, 0x1p23f)), x));
  const V log = hn::IfThenElse(tiny, hn::Sub(y, hn::Set(d, 15.942385152878742f)), y);
  const V other = hn::IfThenElse(hn::Lt(x, zero), hn::NaN(d), x);  // x itself for inf and NaN
  return hn::IfThenElse(hn::And(hn::Gt(x, zero), hn::Lt(x, inf)), log,
                        hn::IfThenElse(hn::Eq(x, zero), hn::Neg(inf), other));
}

// 1 + exp(-x) with fewer steps than exp_v takes, since tiny exponentials do not matter beside 1. On x86 the
// maximum and minimum of a number and NaN are their second operand, so NaN stays.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V one_plus_exp_neg(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V c = hn::Min(hn::Set(d, 89.0f), hn::Max(hn::Set(d, -86.0f), hn::Neg(x)));
  // Rounds as exp_weight does, and leaves n - 1 in the low bits: so n = 128 still is a number.
  const V magic = hn::Set(d, 12582912.0f + 126.0f);
  const V shifted = hn::MulAdd(c, hn::Set(d, 1.44269504088896341f), magic), n = hn::Sub(shifted, magic);
  const V p = exp_remainder(d, c, n);
  const V half = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  return hn::MulAdd(hn::Add(p, p), half, hn::Set(d, 1.0f));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid_v(D d, V x) {
  return hn::Div(hn::Set(d, 1.0f), one_plus_exp_neg(d, x));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V silu_v(D d, V x) {
  return hn::Div(x, one_plus_exp_neg(d, x));  // one rounding less than x * sigmoid
}

// log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V softplus_v(D d, V x) {
  const V one = hn::Set(d, 1.0f), t = exp_v(d, hn::Neg(hn::Abs(x))), u = hn::Add(one, t);
  // log1p(t) = log(u) + (t - (u - 1)) / u repairs what was rounded off in u.
  const V log1p = hn::Add(log_normal_v(d, u), hn::Div(hn::Sub(t, hn::Sub(u, one)), u));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Add(hn::Max(x, hn::Zero(d)), log1p));
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#endif
