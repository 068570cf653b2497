#include "kernels/short_conv/short_conv.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <vector>

#include "base/check.h"
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

constexpr size_t kBlock = kShortConvBlock;
// Tokens at once, which share the loads of weights and window. Rows whose stride is a power of two fall into
// one set of a cache, 8 lines: 4 rows of x and y, or 2 of x, dy and dx, still fit. 4 in the backward take 2.6
// instead of 2.0 ns per number at D = 2048. Widths above 4 are rare and not worth their code.
template <size_t W>
constexpr size_t kFwdRows = W <= 4 ? 4 : 1;
template <size_t W>
constexpr size_t kBwdRows = W <= 4 ? 2 : 1;
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
  if (from)
    columns_in<K>(from, n, to);
  else
    std::fill(to[0], to[0] + K * kBlock, 0.0f);
}

// kRows tokens of n channels. before holds the W - 1 inputs before them and is moved on. Each output is
// summed in the same order whatever kRows is.
template <size_t W, size_t kRows>
HWY_INLINE void fwd_rows(const float* const* x, ConstLines w, size_t n, bool silu, Lines before,
                         float* const* y) {
  for_lanes(n, [&](auto d, size_t i) {
    using V = hn::Vec<decltype(d)>;
    V v[W - 1 + kRows], c[W];
    HWY_UNROLL(8)
    for (size_t k = 0; k < W; ++k) c[k] = hn::LoadU(d, w[k] + i);
    HWY_UNROLL(8)
    for (size_t k = 0; k < W - 1; ++k) v[k] = hn::LoadU(d, before[k] + i);
    HWY_UNROLL(4)
    for (size_t r = 0; r < kRows; ++r) {
      v[W - 1 + r] = hn::LoadU(d, x[r] + i);
      V z = hn::Mul(c[0], v[r]);
      HWY_UNROLL(8)
      for (size_t k = 1; k < W; ++k) z = hn::MulAdd(c[k], v[r + k], z);
      hn::StoreU(silu ? silu_v(d, z) : z, d, y[r] + i);
    }
    HWY_UNROLL(8)
    for (size_t k = 0; k < W - 1; ++k) hn::StoreU(v[kRows + k], d, before[k] + i);
  });
}

HWY_INLINE void prefetch_row(const float* p, size_t n) {
  for (size_t i = 0; i < n; i += 16) hwy::Prefetch(p + i);
}

template <size_t W>
void fwd_width(const ShortConvPiece& p, size_t begin, size_t end) {
  const size_t n = end - begin, tokens = p.x.rows;
  HWY_ALIGN float w[W][kBlock], before[W - 1][kBlock];
  columns_in<W>(p.w + begin * W, n, w);
  columns_in_or_zero<W - 1>(p.state ? p.state + begin * (W - 1) : nullptr, n, before);
  const float* x[kFwdRows<W>];
  float* y[kFwdRows<W>];
  for (size_t t = 0; t < tokens;) {
    const size_t rows = tokens - t < kFwdRows<W> ? 1 : kFwdRows<W>;
    for (size_t r = 0; r < rows; ++r) x[r] = p.x.row(t + r) + begin, y[r] = p.y.row(t + r) + begin;
    for (size_t r = t + kAhead; r < std::min(tokens, t + kAhead + rows); ++r)
      prefetch_row(p.x.row(r) + begin, n);
    if (rows == 1)
      fwd_rows<W, 1>(x, w, n, p.silu, before, y);
    else
      fwd_rows<W, kFwdRows<W>>(x, w, n, p.silu, before, y);
    t += rows;
  }
  if (p.last) columns_out<W - 1>(before, n, p.last + begin * (W - 1));
}

