#include "kernels/matmul/matmul.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "kernels/matmul/matmul_ref.h"
#include "kernels/matmul/onednn.h"

#ifndef BRAID_MATMUL_ONCE
#define BRAID_MATMUL_ONCE
namespace braid {
namespace {

// Blocks of the f32 product. kDepth x kCols of B (256 KB) and kRows x kDepth of A (96 KB) stay in an L2 of
// 512 KB; a panel of B stays in L1 (16 KB, 32 with AVX-512).
constexpr size_t kDepth = 128, kCols = 512, kRows = 48;

struct Scratch {
  alignas(64) float a[kRows * kDepth], b[kDepth * kCols];
};

Scratch& scratch() {  // a thread's own, made with the thread: kernels do not allocate
  static thread_local Scratch s;
  return s;
}

}  // namespace
}  // namespace braid
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul/matmul.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/gemm-inl.h"
#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

// Columns of a panel of B.
constexpr size_t kPanelWidth = kGemmWideVecs * HWY_LANES(float);

// A block of B as panels: panel p holds columns [p w, (p + 1) w) of all k, one k after the other.
void pack_b(const MatmulPanel<float>& p, size_t k, size_t depth, size_t col, size_t cols, float* to) {
  constexpr size_t w = kPanelWidth;
  for (size_t j = 0; j < cols; j += w, to += depth * w) {
    const size_t width = std::min(w, cols - j);
    if (p.form == MatmulForm::kNT) {
      transpose(width, depth, p.b + (col + j) * p.b_stride + k, p.b_stride, to, w);
      continue;
    }
    const float* from = p.b + k * p.b_stride + col + j;
    for (size_t i = 0; i < depth; ++i)
      for_lanes(width, [&](auto d, size_t x) {
        hn::StoreU(hn::LoadU(d, from + i * p.b_stride + x), d, to + i * w + x);
      });
  }
}

#if HWY_TARGET == HWY_AVX3
// The same for bf16: what was a number is a pair of two that follow along k, the last one with a zero if
// their count is odd. To f32 memory, because a lane is what the product reads.
HWY_INLINE void put_pairs(const bf16* low, const bf16* high, size_t n, float* to) {
  const hn::CappedTag<uint32_t, 16> du;
  const hn::Rebind<uint16_t, decltype(du)> dh;
  const auto bits = [](const bf16* p) { return reinterpret_cast<const uint16_t*>(p); };
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    auto pair = hn::PromoteTo(du, hn::LoadU(dh, bits(low + i)));
    if (high) pair = hn::Or(pair, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dh, bits(high + i)))));
    hn::StoreU(hn::BitCast(Full(), pair), Full(), to + i);
  }
  for (; i < n; ++i)
    to[i] = std::bit_cast<float>(low[i].bits | static_cast<uint32_t>(high ? high[i].bits : 0) << 16);
}

// n numbers that follow each other, as pairs.
HWY_INLINE void put_row(const bf16* from, size_t n, float* to) {
  std::memcpy(to, from, n / 2 * sizeof(float));
  if (n % 2) to[n / 2] = std::bit_cast<float>(static_cast<uint32_t>(from[n - 1].bits));
}

void pack_b(const MatmulPanel<bf16>& p, size_t k, size_t depth, size_t col, size_t cols, float* to) {
  constexpr size_t w = kPanelWidth;
  const size_t pairs = (depth + 1) / 2;
  HWY_ALIGN float rows[w * kDepth];
  for (size_t j = 0; j < cols; j += w, to += pairs * w) {
    const size_t width = std::min(w, cols - j);
    if (p.form == MatmulForm::kNT) {
      for (size_t c = 0; c < width; ++c)
        put_row(p.b + (col + j + c) * p.b_stride + k, depth, rows + c * pairs);
      transpose(width, pairs, rows, pairs, to, w);
      continue;
    }
    const bf16* from = p.b + k * p.b_stride + col + j;
    for (size_t i = 0; i < depth; i += 2, from += 2 * p.b_stride)
      put_pairs(from, i + 1 < depth ? from + p.b_stride : nullptr, width, to + i / 2 * w);
  }
}

void pack_a(const MatmulPanel<bf16>& p, size_t k, size_t depth, size_t row, size_t rows, float* to) {
  for (size_t r = 0; r < rows; ++r)
    put_row(p.a + (row + r) * p.a_stride + k, depth, to + r * ((depth + 1) / 2));
}

