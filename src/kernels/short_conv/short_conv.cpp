#include "kernels/short_conv/short_conv.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "kernels/common/ragged.h"
#include "kernels/short_conv/short_conv_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/short_conv/short_conv.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

// Rows of channels in L1 or L2. The padding keeps rows of different arrays out of one set of the cache.
constexpr size_t kBlock = kShortConvMaxBlock + 16;
// Tokens at once, which share the loads of weights and window. Rows whose stride is a power of two fall into
// one set of a cache, 8 lines: 4 rows of x and y, or 2 of x, dy and dx, still fit. 4 in the backward take 2.6
// instead of 2.0 ns per number at D = 2048. Widths above 4 are rare and not worth their code.
template <size_t W>
constexpr size_t kFwdRows = W <= 4 ? 4 : 1;
template <size_t W>
constexpr size_t kBwdRows = W <= 4 ? 2 : 1;
constexpr size_t kPiece = kShortConvMaxL2;
constexpr size_t kAhead = 8;       // rows between a prefetch and its use
constexpr size_t kPartRows = 256;  // rows per partial sum of dw

using Lines = float (*)[kBlock];
using ConstLines = const float (*)[kBlock];

// to[k][i] = from[i * K + k]: weights and states have their channels as the slow index.
template <size_t K>
HWY_INLINE void columns_in(const float* from, size_t n, Lines to) {
  const Full d;
  size_t i = 0;
  if constexpr (K <= 4)
    for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
      VFull v0, v1, v2, v3;
      if constexpr (K == 1) v0 = hn::LoadU(d, from + i);
      if constexpr (K == 2) hn::LoadInterleaved2(d, from + i * K, v0, v1);
      if constexpr (K == 3) hn::LoadInterleaved3(d, from + i * K, v0, v1, v2);
      if constexpr (K == 4) hn::LoadInterleaved4(d, from + i * K, v0, v1, v2, v3);
      hn::StoreU(v0, d, to[0] + i);
      if constexpr (K >= 2) hn::StoreU(v1, d, to[1] + i);
      if constexpr (K >= 3) hn::StoreU(v2, d, to[2] + i);
      if constexpr (K >= 4) hn::StoreU(v3, d, to[3] + i);
    }
  for (; i < n; ++i)
    for (size_t k = 0; k < K; ++k) to[k][i] = from[i * K + k];
}

// to[i * K + k] = from[k][i].
template <size_t K>
HWY_INLINE void columns_out(ConstLines from, size_t n, float* to) {
  const Full d;
  size_t i = 0;
  if constexpr (K <= 4)
    for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
      const VFull v0 = hn::LoadU(d, from[0] + i), v1 = hn::LoadU(d, from[K > 1 ? 1 : 0] + i),
                  v2 = hn::LoadU(d, from[K > 2 ? 2 : 0] + i), v3 = hn::LoadU(d, from[K > 3 ? 3 : 0] + i);
      if constexpr (K == 1) hn::StoreU(v0, d, to + i);
      if constexpr (K == 2) hn::StoreInterleaved2(v0, v1, d, to + i * K);
      if constexpr (K == 3) hn::StoreInterleaved3(v0, v1, v2, d, to + i * K);
      if constexpr (K == 4) hn::StoreInterleaved4(v0, v1, v2, v3, d, to + i * K);
    }
  for (; i < n; ++i)
    for (size_t k = 0; k < K; ++k) to[i * K + k] = from[k][i];
}

template <size_t K>
HWY_INLINE void columns_in_or_zero(const float* from, size_t n, Lines to) {
  if (from) return columns_in<K>(from, n, to);
  for (size_t k = 0; k < K; ++k) std::fill_n(to[k], n, 0.0f);
}

// Past the caches or not; single lanes never.
template <class D>
HWY_INLINE void put(D d, hn::Vec<D> v, float* to, bool stream) {
  if constexpr (std::is_same_v<D, Full>)
    if (stream) return hn::Stream(v, d, to);
  hn::StoreU(v, d, to);
}

