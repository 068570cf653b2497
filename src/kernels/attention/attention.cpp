#include "kernels/attention/attention.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "kernels/common/ragged.h"
#include "kernels/attention/attention_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/attention/narrow-inl.h"
#include "kernels/common/gemm-inl.h"
#include "kernels/common/simd-inl.h"

#ifndef BRAID_ATTENTION_TILES
#define BRAID_ATTENTION_TILES
namespace braid {

// Columns (queries) and keys per tile, for heads of at most 128, 256 and 512 numbers: what a tile needs stays
// below 384 KB (330 KB with heads of 128), inside an L2 of 512 KB.
struct AttentionTile {
  size_t columns, keys;
};
constexpr size_t kMaxColumns = 192, kMaxKeys = 96, kArena = 96 * 1024;
constexpr size_t tile_shift(const AttentionShape& s) {
  const size_t d = std::max(s.dk, s.dv);
  return d <= 128 ? 0 : d <= 256 ? 1 : 2;
}
constexpr AttentionTile fwd_tile(const AttentionShape& s) {
  return {size_t{192} >> tile_shift(s), size_t{96} >> tile_shift(s)};
}
constexpr AttentionTile bwd_tile(const AttentionShape& s) {
  return {size_t{64} >> tile_shift(s), size_t{64} >> tile_shift(s)};
}

// The oldest position that a query at position p may see.
constexpr int64_t oldest_seen(const AttentionShape& s, int64_t p) {
  if (s.window) return p - static_cast<int64_t>(s.window) + 1;
  return s.chunk ? p - p % static_cast<int64_t>(s.chunk) : INT64_MIN;
}

}  // namespace braid
#endif

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

// Scores are kept transposed, [keys, columns]: then the maximum and sum of a softmax run down the lanes, only
// the queries (once per block) and never the keys are transposed, and all products are NN or TN. A panel is
// two vectors of columns, the width of the register tile.
constexpr size_t kPanel = kGemmVecs * kLanes;

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// The task's memory, on its stack.
struct Arena {
  HWY_ALIGN float data[kArena];
  size_t used = 0;
  float* take(size_t n) {
    float* p = data + used;
    used += round_up(n, 16);
    return p;
  }
};

constexpr size_t fwd_floats(size_t dim) {
  const AttentionTile t = fwd_tile({1, 1, dim, dim});
  return round_up(t.columns, kPanel) * (dim + spread_stride(dim)) + kMaxKeys * kPanel +
         2 * t.keys * spread_stride(dim);
}
constexpr size_t bwd_floats(size_t dim) {
  const AttentionTile t = bwd_tile({1, 1, dim, dim});
  return 3 * t.columns * spread_stride(dim) + 2 * round_up(t.columns, kPanel) * dim + 2 * t.keys * t.columns;
}
static_assert(fwd_floats(128) <= kArena && fwd_floats(256) <= kArena && fwd_floats(512) <= kArena);
static_assert(bwd_floats(128) <= kArena && bwd_floats(256) <= kArena && bwd_floats(512) <= kArena);
static_assert(kAttentionMaxDim == 512);

// The columns of one tile: `n` from column `begin` of a kv head.
struct Columns {
  size_t row0, begin, n, group, head0;
  int64_t first;  // position of row0

  int64_t position(size_t c) const { return first + static_cast<int64_t>((begin + c) / group); }
  template <class F>  // f(column, row, head)
  HWY_INLINE void each(const F& f) const {
    size_t row = row0 + begin / group, g = begin % group;
    for (size_t c = 0; c < n; ++c) {
      f(c, row, head0 + g);
      if (++g == group) g = 0, ++row;
    }
  }
};

// Whole vectors, the last one overlapping its predecessor, so not in place. (Without the factor compilers
// make this a call of memcpy, which costs more than the copy of a short head.)
HWY_INLINE void copy(const float* from, float* to, size_t n, float scale = 1.0f) {
  const auto at = [&](auto d, size_t i) {
    hn::StoreU(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, scale)), d, to + i);
  };
  if (n < kLanes) {
    for (size_t i = 0; i < n; ++i) at(One(), i);
    return;
  }
  for (size_t i = 0; i + kLanes <= n; i += kLanes) at(Full(), i);
  if (n % kLanes) at(Full(), n - kLanes);
}

HWY_INLINE void copy_rows(const float* from, size_t from_stride, float* to, size_t to_stride, size_t rows,
                          size_t width) {
  for (size_t i = 0; i < rows; ++i) copy(from + i * from_stride, to + i * to_stride, width);
}

// Starts reading rows that are needed soon. No gain was measured for short sequences.
HWY_INLINE void prefetch(const float* p, size_t rows, size_t width, size_t stride) {
  for (size_t i = 0; i < rows; ++i)
    for (size_t e = 0; e < width; e += 16) hwy::Prefetch(p + i * stride + e);
}

// The columns' heads of `width` numbers times `scale`, one below the other; zeros up to a whole vector of
// columns.
HWY_INLINE void gather(const Columns& cols, Mat<const float> from, size_t width, float scale, float* to,
                       size_t stride) {
  cols.each([&](size_t c, size_t row, size_t head) {
    copy(from.row(row) + head * width, to + c * stride, width, scale);
  });
  for (size_t c = cols.n; c < round_up(cols.n, kLanes); ++c) std::fill_n(to + c * stride, width, 0.0f);
}

// Panels of [width][kPanel] from gathered columns.
HWY_INLINE void to_panels(size_t columns, size_t width, const float* from, size_t stride, float* to) {
  for (size_t c = 0; c < columns; c += kPanel)
    transpose(round_up(std::min(kPanel, columns - c), kLanes), width, from + c * stride, stride,
              to + c * width, kPanel);
}

// Which of the n keys from position `first` on each column sees: [lo, hi). Both grow with the column.
struct Visible {
  HWY_ALIGN float lo[kMaxColumns];  // float for the lanes' comparisons; below 2^24, hence exact
  HWY_ALIGN float hi[kMaxColumns];
  bool all;  // every column sees every key