// kRows tokens of n channels: dx of the tokens W - 1 earlier, and their part of dw. before and dz hold what
// came before them and are moved on.
template <size_t W, size_t kRows>
HWY_INLINE void bwd_rows(const float* const* x, const float* const* dy, ConstLines w, size_t n, bool silu,
                         Lines before, Lines dz, Lines dw, float* const* dx) {
  for_lanes(n, [&](auto d, size_t i) {
    using V = hn::Vec<decltype(d)>;
    const V one = hn::Set(d, 1.0f);
    V v[W - 1 + kRows], g[W - 1 + kRows], c[W], sum[W];
    HWY_UNROLL(8)
    for (size_t k = 0; k < W; ++k) c[k] = hn::LoadU(d, w[k] + i), sum[k] = hn::LoadU(d, dw[k] + i);
    HWY_UNROLL(8)
    for (size_t k = 0; k < W - 1; ++k) v[k] = hn::LoadU(d, before[k] + i), g[k] = hn::LoadU(d, dz[k] + i);
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
    for (size_t k = 0; k < W; ++k) hn::StoreU(sum[k], d, dw[k] + i);
    HWY_UNROLL(8)
    for (size_t k = 0; k < W - 1; ++k) {
      hn::StoreU(v[kRows + k], d, before[k] + i);
      hn::StoreU(g[kRows + k], d, dz[k] + i);
    }
  });
}

// A row of dx is written W - 1 tokens after its own x and dy were read, so dx may be either.
template <size_t W>
void bwd_width(const ShortConvIn& in, Mat<const float> dy, const float* dlast, const ShortConvGrad& out,
               size_t begin, size_t end) {
  constexpr size_t kBefore = W - 1;
  const size_t n = end - begin, D = in.x.cols;
  HWY_ALIGN float w[W][kBlock], dw[W][kBlock] = {}, part[W][kBlock] = {}, before[kBefore][kBlock],
                                dz[kBefore][kBlock], more[kBefore][kBlock], dbefore[kBefore][kBlock];
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
    const float *x[kBwdRows<W>], *up[kBwdRows<W>];
    float* to[kBwdRows<W>];
    for (size_t t = 0; t < tokens;) {
      const size_t rows = tokens - t < kBwdRows<W> ? 1 : kBwdRows<W>;
      for (size_t r = 0; r < rows; ++r) {
        x[r] = in.x.row(first + t + r) + begin, up[r] = dy.row(first + t + r) + begin;
        to[r] = target(t + r);
      }
      for (size_t r = t + kAhead; r < std::min(tokens, t + kAhead + rows); ++r) {
        prefetch_row(in.x.row(first + r) + begin, n);
        prefetch_row(dy.row(first + r) + begin, n);
      }
      if (rows == 1)
        bwd_rows<W, 1>(x, up, w, n, in.silu, before, dz, part, to);
      else
        bwd_rows<W, kBwdRows<W>>(x, up, w, n, in.silu, before, dz, part, to);
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
  add_part();
  if (out.dw)
    for (size_t i = 0; i < n; ++i)
      for (size_t k = 0; k < W; ++k) out.dw[(begin + i) * W + k] += dw[k][i];
}

void fwd(const ShortConvPiece& p, size_t begin, size_t end) {
  constexpr decltype(&fwd) kWidths[] = {fwd_width<2>, fwd_width<3>, fwd_width<4>, fwd_width<5>,
                                        fwd_width<6>, fwd_width<7>, fwd_width<8>};
  kWidths[p.width - kShortConvMinWidth](p, begin, end);
}

void bwd(const ShortConvIn& in, Mat<const float> dy, const float* dlast, const ShortConvGrad& out,
         size_t begin, size_t end) {
  constexpr decltype(&bwd) kWidths[] = {bwd_width<2>, bwd_width<3>, bwd_width<4>, bwd_width<5>,
                                        bwd_width<6>, bwd_width<7>, bwd_width<8>};
  kWidths[in.width - kShortConvMinWidth](in, dy, dlast, out, begin, end);
}

constexpr ShortConvFns kFns{fwd, bwd};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

// The reference wants dense rows.
std::vector<float> dense(Mat<const float> m) {
  std::vector<float> to;
  for (size_t r = 0; r < m.rows; ++r) to.insert(to.end(), m.row(r), m.row(r) + m.cols);
  return to;
}

void scatter(const std::vector<float>& from, Mat<float> to) {
  for (size_t r = 0; r < to.rows; ++r) std::copy_n(from.data() + r * to.cols, to.cols, to.row(r));
}

void ref_fwd(const ShortConvPiece& p, size_t begin, size_t end) {
  const size_t at = begin * (p.width - 1);
  const std::vector<float> x = dense(p.x.col_range(begin, end));
  std::vector<float> y(x.size());
  ref::short_conv_fwd<float>({p.x.rows, end - begin, p.width, p.silu}, x.data(), p.w + begin * p.width,
                             p.state ? p.state + at : nullptr, y.data(), p.last ? p.last + at : nullptr);
  scatter(y, p.y.col_range(begin, end));
}

void ref_bwd(const ShortConvIn& in, Mat<const float> dy, const float* dlast, const ShortConvGrad& out,
             size_t begin, size_t end) {
  std::vector<float> dw((end - begin) * in.width);
  for (size_t s = 0; s < in.seqs(); ++s) {
    const size_t at = (s * in.x.cols + begin) * (in.width - 1);
    const auto part = [&](auto m) {
      return m.row_range(in.offsets[s], in.offsets[s + 1]).col_range(begin, end);
    };
    const std::vector<float> x = dense(part(in.x)), up = dense(part(dy));
    std::vector<float> dx(x.size());
    ref::short_conv_bwd<float>({in.offsets[s + 1] - in.offsets[s], end - begin, in.width, in.silu}, x.data(),
                               in.w + begin * in.width, in.state ? in.state + at : nullptr, up.data(),
                               dlast ? dlast + at : nullptr, dx.data(), dw.data(),
                               out.dstate ? out.dstate + at : nullptr);
    scatter(dx, part(out.dx));
  }
  for (size_t i = 0; out.dw && i < dw.size(); ++i) out.dw[begin * in.width + i] += dw[i];
}

constexpr ShortConvFns kRefFns{ref_fwd, ref_bwd};

void check_width(size_t width) {
  check(width >= kShortConvMinWidth && width <= kShortConvMaxWidth, "short_conv: width must be 2 .. 8");
}

// run(sequence, begin, end) for each block of channels of each sequence.
template <class Run>
void for_blocks(size_t seqs, size_t channels, Par par, const Run& run) {
  const size_t blocks = (channels + kShortConvBlock - 1) / kShortConvBlock;
  par.tasks(seqs * blocks, [&](size_t i) {
    const size_t begin = i % blocks * kShortConvBlock;
    run(i / blocks, begin, std::min(channels, begin + kShortConvBlock));
  });
}

}  // namespace