void pack_at(const MatmulPanel<bf16>& p, size_t k, size_t depth, size_t row, size_t rows, float* to) {
  const hn::CappedTag<uint32_t, 4> du;
  const hn::Rebind<uint16_t, decltype(du)> dh;
  const hn::Rebind<float, decltype(du)> df;
  for (size_t r = 0; r < rows; r += kGemmStrip, to += (depth + 1) / 2 * kGemmStrip) {
    const size_t height = std::min(kGemmStrip, rows - r);
    const bf16* from = p.a + k * p.a_stride + row + r;
    for (size_t i = 0; i < depth; i += 2, from += 2 * p.a_stride) {
      const bf16* next = i + 1 < depth ? from + p.a_stride : nullptr;
      float* pairs = to + i / 2 * kGemmStrip;
      if (height < kGemmStrip || !next) {
        put_pairs(from, next, height, pairs);
        continue;
      }
      for (const size_t x : {size_t{0}, kGemmStrip - 4}) {  // two blocks of four that may overlap
        const auto low = hn::PromoteTo(du, hn::LoadU(dh, reinterpret_cast<const uint16_t*>(from + x))),
                   high = hn::PromoteTo(du, hn::LoadU(dh, reinterpret_cast<const uint16_t*>(next + x)));
        hn::StoreU(hn::BitCast(df, hn::Or(low, hn::ShiftLeft<16>(high))), df, pairs + x);
      }
    }
  }
}
#endif

// A block of A with its rows end to end: in place, rows a power of two apart would fight for the same cache
// sets.
void pack_a(const MatmulPanel<float>& p, size_t k, size_t depth, size_t row, size_t rows, float* to) {
  for (size_t r = 0; r < rows; ++r) {
    const float* from = p.a + (row + r) * p.a_stride + k;
    for_lanes(depth, [&](auto d, size_t x) { hn::StoreU(hn::LoadU(d, from + x), d, to + r * depth + x); });
  }
}

// A block of A^T as strips of kGemmStrip rows of C: what a register tile broadcasts lies side by side. A row
// of A is read as a whole: rows a power of two apart would push each other out of L1 between two strips.
void pack_at(const MatmulPanel<float>& p, size_t k, size_t depth, size_t row, size_t rows, float* to) {
  const hn::CappedTag<float, 4> d4;
  const size_t whole = rows / kGemmStrip * kGemmStrip;
  for (size_t i = 0; i < depth; ++i) {
    const float* from = p.a + (k + i) * p.a_stride + row;
    float* strip = to + i * kGemmStrip;
    for (size_t r = 0; r < whole; r += kGemmStrip, strip += depth * kGemmStrip)
      for (const size_t x : {size_t{0}, kGemmStrip - 4})  // two blocks of four that may overlap
        hn::StoreU(hn::LoadU(d4, from + r + x), d4, strip + x);
    for (size_t r = whole; r < rows; ++r) strip[r - whole] = from[r];
  }
}

// Rows of A that lie end to end already.
HWY_INLINE const float* in_place(const MatmulPanel<float>& p, size_t row, size_t depth) {
  return p.a_stride == depth ? p.a + row * p.a_stride : nullptr;
}
#if HWY_TARGET == HWY_AVX3
HWY_INLINE const float* in_place(const MatmulPanel<bf16>& p, size_t row, size_t depth) {
  return p.a_stride == 2 * depth ? reinterpret_cast<const float*>(p.a + row * p.a_stride) : nullptr;
}
#endif

// Starts reading n numbers that the next block of rows needs, into L2: this block fills L1.
HWY_INLINE void ask_for(const float* p, size_t n) {
  for (size_t i = 0; i < n; i += 16) __builtin_prefetch(p + i, 0, 2);
}