  void set(const AttentionShape& s, const Columns& cols, int64_t key_first, size_t n) {
    const int64_t keys = static_cast<int64_t>(n), key_end = key_first + keys;
    const auto low = [&](int64_t p) {
      return std::clamp<int64_t>(oldest_seen(s, p), key_first, key_end) - key_first;
    };
    const auto high = [&](int64_t p) { return std::clamp<int64_t>(p + 1 - key_first, 0, keys); };
    const int64_t begin = cols.position(0), end = cols.position(cols.n - 1);
    all = high(begin) == keys && low(end) == 0;
    if (all) return;
    size_t c = 0, left = cols.group - cols.begin % cols.group;  // columns left at this position
    for (int64_t p = begin; p <= end; ++p, left = cols.group) {
      const float l = static_cast<float>(low(p)), h = static_cast<float>(high(p));
      for (; left > 0 && c < cols.n; --left, ++c) lo[c] = l, hi[c] = h;
    }
    for (; c < round_up(cols.n, kLanes); ++c) lo[c] = lo[c - 1], hi[c] = hi[c - 1];
  }
};

struct KeyRange {
  size_t begin, end;
};

// Keys that some column of [c, c + width) sees.
HWY_INLINE KeyRange visible_keys(const Visible& vis, size_t keys, size_t c, size_t width) {
  if (vis.all) return {0, keys};
  const size_t begin = static_cast<size_t>(vis.lo[c]), end = static_cast<size_t>(vis.hi[c + width - 1]);
  return {begin, std::max(begin, end)};
}

// f(key, masked) for the keys that some lane of the vector at column c sees; `masked` (a constant) where not
// all lanes do.
template <class F>
HWY_INLINE void for_visible(const Visible& vis, size_t keys, size_t c, const F& f) {
  const KeyRange r = visible_keys(vis, keys, c, kLanes);
  size_t full_begin = r.begin, full_end = r.end;
  if (!vis.all) {
    full_begin = std::clamp(static_cast<size_t>(vis.lo[c + kLanes - 1]), r.begin, r.end);
    full_end = std::clamp(static_cast<size_t>(vis.hi[c]), full_begin, r.end);
  }
  size_t j = r.begin;
  for (; j < full_begin; ++j) f(j, std::true_type());
  for (; j < full_end; ++j) f(j, std::false_type());
  for (; j < r.end; ++j) f(j, std::true_type());
}

HWY_INLINE hn::Mask<Full> sees(const Visible& vis, size_t c, size_t key) {
  const Full d;
  const VFull j = hn::Set(d, static_cast<float>(key));
  return hn::And(hn::Ge(j, hn::Load(d, vis.lo + c)), hn::Lt(j, hn::Load(d, vis.hi + c)));
}

// Zeros for the keys of [0, keys) outside `r`, in the vector of columns at `st`.
HWY_INLINE void zero_outside(float* st, size_t ld, size_t keys, KeyRange r) {
  const Full d;
  for (size_t j = 0; j < r.begin; ++j) hn::StoreU(hn::Zero(d), d, st + j * ld);
  for (size_t j = r.end; j < keys; ++j) hn::StoreU(hn::Zero(d), d, st + j * ld);
}

// Online softmax of one vector of columns: scores at `st` become exp(s - m), m and l are carried on. Returns
// the factor for what was summed before.
HWY_INLINE VFull softmax_step(const Visible& vis, size_t keys, size_t c, float* st, size_t ld, float* m,
                              float* l) {
  const Full d;
  const VFull none = hn::Set(d, -HUGE_VALF), m_old = hn::LoadU(d, m);
  VFull top = m_old;
  for_visible(vis, keys, c, [&](size_t j, auto masked) {
    VFull s = hn::LoadU(d, st + j * ld);
    if constexpr (masked) {
      s = hn::IfThenElse(sees(vis, c, j), s, none);
      hn::StoreU(s, d, st + j * ld);
    }
    top = hn::Max(top, s);
  });
  // A lane that has seen nothing yet: -inf - 0 gives weight 0, where -inf - -inf would give NaN.
  const VFull base = hn::IfThenElse(hn::Eq(top, none), hn::Zero(d), top);
  VFull sum = hn::Zero(d);
  for_visible(vis, keys, c, [&](size_t j, auto) {
    const VFull p = exp_weight(hn::Sub(hn::LoadU(d, st + j * ld), base));
    hn::StoreU(p, d, st + j * ld);
    sum = hn::Add(sum, p);
  });
  const VFull factor = exp_weight(hn::Sub(m_old, base));
  hn::StoreU(top, d, m);
  hn::StoreU(hn::MulAdd(hn::LoadU(d, l), factor, sum), d, l);
  return factor;
}

// The dropout's hash of each column; nothing is dropped unless p > 0.
struct Dropped {
  HWY_ALIGN uint32_t hash[kMaxColumns];
  AttentionDrop drop;

  void set(const AttentionShape& s, const Columns& cols) {
    drop = s.drop;
    if (drop.p <= 0) return;
    cols.each([&](size_t c, size_t row, size_t head) { hash[c] = drop_column(drop, row, head); });
    for (size_t c = cols.n; c < round_up(cols.n, kLanes); ++c) hash[c] = 0;
  }
};

// Factors for the key at position `key` and the vector of columns at c: as drop_factor.
HWY_INLINE VFull drop_factors(const Dropped& dropped, size_t c, int64_t key) {
  const Full d;
  const hn::RebindToUnsigned<Full> du;
  const hn::RebindToSigned<Full> di;
  auto h = hn::Add(hn::Load(du, dropped.hash + c), hn::Set(du, static_cast<uint32_t>(key)));
  h = hn::Mul(hn::Xor(h, hn::ShiftRight<16>(h)), hn::Set(du, 0x7feb352dU));
  h = hn::Mul(hn::Xor(h, hn::ShiftRight<15>(h)), hn::Set(du, 0x846ca68bU));
  h = hn::ShiftRight<8>(hn::Xor(h, hn::ShiftRight<16>(h)));
  const VFull level = hn::Set(d, dropped.drop.p * kDropSteps);
  return hn::IfThenElseZero(hn::Ge(hn::ConvertTo(d, hn::BitCast(di, h)), level),
                            hn::Set(d, dropped.drop.kept()));
}

