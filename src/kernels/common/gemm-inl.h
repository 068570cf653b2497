// Small f32 matrix products on strided row-major operands, for use inside kernels. Included once per target
// like simd-inl.h.
//   gemm_nn(m, n, k, a, lda, b, ldb, c, ldc, Into::kOverwrite, alpha)    C  = alpha A B     A: [m, k]
//   gemm_tn(m, n, k, a, lda, b, ldb, c, ldc, Into::kAdd, alpha)          C += alpha A^T B   A: [k, m]
//   gemm_tn_keep(m, n, k, a, lda, b, ldb, keep, from, c, ldc)            C = keep from + A^T B, a factor per
//   row
//   gemm<false, Pairs>(m, n, args)    the same where a lane of A and B holds two bf16 that follow along k
// B: [k, n], C: [m, n]; any m, n, k >= 0 (k = 0 gives zeros). Nothing outside the operands is read or
// written. For A B^T call transpose() on B first.
//
// No packing and no blocking for caches: columns are walked in panels of two vectors, with AVX-512 of four,
// so the k x panel piece of B should fit L1 and all of A L2. Row strides that are a multiple of 4 KiB map a
// panel of B to one cache set; callers with such operands copy them first.
#if defined(BRAID_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_GEMM_INL_H_
#undef BRAID_GEMM_INL_H_
#else
#define BRAID_GEMM_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <array>
#include <utility>

#include "kernels/common/into.h"
#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

// Register tile: rows x two vectors of accumulators, two vectors of B and one broadcast of A. 2 FMA ports x 4
// cycles need at least 8 accumulators.
constexpr size_t kGemmVecs = 2;
#if HWY_TARGET <= HWY_AVX3
constexpr size_t kGemmRows = 8;  // 16 + 2 + 1 of 32 registers; more rows gain nothing and cost compile time
// Where there are columns enough, 6 rows x four vectors: 24 + 4 + 1 registers, and 10 loads for 24 products
// where 8 x 2 has 10 for 16. (One core of Ice Lake, B in L1: 170 GFLOP/s of 175, with 8 x 2 and 12 x 2 145.)
constexpr size_t kGemmWideRows = 6;
#elif HWY_TARGET <= HWY_AVX2
constexpr size_t kGemmRows = 6;      // 12 + 2 + 1 of 16 registers
constexpr size_t kGemmWideRows = 0;  // never
#else
constexpr size_t kGemmRows = 4;  // without FMA each product needs a register
constexpr size_t kGemmWideRows = 0;
#endif
constexpr size_t kGemmWideVecs = kGemmWideRows ? 4 : kGemmVecs;  // vectors of columns in a panel, at most
constexpr size_t kGemmStrip =
    kGemmWideRows ? kGemmWideRows : kGemmRows;  // rows of C in a packed strip of A^T
// With one vector of columns and fewer than 8 rows a second set of accumulators takes every other k. Where a
// vector is as long as a chunk it must not: whether a chunk's columns are the first or the second half of a
// panel depends on where a pass ends, and must change no bit.
constexpr bool kGemmSplitSums = kGemmRows < 8;
constexpr size_t kGemmFar = 32;  // steps along k from which C is prefetched

struct GemmArgs {
  size_t k;
  const float* a;
  size_t lda;
  const float* b;
  size_t ldb;
  float* c;
  size_t ldc;
  float alpha;
  Into into;
  const float* keep = nullptr;  // of each row of C, for what is added to
  const float* from = nullptr;  // what is added to, if it is not C
  size_t strip = 0;  // A^T packed in strips of kGemmStrip rows of C, this far apart; 0: one matrix [k, m]
};

// The first n < Lanes(d) numbers at p, then zeros.
HWY_INLINE VFull load_first(Full d, const float* p, size_t n) {
#if HWY_TARGET <= HWY_AVX2
  return hn::MaskedLoad(hn::FirstN(d, n), d, p);
#else
  HWY_ALIGN float pad[hn::MaxLanes(Full())] = {};
  for (size_t i = 0; i < n; ++i) pad[i] = p[i];
  return hn::Load(d, pad);
#endif
}