// Whether rows of n channels from `begin` on, and their heads, are whole cache lines of m.
HWY_INLINE bool whole_lines(Mat<const float> m, size_t l2_dim, size_t begin, size_t n) {
  return (reinterpret_cast<uintptr_t>(m.data + begin) | sizeof(float) * (n | m.stride | l2_dim)) % 64 == 0;
}

// kRows tokens of channels [at, at + n). before holds the W - 1 inputs before them and is moved on. Each
// output is summed in the same order whatever kRows is. each(row, result) sees the results on their way.
template <size_t W, size_t kRows, class Each>
HWY_INLINE void fwd_rows(const float* const* x, ConstLines w, size_t at, size_t n, bool silu, Lines before,
                         float* const* y, const Each& each) {
  for_lanes(n, [&](auto d, size_t i) {
    using V = hn::Vec<decltype(d)>;
    V v[W - 1 + kRows], c[W];
    HWY_UNROLL(8)
    for (size_t k = 0; k < W; ++k) c[k] = hn::LoadU(d, w[k] + at + i);
    HWY_UNROLL(8)
    for (size_t k = 0; k < W - 1; ++k) v[k] = hn::LoadU(d, before[k] + at + i);
    HWY_UNROLL(4)
    for (size_t r = 0; r < kRows; ++r) {
      v[W - 1 + r] = hn::LoadU(d, x[r] + i);
      V z = hn::Mul(c[0], v[r]);
      HWY_UNROLL(8)
      for (size_t k = 1; k < W; ++k) z = hn::MulAdd(c[k], v[r + k], z);
      if (silu) z = silu_v(d, z);
      hn::StoreU(z, d, y[r] + i);
      each(r, z);
    }
    HWY_UNROLL(8)
    for (size_t k = 0; k < W - 1; ++k) hn::StoreU(v[kRows + k], d, before[k] + at + i);
  });
}

HWY_INLINE void prefetch_row(const float* p, size_t n) {
  for (size_t i = 0; i < n; i += 16) hwy::Prefetch(p + i);
}

HWY_INLINE void scale_row(const float* a, size_t n, float factor, bool stream, float* y) {
  for_lanes(
      n, [&](auto d, size_t i) { put(d, hn::Mul(hn::LoadU(d, a + i), hn::Set(d, factor)), y + i, stream); });
}

// A head of kRows tokens, scaled to length one. Squares are added up while the results are in registers and
// the rows have a sum each: one after the other they would wait for additions, root and quotient.
template <size_t W, size_t kRows>
HWY_INLINE void fwd_head(const float* const* x, ConstLines w, size_t at, size_t l2_dim, bool silu,
                         Lines before, bool stream, float* const* y) {
  HWY_ALIGN float a[kRows][kPiece];
  float* rows[kRows];
  VFull squares[kRows];
  float rest[kRows] = {};  // of lanes that are no whole vector
  for (size_t r = 0; r < kRows; ++r) rows[r] = a[r], squares[r] = hn::Zero(Full());
  fwd_rows<W, kRows>(x, w, at, l2_dim, silu, before, rows, [&](size_t r, auto z) {
    if constexpr (std::is_same_v<decltype(z), VFull>)
      squares[r] = hn::MulAdd(z, z, squares[r]);
    else
      rest[r] += hn::GetLane(z) * hn::GetLane(z);
  });
  for (size_t r = 0; r < kRows; ++r) {
    const float square = hn::GetLane(hn::SumOfLanes(Full(), squares[r])) + rest[r];
    scale_row(a[r], l2_dim, 1.0f / std::sqrt(square + kShortConvL2Eps), stream, y[r]);
  }
}