// Weights at `st` of the keys that the vector of columns at c sees.
HWY_INLINE void drop_weights(const Dropped& dropped, const Visible& vis, size_t keys, size_t c, int64_t first,
                             float* st, size_t ld) {
  const Full d;
  for_visible(vis, keys, c, [&](size_t j, auto) {
    const VFull f = drop_factors(dropped, c, first + static_cast<int64_t>(j));
    hn::StoreU(hn::Mul(hn::LoadU(d, st + j * ld), f), d, st + j * ld);
  });
}

// Rows of one kv head's keys and values, from position `first` on.
struct KeyBlock {
  const float *k, *v;
  size_t k_stride, v_stride, keys;
  int64_t first;
};

// The keys that columns may see, in blocks of at most `step`; a block without keys ends them.
class KeyBlocks {
 public:
  KeyBlocks(const AttentionShape& s, std::span<const KvSegment> segments, size_t kv_head, const Columns& cols,
            size_t step)
      : k_at_(kv_head * s.dk),
        v_at_(kv_head * s.dv),
        step_(step),
        first_(oldest_seen(s, cols.position(0))),
        last_(cols.position(cols.n - 1)),
        segments_(segments) {}

  KeyBlock next() {
    while (j_ >= end_) {
      if (segments_.empty()) return {};
      seg_ = segments_.front();
      segments_ = segments_.subspan(1);
      end_ = seg_.first > last_ ? 0 : std::min(seg_.count, static_cast<size_t>(last_ - seg_.first) + 1);
      // Blocks begin at multiples of `step` whoever asks, so that how queries are grouped changes no bit.
      j_ = seg_.first < first_ ? static_cast<size_t>(first_ - seg_.first) / step_ * step_ : 0;
    }
    const size_t j = j_;
    j_ = std::min(j + step_, end_);
    return {seg_.k + j * seg_.k_stride + k_at_,
            seg_.v + j * seg_.v_stride + v_at_,
            seg_.k_stride,
            seg_.v_stride,
            j_ - j,
            seg_.first + static_cast<int64_t>(j)};
  }

 private:
  size_t k_at_, v_at_, step_;
  int64_t first_, last_;  // positions that may be seen
  std::span<const KvSegment> segments_;
  KvSegment seg_ = {};
  size_t j_ = 0, end_ = 0;
};

// o and lse of the columns from their running sums; m and l are overwritten.
HWY_INLINE void finish(const AttentionShape& s, const Columns& cols, const float* acc, size_t stride,
                       float* m, float* l, Mat<float> o, float* lse) {
  for_lanes(cols.n, [&](auto d, size_t c) {
    const auto sum = hn::LoadU(d, l + c), one = hn::Set(d, 1.0f);
    const auto none = hn::Eq(sum, hn::Zero(d));
    hn::StoreU(hn::IfThenZeroElse(none, hn::Div(one, sum)), d, l + c);
    const auto log = hn::Add(hn::LoadU(d, m + c), log_v(d, hn::IfThenElse(none, one, sum)));
    hn::StoreU(hn::IfThenElse(none, hn::Set(d, -HUGE_VALF), log), d, m + c);
  });
  cols.each([&](size_t c, size_t row, size_t head) {
    float* out = o.row(row) + head * s.dv;
    for_lanes(s.dv, [&](auto d, size_t i) {
      hn::StoreU(hn::Mul(hn::LoadU(d, acc + c * stride + i), hn::Set(d, l[c])), d, out + i);
    });
    if (lse) lse[row * s.heads + head] = m[c];
  });
}

// out[j] = x . row j. Four rows at a time: a single chain of additions waits 4 cycles for each.
HWY_INLINE void dots(const float* x, const float* rows, size_t stride, size_t n, size_t count, float* out) {
  const Full d;
  const size_t whole = n / kLanes * kLanes;
  size_t j = 0;
  for (; j + 4 <= count; j += 4) {
    const float* r = rows + j * stride;
    VFull sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    for (size_t i = 0; i < whole; i += kLanes) {
      const VFull v = hn::LoadU(d, x + i);
      HWY_UNROLL(4)
      for (size_t e = 0; e < 4; ++e) sum[e] = hn::MulAdd(v, hn::LoadU(d, r + e * stride + i), sum[e]);
    }
    HWY_UNROLL(4)
    for (size_t e = 0; e < 4; ++e) {
      float total = hn::GetLane(hn::SumOfLanes(d, sum[e]));
      for (size_t i = whole; i < n; ++i) total += x[i] * r[e * stride + i];
      out[j + e] = total;
    }
  }
  for (; j < count; ++j)
    out[j] = sum_lanes(n, [&](auto t, size_t i) {
      return hn::Mul(hn::LoadU(t, x + i), hn::LoadU(t, rows + j * stride + i));
    });
}

// out += sum_j p[j] row j, four rows per pass over out.
HWY_INLINE void add_rows(const float* p, const float* rows, size_t stride, size_t n, size_t count,
                         float* out) {
  size_t j = 0;
  for (; j + 4 <= count; j += 4) {
    const float* r = rows + j * stride;
    for_lanes(n, [&](auto t, size_t i) {
      auto sum = hn::LoadU(t, out + i);
      HWY_UNROLL(4)
      for (size_t e = 0; e < 4; ++e)
        sum = hn::MulAdd(hn::Set(t, p[j + e]), hn::LoadU(t, r + e * stride + i), sum);
      hn::StoreU(sum, t, out + i);
    });
  }
  for (; j < count; ++j)
    for_lanes(n, [&](auto t, size_t i) {
      const auto row = hn::LoadU(t, rows + j * stride + i);
      hn::StoreU(hn::MulAdd(hn::Set(t, p[j]), row, hn::LoadU(t, out + i)), t, out + i);
    });
}