HWY_INLINE void store_first(VFull v, Full d, float* p, size_t n) {
#if HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(d, n), d, p);
#else
  HWY_ALIGN float pad[hn::MaxLanes(Full())];
  hn::Store(v, d, pad);
  for (size_t i = 0; i < n; ++i) p[i] = pad[i];
#endif
}

// What a lane of A and one of B add to a sum.
struct Numbers {
  static HWY_INLINE VFull add(VFull a, VFull b, VFull sum) { return hn::MulAdd(a, b, sum); }
};
#if HWY_TARGET == HWY_AVX3
// Isa::kAvx512Dot. Both products of the pair in one instruction, which takes tiny numbers (below 2^-126) for
// zero. The target's flags do not have it, the assembler does.
struct Pairs {
  static HWY_INLINE VFull add(VFull a, VFull b, VFull sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
};
#endif

enum class GemmCols { kFourVectors, kTwoVectors, kOneVector, kTail };  // tail: the first `width` lanes of one
constexpr size_t gemm_vectors(GemmCols cols) {
  return cols == GemmCols::kFourVectors ? 4 : cols == GemmCols::kTwoVectors ? 2 : 1;
}
// Rows of a tile, at most.
constexpr size_t gemm_rows(GemmCols cols) {
  return cols == GemmCols::kFourVectors ? kGemmWideRows : kGemmRows;
}

// The same pointer, opaque to the compiler. Otherwise it spills pointers to all vectors of C: prologue and
// epilogue of the 6 x 4 register tile then have 330 instructions instead of 110.
template <class T>
HWY_INLINE T* unrelated(T* p) {
  asm("" : "+r"(p));
  return p;
}

// `groups` tiles of kRows rows below each other.
template <class Terms, size_t kRows, bool kTransA, GemmCols kCols>
HWY_NOINLINE void gemm_strip(const GemmArgs& args, size_t row, size_t groups, size_t col, size_t width) {
  const Full d;
  // What the loops over k need is copied; the rest is read again for every tile, as those loops need all
  // registers.
  const struct {
    size_t k, lda, ldb, ldc, strip;
    const float *a, *b;
    float* c;
  } g{args.k, args.lda, args.ldb, args.ldc, args.strip, args.a, args.b, args.c};
  const size_t lanes = hn::Lanes(d);
  constexpr size_t V = gemm_vectors(kCols);
  constexpr bool kSplit = V == 1 && kGemmSplitSums;
  const auto load = [&](const float* p) {
    if constexpr (kCols == GemmCols::kTail)
      return load_first(d, p, width);
    else
      return hn::LoadU(d, p);
  };
  for (; groups > 0; --groups, row += kRows) {
    VFull acc[kRows][kSplit ? 2 : V];
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r)
      for (VFull& sum : acc[r]) sum = hn::Zero(d);
    const float* a = g.a + (!kTransA ? row * g.lda : g.strip ? row / kRows * g.strip : row);
    const float* b = g.b + col;
    const auto at = [&](size_t r) { return hn::Set(d, kTransA ? a[r] : a[r * g.lda]); };
    const auto next = [&] { a += kTransA ? g.lda : 1, b += g.ldb; };
    size_t k = g.k;
    const size_t first = row * g.ldc + col;
    float* const c = g.c + first;
    // C often lies in L3, and the end of a long sum is too late to ask for it.
    if (V > 1 && k >= kGemmFar) {
      const float* to = c;
      HWY_UNROLL(8)
      for (size_t r = 0; r < kRows; ++r, to = unrelated(to + g.ldc))
        for (size_t v = 0; v < V; ++v) hwy::Prefetch(to + v * lanes);
    }
    if constexpr (!kSplit) {
      for (; k > 0; --k, next()) {
        VFull x[V];
        HWY_UNROLL(4)
        for (size_t v = 0; v < V; ++v) x[v] = load(b + v * lanes);
        HWY_UNROLL(8)
        for (size_t r = 0; r < kRows; ++r) {
          const VFull y = at(r);
          HWY_UNROLL(4)
          for (size_t v = 0; v < V; ++v) acc[r][v] = Terms::add(y, x[v], acc[r][v]);
        }
      }
    } else {
      for (; k > 1; k -= 2) {
        const VFull b0 = load(b);
        HWY_UNROLL(8)
        for (size_t r = 0; r < kRows; ++r) acc[r][0] = Terms::add(at(r), b0, acc[r][0]);
        next();
        const VFull b1 = load(b);
        HWY_UNROLL(8)
        for (size_t r = 0; r < kRows; ++r) acc[r][1] = Terms::add(at(r), b1, acc[r][1]);
        next();
      }
      if (k > 0) {
        const VFull b0 = load(b);
        HWY_UNROLL(8)
        for (size_t r = 0; r < kRows; ++r) acc[r][0] = Terms::add(at(r), b0, acc[r][0]);
      }
      HWY_UNROLL(8)
      for (size_t r = 0; r < kRows; ++r) acc[r][0] = hn::Add(acc[r][0], acc[r][1]);
    }
    // Row by row; one test for all rows of what is added to.
    const VFull alpha = hn::Set(d, args.alpha), zero = hn::Zero(d);
    const auto put = [&](const auto& old) {
      float* to = c;
      const float* from = args.from ? args.from + first : c;
      HWY_UNROLL(8)
      for (size_t r = 0; r < kRows; ++r) {
        HWY_UNROLL(4)
        for (size_t v = 0; v < V; ++v) {
          const VFull sum = hn::MulAdd(acc[r][v], alpha, old(from + v * lanes, r));
          if constexpr (kCols == GemmCols::kTail)
            store_first(sum, d, to, width);
          else
            hn::StoreU(sum, d, to + v * lanes);
        }
        to = unrelated(to + g.ldc), from = unrelated(from + g.ldc);
      }
    };
    if (args.into != Into::kAdd)
      put([&](const float*, size_t) { return zero; });
    else if (const float* keep = args.keep)
      put([&](const float* p, size_t r) { return hn::Mul(load(p), hn::Set(d, keep[row + r])); });
    else
      put([&](const float* p, size_t) { return load(p); });
  }
}