// Blocked for the caches. The sum of one number of C runs over k in order, in pieces of kDepth: it does not
// depend on how rows and columns are cut.
template <class T, class Terms>
void panel_of(const MatmulPanel<T>& p) {
  constexpr size_t kPerLane = sizeof(float) / sizeof(T);
  Scratch& s = scratch();
  constexpr size_t w = kPanelWidth;
  const bool transposed = p.form == MatmulForm::kTN;
  for (size_t k = 0; k < p.k || k == 0; k += kPerLane * kDepth) {
    const size_t numbers = std::min(kPerLane * kDepth, p.k - k), depth = (numbers + kPerLane - 1) / kPerLane;
    const Into into = k == 0 ? p.into : Into::kAdd;
    for (size_t col = 0; col < p.n; col += kCols) {
      const size_t cols = std::min(kCols, p.n - col);
      const float* packed =
          p.packed ? p.packed + k / kPerLane * p.packed_cols + (p.packed_col + col) * depth : s.b;
      if (!p.packed) pack_b(p, k, numbers, col, cols, s.b);
      for (size_t row = 0; row < p.m; row += kRows) {
        const size_t rows = std::min(kRows, p.m - row);
        const float* a = s.a;
        if (transposed)
          pack_at(p, k, numbers, row, rows, s.a);
        else if (const float* there = in_place(p, row, depth)) {
          a = there;
          if (row + kRows < p.m) ask_for(there + kRows * depth, std::min(kRows, p.m - row - kRows) * depth);
        } else
          pack_a(p, k, numbers, row, rows, s.a);
        for (size_t j = 0; j < cols; j += w) {
          const size_t width = std::min(w, cols - j);
          const float* b = packed + j * depth;
          float* c = p.c + row * p.c_stride + col + j;
          if (!transposed) {
            gemm<false, Terms>(rows, width, {depth, a, depth, b, w, c, p.c_stride, 1.0f, into});
            continue;
          }
          const size_t whole = rows / kGemmStrip * kGemmStrip;
          GemmArgs g{depth, a, kGemmStrip, b, w, c, p.c_stride, 1.0f, into};
          g.strip = depth * kGemmStrip;
          gemm<true, Terms>(whole, width, g);
          g.a += whole * depth, g.c += whole * p.c_stride;
          gemm<true, Terms>(rows - whole, width, g);
        }
      }
    }
  }
}

void panel(const MatmulPanel<float>& p) { panel_of<float, Numbers>(p); }
#if HWY_TARGET == HWY_AVX3
void pairs_panel(const MatmulPanel<bf16>& p) { panel_of<bf16, Pairs>(p); }
#endif

size_t packed_width() { return kPanelWidth; }

// All of B for panel(): the blocks of kDepth lanes one after the other, each in panels over all columns.
template <class T>
void pack_whole(MatmulForm form, Mat<const T> b, size_t k, size_t depth, float* to) {
  const MatmulPanel<T> p{.form = form,
                         .m = 0,
                         .n = 0,
                         .k = 0,
                         .a = nullptr,
                         .b = b.data,
                         .a_stride = 0,
                         .b_stride = b.stride,
                         .c = nullptr,
                         .c_stride = 0,
                         .into = Into::kOverwrite};
  pack_b(p, k, depth, 0, form == MatmulForm::kNT ? b.rows : b.cols, to);
}

// Dot products of kTogether rows of A with kCols rows of B at a time. Each is one chain of multiply-adds, a
// vector of sums whatever the tile is: a row of C has the same bits alone and among others. The tile gives
// the multiply-add units enough chains, and a row of B is read once for all rows of A.
template <size_t kTogether, size_t kCols>
void skinny_tile(const MatmulPanel<float>& p, size_t row, size_t col) {
  const Full d;
  const size_t lanes = hn::Lanes(d);
  const float *a = p.a + row * p.a_stride, *b = p.b + col * p.b_stride;
  VFull sum[kTogether][kCols];
  for (size_t r = 0; r < kTogether; ++r)
    for (size_t j = 0; j < kCols; ++j) sum[r][j] = hn::Zero(d);
  size_t k = 0;
  for (; k + lanes <= p.k; k += lanes) {
    VFull x[kTogether];
    for (size_t r = 0; r < kTogether; ++r) x[r] = hn::LoadU(d, a + r * p.a_stride + k);
    for (size_t j = 0; j < kCols; ++j) {
      const VFull w = hn::LoadU(d, b + j * p.b_stride + k);
      for (size_t r = 0; r < kTogether; ++r) sum[r][j] = hn::MulAdd(x[r], w, sum[r][j]);
    }
  }
  for (size_t r = 0; r < kTogether; ++r)
    for (size_t j = 0; j < kCols; ++j) {
      float s = hn::GetLane(hn::SumOfLanes(d, sum[r][j]));
      for (size_t t = k; t < p.k; ++t) s += a[r * p.a_stride + t] * b[j * p.b_stride + t];
      float& to = p.c[(row + r) * p.c_stride + col + j];
      to = p.into == Into::kAdd ? to + s : s;
    }
}

template <size_t kTogether, size_t kCols>
void skinny_rows(const MatmulPanel<float>& p, size_t row) {
  size_t col = 0;
  for (; col + kCols <= p.n; col += kCols) skinny_tile<kTogether, kCols>(p, row, col);
  for (; col < p.n; ++col) skinny_tile<kTogether, 1>(p, row, col);
}