// At most half a vector of columns (decode steps, also with grouped queries): vectors run along the
// head, as most lanes of a panel would be empty.
void fwd_few(const AttentionShape& s, Mat<const float> q, std::span<const KvSegment> kv, const Columns& cols,
             size_t kv_head, Mat<float> o, float* lse) {
  // Keys are read only once, so this waits for memory, and for rows of 512 bytes here and there that no
  // hardware prefetcher foresees: the next block is fetched while this one is worked on.
  constexpr size_t kStep = 32;
  HWY_ALIGN float qs[kLanes / 2 * kAttentionMaxDim];
  HWY_ALIGN float acc[kLanes / 2 * kAttentionMaxDim];
  float p[kStep], m[kLanes], l[kLanes];
  uint32_t hash[kLanes];
  for (size_t c = 0; c < cols.n; ++c) m[c] = -HUGE_VALF, l[c] = 0;
  std::fill_n(acc, cols.n * s.dv, 0.0f);
  cols.each([&](size_t c, size_t row, size_t head) {
    copy(q.row(row) + head * s.dk, qs + c * s.dk, s.dk, s.scale);
    hash[c] = drop_column(s.drop, row, head);
  });
  KeyBlocks blocks(s, kv, kv_head, cols, kStep);
  for (KeyBlock b = blocks.next(), next; b.keys; b = next) {
    next = blocks.next();
    prefetch(next.k, next.keys, s.dk, next.k_stride);
    prefetch(next.v, next.keys, s.dv, next.v_stride);
    const auto [k, v, k_stride, v_stride, keys, first] = b;
    for (size_t c = 0; c < cols.n; ++c) {
      const int64_t at = cols.position(c), end = first + static_cast<int64_t>(keys);
      const size_t lo = static_cast<size_t>(std::clamp(oldest_seen(s, at), first, end) - first),
                   hi = static_cast<size_t>(std::clamp(at + 1, first, end) - first);
      if (lo >= hi) continue;
      const size_t n = hi - lo;
      dots(qs + c * s.dk, k + lo * k_stride, k_stride, s.dk, n, p);
      const float top = std::max(m[c], max_lanes(n, [&](auto t, size_t i) { return hn::LoadU(t, p + i); }));
      const float base = top == -HUGE_VALF ? 0.0f : top;  // as in softmax_step
      const float factor = hn::GetLane(exp_v(One(), hn::Set(One(), m[c] - base)));
      m[c] = top;
      l[c] = l[c] * factor + sum_lanes(n, [&](auto t, size_t i) {
               const auto e = exp_v(t, hn::Sub(hn::LoadU(t, p + i), hn::Set(t, base)));
               hn::StoreU(e, t, p + i);
               return e;
             });
      if (s.drop.p > 0)
        for (size_t i = 0; i < n; ++i)
          p[i] *= drop_factor(s.drop, hash[c], first + static_cast<int64_t>(lo + i));
      float* out = acc + c * s.dv;
      if (factor != 1.0f)
        for_lanes(s.dv, [&](auto t, size_t i) {
          hn::StoreU(hn::Mul(hn::LoadU(t, out + i), hn::Set(t, factor)), t, out + i);
        });
      add_rows(p, v + lo * v_stride, v_stride, s.dv, n, out);
    }
  }
  finish(s, cols, acc, s.dv, m, l, o, lse);
}