// Rows that are normalised or written past the caches are made in L1 first, a head or a piece of at most 256
// channels at a time: vectors of several rows by turns would leave lines half written.
template <size_t W, size_t kRows>
HWY_INLINE void fwd_group(const ShortConvPiece& p, size_t t, size_t l2_dim, bool stream, size_t begin,
                          size_t n, ConstLines w, Lines before) {
  const float* x[kRows];
  float* y[kRows];
  if (!l2_dim && !stream) {
    for (size_t r = 0; r < kRows; ++r) x[r] = p.x.row(t + r) + begin, y[r] = p.y.row(t + r) + begin;
    return fwd_rows<W, kRows>(x, w, 0, n, p.silu, before, y, [](size_t, auto) {});
  }
  HWY_ALIGN float a[kRows][kPiece];
  const size_t step = l2_dim ? l2_dim : kPiece;
  for (size_t at = 0; at < n; at += step) {
    const size_t count = std::min(step, n - at);
    for (size_t r = 0; r < kRows; ++r) x[r] = p.x.row(t + r) + begin + at, y[r] = p.y.row(t + r) + begin + at;
    if (l2_dim) {
      fwd_head<W, kRows>(x, w, at, count, p.silu, before, stream, y);
      continue;
    }
    float* rows[kRows];
    for (size_t r = 0; r < kRows; ++r) rows[r] = a[r];
    fwd_rows<W, kRows>(x, w, at, count, p.silu, before, rows, [](size_t, auto) {});
    for (size_t r = 0; r < kRows; ++r) scale_row(a[r], count, 1, stream, y[r]);
  }
}

template <size_t W>
void fwd_width(const ShortConvPiece& p, size_t l2_dim, size_t begin, size_t end) {
  const size_t n = end - begin, tokens = p.x.rows;
  const bool stream = p.stream && whole_lines(p.y, l2_dim, begin, n);
  HWY_ALIGN float w[W][kBlock], before[W - 1][kBlock];
  columns_in<W>(p.w + begin * W, n, w);
  columns_in_or_zero<W - 1>(p.state ? p.state + begin * (W - 1) : nullptr, n, before);
  for (size_t t = 0; t < tokens;) {
    const size_t rows = tokens - t < kFwdRows<W> ? 1 : kFwdRows<W>;
    for (size_t r = t + kAhead; r < std::min(tokens, t + kAhead + rows); ++r)
      prefetch_row(p.x.row(r) + begin, n);
    if (rows == 1)
      fwd_group<W, 1>(p, t, l2_dim, stream, begin, n, w, before);
    else
      fwd_group<W, kFwdRows<W>>(p, t, l2_dim, stream, begin, n, w, before);
    t += rows;
  }
  if (stream) hwy::FlushStream();  // before another thread reads y
  if (p.last) columns_out<W - 1>(before, n, p.last + begin * (W - 1));
}

// The gradient before the norm and silu, from dy: what bwd_rows takes. Computes z of kRows tokens again.
template <size_t W, size_t kRows>
HWY_INLINE void norm_bwd_rows(const float* const* x, const float* const* dy, ConstLines w, size_t at,
                              size_t n, size_t l2_dim, bool silu, ConstLines before, float (*a)[kPiece],
                              float (*g)[kPiece]) {
  for_lanes(n, [&](auto d, size_t i) {
    using V = hn::Vec<decltype(d)>;
    const V one = hn::Set(d, 1.0f);
    V v[W - 1 + kRows];
    HWY_UNROLL(8)
    for (size_t k = 0; k < W - 1; ++k) v[k] = hn::LoadU(d, before[k] + at + i);
    HWY_UNROLL(4)
    for (size_t r = 0; r < kRows; ++r) {
      v[W - 1 + r] = hn::LoadU(d, x[r] + i);
      V z = hn::Mul(hn::LoadU(d, w[0] + at + i), v[r]), slope = one;
      HWY_UNROLL(8)
      for (size_t k = 1; k < W; ++k) z = hn::MulAdd(hn::LoadU(d, w[k] + at + i), v[r + k], z);
      if (silu) {
        const V s = sigmoid_v(d, z);
        slope = hn::Mul(s, hn::MulAdd(z, hn::Sub(one, s), one));
        z = hn::Mul(z, s);
      }
      hn::StoreU(z, d, a[r] + i);
      hn::StoreU(slope, d, g[r] + i);
    }
  });
  for (size_t r = 0; r < kRows; ++r)
    for (size_t h = 0; h < n; h += l2_dim) {
      const float *ah = a[r] + h, *up = dy[r] + h;
      float* gh = g[r] + h;
      const float square = sum_lanes(l2_dim, [&](auto d, size_t i) {
        const auto v = hn::LoadU(d, ah + i);
        return hn::Mul(v, v);
      });
      const float dot = sum_lanes(
          l2_dim, [&](auto d, size_t i) { return hn::Mul(hn::LoadU(d, ah + i), hn::LoadU(d, up + i)); });
      const float rstd = 1.0f / std::sqrt(square + kShortConvL2Eps), share = dot * rstd * rstd;
      for_lanes(l2_dim, [&](auto d, size_t i) {
        const auto v = hn::NegMulAdd(hn::LoadU(d, ah + i), hn::Set(d, share), hn::LoadU(d, up + i));
        hn::StoreU(hn::Mul(hn::Mul(v, hn::Set(d, rstd)), hn::LoadU(d, gh + i)), d, gh + i);
      });
    }
}