void skinny(const MatmulPanel<float>& p) {
  size_t row = 0;
  for (; row + 4 <= p.m; row += 4) skinny_rows<4, 2>(p, row);
  if (p.m - row >= 2) skinny_rows<2, 4>(p, row), row += 2;
  if (p.m - row == 1) skinny_rows<1, 4>(p, row);
}

void thin(const MatmulPanel<float>& p) {
  gemm_nn(p.m, p.n, p.k, p.a, p.a_stride, p.b, p.b_stride, p.c, p.c_stride, p.into);
}

// Ten independent chains of multiply-adds: enough for two units with a latency of five.
float fma_chains(size_t rounds) {
  const Full d;
  const VFull x = hn::Set(d, 0.999f), y = hn::Set(d, 0.001f);
  // All different: equal chains would be computed once.
  const auto start = [&](int i) { return hn::Set(d, 0.1f * static_cast<float>(i)); };
  VFull a0 = start(0), a1 = start(1), a2 = start(2), a3 = start(3), a4 = start(4), a5 = start(5),
        a6 = start(6), a7 = start(7), a8 = start(8), a9 = start(9);
  for (size_t i = 0; i < rounds; ++i) {
    a0 = hn::MulAdd(a0, x, y), a1 = hn::MulAdd(a1, x, y), a2 = hn::MulAdd(a2, x, y),
    a3 = hn::MulAdd(a3, x, y);
    a4 = hn::MulAdd(a4, x, y), a5 = hn::MulAdd(a5, x, y), a6 = hn::MulAdd(a6, x, y),
    a7 = hn::MulAdd(a7, x, y);
    a8 = hn::MulAdd(a8, x, y), a9 = hn::MulAdd(a9, x, y);
  }
  const VFull all = hn::Add(hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)),
                            hn::Add(hn::Add(a4, a5), hn::Add(a6, hn::Add(a7, hn::Add(a8, a9)))));
  return hn::GetLane(all);
}

size_t fma_flops_per_round() { return 10 * 2 * hn::Lanes(Full()); }

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

constexpr size_t kPanelRows = 512;   // rows of C per task: packing B is a few percent of the work
constexpr size_t kPanelCols = 1024;  // columns of C per task; a multiple of every panel width
constexpr size_t kSkinnyCols = 64;   // columns per task of a skinny product: 64 rows of W

void ref_panel(const MatmulPanel<float>& p) {
  ref::matmul<float, float>(p.form, p.m, p.n, p.k, p.a, p.a_stride, p.b, p.b_stride, p.c, p.c_stride, p.into);
}

// Without bf16 units: the operands are widened to f32 in tiles that stay in L2, then multiplied as f32. Exact
// products, f32 sums: the same numbers as bf16 hardware up to the order of the sums.
constexpr size_t kTile = 192;  // three tiles of 192 x 192 floats are 430 KB

void widen(const bf16* from, size_t stride, size_t rows, size_t cols, float* to) {
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < cols; ++c) to[r * cols + c] = to_f32(from[r * stride + c]);
}

void widened_panel(const MatmulPanel<bf16>& p) {
  static thread_local std::array<float, kTile * kTile> a, b;
  for (size_t i = 0; i < p.m; i += kTile)
    for (size_t k = 0; k < p.k; k += kTile) {
      const size_t m = std::min(kTile, p.m - i), depth = std::min(kTile, p.k - k);
      const bool ta = p.form == MatmulForm::kTN, tb = p.form == MatmulForm::kNT;
      if (ta)
        widen(p.a + k * p.a_stride + i, p.a_stride, depth, m, a.data());
      else
        widen(p.a + i * p.a_stride + k, p.a_stride, m, depth, a.data());
      for (size_t j = 0; j < p.n; j += kTile) {
        const size_t n = std::min(kTile, p.n - j);
        if (tb)
          widen(p.b + j * p.b_stride + k, p.b_stride, n, depth, b.data());
        else
          widen(p.b + k * p.b_stride + j, p.b_stride, depth, n, b.data());
        matmul_impls().use(p.par).panel({.form = p.form,
                                         .m = m,
                                         .n = n,
                                         .k = depth,
                                         .a = a.data(),
                                         .b = b.data(),
                                         .a_stride = ta ? m : depth,
                                         .b_stride = tb ? depth : n,
                                         .c = p.c + i * p.c_stride + j,
                                         .c_stride = p.c_stride,
                                         .into = k == 0 ? p.into : Into::kAdd});
      }
    }
}

