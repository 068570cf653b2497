// The narrow form: windows of a few positions over whole sequences. Scores are computed only for keys
// inside the window, where most scores of a tile are masked. Included once per target.
#ifndef BRAID_ATTENTION_NARROW_SIZES
#define BRAID_ATTENTION_NARROW_SIZES
#include <algorithm>
#include <type_traits>

#include "kernels/attention/attention.h"

namespace braid {

constexpr size_t kNarrowWindow = 32;  // the widest, times queries in a group
constexpr size_t kNarrowRows = 64;    // queries at once: a band is at most 10 KB

}  // namespace braid
#endif

#if defined(BRAID_ATTENTION_NARROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_ATTENTION_NARROW_INL_H_
#undef BRAID_ATTENTION_NARROW_INL_H_
#else
#define BRAID_ATTENTION_NARROW_INL_H_
#endif

#include "kernels/common/gemm-inl.h"
#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

constexpr size_t kLanes = HWY_LANES(float);

// Queries [begin, end) of a sequence, at most kNarrowRows. Rows are positions.
struct NarrowBlock {
  size_t begin, end, window;
  size_t count() const { return end - begin; }
};

// A number for each query of a block and each key it sees: at(w, c) is that of query begin + c and the key w
// positions before it. So a softmax runs down the lanes, a query in each. Four queries (keys) are summed at
// once and take all keys (queries) that one of them needs: 3 rows of zeros on either side answer for the
// others.
struct Band {
  HWY_ALIGN float data[(kNarrowWindow + 6) * kNarrowRows];

  Band(size_t window, size_t queries) {
    // Not std::fill_n along the rows: a string instruction for each took half of a sequence of 3.
    for (size_t c = 0; c < std::min(kNarrowRows, queries); c += kLanes)
      for (size_t w = 0; w < window + 6; ++w) hn::Store(hn::Zero(Full()), Full(), data + w * kNarrowRows + c);
  }
  HWY_INLINE float* at(size_t w, size_t c) { return data + (w + 3) * kNarrowRows + c; }
  HWY_INLINE const float* at(size_t w, size_t c) const { return data + (w + 3) * kNarrowRows + c; }
};

// to[w][i] = a_i . b_(i - w), rows kNarrowRows apart. V: vectors of a head, 0: any number. Where a group of
// four queries leaves the sequence its dot products are those of rows inside, and they are not used.
template <size_t V>
void band_dots(const NarrowBlock block, const Mat<const float> a, const Mat<const float> b, float* to) {
  const Full d;
  for (size_t first = block.begin; first < block.end; first += 4, to += 4) {
    size_t row[4];
    const float* own[4];
    VFull x[4][V ? V : 1];
    for (size_t r = 0; r < 4; ++r) {
      row[r] = std::min(first + r, block.end - 1);
      own[r] = a.row(row[r]);
      for (size_t v = 0; v < V; ++v) x[r][v] = hn::LoadU(d, own[r] + v * kLanes);
    }
    const auto dots = [&](size_t w, const auto& key) {
      VFull sum[4];
      if constexpr (V > 0) {
        HWY_UNROLL(4)
        for (size_t r = 0; r < 4; ++r) {
          const float* k = key(r);
          sum[r] = hn::Mul(x[r][0], hn::LoadU(d, k));
          HWY_UNROLL(4)
          for (size_t v = 1; v < V; ++v) sum[r] = hn::MulAdd(x[r][v], hn::LoadU(d, k + v * kLanes), sum[r]);
        }
      } else {
        const float* k[4] = {key(0), key(1), key(2), key(3)};
        for (size_t r = 0; r < 4; ++r) sum[r] = hn::Zero(d);
        for (size_t e = 0; e < a.cols; e += kLanes)
          for (size_t r = 0; r < 4; ++r)
            sum[r] = hn::MulAdd(hn::LoadU(d, own[r] + e), hn::LoadU(d, k[r] + e), sum[r]);
      }
      store_sums<4>(sum, to + w * kNarrowRows);
    };
    const size_t some = std::min(block.window, first + 4),
                 all = first + 4 <= block.end ? std::min(block.window, first + 1) : 0;
    size_t w = 0;
    for (; w < all; ++w) {
      const float* k = b.row(first - w);
      dots(w, [&](size_t r) { return k + r * b.stride; });
    }
    for (; w < some; ++w) dots(w, [&](size_t r) { return b.row(row[r] - std::min(w, row[r])); });
  }
}