// kRows tokens of channels [at, at + n): dx of the tokens W - 1 earlier, and their part of dw. before and dz
// hold what came before them and are moved on.
template <size_t W, size_t kRows>
HWY_INLINE void bwd_rows(const float* const* x, const float* const* dy, ConstLines w, size_t at, size_t n,
                         bool silu, Lines before, Lines dz, Lines dw, float* const* dx) {
  for_lanes(n, [&](auto d, size_t i) {
    using V = hn::Vec<decltype(d)>;
    const V one = hn::Set(d, 1.0f);
    V v[W - 1 + kRows], g[W - 1 + kRows], c[W], sum[W];
    HWY_UNROLL(8)
    for (size_t k = 0; k < W; ++k) c[k] = hn::LoadU(d, w[k] + at + i), sum[k] = hn::LoadU(d, dw[k] + at + i);
    HWY_UNROLL(8)
    for (size_t k = 0; k < W - 1; ++k)
      v[k] = hn::LoadU(d, before[k] + at + i), g[k] = hn::LoadU(d, dz[k] + at + i);
    HWY_UNROLL(4)
    for (size_t r = 0; r < kRows; ++r) {
      v[W - 1 + r] = hn::LoadU(d, x[r] + i);
      V up = hn::LoadU(d, dy[r] + i);
      if (silu) {
        V z = hn::Mul(c[0], v[r]);
        HWY_UNROLL(8)
        for (size_t k = 1; k < W; ++k) z = hn::MulAdd(c[k], v[r + k], z);
        const V s = sigmoid_v(d, z);
        up = hn::Mul(up, hn::Mul(s, hn::MulAdd(z, hn::Sub(one, s), one)));
      }
      g[W - 1 + r] = up;
      HWY_UNROLL(8)
      for (size_t k = 0; k < W; ++k) sum[k] = hn::MulAdd(up, v[r + k], sum[k]);
      V to = hn::Mul(c[W - 1], g[r]);
      HWY_UNROLL(8)
      for (size_t k = 1; k < W; ++k) to = hn::MulAdd(c[W - 1 - k], g[r + k], to);
      hn::StoreU(to, d, dx[r] + i);
    }
    HWY_UNROLL(8)
    for (size_t k = 0; k < W; ++k) hn::StoreU(sum[k], d, dw[k] + at + i);
    HWY_UNROLL(8)
    for (size_t k = 0; k < W - 1; ++k) {
      hn::StoreU(v[kRows + k], d, before[k] + at + i);
      hn::StoreU(g[kRows + k], d, dz[k] + at + i);
    }
  });
}

