#include "kernels/weight_matmul/weight_matmul.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "kernels/common/ragged.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/matmul/matmul.h"
#include "kernels/weight_matmul/weight_matmul_ref.h"

#ifndef BRAID_WEIGHT_MATMUL_ONCE
#define BRAID_WEIGHT_MATMUL_ONCE
namespace braid {
namespace {

// Blocks of the product with many rows: a panel of kDepth x kManyCols of W (256 KB widened) and kRows x
// kDepth of X (48 KB) stay in L2, two vectors of columns of the panel in L1. Y is read and written once for
// each kDepth.
constexpr size_t kDepth = 256, kManyCols = 256, kRows = 48, kWidest = 32;
constexpr size_t kTogether = 4;  // rows of X that meet a row of W at once, when they are few

struct Scratch {
  alignas(64) float x[kRows * kDepth], w[kDepth * kManyCols], rows[kWidest * kDepth], y[kRows * kWidest];
  // With scales: pairs of numbers of 16 bits, and the scales.
  alignas(64) int32_t pairs[kDepth / 2 * kManyCols], row_pairs[kWidest * kDepth / 2];
  alignas(64) float scales[kDepth / kWeightBlock * kManyCols];
  alignas(64) int16_t rounded[kRows * kDepth];
};

size_t padded(size_t cols) { return (cols + kWeightBlock - 1) / kWeightBlock * kWeightBlock; }

Scratch& scratch_of_thread() {  // made with the thread: kernels do not allocate
  static thread_local Scratch s;
  return s;
}

}  // namespace
}  // namespace braid
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/weight_matmul/weight_matmul.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/gemm-inl.h"
#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

constexpr size_t kLanes = hn::MaxLanes(Full());
constexpr size_t kVecs = kWeightBlock / kLanes;  // vectors in a block

// Numbers of 16 bits, at most 16 of them together: a block of q4 has as many bytes.
using D16 = hn::CappedTag<int16_t, 16>;
using D32 = hn::RepartitionToWide<D16>;
using DSum = hn::RebindToFloat<D32>;
using V16 = hn::Vec<D16>;
constexpr size_t kLanes16 = hn::MaxLanes(D16());
constexpr size_t kVecs16 = kWeightBlock / kLanes16;

// sum[i] + a[2 i] b[2 i] + a[2 i + 1] b[2 i + 1]: one instruction for the products and one for the sum, or
// one for both (Isa::kAvx512Dot, with the same bits).
struct Apart {
  template <class D, class V, class S>
  static HWY_INLINE S add_pairs(D d, V a, V b, S sum) {
    S none = hn::Zero(d);
    return hn::ReorderWidenMulAccumulate(d, a, b, sum, none);
  }
};
#if HWY_TARGET == HWY_AVX3
struct Fused {
  template <class D, class V, class S>
  static HWY_INLINE S add_pairs(D, V a, V b, S sum) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
};
#endif

// Formats: the numbers of a block.
struct F32 {
  static constexpr bool kScaled = false;
  static constexpr size_t kBytes = 4 * kWeightBlock;
  static HWY_INLINE void widen(const std::byte* from, VFull* to) {
    for (size_t v = 0; v < kVecs; ++v)
      to[v] = hn::LoadU(Full(), reinterpret_cast<const float*>(from) + v * kLanes);
  }
};

struct Bf16 {
  static constexpr bool kScaled = false;
  static constexpr size_t kBytes = 2 * kWeightBlock;
  static HWY_INLINE void widen(const std::byte* from, VFull* to) {
    const Full d;
    const hn::Rebind<uint16_t, Full> d16;
    const hn::Rebind<uint32_t, Full> d32;
    for (size_t v = 0; v < kVecs; ++v) {
      const auto half = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from) + v * kLanes);
      to[v] = hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, half)));
    }
  }
};

struct Q8 {
  static constexpr bool kScaled = true;
  static constexpr size_t kBytes = kWeightBlock;
  static HWY_INLINE void numbers(const std::byte* from, V16* to) {
    const hn::Rebind<int8_t, D16> d8;
    for (size_t v = 0; v < kVecs16; ++v)
      to[v] = hn::PromoteTo(D16(), hn::LoadU(d8, reinterpret_cast<const int8_t*>(from) + v * kLanes16));
  }
};

struct Q4 {
  static constexpr bool kScaled = true;
  static constexpr size_t kBytes = kWeightBlock / 2;
  static HWY_INLINE void numbers(const std::byte* from, V16* to) {
    const hn::Rebind<int8_t, D16> d8;
    for (size_t v = 0; v < kVecs16 / 2; ++v) {
      const V16 both =
          hn::PromoteTo(D16(), hn::LoadU(d8, reinterpret_cast<const int8_t*>(from) + v * kLanes16));
      to[v] = hn::ShiftRight<12>(hn::ShiftLeft<12>(both));
      to[kVecs16 / 2 + v] = hn::ShiftRight<4>(both);
    }
  }
};

HWY_INLINE hn::Vec<DSum> scale_of(const bf16* scales, size_t block) {
  const hn::Repartition<uint16_t, DSum> d16;
  const hn::Repartition<uint32_t, DSum> d32;
  const auto everywhere = hn::BitCast(d32, hn::Set(d16, scales[block].bits));
  return hn::BitCast(DSum(), hn::ShiftLeft<16>(everywhere));
}