void ref_bf16_panel(const MatmulPanel<bf16>& p) {
  struct Wide {
    bf16 x;
    explicit operator float() const { return to_f32(x); }
  };
  static_assert(sizeof(Wide) == sizeof(bf16));
  ref::matmul<Wide, float>(p.form, p.m, p.n, p.k, reinterpret_cast<const Wide*>(p.a), p.a_stride,
                           reinterpret_cast<const Wide*>(p.b), p.b_stride, p.c, p.c_stride, p.into);
}

// oneDNN's, or the next in the table if oneDNN cannot.
void amx_panel(const MatmulPanel<bf16>& p) {
  if (!onednn_bf16_panel(p)) N_AVX3::pairs_panel(p);
}
void onednn_or_ref_panel(const MatmulPanel<bf16>& p) {
  if (!onednn_bf16_panel(p)) ref_bf16_panel(p);
}

constexpr MatmulFns kRefFns{ref_panel, ref_panel};
constexpr MatmulFns kAvx512Fns{N_AVX3::panel, N_AVX3::skinny, N_AVX3::thin, N_AVX3::packed_width,
                               N_AVX3::pack_whole<float>};
constexpr MatmulFns kAvx2Fns{N_AVX2::panel, N_AVX2::skinny, N_AVX2::thin, N_AVX2::packed_width,
                             N_AVX2::pack_whole<float>};
constexpr MatmulFns kSseFns{N_SSSE3::panel, N_SSSE3::skinny, N_SSSE3::thin, N_SSSE3::packed_width,
                            N_SSSE3::pack_whole<float>};
constexpr MatmulFns kOnednnFns{onednn_panel, onednn_panel};
constexpr MatmulBf16Fns kAmxBf16Fns{amx_panel},
    kPairsFns{N_AVX3::pairs_panel, N_AVX3::packed_width, N_AVX3::pack_whole<bf16>},
    kWidenedFns{widened_panel}, kOnednnBf16Fns{onednn_or_ref_panel}, kRefBf16Fns{ref_bf16_panel};

template <class T, class Panel>
void run_panels(MatmulForm form, Mat<const T> a, Mat<const T> b, Mat<float> c, Into into, Par par,
                size_t rows, size_t cols, const Panel& panel, PackedWeight packed = {}) {
  const size_t k = form == MatmulForm::kTN ? a.rows : a.cols, m = c.rows, n = c.cols;
  check((form == MatmulForm::kTN ? a.cols : a.rows) == m &&
            (form == MatmulForm::kNT ? b.rows : b.cols) == n &&
            (form == MatmulForm::kNT ? b.cols : b.rows) == k,
        "matmul: shapes do not fit");
  if (m == 0 || n == 0) return;
  const size_t across = (n + cols - 1) / cols, down = (m + rows - 1) / rows;
  par.tasks(across * down, [&](size_t t) {
    const size_t i = t / across * rows, j = t % across * cols;
    panel({.form = form,
           .m = std::min(rows, m - i),
           .n = std::min(cols, n - j),
           .k = k,
           .a = form == MatmulForm::kTN ? a.data + i : a.row(i),
           .b = form == MatmulForm::kNT ? b.row(j) : b.data + j,
           .a_stride = a.stride,
           .b_stride = b.stride,
           .c = c.row(i) + j,
           .c_stride = c.stride,
           .into = into,
           .packed = packed.data,
           .packed_cols = packed.cols,
           .packed_col = j,
           .par = par.alone()});
  });
}

}  // namespace

const Impls<MatmulFns>& matmul_impls() {
  static const Impls<MatmulFns> table("matmul", {"avx512", Isa::kAvx512, &kAvx512Fns},
                                      {"avx2", Isa::kAvx2, &kAvx2Fns}, {"sse", Isa::kBase, &kSseFns},
                                      {"onednn", Isa::kBase, &kOnednnFns}, {"ref", Isa::kBase, &kRefFns});
  return table;
}

const Impls<MatmulBf16Fns>& matmul_bf16_impls() {
  static const Impls<MatmulBf16Fns> table(
      "matmul_bf16", {"amx", Isa::kAmx, &kAmxBf16Fns}, {"avx512dot", Isa::kAvx512Dot, &kPairsFns},
      {"widened", Isa::kBase, &kWidenedFns}, {"onednn", Isa::kAvx512, &kOnednnBf16Fns},
      {"ref", Isa::kBase, &kRefBf16Fns});
  return table;
}