// A row of dx is written W - 1 tokens after its own x and dy were read, so dx may be either.
template <size_t W>
void bwd_width(const ShortConvIn& in, Mat<const float> dy, const float* dlast, const ShortConvGrad& out,
               size_t l2_dim, size_t begin, size_t end) {
  constexpr size_t kBefore = W - 1, kMany = kBwdRows<W>;
  const size_t n = end - begin, D = in.x.cols;
  const bool stream = out.dx.count() * sizeof(float) > kShortConvStreamBytes && out.dx.data != in.x.data &&
                      out.dx.data != dy.data && whole_lines(out.dx, l2_dim, begin, n);
  const size_t step = !l2_dim ? kPiece : kPiece / l2_dim * l2_dim;
  HWY_ALIGN float w[W][kBlock], dw[W][kBlock] = {}, part[W][kBlock] = {}, before[kBefore][kBlock],
                                dz[kBefore][kBlock], more[kBefore][kBlock], dbefore[kBefore][kBlock],
                                a[kMany][kPiece], g[kMany][kPiece];
  columns_in<W>(in.w + begin * W, n, w);
  // Sums in two levels, so that long batches do not add small products to a large sum.
  size_t summed = 0;
  const auto add_part = [&] {
    for (size_t k = 0; k < W; ++k)
      for (size_t i = 0; i < n; ++i) dw[k][i] += part[k][i], part[k][i] = 0;
    summed = 0;
  };
  for (size_t s = 0; s < in.seqs(); ++s) {
    const size_t first = in.offsets[s], tokens = in.offsets[s + 1] - first;
    const size_t at = (s * D + begin) * kBefore;
    columns_in_or_zero<kBefore>(in.state ? in.state + at : nullptr, n, before);
    columns_in_or_zero<kBefore>(dlast ? dlast + at : nullptr, n, more);
    columns_in_or_zero<kBefore>(nullptr, n, dz);
    // Where the gradient of the input t goes, counted from the first of the state.
    const auto target = [&](size_t t) {
      return t < kBefore ? dbefore[t] : out.dx.row(first + t - kBefore) + begin;
    };
    const float *x[kMany], *up[kMany];
    float* to[kMany];
    for (size_t t = 0; t < tokens;) {
      const size_t rows = tokens - t < kMany ? 1 : kMany;
      for (size_t r = 0; r < rows; ++r) {
        x[r] = in.x.row(first + t + r) + begin, up[r] = dy.row(first + t + r) + begin;
        to[r] = target(t + r);
      }
      for (size_t r = t + kAhead; r < std::min(tokens, t + kAhead + rows); ++r) {
        prefetch_row(in.x.row(first + r) + begin, n);
        prefetch_row(dy.row(first + r) + begin, n);
      }
      const auto group = [&](auto count) {
        constexpr size_t kRows = decltype(count)::value;
        for (size_t c = 0; c < n; c += step) {
          const size_t m = std::min(step, n - c);
          const float *xs[kRows], *ups[kRows];
          float* tos[kRows];
          for (size_t r = 0; r < kRows; ++r) {
            xs[r] = x[r] + c, ups[r] = up[r] + c;
            tos[r] = stream ? a[r] : to[r] + c;
          }
          if (l2_dim) {
            norm_bwd_rows<W, kRows>(xs, ups, w, c, m, l2_dim, in.silu, before, a, g);
            for (size_t r = 0; r < kRows; ++r) ups[r] = g[r];
          }
          bwd_rows<W, kRows>(xs, ups, w, c, m, in.silu && !l2_dim, before, dz, part, tos);
          for (size_t r = 0; stream && r < kRows; ++r)
            for_lanes(m, [&](auto d, size_t i) { put(d, hn::LoadU(d, a[r] + i), to[r] + c + i, true); });
        }
      };
      if (rows == 1)
        group(std::integral_constant<size_t, 1>());
      else
        group(std::integral_constant<size_t, kMany>());
      t += rows, summed += rows;
      if (summed >= kPartRows) add_part();
    }
    // The last W - 1 inputs also went into the state that was handed on; no tokens follow.
    for (size_t j = 0; j < kBefore; ++j) {
      float* last = target(tokens + j);
      for_lanes(n, [&](auto d, size_t i) {
        auto sum = hn::LoadU(d, more[j] + i);
        for (size_t k = 0; j + k < kBefore; ++k)
          sum = hn::MulAdd(hn::LoadU(d, w[W - 1 - k] + i), hn::LoadU(d, dz[j + k] + i), sum);
        hn::StoreU(sum, d, last + i);
      });
    }
    if (out.dstate) columns_out<kBefore>(dbefore, n, out.dstate + at);
  }
  if (stream) hwy::FlushStream();
  add_part();
  if (out.dw)
    for (size_t i = 0; i < n; ++i)
      for (size_t k = 0; k < W; ++k) out.dw[(begin + i) * W + k] += dw[k][i];
}