// Numbers [begin, begin + count) of a row; begin is a multiple of kWeightBlock.
template <class Format>
void widen_row(const std::byte* row, const bf16* scales, WeightFormat f, size_t begin, size_t count,
               float* to) {
  size_t k = 0;
  for (; k + kWeightBlock <= count; k += kWeightBlock) {
    const size_t block = (begin + k) / kWeightBlock;
    const std::byte* from = row + block * Format::kBytes;
    if constexpr (Format::kScaled) {
      V16 numbers[kVecs16];
      Format::numbers(from, numbers);
      HWY_ALIGN int16_t all[kWeightBlock];
      for (size_t v = 0; v < kVecs16; ++v) hn::Store(numbers[v], D16(), all + v * kLanes16);
      const float scale = to_f32(scales[block]);
      for (size_t i = 0; i < kWeightBlock; ++i) to[k + i] = scale * static_cast<float>(all[i]);
    } else {
      VFull numbers[kVecs];
      Format::widen(from, numbers);
      for (size_t v = 0; v < kVecs; ++v) hn::StoreU(numbers[v], Full(), to + k + v * kLanes);
    }
  }
  for (; k < count; ++k) to[k] = ref::stored_number<float>(f, row, scales, begin + k);
}

void widen(WeightFormat f, const std::byte* row, const bf16* scales, size_t begin, size_t count, float* to) {
  switch (f) {
    case WeightFormat::kF32:
      return widen_row<F32>(row, scales, f, begin, count, to);
    case WeightFormat::kBf16:
      return widen_row<Bf16>(row, scales, f, begin, count, to);
    case WeightFormat::kQ8:
      return widen_row<Q8>(row, scales, f, begin, count, to);
    case WeightFormat::kQ4:
      return widen_row<Q4>(row, scales, f, begin, count, to);
  }
}

void pack(Mat<const float> x, float* to) {
  const size_t end = padded(x.cols);
  for (size_t k = 0; k < end; k += kLanes)
    for (size_t r = 0; r < x.rows; ++r)
      for (size_t i = 0; i < kLanes; ++i) *to++ = k + i < x.cols ? x.row(r)[k + i] : 0.0f;
}

// As ref::round16, bit for bit.
void round16(std::span<const float> row, int16_t* numbers, float* scales) {
  const Full d;
  const hn::Rebind<int16_t, Full> d16;
  for (size_t b = 0; b < row.size() / kWeightBlock; ++b) {
    const float* x = row.data() + b * kWeightBlock;
    VFull most = hn::Zero(d), zero = hn::Zero(d);
    for (size_t v = 0; v < kVecs; ++v) {
      const VFull here = hn::LoadU(d, x + v * kLanes);
      most = hn::Max(most, hn::Abs(here)), zero = hn::MulAdd(here, hn::Zero(d), zero);
    }
    const float largest = hn::GetLane(hn::MaxOfLanes(d, most)), bad = hn::GetLane(hn::SumOfLanes(d, zero));
    if (std::isnan(bad) || largest < 1e-33f) {
      ref::round16(x, numbers + b * kWeightBlock, scales[b]);
      continue;
    }
    scales[b] = largest / 32767;
    const VFull inverse = hn::Set(d, 32767 / largest);
    for (size_t v = 0; v < kVecs; ++v) {
      const auto rounded = hn::NearestInt(hn::Mul(hn::LoadU(d, x + v * kLanes), inverse));
      hn::StoreU(hn::DemoteTo(d16, rounded), d16, numbers + b * kWeightBlock + v * kLanes);
    }
  }
}

// Asks memory for the next group of rows of W, in the order of addresses, as much in each block as it takes:
// the hardware's own prefetching does not follow rows side by side.
template <class Format, size_t kW>
HWY_INLINE void ask_ahead(const std::byte* w, size_t row_bytes, size_t b) {
  constexpr size_t kLine = 64, kStep = kW * Format::kBytes;
  if constexpr (kStep < kLine)
    if (b % (kLine / kStep) != 0) return;
  const std::byte* next = w + kW * row_bytes + b * kStep;
  for (size_t i = 0; i < kStep; i += kLine) __builtin_prefetch(next + i);
}

template <class V, class D>
HWY_INLINE void put_sum(D d, V sum, Into into, float& to) {
  const float s = hn::GetLane(hn::SumOfLanes(d, sum));
  to = into == Into::kAdd ? to + s : s;
}