// The columns of one block. kv_head: which head of the segments' rows.
void fwd_block(const AttentionShape& s, Mat<const float> q, std::span<const KvSegment> kv,
               const Columns& cols, size_t kv_head, Mat<float> o, float* lse) {
  const Full d;
  if (2 * cols.n <= kLanes) return fwd_few(s, q, kv, cols, kv_head, o, lse);
  const size_t padded = round_up(cols.n, kPanel), q_stride = spread_stride(s.dk),
               o_stride = spread_stride(s.dv);
  Arena arena;
  float* qt = arena.take(padded * s.dk);
  float* acc = arena.take(padded * std::max(q_stride, o_stride));  // first holds the gathered queries
  float* st = arena.take(kMaxKeys * kPanel);
  float* k_copy = arena.take(fwd_tile(s).keys * q_stride);
  float* v_copy = arena.take(fwd_tile(s).keys * o_stride);
  HWY_ALIGN float m[kMaxColumns];
  HWY_ALIGN float l[kMaxColumns];
  bool started[kMaxColumns / kPanel] = {};
  gather(cols, q, s.dk, s.scale, acc, q_stride);
  to_panels(cols.n, s.dk, acc, q_stride, qt);
  std::fill_n(m, padded, -HUGE_VALF);
  std::fill_n(l, padded, 0.0f);
  Visible vis;
  Dropped dropped;
  dropped.set(s, cols);
  KeyBlocks blocks(s, kv, kv_head, cols, fwd_tile(s).keys);
  for (KeyBlock b = blocks.next(); b.keys; b = blocks.next()) {
    vis.set(s, cols, b.first, b.keys);
    // Copies pay when several panels read rows that are a multiple of 4 KiB apart, as cached ones often are.
    if (cols.n > 4 * kPanel && b.k_stride != q_stride) {
      copy_rows(b.k, b.k_stride, k_copy, q_stride, b.keys, s.dk);
      copy_rows(b.v, b.v_stride, v_copy, o_stride, b.keys, s.dv);
      b.k = k_copy, b.k_stride = q_stride, b.v = v_copy, b.v_stride = o_stride;
    } else {
      prefetch(b.v, b.keys, s.dv, b.v_stride);
    }
    const auto [k, v, k_stride, v_stride, keys, first] = b;
    for (size_t c = 0; c < cols.n; c += kPanel) {
      const size_t width = std::min(kPanel, cols.n - c), vectors = round_up(width, kLanes);
      const KeyRange r = visible_keys(vis, keys, c, width);
      if (r.begin == r.end) continue;
      gemm_nn(r.end - r.begin, vectors, s.dk, k + r.begin * k_stride, k_stride, qt + c * s.dk, kPanel,
              st + r.begin * kPanel, kPanel, Into::kOverwrite);
      bool rescale = false;
      HWY_ALIGN float factor[kPanel];
      for (size_t x = 0; x < vectors; x += kLanes) {
        const VFull f = softmax_step(vis, keys, c + x, st + x, kPanel, m + c + x, l + c + x);
        hn::Store(f, d, factor + x);
        if (s.drop.p > 0) drop_weights(dropped, vis, keys, c + x, first, st + x, kPanel);
        rescale |= !hn::AllTrue(d, hn::Eq(f, hn::Set(d, 1.0f)));
        const KeyRange own = visible_keys(vis, keys, c + x, kLanes);
        float* pad = st + r.begin * kPanel + x;
        zero_outside(pad, kPanel, r.end - r.begin,
                     {std::max(own.begin, r.begin) - r.begin, std::max(own.end, r.begin) - r.begin});
      }
      float* to = acc + c * o_stride;
      if (rescale && started[c / kPanel])
        for (size_t i = 0; i < width; ++i)
          for_lanes(s.dv, [&](auto t, size_t e) {
            float* x = to + i * o_stride + e;
            hn::StoreU(hn::Mul(hn::LoadU(t, x), hn::Set(t, factor[i])), t, x);
          });
      gemm_tn(width, s.dv, r.end - r.begin, st + r.begin * kPanel, kPanel, v + r.begin * v_stride, v_stride,
              to, o_stride, started[c / kPanel] ? Into::kAdd : Into::kOverwrite);
      started[c / kPanel] = true;
    }
  }
  for (size_t c = 0; c < cols.n; c += kPanel)
    if (!started[c / kPanel])
      for (size_t i = c; i < std::min(c + kPanel, cols.n); ++i) std::fill_n(acc + i * o_stride, s.dv, 0.0f);
  finish(s, cols, acc, o_stride, m, l, o, lse);
}

void fwd(const AttentionShape& s, Mat<const float> q, const AttentionSeq& seq, size_t kv_head, size_t begin,
         size_t end, Mat<float> o, float* lse, float* scratch) {
  const size_t group = s.heads / s.kv_heads, block = fwd_tile(s).columns;
  std::span<const KvSegment> kv = seq.kv;
  KvSegment dense;
  if (scratch) {
    dense = kv[0];
    dense.k = scratch, dense.k_stride = spread_stride(s.dk);
    dense.v = scratch + dense.count * dense.k_stride, dense.v_stride = spread_stride(s.dv);
    copy_rows(kv[0].k + kv_head * s.dk, kv[0].k_stride, scratch, dense.k_stride, dense.count, s.dk);
    copy_rows(kv[0].v + kv_head * s.dv, kv[0].v_stride, scratch + dense.count * dense.k_stride,
              dense.v_stride, dense.count, s.dv);
    kv = {&dense, 1};
  }
  for (; begin < end; begin += block)
    fwd_block(s, q, kv, {seq.begin, begin, std::min(block, end - begin), group, kv_head * group, seq.first},
              scratch ? 0 : kv_head, o, lse);
}

// Scores at `st` become p, dp at `dt` becomes ds, for one vector of columns; with `drop` the kept p.
template <bool drop>
HWY_INLINE void bwd_step(const Visible& vis, const Dropped& dropped, size_t keys, int64_t first, size_t c,
                         float* st, float* dt, size_t ld, const float* lse, const float* delta) {
  const Full d;
  const VFull top = hn::LoadU(d, lse), mean = hn::LoadU(d, delta);
  for_visible(vis, keys, c, [&](size_t j, auto masked) {
    VFull p = exp_weight(hn::Sub(hn::LoadU(d, st + j * ld), top)), dp = hn::LoadU(d, dt + j * ld);
    if constexpr (masked) p = hn::IfThenElseZero(sees(vis, c, j), p);
    VFull kept = p;
    if constexpr (drop) {
      const VFull f = drop_factors(dropped, c, first + static_cast<int64_t>(j));
      kept = hn::Mul(p, f), dp = hn::Mul(dp, f);
    }
    hn::StoreU(kept, d, st + j * ld);
    hn::StoreU(hn::Mul(p, hn::Sub(dp, mean)), d, dt + j * ld);
  });
}

// Memory of backward for one block of columns: q and do as they are and transposed, dq, weights and their
// gradients by key and column, and by column the sum of weights and what is taken from dp.
struct BwdTile {
  size_t block, k_stride, v_stride;
  float *q, *qt, *up, *up_t, *dq, *st, *dt, *lse, *delta;
};

// Everything of a block that does not depend on the keys.
HWY_INLINE void load_columns(const AttentionShape& s, const Columns& cols, Mat<const float> q,
                             const AttentionSaved& saved, Mat<const float> dout, const BwdTile& t) {
  gather(cols, q, s.dk, s.scale, t.q, t.k_stride);
  gather(cols, dout, s.dv, 1.0f, t.up, t.v_stride);
  to_panels(cols.n, s.dk, t.q, t.k_stride, t.qt);
  to_panels(cols.n, s.dv, t.up, t.v_stride, t.up_t);
  cols.each([&](size_t c, size_t row, size_t head) {
    const float* o = saved.o.row(row) + head * s.dv;
    // Without any weight p must be 0 everywhere: exp(s - inf).
    const float top = saved.lse[row * s.heads + head];
    t.lse[c] = top == -HUGE_VALF ? HUGE_VALF : top;
    t.delta[c] = sum_lanes(s.dv, [&](auto d, size_t i) {
      return hn::Mul(hn::LoadU(d, o + i), hn::LoadU(d, t.up + c * t.v_stride + i));
    });
  });
  for (size_t c = cols.n; c < round_up(cols.n, kLanes); ++c) t.lse[c] = t.delta[c] = 0;
  for (size_t c = 0; c < cols.n; ++c) std::fill_n(t.dq + c * t.k_stride, s.dk, 0.0f);
}