Impls<ShortConvFns>& short_conv_impls() {
  static Impls<ShortConvFns> table("short_conv", {"avx512", Isa::kAvx512, &N_AVX3::kFns},
                                   {"avx2", Isa::kAvx2, &N_AVX2::kFns}, {"sse", Isa::kBase, &N_SSSE3::kFns},
                                   {"ref", Isa::kBase, &kRefFns});
  return table;
}

void short_conv_fwd(const ShortConvIn& in, Mat<float> y, float* last, Par par) {
  check_width(in.width);
  const ShortConvFns& f = short_conv_impls().use();
  const size_t each = in.x.cols * (in.width - 1);
  for_blocks(in.seqs(), in.x.cols, par, [&](size_t s, size_t begin, size_t end) {
    const size_t first = in.offsets[s], after = in.offsets[s + 1];
    f.fwd({in.x.row_range(first, after), in.w, in.width, in.silu, in.state ? in.state + s * each : nullptr,
           y.row_range(first, after), last ? last + s * each : nullptr},
          begin, end);
  });
}

void short_conv_bwd(const ShortConvIn& in, Mat<const float> dy, const float* dlast, const ShortConvGrad& out,
                    Par par) {
  check_width(in.width);
  const ShortConvFns& f = short_conv_impls().use();
  par.blocks(in.x.cols, kShortConvBlock,
             [&](size_t begin, size_t end) { f.bwd(in, dy, dlast, out, begin, end); });
}

void short_conv_step(const ShortConvStep& in, Mat<float> y, Par par) {
  check_width(in.width);
  const ShortConvFns& f = short_conv_impls().use();
  for_blocks(in.x.rows, in.x.cols, par, [&](size_t s, size_t begin, size_t end) {
    f.fwd({in.x.row_range(s, s + 1), in.w, in.width, in.silu, in.states[s], y.row_range(s, s + 1),
           in.states[s]},
          begin, end);
  });
}

}  // namespace braid
#endif