// Dot products of kX rows of X with kW rows of W. Each has one chain of additions, and there are enough
// chains to keep the multiply-add units busy.
template <class Dot, class Format, size_t kX, size_t kW>
HWY_INLINE void dots_rounded(const WeightTask& t, size_t x_row, size_t row) {
  const size_t blocks = t.cols / kWeightBlock, row_bytes = blocks * Format::kBytes;
  const std::byte* w = t.w + row * row_bytes;
  const bf16* scales = t.scales + row * blocks;
  const int16_t* x = t.rounded.numbers + x_row * t.cols;
  const float* x_scales = t.rounded.scales + x_row * blocks;
  const DSum d;
  hn::Vec<DSum> sum[kW][kX];
  for (size_t j = 0; j < kW; ++j)
    for (size_t r = 0; r < kX; ++r) sum[j][r] = hn::Zero(d);
  for (size_t b = 0; b < blocks; ++b) {
    if (x_row == 0) ask_ahead<Format, kW>(w, row_bytes, b);
    HWY_UNROLL(8)
    for (size_t j = 0; j < kW; ++j) {
      V16 numbers[kVecs16];
      Format::numbers(w + j * row_bytes + b * Format::kBytes, numbers);
      const hn::Vec<DSum> scale = scale_of(scales + j * blocks, b);
      HWY_UNROLL(8)
      for (size_t r = 0; r < kX; ++r) {
        hn::Vec<D32> exact = hn::Zero(D32());
        HWY_UNROLL(8)
        for (size_t v = 0; v < kVecs16; ++v)
          exact = Dot::add_pairs(D32(), numbers[v],
                                 hn::LoadU(D16(), x + r * t.cols + b * kWeightBlock + v * kLanes16), exact);
        const hn::Vec<DSum> by = hn::Mul(scale, hn::Set(d, x_scales[r * blocks + b]));
        sum[j][r] = hn::MulAdd(by, hn::ConvertTo(d, exact), sum[j][r]);
      }
    }
  }
  for (size_t j = 0; j < kW; ++j)
    for (size_t r = 0; r < kX; ++r) put_sum(d, sum[j][r], t.into, t.y.row(x_row + r)[row + j]);
}

// The same with packed rows of X and numbers of W without scales.
template <class Format, size_t kX, size_t kW>
HWY_INLINE void dots_packed(const WeightTask& t, size_t x_row, size_t row) {
  const Full d;
  const size_t blocks = t.cols / kWeightBlock,
               row_bytes = blocks * Format::kBytes + t.cols % kWeightBlock * Format::kBytes / kWeightBlock;
  const std::byte* w = t.w + row * row_bytes;
  const float* x = t.packed + x_row * padded(t.cols);
  VFull sum[kW][kX];
  for (size_t j = 0; j < kW; ++j)
    for (size_t r = 0; r < kX; ++r) sum[j][r] = hn::Zero(d);
  const auto add = [&](const VFull* block, const float* at, VFull* to) HWY_ATTR {
    HWY_UNROLL(8)
    for (size_t v = 0; v < kVecs; ++v) {
      HWY_UNROLL(8)
      for (size_t r = 0; r < kX; ++r)
        to[r] = hn::MulAdd(block[v], hn::LoadU(d, at + (v * kX + r) * kLanes), to[r]);
    }
  };
  for (size_t b = 0; b < blocks; ++b) {
    if (x_row == 0) ask_ahead<Format, kW>(w, row_bytes, b);
    HWY_UNROLL(8)
    for (size_t j = 0; j < kW; ++j) {
      VFull block[kVecs];
      Format::widen(w + j * row_bytes + b * Format::kBytes, block);
      add(block, x + b * kWeightBlock * kX, sum[j]);
    }
  }
  if (const size_t k = blocks * kWeightBlock; k < t.cols)
    for (size_t j = 0; j < kW; ++j) {
      HWY_ALIGN float last[kWeightBlock] = {};
      for (size_t i = k; i < t.cols; ++i)
        last[i - k] = ref::stored_number<float>(t.format, w + j * row_bytes, nullptr, i);
      VFull block[kVecs];
      for (size_t v = 0; v < kVecs; ++v) block[v] = hn::Load(d, last + v * kLanes);
      add(block, x + k * kX, sum[j]);
    }
  for (size_t j = 0; j < kW; ++j)
    for (size_t r = 0; r < kX; ++r) put_sum(d, sum[j][r], t.into, t.y.row(x_row + r)[row + j]);
}

template <class Dot, class Format, size_t kX, size_t kW>
HWY_INLINE void dots(const WeightTask& t, size_t x_row, size_t row) {
  if constexpr (Format::kScaled)
    dots_rounded<Dot, Format, kX, kW>(t, x_row, row);
  else
    dots_packed<Format, kX, kW>(t, x_row, row);
}

// kW rows of W with all rows of X: groups of kTogether and what is left. W's rows stay in L1 from
// group to group.
template <class Dot, class Format, size_t kW>
HWY_INLINE void few_groups(const WeightTask& t, size_t row) {
  for (size_t r = 0; r < t.y.rows; r += kTogether) switch (t.y.rows - r) {
      case 1:
        dots<Dot, Format, 1, kW>(t, r, row);
        break;
      case 2:
        dots<Dot, Format, 2, kW>(t, r, row);
        break;
      case 3:
        dots<Dot, Format, 3, kW>(t, r, row);
        break;
      default:
        dots<Dot, Format, 4, kW>(t, r, row);
    }
}

// Sixteen registers hold the sums of one row of X with four rows of W, or of four with three, or with two
// where blocks are scaled one by one.
template <class Dot, class Format>
void few_of(const WeightTask& t) {
  constexpr size_t kW = Format::kScaled ? 2 : 3;
  size_t row = 0;
  if (t.y.rows == 1)
    for (; row + 4 <= t.rows; row += 4) dots<Dot, Format, 1, 4>(t, 0, row);
  else
    for (; row + kW <= t.rows; row += kW) few_groups<Dot, Format, kW>(t, row);
  for (; row < t.rows; ++row) few_groups<Dot, Format, 1>(t, row);
}

template <class Dot>
void few(const WeightTask& t) {
  switch (t.format) {
    case WeightFormat::kF32:
      return few_of<Dot, F32>(t);
    case WeightFormat::kBf16:
      return few_of<Dot, Bf16>(t);
    case WeightFormat::kQ8:
      return few_of<Dot, Q8>(t);
    case WeightFormat::kQ4:
      return few_of<Dot, Q4>(t);
  }
}