// dk and dv of a block of keys: in groups, each with the columns that see one of them.
HWY_INLINE void key_gradients(const AttentionShape& s, const Visible& vis, const Columns& cols,
                              const BwdTile& t, size_t keys, size_t first, Mat<float> dk, Mat<float> dv,
                              Into into) {
  const size_t step = vis.all ? keys : 16;
  for (size_t j = 0; j < keys; j += step) {
    const size_t n = std::min(step, keys - j), at = first + j;
    size_t c0 = 0, c1 = cols.n;
    if (!vis.all) {
      while (c0 < c1 && vis.hi[c0] <= static_cast<float>(j)) ++c0;
      while (c1 > c0 && vis.lo[c1 - 1] >= static_cast<float>(j + n)) --c1;
    }
    gemm_nn(n, s.dv, c1 - c0, t.st + j * t.block + c0, t.block, t.up + c0 * t.v_stride, t.v_stride,
            dv.row(at), dv.stride, into);
    gemm_nn(n, s.dk, c1 - c0, t.dt + j * t.block + c0, t.block, t.q + c0 * t.k_stride, t.k_stride, dk.row(at),
            dk.stride, into);
  }
}

// How many queries from the first on nobody used, as in the last layer when only the last token is asked;
// they send nothing back, and their dq is zeros. One is left, so that all of dk and dv is written.
size_t unused_queries(const AttentionShape& s, Mat<const float> dout, Mat<float> dq, size_t row0, size_t rows,
                      size_t kv_head) {
  const size_t group = s.heads / s.kv_heads;
  size_t unused = 0;
  for (; unused + 1 < rows; ++unused) {
    const float* d = dout.row(row0 + unused) + kv_head * group * s.dv;
    if (std::any_of(d, d + group * s.dv, [](float x) { return x != 0; })) break;
    std::fill_n(dq.row(row0 + unused) + kv_head * group * s.dk, group * s.dk, 0.0f);
  }
  return unused;
}

// Queries outside, keys inside: per block of columns q and do are transposed once, and dq is complete at the
// end; dk and dv add up in `scratch`. There k and v are copied too: in place, rows of many heads are a page
// or more apart, and every tile would pay for address translation and cache conflicts (forward and backward
// together: 10 to 29 % with 16 heads of 128). A sequence that is a single tile reads and writes in place.
void bwd(const AttentionShape& s, const AttentionPacked& in, const AttentionSaved& saved,
         Mat<const float> dout, const AttentionGrad& grad, size_t seq, size_t kv_head, float* scratch) {
  const size_t row0 = in.offsets[seq], rows = in.offsets[seq + 1] - row0, group = s.heads / s.kv_heads;
  const size_t k_stride = spread_stride(s.dk), v_stride = spread_stride(s.dv), block = bwd_tile(s).columns,
               max_keys = bwd_tile(s).keys;
  const bool single = rows * group <= block;
  KvSegment kv{
      in.k.row(row0) + kv_head * s.dk, in.v.row(row0) + kv_head * s.dv, rows, 0, in.k.stride, in.v.stride};
  Mat<float> dk(grad.dk.row(row0) + kv_head * s.dk, rows, s.dk, grad.dk.stride),
      dv(grad.dv.row(row0) + kv_head * s.dv, rows, s.dv, grad.dv.stride);
  const Mat<float> dk_out = dk, dv_out = dv;
  if (single) {
    prefetch(kv.k, rows, s.dk, kv.k_stride);
    prefetch(kv.v, rows, s.dv, kv.v_stride);
  } else {
    float* k = scratch;
    float* v = k + rows * k_stride;
    dk = {v + rows * v_stride, rows, s.dk, k_stride};
    dv = {dk.data + rows * k_stride, rows, s.dv, v_stride};
    copy_rows(kv.k, kv.k_stride, k, k_stride, rows, s.dk);
    copy_rows(kv.v, kv.v_stride, v, v_stride, rows, s.dv);
    std::fill_n(dk.data, rows * (k_stride + v_stride), 0.0f);
    kv = {k, v, rows, 0, k_stride, v_stride};
  }
  Arena arena;
  HWY_ALIGN float lse[kMaxColumns];
  HWY_ALIGN float delta[kMaxColumns];
  const BwdTile t{.block = block,
                  .k_stride = k_stride,
                  .v_stride = v_stride,
                  .q = arena.take(block * k_stride),
                  .qt = arena.take(round_up(block, kPanel) * s.dk),
                  .up = arena.take(block * v_stride),
                  .up_t = arena.take(round_up(block, kPanel) * s.dv),
                  .dq = arena.take(block * k_stride),
                  .st = arena.take(max_keys * block),
                  .dt = arena.take(max_keys * block),
                  .lse = lse,
                  .delta = delta};
  Visible vis;
  Dropped dropped;
  for (size_t begin = unused_queries(s, dout, grad.dq, row0, rows, kv_head) * group; begin < rows * group;
       begin += block) {
    const Columns cols{row0, begin, std::min(block, rows * group - begin), group, kv_head * group, 0};
    load_columns(s, cols, in.q, saved, dout, t);
    dropped.set(s, cols);
    KeyBlocks blocks(s, {&kv, 1}, 0, cols, max_keys);
    for (KeyBlock b = blocks.next(); b.keys; b = blocks.next()) {
      const auto [k, v, ldk, ldv, keys, first] = b;
      vis.set(s, cols, first, keys);
      for (size_t c = 0; c < cols.n; c += kPanel) {
        const size_t width = std::min(kPanel, cols.n - c), vectors = round_up(width, kLanes);
        const KeyRange r = visible_keys(vis, keys, c, width);
        const size_t n = r.end - r.begin;
        gemm_nn(n, vectors, s.dk, k + r.begin * ldk, ldk, t.qt + c * s.dk, kPanel, t.st + r.begin * block + c,
                block, Into::kOverwrite);
        gemm_nn(n, vectors, s.dv, v + r.begin * ldv, ldv, t.up_t + c * s.dv, kPanel,
                t.dt + r.begin * block + c, block, Into::kOverwrite);
        for (size_t x = c; x < c + vectors; x += kLanes) {
          if (s.drop.p > 0)
            bwd_step<true>(vis, dropped, keys, first, x, t.st + x, t.dt + x, block, lse + x, delta + x);
          else
            bwd_step<false>(vis, dropped, keys, first, x, t.st + x, t.dt + x, block, lse + x, delta + x);
          const KeyRange own = visible_keys(vis, keys, x, kLanes);
          zero_outside(t.st + x, block, keys, own);
          zero_outside(t.dt + x, block, keys, own);
        }
        gemm_tn(width, s.dk, n, t.dt + r.begin * block + c, block, k + r.begin * ldk, ldk,
                t.dq + c * k_stride, k_stride, Into::kAdd);
      }
      key_gradients(s, vis, cols, t, keys, static_cast<size_t>(first), dk, dv,
                    single ? Into::kOverwrite : Into::kAdd);
    }
    cols.each([&](size_t c, size_t row, size_t head) {
      copy(t.dq + c * k_stride, grad.dq.row(row) + head * s.dk, s.dk, s.scale);
    });
  }
  if (single) return;
  copy_rows(dk.data, dk.stride, dk_out.data, dk_out.stride, rows, s.dk);
  copy_rows(dv.data, dv.stride, dv_out.data, dv_out.stride, rows, s.dv);
}

}  // namespace