void band_dots(const NarrowBlock& block, Mat<const float> a, Mat<const float> b, float* to) {
  if (a.cols == kLanes)
    band_dots<1>(block, a, b, to);
  else if (a.cols == 2 * kLanes)
    band_dots<2>(block, a, b, to);
  else if (a.cols == 4 * kLanes)
    band_dots<4>(block, a, b, to);
  else
    band_dots<0>(block, a, b, to);
}

// f(V, e) for the columns of a row in pieces of V vectors, from e on: four sums of 4 vectors fit 32
// registers, of 2 vectors 16.
template <class F>
HWY_INLINE void for_pieces(size_t width, const F& f) {
  size_t e = 0;
#if HWY_TARGET <= HWY_AVX3
  for (; e + 4 * kLanes <= width; e += 4 * kLanes) f(std::integral_constant<size_t, 4>(), e);
#endif
  for (; e + 2 * kLanes <= width; e += 2 * kLanes) f(std::integral_constant<size_t, 2>(), e);
  if (e < width) f(std::integral_constant<size_t, 1>(), e);
}

// to_i = sum_w p(w, i) b_(i - w)
void sum_keys(const NarrowBlock& block, const Band& p, Mat<const float> b, Mat<float> to) {
  const Full d;
  for_pieces(to.cols, [&](auto V, size_t e) {
    for (size_t first = block.begin; first < block.end; first += 4) {
      VFull sum[4][V];
      for (size_t r = 0; r < 4; ++r)
        for (size_t v = 0; v < V; ++v) sum[r][v] = hn::Zero(d);
      const size_t end = std::min(first + 4, block.end);
      for (size_t j = first + 1 - std::min(block.window, first + 1); j < end; ++j) {
        const float* weight = p.at(first - j, first - block.begin);
        VFull x[V];
        for (size_t v = 0; v < V; ++v) x[v] = hn::LoadU(d, b.row(j) + e + v * kLanes);
        HWY_UNROLL(4)
        for (size_t r = 0; r < 4; ++r) {
          const VFull f = hn::Set(d, weight[r * (kNarrowRows + 1)]);
          for (size_t v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(f, x[v], sum[r][v]);
        }
      }
      for (size_t r = 0; r < end - first; ++r)
        for (size_t v = 0; v < V; ++v) hn::StoreU(sum[r][v], d, to.row(first + r) + e + v * kLanes);
    }
  });
}

// to_j = sum_w p(w, j + w) a_(j + w) over the block's queries. Keys before the block have been written before
// and are added to; with `add` all are.
void sum_queries(const NarrowBlock& block, const Band& p, Mat<const float> a, bool add, Mat<float> to) {
  const Full d;
  for_pieces(to.cols, [&](auto V, size_t e) {
    for (size_t first = block.begin + 1 - std::min(block.window, block.begin + 1); first < block.end;
         first += 4) {
      const size_t end = std::min(first + 4, block.end);
      VFull sum[4][V];
      for (size_t r = 0; r < 4; ++r) {
        const bool more = first + r < (add ? end : block.begin);
        for (size_t v = 0; v < V; ++v)
          sum[r][v] = more ? hn::LoadU(d, to.row(first + r) + e + v * kLanes) : hn::Zero(d);
      }
      const size_t last = std::min(first + 3 + block.window, block.end);
      for (size_t i = std::max(first, block.begin); i < last; ++i) {
        const float* weight = p.at(i - first, i - block.begin);
        VFull x[V];
        for (size_t v = 0; v < V; ++v) x[v] = hn::LoadU(d, a.row(i) + e + v * kLanes);
        HWY_UNROLL(4)
        for (size_t r = 0; r < 4; ++r) {
          const VFull f = hn::Set(d, *(weight - r * kNarrowRows));
          for (size_t v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(f, x[v], sum[r][v]);
        }
      }
      for (size_t r = 0; r < end - first; ++r)
        for (size_t v = 0; v < V; ++v) hn::StoreU(sum[r][v], d, to.row(first + r) + e + v * kLanes);
    }
  });
}

// f(c, sees) for each vector of queries, from column c on; sees(w): which have a key w positions before them.
template <class F>
HWY_INLINE void for_queries(const NarrowBlock& block, const F& f) {
  const Full d;
  for (size_t c = 0; c < block.count(); c += kLanes) {
    // At most the first queries of a sequence have fewer keys, so a window stands for later positions.
    const VFull before = hn::Iota(d, static_cast<float>(std::min(block.begin + c, block.window)));
    f(c, [&](size_t w) { return hn::Ge(before, hn::Set(d, static_cast<float>(w))); });
  }
}

// Dot products become weights, lse is given.
void band_softmax(const NarrowBlock& block, float scale, Band& s, float* lse) {
  const Full d;
  const VFull none = hn::Set(d, -HUGE_VALF), one = hn::Set(d, 1.0f);
  for_queries(block, [&](size_t c, const auto& sees) {
    VFull top = none, sum = hn::Zero(d);
    for (size_t w = 0; w < block.window; ++w) {
      const VFull x = hn::IfThenElse(sees(w), hn::Mul(hn::Load(d, s.at(w, c)), hn::Set(d, scale)), none);
      hn::Store(x, d, s.at(w, c));
      top = hn::Max(top, x);
    }
    const VFull base = hn::IfThenElse(hn::Eq(top, none), hn::Zero(d), top);  // -inf - -inf would be NaN
    for (size_t w = 0; w < block.window; ++w) {
      const VFull p = exp_weight(hn::Sub(hn::Load(d, s.at(w, c)), base));
      hn::Store(p, d, s.at(w, c));
      sum = hn::Add(sum, p);
    }
    const auto nothing = hn::Eq(sum, hn::Zero(d));
    const VFull inverse = hn::IfThenZeroElse(nothing, hn::Div(one, sum));
    for (size_t w = 0; w < block.window; ++w)
      hn::Store(hn::Mul(hn::Load(d, s.at(w, c)), inverse), d, s.at(w, c));
    const VFull log = hn::Add(top, log_v(d, hn::IfThenElse(nothing, one, sum)));
    hn::Store(hn::IfThenElse(nothing, none, log), d, lse + c);
  });
}

// Where this is faster than tiles, in which a group's heads share keys. With AVX-512 at the bound 1.2 to 1.7
// times without groups, 1.2 times with groups of 2, 1.3 with 4, 1.4 with 8; AVX2 1.1 to 1.7, SSE 0.9 to 1.4.
bool is_narrow(const AttentionShape& s) {
  return s.window > 0 && s.window * (s.heads / s.kv_heads) <= kNarrowWindow && s.drop.p == 0 &&
         s.dk % kLanes == 0 && s.dv % kLanes == 0;
}

// One segment holds the sequence from its beginning; no scratch is needed. Otherwise as fwd().
void narrow_fwd(const AttentionShape& s, Mat<const float> q, const AttentionSeq& seq, size_t kv_head,
                size_t begin, size_t end, Mat<float> o, float* lse, float* /*scratch*/) {
  const KvSegment& kv = seq.kv[0];
  const size_t group = s.heads / s.kv_heads, rows = seq.begin + seq.count;
  const Mat<const float> k(kv.k + kv_head * s.dk, kv.count, s.dk, kv.k_stride),
      v(kv.v + kv_head * s.dv, kv.count, s.dv, kv.v_stride);
  Band p(s.window, seq.count);
  HWY_ALIGN float top[kNarrowRows];
  for (size_t g = 0; g < group; ++g) {
    const size_t head = kv_head * group + g, last = (end + group - 1 - g) / group;
    const Mat<const float> own = q.row_range(seq.begin, rows).col_range(head * s.dk, (head + 1) * s.dk);
    const Mat<float> out = o.row_range(seq.begin, rows).col_range(head * s.dv, (head + 1) * s.dv);
    for (size_t row = (begin + group - 1 - g) / group; row < last; row += kNarrowRows) {
      const NarrowBlock block{row, std::min(row + kNarrowRows, last), s.window};
      band_dots(block, own, k, p.at(0, 0));
      band_softmax(block, s.scale, p, top);
      sum_keys(block, p, v, out);
      if (!lse) continue;
      for (size_t i = row; i < block.end; ++i) lse[(seq.begin + i) * s.heads + head] = top[i - row];
    }
  }
}

// Dot products q . k at `s` become p, do . v at `dp` becomes ds, times scale as dq and dk need it.
void band_bwd(const NarrowBlock& block, float scale, const float* lse, const float* delta, Band& s,
              Band& dp) {
  const Full d;
  const VFull factor = hn::Set(d, scale);
  for_queries(block, [&](size_t c, const auto& sees) {
    const VFull top = hn::Load(d, lse + c), mean = hn::Load(d, delta + c);
    for (size_t w = 0; w < block.window; ++w) {
      const VFull x = hn::Sub(hn::Mul(hn::Load(d, s.at(w, c)), factor), top);
      const VFull p = hn::IfThenElseZero(sees(w), exp_weight(x));
      hn::Store(p, d, s.at(w, c));
      const VFull ds = hn::Mul(hn::Mul(p, factor), hn::Sub(hn::Load(d, dp.at(w, c)), mean));
      hn::Store(hn::IfThenElseZero(sees(w), ds), d, dp.at(w, c));
    }
  });
}

void zero_rows(Mat<float> m, size_t end) {
  for (size_t i = 0; i < end; ++i) std::fill_n(m.row(i), m.cols, 0.0f);
}

// As bwd(), without scratch: a key's row is first written by the block it is in, and the next adds to it.
void narrow_bwd(const AttentionShape& s, const AttentionPacked& in, const AttentionSaved& saved,
                Mat<const float> dout, const AttentionGrad& grad, size_t seq, size_t kv_head,
                float* /*scratch*/) {
  const size_t row0 = in.offsets[seq], rows = in.offsets[seq + 1] - row0, group = s.heads / s.kv_heads;
  const auto head_of = [&](auto m, size_t head, size_t width) {
    return m.row_range(row0, row0 + rows).col_range(head * width, (head + 1) * width);
  };
  const Mat<const float> k = head_of(in.k, kv_head, s.dk), v = head_of(in.v, kv_head, s.dv);
  const Mat<float> dk = head_of(grad.dk, kv_head, s.dk), dv = head_of(grad.dv, kv_head, s.dv);
  // Queries without output gradient, as in bwd().
  const Mat<const float> up_all = head_of(dout, kv_head, group * s.dv);
  size_t unused = 0;
  while (unused < rows &&
         std::all_of(up_all.row(unused), up_all.row(unused) + up_all.cols, [](float x) { return x == 0; }))
    ++unused;
  zero_rows(head_of(grad.dq, kv_head, group * s.dk), unused);
  zero_rows(dk, unused);
  zero_rows(dv, unused);
  Band p(s.window, rows), ds(s.window, rows);
  HWY_ALIGN float lse[kNarrowRows];
  HWY_ALIGN float delta[kNarrowRows];
  for (size_t row = unused; row < rows; row += kNarrowRows) {
    const NarrowBlock block{row, std::min(row + kNarrowRows, rows), s.window};
    for (size_t g = 0; g < group; ++g) {
      const size_t head = kv_head * group + g;
      const Mat<const float> q = head_of(in.q, head, s.dk), up = head_of(dout, head, s.dv);
      for (size_t i = row; i < block.end; ++i) {
        const float top = saved.lse[(row0 + i) * s.heads + head];
        lse[i - row] = top == -HUGE_VALF ? HUGE_VALF : top;  // without any weight p is exp(s - inf)
      }
      for (size_t c = block.count(); c % kLanes; ++c) lse[c] = delta[c] = 0;
      band_dots(block, q, k, p.at(0, 0));
      band_dots(block, up, v, ds.at(0, 0));
      band_dots({row, block.end, 1}, up, head_of(saved.o, head, s.dv), delta);
      band_bwd(block, s.scale, lse, delta, p, ds);
      sum_keys(block, ds, k, head_of(grad.dq, head, s.dk));
      sum_queries(block, ds, q, g > 0, dk);
      sum_queries(block, p, up, g > 0, dv);
    }
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#endif