// Blocked for the caches: rows of W are widened and turned into panels of two vectors, which all rows of X
// here then meet. A number of Y is summed over k in order, in pieces of kDepth.
constexpr size_t kPanel = 2 * kLanes;
static_assert(kPanel <= kWidest);

// Calls f(first row of X, rows, first row of W, Y) for blocks of Y of at most kRows x kPanel. What is
// narrower than a panel is summed beside Y, so that sums do not depend on where W is cut.
template <class F>
HWY_INLINE void for_blocks_of_y(const WeightTask& t, Into into, Scratch& s, const F& f) {
  for (size_t row = 0; row < t.y.rows; row += kRows) {
    const size_t rows = std::min(kRows, t.y.rows - row);
    for (size_t j = 0; j < t.rows; j += kPanel) {
      const Mat<float> y = t.y.row_range(row, row + rows).col_range(j, std::min(t.rows, j + kPanel));
      const bool whole = y.cols == kPanel;
      const Mat<float> to = whole ? y : Mat<float>(s.y, rows, y.cols, kPanel);
      if (!whole && into == Into::kAdd) copy<float>(y, to);
      f(row, rows, j, to);
      if (!whole) copy<float>(to, y);
    }
  }
}

void many_f32(const WeightTask& t) {
  Scratch& s = scratch_of_thread();
  const size_t row_bytes = weight_row_bytes(t.format, t.cols);
  for (size_t k = 0; k < t.cols; k += kDepth) {
    const size_t depth = std::min(kDepth, t.cols - k);
    const Into into = k == 0 ? t.into : Into::kAdd;
    for (size_t j = 0; j < t.rows; j += kPanel) {
      const size_t width = std::min(kPanel, t.rows - j);
      for (size_t i = 0; i < width; ++i)
        widen(t.format, t.w + (j + i) * row_bytes, nullptr, k, depth, s.rows + i * kDepth);
      transpose(width, depth, s.rows, kDepth, s.w + j * kDepth, kPanel);
    }
    for_blocks_of_y(t, into, s, [&](size_t row, size_t rows, size_t j, Mat<float> y) HWY_ATTR {
      for (size_t r = 0; r < rows && j == 0; ++r) {
        const float* from = t.x.row(row + r) + k;
        for_lanes(depth,
                  [&](auto d, size_t i) { hn::StoreU(hn::LoadU(d, from + i), d, s.x + r * depth + i); });
      }
      gemm<false>(rows, kPanel, {depth, s.x, depth, s.w + j * kDepth, kPanel, y.data, y.stride, 1.0f, into});
    });
  }
}

// kX rows of rounded X with a panel of pairs: exact within a block, which is then scaled and added to Y.
struct BlocksArgs {
  const int16_t* x;  // the first row here
  size_t x_stride;
  const float* x_scales;
  size_t x_scales_stride;
  const int32_t* pairs;  // [blocks * kWeightBlock / 2, kPanel]
  const float* scales;   // [blocks, kPanel]
  size_t blocks;
  Into into;
};
template <class Dot, size_t kX>
HWY_NOINLINE void add_blocks(const BlocksArgs& args, float* y, size_t y_stride) {
  const BlocksArgs g = args;  // a copy stays in registers, whatever is stored
  const Full d;
  const hn::RebindToSigned<Full> d32;
  const hn::Repartition<int16_t, Full> d16;
  const int32_t* w = g.pairs;
  for (size_t b = 0; b < g.blocks; ++b) {
    hn::Vec<decltype(d32)> sum0[kX], sum1[kX];
    HWY_UNROLL(8)
    for (size_t r = 0; r < kX; ++r) sum0[r] = sum1[r] = hn::Zero(d32);
    const int16_t* x = g.x + b * kWeightBlock;
    HWY_UNROLL(16)
    for (size_t k = 0; k < kWeightBlock / 2; ++k, w += kPanel, x += 2) {
      const auto w0 = hn::BitCast(d16, hn::Load(d32, w)), w1 = hn::BitCast(d16, hn::Load(d32, w + kLanes));
      HWY_UNROLL(8)
      for (size_t r = 0; r < kX; ++r) {
        int32_t pair;
        std::memcpy(&pair, x + r * g.x_stride, sizeof pair);
        const auto both = hn::BitCast(d16, hn::Set(d32, pair));
        sum0[r] = Dot::add_pairs(d32, both, w0, sum0[r]);
        sum1[r] = Dot::add_pairs(d32, both, w1, sum1[r]);
        // Else g++ forms the products of all rows first, for which there are not enough registers.
        asm volatile("" : "+v"(sum0[r].raw), "+v"(sum1[r].raw));
      }
    }
    const VFull scale0 = hn::Load(d, g.scales + b * kPanel),
                scale1 = hn::Load(d, g.scales + b * kPanel + kLanes);
    const bool overwrite = b == 0 && g.into == Into::kOverwrite;
    HWY_UNROLL(8)
    for (size_t r = 0; r < kX; ++r) {
      const VFull scale = hn::Set(d, g.x_scales[r * g.x_scales_stride + b]);
      const auto put = [&](float* to, VFull by, auto sum) HWY_ATTR {
        const VFull old = overwrite ? hn::Zero(d) : hn::LoadU(d, to);
        hn::StoreU(hn::MulAdd(by, hn::ConvertTo(d, sum), old), d, to);
      };
      put(y + r * y_stride, hn::Mul(scale, scale0), sum0[r]);
      put(y + r * y_stride + kLanes, hn::Mul(scale, scale1), sum1[r]);
    }
  }
}