using GemmStrip = void (*)(const GemmArgs&, size_t row, size_t groups, size_t col, size_t width);

template <class Terms, bool kTransA, GemmCols kCols, size_t... rows>
constexpr std::array<GemmStrip, sizeof...(rows)> gemm_strips(std::index_sequence<rows...>) {
  return {gemm_strip<Terms, rows + 1, kTransA, kCols>...};
}

// All rows of one column panel, in tiles whose heights differ by at most one: 64 rows are 9 x 6 + 2 x 5, not
// 10 x 6 + 4, and 4 rows would leave the FMA ports waiting.
template <class Terms, bool kTransA, GemmCols kCols>
HWY_INLINE void gemm_panel(const GemmArgs& g, size_t m, size_t col, size_t width) {
  constexpr size_t kMost = gemm_rows(kCols);
  static constexpr auto kStrips = gemm_strips<Terms, kTransA, kCols>(std::make_index_sequence<kMost>());
  const size_t most = g.strip ? kGemmStrip : kMost;
  const size_t tiles = (m + most - 1) / most, height = m / tiles, tall = m % tiles;
  if (tall) kStrips[height](g, 0, tall, col, width);
  kStrips[height - 1](g, tall * (height + 1), tiles - tall, col, width);
}

template <bool kTransA, class Terms = Numbers>
HWY_INLINE void gemm(size_t m, size_t n, const GemmArgs& g) {
  if (m == 0) return;
  const size_t lanes = hn::Lanes(Full());
  size_t col = 0;
  if constexpr (kGemmWideRows > 0)
    for (; col + kGemmWideVecs * lanes <= n; col += kGemmWideVecs * lanes)
      gemm_panel<Terms, kTransA, GemmCols::kFourVectors>(g, m, col, 0);
  for (; col + 2 * lanes <= n; col += 2 * lanes)
    gemm_panel<Terms, kTransA, GemmCols::kTwoVectors>(g, m, col, 0);
  if (col + lanes <= n) {
    gemm_panel<Terms, kTransA, GemmCols::kOneVector>(g, m, col, 0);
    col += lanes;
  }
  if (col < n) gemm_panel<Terms, kTransA, GemmCols::kTail>(g, m, col, n - col);
}