void fwd(const ShortConvPiece& p, size_t l2_dim, size_t begin, size_t end) {
  constexpr decltype(&fwd) kWidths[] = {fwd_width<2>, fwd_width<3>, fwd_width<4>, fwd_width<5>,
                                        fwd_width<6>, fwd_width<7>, fwd_width<8>};
  kWidths[p.width - kShortConvMinWidth](p, l2_dim, begin, end);
}

void bwd(const ShortConvIn& in, Mat<const float> dy, const float* dlast, const ShortConvGrad& out,
         size_t l2_dim, size_t begin, size_t end) {
  constexpr decltype(&bwd) kWidths[] = {bwd_width<2>, bwd_width<3>, bwd_width<4>, bwd_width<5>,
                                        bwd_width<6>, bwd_width<7>, bwd_width<8>};
  kWidths[in.width - kShortConvMinWidth](in, dy, dlast, out, l2_dim, begin, end);
}

constexpr ShortConvFns kFns{fwd, bwd};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

void ref_fwd(const ShortConvPiece& p, size_t l2_dim, size_t begin, size_t end) {
  const size_t at = begin * (p.width - 1);
  const std::vector<float> x = dense(p.x.col_range(begin, end));
  std::vector<float> y(x.size());
  ref::short_conv_fwd<float>({p.x.rows, end - begin, p.width, p.silu, l2_dim, l2_dim ? end - begin : 0},
                             x.data(), p.w + begin * p.width, p.state ? p.state + at : nullptr, y.data(),
                             p.last ? p.last + at : nullptr);
  scatter(y, p.y.col_range(begin, end));
}

void ref_bwd(const ShortConvIn& in, Mat<const float> dy, const float* dlast, const ShortConvGrad& out,
             size_t l2_dim, size_t begin, size_t end) {
  std::vector<float> dw((end - begin) * in.width);
  for (size_t s = 0; s < in.seqs(); ++s) {
    const size_t at = (s * in.x.cols + begin) * (in.width - 1);
    const auto part = [&](auto m) {
      return m.row_range(in.offsets[s], in.offsets[s + 1]).col_range(begin, end);
    };
    const std::vector<float> x = dense(part(in.x)), up = dense(part(dy));
    std::vector<float> dx(x.size());
    ref::short_conv_bwd<float>(
        {in.offsets[s + 1] - in.offsets[s], end - begin, in.width, in.silu, l2_dim, l2_dim ? end - begin : 0},
        x.data(), in.w + begin * in.width, in.state ? in.state + at : nullptr, up.data(),
        dlast ? dlast + at : nullptr, dx.data(), dw.data(), out.dstate ? out.dstate + at : nullptr);
    scatter(dx, part(out.dx));
  }
  for (size_t i = 0; out.dw && i < dw.size(); ++i) out.dw[begin * in.width + i] += dw[i];
}

constexpr ShortConvFns kRefFns{ref_fwd, ref_bwd};

// Channels cut into tasks, no more than threads need (no channel knows of another): whole heads first, then
// what is not normalised. Long pieces of rows follow each other on few pages of memory: halves of 2048
// channels take 2.0 ms where eighths take 2.9 (T4096, two cores of Zen 4), although their weights leave L1.
struct Blocks {
  size_t channels, l2_dim, l2_channels, width, heads_width, normed;