template <class Dot, class Format>
void many_rounded(const WeightTask& t) {
  Scratch& s = scratch_of_thread();
  const size_t all_blocks = t.cols / kWeightBlock, row_bytes = all_blocks * Format::kBytes;
  constexpr size_t kBlocks = kDepth / kWeightBlock, kHalf = kDepth / 2;
  for (size_t first = 0; first < all_blocks; first += kBlocks) {
    const size_t blocks = std::min(kBlocks, all_blocks - first);
    const Into into = first == 0 ? t.into : Into::kAdd;
    for (size_t j = 0; j < t.rows; j += kPanel) {
      const size_t width = std::min(kPanel, t.rows - j);
      for (size_t i = 0; i < width; ++i)
        for (size_t b = 0; b < blocks; ++b) {
          V16 numbers[kVecs16];
          Format::numbers(t.w + (j + i) * row_bytes + (first + b) * Format::kBytes, numbers);
          int32_t* to = s.row_pairs + i * kHalf + b * kWeightBlock / 2;
          for (size_t v = 0; v < kVecs16; ++v)
            hn::Store(hn::BitCast(D32(), numbers[v]), D32(), to + v * kLanes16 / 2);
          s.scales[j * kBlocks + b * kPanel + i] = to_f32(t.scales[(j + i) * all_blocks + first + b]);
        }
      transpose(width, blocks * kWeightBlock / 2, s.row_pairs, kHalf, s.pairs + j * kHalf, kPanel);
    }
    for_blocks_of_y(t, into, s, [&](size_t row, size_t rows, size_t j, Mat<float> y) HWY_ATTR {
      for (size_t r = 0; r < rows && j == 0; ++r)
        std::copy_n(t.rounded.numbers + (row + r) * t.cols + first * kWeightBlock, blocks * kWeightBlock,
                    s.rounded + r * kDepth);
      BlocksArgs args{.x = s.rounded,
                      .x_stride = kDepth,
                      .x_scales = t.rounded.scales + row * all_blocks + first,
                      .x_scales_stride = all_blocks,
                      .pairs = s.pairs + j * kHalf,
                      .scales = s.scales + j * kBlocks,
                      .blocks = blocks,
                      .into = into};
      const auto add = [&](auto count, size_t r) {
        add_blocks<Dot, count>(args, y.row(r), y.stride);
        args.x += count * args.x_stride, args.x_scales += count * args.x_scales_stride;
      };
      size_t r = 0;
      for (; r + kGemmRows <= rows; r += kGemmRows) add(std::integral_constant<size_t, kGemmRows>(), r);
      for (; r < rows; ++r) add(std::integral_constant<size_t, 1>(), r);
    });
  }
}

template <class Dot>
void many(const WeightTask& t) {
  if (t.format == WeightFormat::kQ8) return many_rounded<Dot, Q8>(t);
  if (t.format == WeightFormat::kQ4) return many_rounded<Dot, Q4>(t);
  many_f32(t);
}

constexpr WeightMatmulFns kFns{pack, round16, few<Apart>, many<Apart>, widen};
#if HWY_TARGET == HWY_AVX3
constexpr WeightMatmulFns kDotFns{pack, round16, few<Fused>, many<Fused>, widen};
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

constexpr std::array<std::string_view, 4> kNames{"f32", "bf16", "q8", "q4"};
constexpr std::array<std::string_view, 3> kActivations{"f32", "bf16", "auto"};
constexpr size_t kFewCols = 60;    // rows of W in a task with few rows of X
constexpr size_t kManyRows = 512;  // rows of X in a task with many
constexpr size_t kRowBlock = 8;    // looked up or rounded in one task

void ref_pack(Mat<const float> x, float* to) {
  for (size_t r = 0; r < x.rows; ++r) std::copy_n(x.row(r), x.cols, to + r * padded(x.cols));
}

void ref_task(const WeightTask& t) {
  const StoredRows part{t.w, t.scales, t.rows};
  const StoredMatrix w{t.format, t.rows, t.cols, {&part, 1}};
  ref::weight_matmul<float>(t.x.data, t.x.stride, t.y.rows, w, t.y.data, t.y.stride, t.into);
}

constexpr WeightMatmulFns kRefFns{
    ref_pack,
    [](std::span<const float> row, int16_t* numbers, float* scales) {
      for (size_t b = 0; b < row.size() / kWeightBlock; ++b)
        ref::round16(row.data() + b * kWeightBlock, numbers + b * kWeightBlock, scales[b]);
    },
    ref_task, ref_task,
    [](WeightFormat f, const std::byte* row, const bf16* scales, size_t begin, size_t count, float* to) {
      for (size_t i = 0; i < count; ++i) to[i] = ref::stored_number<float>(f, row, scales, begin + i);
    }};

constexpr WeightMatmulFns with_split(WeightMatmulFns f) {
  f.splits = true;
  return f;
}

