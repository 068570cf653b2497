#include "kernels/weight_matmul/weight_matmul.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "kernels/common/ragged.h"
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

HWY_INLINE VFull from_bytes(const int8_t* p) {
  const Full d;
  const hn::Rebind<int32_t, Full> di;
  const hn::Rebind<int8_t, Full> db;
  return hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(db, p)));
}

// Formats: how kWeightBlock numbers lie, without their scale; kFactor is what else they are to be multiplied
// with.
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
  static constexpr float kFactor = 1;
  static constexpr size_t kBytes = kWeightBlock;
  static HWY_INLINE void widen(const std::byte* from, VFull* to) {
    for (size_t v = 0; v < kVecs; ++v) to[v] = from_bytes(reinterpret_cast<const int8_t*>(from) + v * kLanes);
  }
};

// Where a byte of a block of q4 goes: to the top of a lane. The others become zero.
struct TopBytes {
  HWY_ALIGN uint8_t at[kVecs / 2][4 * kLanes];
  constexpr TopBytes() : at() {
    for (size_t g = 0; g < kVecs / 2; ++g)
      for (size_t i = 0; i < 4 * kLanes; ++i)
        at[g][i] = static_cast<uint8_t>(i % 4 == 3 ? g * kLanes + i / 4 : 0x80);
  }
};
constexpr TopBytes kTopBytes;

// Four bits at the top of a lane are that number times 2^28, which kFactor takes back: no shift to extend the
// sign.
struct Q4 {
  static constexpr bool kScaled = true;
  static constexpr size_t kBytes = kWeightBlock / 2;
  static constexpr float kFactor = 0x1p-28f;
  static HWY_INLINE void widen(const std::byte* from, VFull* to) {
    const Full d;
    const hn::Rebind<int32_t, Full> di;
    const hn::Repartition<uint8_t, Full> d8;
    const auto both = hn::LoadDup128(d8, reinterpret_cast<const uint8_t*>(from));
    for (size_t g = 0; g < kVecs / 2; ++g) {
      const auto lanes = hn::BitCast(di, hn::TableLookupBytesOr0(both, hn::Load(d8, kTopBytes.at[g])));
      to[g] = hn::ConvertTo(d, hn::ShiftLeft<4>(lanes));
      to[kVecs / 2 + g] = hn::ConvertTo(d, hn::And(lanes, hn::Set(di, static_cast<int32_t>(0xf0000000u))));
    }
  }
};

HWY_INLINE VFull scale_of(const bf16* scales, size_t block) {
  const Full d;
  const hn::Repartition<uint16_t, Full> d16;
  const hn::Repartition<uint32_t, Full> d32;
  const auto everywhere = hn::BitCast(d32, hn::Set(d16, scales[block].bits));
  return hn::BitCast(d, hn::ShiftLeft<16>(everywhere));
}