constexpr AttentionFns kFns{fwd, bwd, is_narrow, narrow_fwd, narrow_bwd};

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

void ref_fwd(const AttentionShape& s, Mat<const float> q, const AttentionSeq& seq, size_t kv_head,
             size_t begin, size_t end, Mat<float> o, float* lse, float*) {
  std::vector<float> k, v;
  std::vector<int64_t> at;
  for (const KvSegment& seg : seq.kv)
    for (size_t j = 0; j < seg.count; ++j) {
      const float *kj = seg.k + j * seg.k_stride + kv_head * s.dk,
                  *vj = seg.v + j * seg.v_stride + kv_head * s.dv;
      k.insert(k.end(), kj, kj + s.dk);
      v.insert(v.end(), vj, vj + s.dv);
      at.push_back(seg.first + static_cast<int64_t>(j));
    }
  const size_t group = s.heads / s.kv_heads;
  ref::AttentionDims<float> dims{1, 1, s.dk, s.dv, s.window, s.scale, s.chunk, s.drop};
  for (size_t c = begin; c < end; ++c) {
    const size_t row = seq.begin + c / group, head = kv_head * group + c % group;
    dims.row0 = row, dims.head0 = head;
    ref::attention_fwd<float>(dims, q.row(row) + head * s.dk, k.data(), v.data(), 1, at.size(),
                              seq.first + static_cast<int64_t>(c / group), at.data(),
                              o.row(row) + head * s.dv, lse ? lse + row * s.heads + head : nullptr);
  }
}

void ref_bwd(const AttentionShape& s, const AttentionPacked& in, const AttentionSaved& saved,
             Mat<const float> dout, const AttentionGrad& grad, size_t seq, size_t kv_head, float*) {
  const size_t row = in.offsets[seq], n = in.offsets[seq + 1] - row, group = s.heads / s.kv_heads;
  const size_t qw = group * s.dk, ow = group * s.dv;
  const ref::AttentionDims<float> dims{group,   1,       s.dk,   s.dv, s.window,
                                       s.scale, s.chunk, s.drop, row,  kv_head * group};
  std::vector<float> dq(n * qw), dk(n * s.dk), dv(n * s.dv);
  ref::attention_bwd<float>(
      dims, dense(in.q, row, n, kv_head * qw, qw).data(), dense(in.k, row, n, kv_head * s.dk, s.dk).data(),
      dense(in.v, row, n, kv_head * s.dv, s.dv).data(), dense(saved.o, row, n, kv_head * ow, ow).data(),
      dense({saved.lse, saved.o.rows, s.heads}, row, n, kv_head * group, group).data(),
      dense(dout, row, n, kv_head * ow, ow).data(), n, dq.data(), dk.data(), dv.data());
  scatter(dq, grad.dq, row, n, kv_head * qw, qw);
  scatter(dk, grad.dk, row, n, kv_head * s.dk, s.dk);
  scatter(dv, grad.dv, row, n, kv_head * s.dv, s.dv);
}

constexpr AttentionFns kRefFns{ref_fwd, ref_bwd, [](const AttentionShape&) { return false; }, ref_fwd,
                               ref_bwd};

bool too_wide(const AttentionShape& s) { return std::max(s.dk, s.dv) > kAttentionMaxDim; }

const AttentionFns& fns_for(const AttentionShape& s, Par par) {
  check(s.window == 0 || s.chunk == 0, "attention: window and chunk exclude each other");
  return too_wide(s) ? kRefFns : attention_impls().use(par);
}

// Tasks a thread takes at once: with many short sequences all heads of one, as their rows share cache lines.
size_t tasks_at_once(const AttentionShape& s, size_t total, Par par) {
  return total >= 16 * s.kv_heads * static_cast<size_t>(par.threads()) ? s.kv_heads : 1;
}