// Whole rows of bf16 as they are, others in pieces that stay in L2.
constexpr size_t kSplitDepth = 512;
struct SplitScratch {
  alignas(64) bf16 high[kManyCols * kSplitDepth], low[kManyCols * kSplitDepth];
  alignas(64) float x[kSplitDepth], rest[kSplitDepth];
  alignas(64) int16_t rounded[kSplitDepth];
  float scales[kSplitDepth / kWeightBlock];
};
SplitScratch& split_scratch_of_thread() {
  static thread_local SplitScratch s;
  return s;
}

// x = high + low, but for what two roundings to bf16 lose: 2^-17 of x.
void split_numbers(const float* x, size_t n, float* rest, bf16* high, bf16* low, Par par) {
  convert(Mat<const float>(x, 1, n), Mat<bf16>(high, 1, n), par);
  convert(Mat<const bf16>(high, 1, n), Mat<float>(rest, 1, n), par);
  for (size_t i = 0; i < n; ++i) rest[i] = x[i] - rest[i];
  convert(Mat<const float>(rest, 1, n), Mat<bf16>(low, 1, n), par);
}

// A row of X; for W with scales after it was rounded to 16 bits, as the definition has it. Without `low` its
// high part alone.
void split_x(const WeightMatmulFns& f, WeightFormat format, std::span<const float> row, bf16* high, bf16* low,
             Par par) {
  SplitScratch& s = split_scratch_of_thread();
  for (size_t k = 0; k < row.size(); k += kSplitDepth) {
    const size_t n = std::min(kSplitDepth, row.size() - k);
    const float* x = row.data() + k;
    if (has_scales(format)) {
      f.round16({x, n}, s.rounded, s.scales);
      for (size_t i = 0; i < n; ++i) s.x[i] = s.scales[i / kWeightBlock] * static_cast<float>(s.rounded[i]);
      x = s.x;
    }
    if (low)
      split_numbers(x, n, s.rest, high + k, low + k, par);
    else
      convert(Mat<const float>(x, 1, n), Mat<bf16>(high + k, 1, n), par);
  }
}

// Numbers with scales have 15 bits: they are high + low exactly, and low times low is all that is left out.
void many_split(const WeightMatmulFns& f, const WeightTask& t, Par par) {
  SplitScratch& s = split_scratch_of_thread();
  const MatmulBf16Fns& products = matmul_bf16_impls().use(par);
  const bool whole = t.format == WeightFormat::kBf16;
  const size_t row_bytes = weight_row_bytes(t.format, t.cols),
               row_scales = weight_row_scales(t.format, t.cols), piece = whole ? t.cols : kSplitDepth;
  for (size_t k = 0; k < t.cols; k += piece) {
    const size_t depth = std::min(piece, t.cols - k);
    for (size_t j = 0; j < t.rows && !whole; ++j) {
      f.widen(t.format, t.w + j * row_bytes, t.scales + j * row_scales, k, depth, s.x);
      split_numbers(s.x, depth, s.rest, s.high + j * kSplitDepth, s.low + j * kSplitDepth, par);
    }
    const auto add = [&](const bf16* x, const bf16* w, Into into) {
      products.panel({.form = MatmulForm::kNT,
                      .m = t.y.rows,
                      .n = t.rows,
                      .k = depth,
                      .a = x + k,
                      .b = w,
                      .a_stride = t.cols,
                      .b_stride = whole ? t.cols : kSplitDepth,
                      .c = t.y.data,
                      .c_stride = t.y.stride,
                      .into = into,
                      .par = par});
    };
    const bf16* high = whole ? reinterpret_cast<const bf16*>(t.w) : s.high;
    add(t.split.high, high, k == 0 ? t.into : Into::kAdd);
    if (t.split.low) add(t.split.low, high, Into::kAdd);
    if (!whole) add(t.split.high, s.low, Into::kAdd);
  }
}

bool is_few(const WeightProduct& p) { return p.x.rows <= kFewRows; }

size_t groups(size_t n, size_t of) { return (n + of - 1) / of; }

size_t tasks_of(const WeightProduct& p, size_t rows) {
  return is_few(p) ? groups(rows, kFewCols) : groups(rows, kManyCols) * groups(p.x.rows, kManyRows);
}

// What a call has decided for all of its products.
struct Way {
  const WeightMatmulFns& f;
  Activations activations;
  bool multiplies_bf16;
  Par one;  // for what runs inside a task
  Way(Activations a, Par par)
      : f(weight_matmul_impls().use(par)),
        activations(a),
        multiplies_bf16(matmul_bf16_impls().rows()[matmul_bf16_impls().chosen(par)].needs > Isa::kBase),
        one(par.alone()) {}
  bool high(WeightFormat w) const {  // bf16 alone is left of X
    return activations == Activations::kBf16 ||
           (activations == Activations::kAuto && multiplies_bf16 && w == WeightFormat::kBf16);
  }
};