// Numbers [begin, begin + count) of a row; begin is a multiple of kWeightBlock.
template <class Format>
void widen_row(const std::byte* row, const bf16* scales, WeightFormat f, size_t begin, size_t count,
               float* to) {
  const Full d;
  size_t k = 0;
  for (; k + kWeightBlock <= count; k += kWeightBlock) {
    VFull w[kVecs];
    Format::widen(row + (begin + k) / kWeightBlock * Format::kBytes, w);
    for (size_t v = 0; v < kVecs; ++v) {
      if constexpr (Format::kScaled)
        w[v] =
            hn::Mul(hn::Mul(w[v], hn::Set(d, Format::kFactor)), scale_of(scales, (begin + k) / kWeightBlock));
      hn::StoreU(w[v], d, to + k + v * kLanes);
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

// Dot products of kX packed rows of X with kW rows of W. Each has one chain of additions (with scales: one in
// a block and one over blocks), and there are enough chains to keep the multiply-add units busy. Memory is
// asked for one group of rows ahead, because the hardware's own prefetching starts anew in every row.
template <class Format, size_t kX, size_t kW>
HWY_INLINE void dots(const WeightTask& t, const float* x, Mat<float> y, size_t row) {
  const Full d;
  const size_t row_bytes = t.cols / kWeightBlock * Format::kBytes +
                           (t.cols % kWeightBlock) * Format::kBytes / kWeightBlock,
               row_scales = Format::kScaled ? t.cols / kWeightBlock : 0;
  const std::byte* w = t.w + row * row_bytes;
  const bf16* scales = t.scales + row * row_scales;
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
  constexpr size_t kLine = 64, kBlocksInLine = std::max<size_t>(1, kLine / Format::kBytes);
  const size_t blocks = t.cols / kWeightBlock;
  for (size_t b = 0; b < blocks; ++b) {
    const std::byte* here = w + b * Format::kBytes;
    const float* at = x + b * kWeightBlock * kX;
    if (b % kBlocksInLine == 0)
      for (size_t j = 0; j < kW; ++j)
        for (size_t i = 0; i < Format::kBytes; i += kLine)
          __builtin_prefetch(here + (kW + j) * row_bytes + i);
    HWY_UNROLL(8)
    for (size_t j = 0; j < kW; ++j) {
      VFull block[kVecs];
      Format::widen(here + j * row_bytes, block);
      if constexpr (Format::kScaled) {
        VFull part[kX];
        HWY_UNROLL(8)
        for (size_t r = 0; r < kX; ++r) part[r] = hn::Zero(d);
        add(block, at, part);
        const VFull scale = scale_of(scales + j * row_scales, b);
        HWY_UNROLL(8)
        for (size_t r = 0; r < kX; ++r) sum[j][r] = hn::MulAdd(scale, part[r], sum[j][r]);
      } else {
        add(block, at, sum[j]);
      }
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
    for (size_t r = 0; r < kX; ++r) {
      float& to = y.row(r)[row + j];
      float s = hn::GetLane(hn::SumOfLanes(d, sum[j][r]));
      if constexpr (Format::kScaled) s *= Format::kFactor;
      to = t.into == Into::kAdd ? to + s : s;
    }
}

// kW rows of W with all rows of X: groups of kTogether and what is left. W's rows stay in L1 from
// group to group.
template <class Format, size_t kW>
HWY_INLINE void few_groups(const WeightTask& t, size_t row) {
  const float* x = t.x;
  for (size_t r = 0; r < t.y.rows; r += kTogether) {
    const Mat<float> y = t.y.row_range(r, std::min(t.y.rows, r + kTogether));
    switch (y.rows) {
      case 1:
        dots<Format, 1, kW>(t, x, y, row);
        break;
      case 2:
        dots<Format, 2, kW>(t, x, y, row);
        break;
      case 3:
        dots<Format, 3, kW>(t, x, y, row);
        break;
      default:
        dots<Format, 4, kW>(t, x, y, row);
    }
    x += y.rows * padded(t.cols);
  }
}

// Sixteen registers hold the sums of one row of X with four rows of W, or of four with three.
template <class Format>
void few_of(const WeightTask& t) {
  size_t row = 0;
  if (t.y.rows == 1)
    for (; row + 4 <= t.rows; row += 4) dots<Format, 1, 4>(t, t.x, t.y, row);
  else
    for (; row + 3 <= t.rows; row += 3) few_groups<Format, 3>(t, row);
  for (; row < t.rows; ++row) few_groups<Format, 1>(t, row);
}

void few(const WeightTask& t) {
  switch (t.format) {
    case WeightFormat::kF32:
      return few_of<F32>(t);
    case WeightFormat::kBf16:
      return few_of<Bf16>(t);
    case WeightFormat::kQ8:
      return few_of<Q8>(t);
    case WeightFormat::kQ4:
      return few_of<Q4>(t);
  }
}

// Blocked for the caches: rows of W are widened and turned into panels of two vectors, which all rows of X
// here then meet. A number of Y is summed over k in order, in pieces of kDepth.
void many(const WeightTask& t) {
  Scratch& s = scratch_of_thread();
  constexpr size_t w = 2 * kLanes;
  static_assert(w <= kWidest);
  const size_t row_bytes = weight_row_bytes(t.format, t.cols),
               row_scales = weight_row_scales(t.format, t.cols);
  for (size_t k = 0; k < t.cols; k += kDepth) {
    const size_t depth = std::min(kDepth, t.cols - k);
    const Into into = k == 0 ? t.into : Into::kAdd;
    for (size_t j = 0; j < t.rows; j += w) {
      const size_t width = std::min(w, t.rows - j);
      for (size_t i = 0; i < width; ++i)
        widen(t.format, t.w + (j + i) * row_bytes, t.scales + (j + i) * row_scales, k, depth,
              s.rows + i * kDepth);
      transpose(width, depth, s.rows, kDepth, s.w + j * kDepth, w);
    }
    for (size_t row = 0; row < t.y.rows; row += kRows) {
      const size_t rows = std::min(kRows, t.y.rows - row);
      for (size_t r = 0; r < rows; ++r) {
        const float* from = t.x + (row + r) * t.x_stride + k;
        for_lanes(depth,
                  [&](auto d, size_t i) { hn::StoreU(hn::LoadU(d, from + i), d, s.x + r * depth + i); });
      }
      for (size_t j = 0; j < t.rows; j += w) {
        const Mat<float> y = t.y.row_range(row, row + rows).col_range(j, std::min(t.rows, j + w));
        const bool whole = y.cols == w;  // else beside it, so that sums do not depend on where W is cut
        const Mat<float> to = whole ? y : Mat<float>(s.y, rows, y.cols, w);
        if (!whole && into == Into::kAdd) copy<float>(y, to);
        gemm<false>(rows, w, {depth, s.x, depth, s.w + j * kDepth, w, to.data, to.stride, 1.0f, into});
        if (!whole) copy<float>(to, y);
      }
    }
  }
}

constexpr WeightMatmulFns kFns{pack, few, many, widen};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

constexpr std::array<std::string_view, 4> kNames{"f32", "bf16", "q8", "q4"};
constexpr size_t kFewCols = 60;    // rows of W in a task with few rows of X
constexpr size_t kManyRows = 512;  // rows of X in a task with many
constexpr size_t kRowBlock = 8;    // looked up in one task

void ref_pack(Mat<const float> x, float* to) {
  for (size_t r = 0; r < x.rows; ++r) std::copy_n(x.row(r), x.cols, to + r * padded(x.cols));
}

void ref_task(const WeightTask& t, size_t x_stride) {
  const StoredRows part{t.w, t.scales, t.rows};
  const StoredMatrix w{t.format, t.rows, t.cols, {&part, 1}};
  ref::weight_matmul<float>(t.x, x_stride, t.y.rows, w, t.y.data, t.y.stride, t.into);
}

constexpr WeightMatmulFns kRefFns{
    ref_pack, [](const WeightTask& t) { ref_task(t, padded(t.cols)); },
    [](const WeightTask& t) { ref_task(t, t.x_stride); },
    [](WeightFormat f, const std::byte* row, const bf16* scales, size_t begin, size_t count, float* to) {
      for (size_t i = 0; i < count; ++i) to[i] = ref::stored_number<float>(f, row, scales, begin + i);
    }};

bool is_few(const WeightProduct& p) { return p.x.rows <= kFewRows; }

size_t groups(size_t n, size_t of) { return (n + of - 1) / of; }

size_t tasks_of(const WeightProduct& p, size_t rows) {
  return is_few(p) ? groups(rows, kFewCols) : groups(rows, kManyCols) * groups(p.x.rows, kManyRows);
}

// Runs task number `t` of a part whose rows are columns `first` ... of Y.
void run_task(const WeightMatmulFns& f, const WeightProduct& p, const StoredRows& part, size_t first,
              size_t t, const float* packed, Into into) {
  const size_t width = is_few(p) ? kFewCols : kManyCols, across = groups(part.count, width);
  const size_t j = t % across * width, count = std::min(width, part.count - j);
  WeightTask task{.format = p.w.format,
                  .w = part.data + j * weight_row_bytes(p.w.format, p.w.cols),
                  .scales = part.scales + j * weight_row_scales(p.w.format, p.w.cols),
                  .rows = count,
                  .cols = p.w.cols,
                  .into = into,
                  .y = {},
                  .x = nullptr,
                  .x_stride = p.x.stride};
  const size_t begin = is_few(p) ? 0 : t / across * kManyRows;
  task.y =
      p.y.row_range(begin, std::min(p.y.rows, begin + kManyRows)).col_range(first + j, first + j + count);
  task.x = is_few(p) ? packed : p.x.row(begin);
  (is_few(p) ? f.few : f.many)(task);
}

}  // namespace

std::string_view weight_format_name(WeightFormat f) { return kNames[static_cast<size_t>(f)]; }

std::optional<WeightFormat> weight_format_from_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<WeightFormat>(i);
  return std::nullopt;
}

Impls<WeightMatmulFns>& weight_matmul_impls() {
  static Impls<WeightMatmulFns> table("weight_matmul", {"avx512", Isa::kAvx512, &N_AVX3::kFns},
                                      {"avx2", Isa::kAvx2, &N_AVX2::kFns},
                                      {"sse", Isa::kBase, &N_SSSE3::kFns}, {"ref", Isa::kBase, &kRefFns});
  return table;
}

// Products that follow each other with the same X share its packed copy.
size_t weight_matmul_scratch(std::span<const WeightProduct> products) {
  size_t n = 0;
  const float* last = nullptr;
  for (const WeightProduct& p : products)
    if (is_few(p) && p.x.data != last) n += p.x.rows * padded(p.x.cols), last = p.x.data;
  return n;
}

void weight_matmul(std::span<const WeightProduct> products, Into into, std::span<float> scratch, Par par) {
  const WeightMatmulFns& f = weight_matmul_impls().use();
  check(scratch.size() >= weight_matmul_scratch(products), "weight_matmul: too little scratch");
  size_t total = 0;
  const float* last = nullptr;
  float* packed = scratch.data();
  for (const WeightProduct& p : products) {
    check(p.x.cols == p.w.cols && p.y.cols == p.w.rows && p.x.rows == p.y.rows,
          "weight_matmul: shapes do not fit");
    if (p.x.rows == 0) continue;
    for (const StoredRows& part : p.w.parts) total += tasks_of(p, part.count);
    if (!is_few(p) || p.x.data == last) continue;
    for (size_t r = 0; r < p.x.rows; r += kTogether)
      f.pack(p.x.row_range(r, std::min(p.x.rows, r + kTogether)), packed + r * padded(p.x.cols));
    packed += p.x.rows * padded(p.x.cols), last = p.x.data;
  }
  take_turns(total, 1, par, [&](size_t t, size_t) {
    const float *x = nullptr, *place = scratch.data();
    const float* at = place;
    for (const WeightProduct& p : products) {
      if (p.x.rows == 0) continue;
      if (is_few(p) && p.x.data != x) at = place, place += p.x.rows * padded(p.x.cols), x = p.x.data;
      size_t first = 0;
      for (const StoredRows& part : p.w.parts) {
        const size_t here = tasks_of(p, part.count);
        if (t < here) return run_task(f, p, part, first, t, at, into);
        t -= here, first += part.count;
      }
    }
  });
}

void weight_rows(const StoredMatrix& w, const int32_t* ids, Mat<float> y, Par par) {
  const WeightMatmulFns& f = weight_matmul_impls().use();
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