// run(worker, sequence, kv head, first column, end column) for every piece of every sequence: a block, or if
// `whole` all columns. Threads take the next piece when they are free: blocks differ in cost, as later
// queries see more keys, hence also last first.
template <class Count, class Run>
void for_blocks(const AttentionShape& s, size_t seqs, const Count& count, bool whole, Par par,
                const Run& run) {
  const size_t group = s.heads / s.kv_heads, block = attention_block(s);
  const auto blocks = [&](size_t i) {
    const size_t n = (count(i) * group + block - 1) / block;
    return whole ? std::min<size_t>(n, 1) : n;
  };
  size_t total = 0;
  for (size_t i = 0; i < seqs; ++i) total += blocks(i) * s.kv_heads;
  const size_t step = tasks_at_once(s, total, par);
  std::atomic<size_t> next{0};
  par.tasks(std::min(total, static_cast<size_t>(par.threads())), [&](size_t worker) {
    size_t seq = 0, before = 0;
    for (size_t first; (first = next.fetch_add(step, std::memory_order_relaxed)) < total;)
      for (size_t i = first; i < std::min(total, first + step); ++i) {
        while (i - before >= blocks(seq) * s.kv_heads) before += blocks(seq++) * s.kv_heads;
        const size_t b = blocks(seq), columns = count(seq) * group, at = (b - 1 - (i - before) % b) * block;
        run(worker, seq, (i - before) / b, at, whole ? columns : std::min(at + block, columns));
      }
  });
}

size_t fwd_scratch_per_thread(const AttentionShape& s, std::span<const uint32_t> offsets) {
  const size_t rows = longest_sequence(offsets);
  // A single block reads its keys once: nothing to gain.
  if (rows * (s.heads / s.kv_heads) <= attention_block(s)) return 0;
  return rows * (spread_stride(s.dk) + spread_stride(s.dv));
}

size_t bwd_scratch_per_thread(const AttentionShape& s, std::span<const uint32_t> offsets) {
  return longest_sequence(offsets) * 2 * (spread_stride(s.dk) + spread_stride(s.dv));
}

}  // namespace

size_t attention_block(const AttentionShape& shape) { return fwd_tile(shape).columns; }

const Impls<AttentionFns>& attention_impls() {
  static const Impls<AttentionFns> table("attention", {"avx512", Isa::kAvx512, &N_AVX3::kFns},
                                         {"avx2", Isa::kAvx2, &N_AVX2::kFns},
                                         {"sse", Isa::kBase, &N_SSSE3::kFns}, {"ref", Isa::kBase, &kRefFns});
  return table;
}

std::string_view attention_impl(const AttentionShape& shape, Par par) {
  const ImplTable& table = attention_impls();
  return too_wide(shape) ? table.rows().back().name : table.rows()[table.chosen(par)].name;
}

void attention_fwd(const AttentionShape& shape, Mat<const float> q, std::span<const AttentionSeq> seqs,
                   Mat<float> o, float* lse, Par par) {
  const AttentionFns& f = fns_for(shape, par);
  for_blocks(
      shape, seqs.size(), [&](size_t s) { return seqs[s].count; }, false, par,
      [&](size_t, size_t s, size_t kv_head, size_t begin, size_t end) {
        f.fwd(shape, q, seqs[s], kv_head, begin, end, o, lse, nullptr);
      });
}

void attention_packed_fwd(const AttentionShape& shape, const AttentionPacked& in, Mat<float> o, float* lse,
                          std::span<float> scratch, Par par) {
  const AttentionFns& f = fns_for(shape, par);
  const bool narrow = f.is_narrow(shape);
  const auto count = [&](size_t s) { return in.offsets[s + 1] - in.offsets[s]; };
  const size_t threads = static_cast<size_t>(par.threads()), each = fwd_scratch_per_thread(shape, in.offsets);
  check(scratch.empty() || scratch.size() >= each * threads, "attention_packed_fwd: scratch too small");
  // Whole heads need copies of their keys only once, but are many only if the threads then share them evenly.
  const bool whole =
      !narrow && each > 0 && !scratch.empty() && (threads == 1 || in.seqs() * shape.kv_heads >= 4 * threads);
  const auto run = [&](size_t worker, size_t s, size_t kv_head, size_t begin, size_t end) {
    const size_t row = in.offsets[s];
    const KvSegment all{in.k.row(row), in.v.row(row), count(s), 0, in.k.stride, in.v.stride};
    const bool copies = whole && end - begin > attention_block(shape);
    (narrow ? f.narrow_fwd : f.fwd)(shape, in.q, {row, count(s), 0, {&all, 1}}, kv_head, begin, end, o, lse,
                                    copies ? scratch.data() + worker * each : nullptr);
  };
  for_blocks(shape, in.seqs(), count, whole, par, run);
}

size_t attention_fwd_scratch(const AttentionShape& shape, std::span<const uint32_t> offsets, Par par) {
  return fwd_scratch_per_thread(shape, offsets) * static_cast<size_t>(par.threads());
}

size_t attention_bwd_scratch(const AttentionShape& shape, std::span<const uint32_t> offsets, Par par) {
  return bwd_scratch_per_thread(shape, offsets) * static_cast<size_t>(par.threads());
}

void attention_packed_bwd(const AttentionShape& shape, const AttentionPacked& in, const AttentionSaved& saved,
                          Mat<const float> dout, const AttentionGrad& grad, std::span<float> scratch,
                          Par par) {
  const AttentionFns& f = fns_for(shape, par);
  const size_t total = in.seqs() * shape.kv_heads, step = tasks_at_once(shape, total, par);
  const size_t each = bwd_scratch_per_thread(shape, in.offsets);
  check(scratch.size() >= each * static_cast<size_t>(par.threads()),
        "attention_packed_bwd: scratch too small");
  const auto bwd = f.is_narrow(shape) ? f.narrow_bwd : f.bwd;
  take_turns(total, step, par, [&](size_t i, size_t worker) {
    bwd(shape, in, saved, dout, grad, i / shape.kv_heads, i % shape.kv_heads, scratch.data() + worker * each);
  });
}

}  // namespace braid
#endif