// X in the form that the tasks of a product read, in the scratch space: as it is, packed, rounded to 16 bits,
// split into two parts of bf16, or the first of those alone; both of these with or without rounding to 16
// bits before. Products that follow each other with the same X and form share it.
enum class Form { kPlain, kPacked, kRounded, kSplit, kRoundedSplit, kHigh, kRoundedHigh };
Form form_of(const WeightProduct& p, const Way& way) {
  const bool scaled = has_scales(p.w.format), splits = way.f.splits, high = way.high(p.w.format);
  if (!is_few(p) && p.w.format != WeightFormat::kF32) {
    if (high && (splits || !scaled)) return scaled ? Form::kRoundedHigh : Form::kHigh;
    if (splits) return scaled ? Form::kRoundedSplit : Form::kSplit;
  }
  return scaled ? Form::kRounded : is_few(p) ? Form::kPacked : Form::kPlain;
}
bool is_high(Form f) { return f == Form::kHigh || f == Form::kRoundedHigh; }
bool is_split(Form f) { return f == Form::kSplit || f == Form::kRoundedSplit || is_high(f); }
bool same_form(const WeightProduct& a, const WeightProduct& b, const Way& way) {
  return a.x.data == b.x.data && a.x.rows == b.x.rows && a.x.cols == b.x.cols && a.x.stride == b.x.stride &&
         form_of(a, way) == form_of(b, way);
}
size_t form_size(const WeightProduct& p, const Way& way) {  // floats
  const size_t rows = p.x.rows, cols = p.x.cols;
  switch (form_of(p, way)) {
    case Form::kPlain:
      return 0;
    case Form::kPacked:
      return rows * padded(cols);
    case Form::kRounded:
      return rows * cols / 2 + rows * cols / kWeightBlock;
    case Form::kSplit:
    case Form::kRoundedSplit:
      return rows * cols;
    case Form::kHigh:
    case Form::kRoundedHigh:
      return (rows * cols + 1) / 2;
  }
  return 0;
}
// Row `row` of rounded X: all numbers come first, then all scales.
int16_t* rounded_numbers(const WeightProduct& p, float* formed, size_t row) {
  return reinterpret_cast<int16_t*>(formed) + row * p.x.cols;
}
float* rounded_scales(const WeightProduct& p, float* formed, size_t row) {
  return formed + p.x.rows * p.x.cols / 2 + row * p.x.cols / kWeightBlock;
}

// Row `row` of split X: all high parts come first, then all low ones.
bf16* split_high(const WeightProduct& p, float* formed, size_t row) {
  return reinterpret_cast<bf16*>(formed) + row * p.x.cols;
}
bf16* split_low(const WeightProduct& p, float* formed, size_t row, const Way& way) {
  return is_high(form_of(p, way)) ? nullptr : split_high(p, formed, p.x.rows + row);
}

// Runs task number `t` of a part whose rows are columns `first` ... of Y.
void run_task(const Way& way, const WeightProduct& p, const StoredRows& part, size_t first, size_t t,
              float* formed, Into into) {
  const size_t width = is_few(p) ? kFewCols : kManyCols, across = groups(part.count, width);
  const size_t j = t % across * width, count = std::min(width, part.count - j);
  const size_t begin = is_few(p) ? 0 : t / across * kManyRows, end = std::min(p.x.rows, begin + kManyRows);
  WeightTask task{.format = p.w.format,
                  .w = part.data + j * weight_row_bytes(p.w.format, p.w.cols),
                  .scales = part.scales + j * weight_row_scales(p.w.format, p.w.cols),
                  .rows = count,
                  .cols = p.w.cols,
                  .into = into,
                  .y = p.y.row_range(begin, end).col_range(first + j, first + j + count),
                  .x = p.x.row_range(begin, end),
                  .packed = formed,
                  .rounded = {},
                  .split = {}};
  const Form form = form_of(p, way);
  if (form == Form::kRounded)
    task.rounded = {rounded_numbers(p, formed, begin), rounded_scales(p, formed, begin)};
  if (is_split(form)) {
    task.split = {split_high(p, formed, begin), split_low(p, formed, begin, way)};
    return many_split(way.f, task, way.one);
  }
  (is_few(p) ? way.f.few : way.f.many)(task);
}

}  // namespace

std::string_view weight_format_name(WeightFormat f) { return kNames[static_cast<size_t>(f)]; }

std::optional<WeightFormat> weight_format_from_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<WeightFormat>(i);
  return std::nullopt;
}

const Impls<WeightMatmulFns>& weight_matmul_impls() {
  // "split" is "amx" with whatever products of bf16 the machine has.
  static constexpr WeightMatmulFns kAmx = with_split(N_AVX3::kDotFns), kSplit = with_split(N_SSSE3::kFns);
  static const Impls<WeightMatmulFns> table(
      "weight_matmul", {"amx", Isa::kAmx, &kAmx}, {"avx512dot", Isa::kAvx512Dot, &N_AVX3::kDotFns},
      {"avx512", Isa::kAvx512, &N_AVX3::kFns}, {"avx2", Isa::kAvx2, &N_AVX2::kFns},
      {"sse", Isa::kBase, &N_SSSE3::kFns}, {"split", Isa::kBase, &kSplit}, {"ref", Isa::kBase, &kRefFns});
  return table;
}

std::string_view activations_name(Activations a) { return kActivations[static_cast<size_t>(a)]; }
std::optional<Activations> activations_from_name(std::string_view name) {
  for (size_t i = 0; i < kActivations.size(); ++i)
    if (kActivations[i] == name) return static_cast<Activations>(i);
  return std::nullopt;
}

bool weight_matmul_rounds(WeightFormat f, Activations activations, Par par) {
  const Way way(activations, par);
  return has_scales(f) || (f == WeightFormat::kBf16 && (way.f.splits || way.high(f)));
}

namespace {

size_t scratch_size(std::span<const WeightProduct> products, const Way& way) {
  size_t n = 0;
  for (size_t i = 0; i < products.size(); ++i)
    if (i == 0 || !same_form(products[i], products[i - 1], way)) n += form_size(products[i], way);
  return n;
}

}  // namespace