  Blocks(size_t taps, size_t all, size_t dim, size_t of, Par par)
      : channels(all), l2_dim(dim), l2_channels(of) {
    check(taps >= kShortConvMinWidth && taps <= kShortConvMaxWidth, "short_conv: width must be 2 .. 8");
    check(dim <= kShortConvMaxL2 && of <= all && (dim ? of % dim == 0 : of == 0),
          "short_conv: l2_dim must divide l2_channels");
    const size_t share = all / std::max<size_t>(2, par.threads());
    width = std::clamp((share + kShortConvMinBlock - 1) / kShortConvMinBlock * kShortConvMinBlock,
                       kShortConvMinBlock, kShortConvMaxBlock);
    heads_width = dim ? dim * std::max<size_t>(1, width / dim) : 0;
    normed = dim ? (of + heads_width - 1) / heads_width : 0;
  }
  size_t count() const { return normed + (channels - l2_channels + width - 1) / width; }
  template <class Run>  // run(l2_dim, begin, end)
  void at(size_t i, const Run& run) const {
    if (i < normed) return run(l2_dim, i * heads_width, std::min(l2_channels, (i + 1) * heads_width));
    const size_t begin = l2_channels + (i - normed) * width;
    run(0, begin, std::min(channels, begin + width));
  }
};

}  // namespace

const Impls<ShortConvFns>& short_conv_impls() {
  static const Impls<ShortConvFns> table("short_conv", {"avx512", Isa::kAvx512, &N_AVX3::kFns},
                                         {"avx2", Isa::kAvx2, &N_AVX2::kFns},
                                         {"sse", Isa::kBase, &N_SSSE3::kFns}, {"ref", Isa::kBase, &kRefFns});
  return table;
}

void short_conv_fwd(const ShortConvIn& in, Mat<float> y, float* last, Par par) {
  const ShortConvFns& f = short_conv_impls().use(par);
  const Blocks blocks(in.width, in.x.cols, in.l2_dim, in.l2_channels, par);
  const size_t each = in.x.cols * (in.width - 1);
  const bool stream = y.count() * sizeof(float) > kShortConvStreamBytes && y.data != in.x.data;
  par.tasks(in.seqs() * blocks.count(), [&](size_t i) {
    const size_t s = i / blocks.count(), first = in.offsets[s], after = in.offsets[s + 1];
    const ShortConvPiece piece{in.x.row_range(first, after),
                               in.w,
                               in.width,
                               in.silu,
                               in.state ? in.state + s * each : nullptr,
                               y.row_range(first, after),
                               last ? last + s * each : nullptr,
                               stream};
    blocks.at(i % blocks.count(),
              [&](size_t l2_dim, size_t begin, size_t end) { f.fwd(piece, l2_dim, begin, end); });
  });
}

void short_conv_bwd(const ShortConvIn& in, Mat<const float> dy, const float* dlast, const ShortConvGrad& out,
                    Par par) {
  const ShortConvFns& f = short_conv_impls().use(par);
  const Blocks blocks(in.width, in.x.cols, in.l2_dim, in.l2_channels, par);
  par.tasks(blocks.count(), [&](size_t i) {
    blocks.at(
        i, [&](size_t l2_dim, size_t begin, size_t end) { f.bwd(in, dy, dlast, out, l2_dim, begin, end); });
  });
}

void short_conv_step(const ShortConvStep& in, Mat<float> y, Par par) {
  const ShortConvFns& f = short_conv_impls().use(par);
  const Blocks blocks(in.width, in.x.cols, in.l2_dim, in.l2_channels, par);
  par.tasks(in.x.rows * blocks.count(), [&](size_t i) {
    const size_t s = i / blocks.count();
    const ShortConvPiece piece{in.x.row_range(s, s + 1), in.w,         in.width, in.silu, in.states[s],
                               y.row_range(s, s + 1),    in.states[s], false};
    blocks.at(i % blocks.count(),
              [&](size_t l2_dim, size_t begin, size_t end) { f.fwd(piece, l2_dim, begin, end); });
  });
}

}  // namespace braid
#endif