HWY_INLINE void gemm_nn(size_t m, size_t n, size_t k, const float* a, size_t lda, const float* b, size_t ldb,
                        float* c, size_t ldc, Into into, float alpha = 1.0f) {
  gemm<false>(m, n, {k, a, lda, b, ldb, c, ldc, alpha, into});
}

HWY_INLINE void gemm_tn(size_t m, size_t n, size_t k, const float* a, size_t lda, const float* b, size_t ldb,
                        float* c, size_t ldc, Into into, float alpha = 1.0f) {
  gemm<true>(m, n, {k, a, lda, b, ldb, c, ldc, alpha, into});
}

HWY_INLINE void gemm_tn_keep(size_t m, size_t n, size_t k, const float* a, size_t lda, const float* b,
                             size_t ldb, const float* keep, const float* from, float* c, size_t ldc) {
  gemm<true>(m, n, {k, a, lda, b, ldb, c, ldc, 1.0f, Into::kAdd, keep, from});
}

// Rows r, r + 4, .. of 4 numbers each, one per 128-bit block.
template <class T>
HWY_INLINE hn::Vec<hn::ScalableTag<T>> load_blocks(hn::ScalableTag<T> d, const T* p, size_t stride) {
  const hn::CappedTag<T, 4> d4;
#if HWY_TARGET <= HWY_AVX3
  const hn::CappedTag<T, 8> d8;
  const auto low = hn::Combine(d8, hn::LoadU(d4, p + 4 * stride), hn::LoadU(d4, p));
  const auto high = hn::Combine(d8, hn::LoadU(d4, p + 12 * stride), hn::LoadU(d4, p + 8 * stride));
  return hn::Combine(d, high, low);
#elif HWY_TARGET <= HWY_AVX2
  return hn::Combine(d, hn::LoadU(d4, p + 4 * stride), hn::LoadU(d4, p));
#else
  (void)stride;
  (void)d;
  return hn::LoadU(d4, p);
#endif
}

// to[j][i] = from[i][j] for i < rows, j < cols; numbers of 32 bits.
template <class T>
HWY_INLINE void transpose(size_t rows, size_t cols, const T* from, size_t from_stride, T* to,
                          size_t to_stride) {
  static_assert(sizeof(T) == 4);
  const hn::ScalableTag<T> d;
  const hn::RepartitionToWide<decltype(d)> dw;
  const size_t lanes = hn::Lanes(d), whole_cols = cols / 4 * 4;
  size_t i = 0;
  for (; i + lanes <= rows; i += lanes) {
    size_t j = 0;
    for (; j < whole_cols; j += 4) {
      const T* p = from + i * from_stride + j;
      const auto r0 = load_blocks(d, p, from_stride), r1 = load_blocks(d, p + from_stride, from_stride),
                 r2 = load_blocks(d, p + 2 * from_stride, from_stride),
                 r3 = load_blocks(d, p + 3 * from_stride, from_stride);
      // 4 x 4 transpose within each block.
      const auto lo01 = hn::BitCast(dw, hn::InterleaveLower(d, r0, r1)),
                 lo23 = hn::BitCast(dw, hn::InterleaveLower(d, r2, r3)),
                 hi01 = hn::BitCast(dw, hn::InterleaveUpper(d, r0, r1)),
                 hi23 = hn::BitCast(dw, hn::InterleaveUpper(d, r2, r3));
      T* t = to + j * to_stride + i;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, lo01, lo23)), d, t);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, lo01, lo23)), d, t + to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dw, hi01, hi23)), d, t + 2 * to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dw, hi01, hi23)), d, t + 3 * to_stride);
    }
    for (; j < cols; ++j)
      for (size_t r = i; r < i + lanes; ++r) to[j * to_stride + r] = from[r * from_stride + j];
  }
  for (; i < rows; ++i)
    for (size_t j = 0; j < cols; ++j) to[j * to_stride + i] = from[i * from_stride + j];
}

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#endif