void matmul(MatmulForm form, Mat<const float> a, Mat<const float> b, Mat<float> c, Into into, Par par) {
  matmul(form, a, b, {}, c, into, par);
}
void matmul(MatmulForm form, Mat<const bf16> a, Mat<const bf16> b, Mat<float> c, Into into, Par par) {
  matmul(form, a, b, {}, c, into, par);
}

void matmul(MatmulForm form, Mat<const float> a, Mat<const float> b, PackedWeight packed, Mat<float> c,
            Into into, Par par) {
  const MatmulFns& f = matmul_impls().use(par);
  if (form == MatmulForm::kNT && c.rows <= kSkinnyRows)
    run_panels(form, a, b, c, into, par, kSkinnyRows, kSkinnyCols,
               [&](const MatmulPanel<float>& p) { f.skinny(p); });
  else if (form == MatmulForm::kNN && c.rows <= kSkinnyRows && f.thin)
    run_panels(form, a, b, c, into, par, kSkinnyRows, kPanelCols,
               [&](const MatmulPanel<float>& p) { f.thin(p); });
  else
    run_panels(
        form, a, b, c, into, par, kPanelRows, kPanelCols, [&](const MatmulPanel<float>& p) { f.panel(p); },
        packed);
}

namespace {

// Of an nt or nn product with this B.
size_t width_of(MatmulForm form, size_t rows, size_t cols) { return form == MatmulForm::kNT ? rows : cols; }
size_t depth_of(MatmulForm form, size_t rows, size_t cols) { return form == MatmulForm::kNT ? cols : rows; }
size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

template <class Fns, class T>
PackedWeight pack(const Fns& f, MatmulForm form, Mat<const T> b, std::span<float> to, Par par) {
  if (!f.pack) return {};
  constexpr size_t kPerLane = sizeof(float) / sizeof(T);
  const size_t padded = round_up(width_of(form, b.rows, b.cols), f.packed_width());
  par.blocks(depth_of(form, b.rows, b.cols), kPerLane * kDepth, [&](size_t begin, size_t end) {
    f.pack(form, b, begin, end - begin, to.data() + begin / kPerLane * padded);
  });
  return {to.data(), padded};
}

}  // namespace

size_t packed_weight_size(Precision precision, MatmulForm form, size_t rows, size_t cols, Par par) {
  const size_t n = width_of(form, rows, cols), k = depth_of(form, rows, cols);
  if (precision == Precision::kBf16) {
    const MatmulBf16Fns& f = matmul_bf16_impls().use(par);
    return f.pack ? round_up(n, f.packed_width()) * ((k + 1) / 2) : 0;
  }
  const MatmulFns& f = matmul_impls().use(par);
  return f.pack ? round_up(n, f.packed_width()) * k : 0;
}

PackedWeight pack_weight(MatmulForm form, Mat<const float> b, std::span<float> to, Par par) {
  return pack(matmul_impls().use(par), form, b, to, par);
}
PackedWeight pack_weight(MatmulForm form, Mat<const bf16> b, std::span<float> to, Par par) {
  return pack(matmul_bf16_impls().use(par), form, b, to, par);
}

void matmul(MatmulForm form, Mat<const bf16> a, Mat<const bf16> b, PackedWeight packed, Mat<float> c,
            Into into, Par par) {
  const MatmulBf16Fns& f = matmul_bf16_impls().use(par);
  run_panels(
      form, a, b, c, into, par, kPanelRows, kPanelCols, [&](const MatmulPanel<bf16>& p) { f.panel(p); },
      packed);
}

double measure_fma_peak(Isa isa) {
  struct Kernel {
    float (*run)(size_t);
    size_t (*flops)();
  };
  const Kernel k = isa >= Isa::kAvx512 ? Kernel{N_AVX3::fma_chains, N_AVX3::fma_flops_per_round}
                   : isa >= Isa::kAvx2 ? Kernel{N_AVX2::fma_chains, N_AVX2::fma_flops_per_round}
                                       : Kernel{N_SSSE3::fma_chains, N_SSSE3::fma_flops_per_round};
  double best = 0;
  volatile float sink = 0;
  for (int i = 0; i < 5; ++i) {
    const size_t rounds = 4'000'000;
    const double start = seconds_now();
    sink = sink + k.run(rounds);
    best = std::max(best, static_cast<double>(rounds * k.flops()) / (seconds_now() - start));
  }
  return best;
}

}  // namespace braid
#endif