size_t weight_matmul_scratch(std::span<const WeightProduct> products, Activations activations, Par par) {
  return scratch_size(products, Way(activations, par));
}

void weight_matmul(std::span<const WeightProduct> products, Into into, Activations activations,
                   std::span<float> scratch, Par par) {
  const Way way(activations, par);
  const WeightMatmulFns& f = way.f;
  check(scratch.size() >= scratch_size(products, way), "weight_matmul: too little scratch");
  size_t total = 0;
  float* place = scratch.data();
  for (size_t i = 0; i < products.size(); ++i) {
    const WeightProduct& p = products[i];
    check(p.x.cols == p.w.cols && p.y.cols == p.w.rows && p.x.rows == p.y.rows,
          "weight_matmul: shapes do not fit");
    if (p.x.rows == 0) continue;
    for (const StoredRows& part : p.w.parts) total += tasks_of(p, part.count);
    if (i > 0 && same_form(p, products[i - 1], way)) continue;
    const Form form = form_of(p, way);
    if (form == Form::kPacked)
      for (size_t r = 0; r < p.x.rows; r += kTogether)
        f.pack(p.x.row_range(r, std::min(p.x.rows, r + kTogether)), place + r * padded(p.x.cols));
    if (form == Form::kRounded)
      par.blocks(p.x.rows, kRowBlock, [&](size_t begin, size_t end) {
        for (size_t r = begin; r < end; ++r)
          f.round16({p.x.row(r), p.x.cols}, rounded_numbers(p, place, r), rounded_scales(p, place, r));
      });
    if (is_split(form))
      par.blocks(p.x.rows, kRowBlock, [&](size_t begin, size_t end) {
        for (size_t r = begin; r < end; ++r)
          split_x(f, p.w.format, {p.x.row(r), p.x.cols}, split_high(p, place, r), split_low(p, place, r, way),
                  way.one);
      });
    place += form_size(p, way);
  }
  take_turns(total, 1, par, [&](size_t t, size_t) {
    float *next = scratch.data(), *at = next;
    for (size_t i = 0; i < products.size(); ++i) {
      const WeightProduct& p = products[i];
      if (p.x.rows == 0) continue;
      if (i == 0 || !same_form(p, products[i - 1], way)) at = next, next += form_size(p, way);
      size_t first = 0;
      for (const StoredRows& part : p.w.parts) {
        const size_t here = tasks_of(p, part.count);
        if (t < here) return run_task(way, p, part, first, t, at, into);
        t -= here, first += part.count;
      }
    }
  });
}

void weight_rows(const StoredMatrix& w, const int32_t* ids, Mat<float> y, Par par) {
  const WeightMatmulFns& f = weight_matmul_impls().use(par);
  par.blocks(y.rows, kRowBlock, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      size_t row = static_cast<size_t>(ids[i]);
      const StoredRows* part = w.parts.data();
      for (; row >= part->count; ++part) row -= part->count;
      f.widen(w.format, part->data + row * weight_row_bytes(w.format, w.cols),
              part->scales + row * weight_row_scales(w.format, w.cols), 0, w.cols, y.row(i));
    }
  });
}

void store_row(WeightFormat f, std::span<const float> row, std::byte* data, bf16* scales) {
  check(weight_fits(f, row.size()), "store_row: not whole blocks");
  if (f == WeightFormat::kF32) {
    std::memcpy(data, row.data(), row.size_bytes());
    return;
  }
  if (f == WeightFormat::kBf16) {
    for (size_t i = 0; i < row.size(); ++i) {
      const bf16 x = to_bf16(row[i]);
      std::memcpy(data + 2 * i, &x, sizeof x);
    }
    return;
  }
  constexpr size_t kHalf = kWeightBlock / 2;
  for (size_t b = 0; b < row.size() / kWeightBlock; ++b) {
    const float* x = row.data() + b * kWeightBlock;
    float low = 0, high = 0, zero = 0;
    for (size_t i = 0; i < kWeightBlock; ++i)
      low = std::min(low, x[i]), high = std::max(high, x[i]), zero += 0 * x[i];
    if (std::isnan(zero)) low = high = zero;  // infinities and NaN must show
    // q4 reaches one step further down than up: the scale's sign puts the largest number there.
    const float most =
        f == WeightFormat::kQ8 ? std::max(high, -low) / 127 : (-low >= high ? -low : -high) / 8;
    bf16 scale = to_bf16(most);
    if (std::fabs(to_f32(scale)) < std::fabs(most)) ++scale.bits;  // away from zero
    scales[b] = scale;
    const float inverse = most == 0 || std::isnan(most) ? 0 : 1 / to_f32(scale);
    if (f == WeightFormat::kQ8) {
      for (size_t i = 0; i < kWeightBlock; ++i)
        data[b * kWeightBlock + i] =
            static_cast<std::byte>(inverse == 0 ? 0 : static_cast<int8_t>(std::lrintf(x[i] * inverse)));
      continue;
    }
    const auto nibble = [&](size_t i) {
      return inverse == 0 ? 0u : static_cast<unsigned>(std::min(7L, std::lrintf(x[i] * inverse))) & 15;
    };
    for (size_t i = 0; i < kHalf; ++i)
      data[b * kHalf + i] = static_cast<std::byte>(nibble(i) | nibble(i + kHalf) << 4);
  }
}

}  // namespace braid
#endif
