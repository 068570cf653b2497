// The chunk form: C tokens at a time as matrix products, with one triangular inverse per chunk. For f32 the
// flops are least with small chunks: 6 dk dv + 4 C (dk + dv) per token, against 7 dk dv of the recurrence.
// Products of bf16 want larger ones: rounding the state to bf16 and units with large tiles cost by the chunk.
// Derivation: docs/math/fast_weight.md. Included once per target.
//
// Inside a chunk with start state S and decays A_i = alpha_1 .. alpha_i (numbers, or one per key channel):
//   Qg_i = A_i scale q_i     Kg_i = A_i k_i     Kd_i = (A_C / A_i) k_i                       [C, dk]
//   P_ij = scale q_i (A_i / A_j) k_j, j <= i    L_ij = k_i (A_i / A_j) k_j, j < i            [C, C]
//   R = V - Kg S      U = (I + beta L)^-1 beta R      O = Qg S + P U      S' = A_C S + Kd^T U
// Additive: U = V. Quotients of decays are products of the alphas between i and j, so nothing overflows or
// loses digits, however strong the decay. A NaN or infinity reaches the whole chunk it is in.
#ifndef BRAID_FAST_WEIGHT_CHUNK_SIZES
#define BRAID_FAST_WEIGHT_CHUNK_SIZES
#include <algorithm>
#include <cstring>
#include <numeric>

#include "kernels/elementwise/elementwise.h"
#include "kernels/fast_weight/fast_weight.h"
#include "kernels/matmul/matmul.h"

namespace braid {

// Tokens whose chunk states backward keeps at once, when forward has not emitted any.
constexpr size_t kSegment = 128;

constexpr size_t pad16(size_t n) { return (n + 15) / 16 * 16; }
// Numbers between rows of a state: an odd number of cache lines, or a panel of 16 columns would fall into few
// sets of L1.
constexpr size_t state_stride(size_t cols) { return pad16(cols) / 16 % 2 ? pad16(cols) : pad16(cols) + 16; }

// The memory of one task. With base null only `floats` means something.
struct ChunkBuffers {
  size_t C, cp, kp, W, ld, state, floats = 0;
  // Rows of q (scaled) above rows of k; the same decayed; Kd; k transposed; alphas; A_i; A_C per channel;
  // P above L; quotients of scalar decays; (I + beta L)^-1, and times beta.
  float *raw, *gated, *kd, *kt, *alpha, *gamma, *keep, *pair, *ratio, *inverse, *inverse_beta, *beta;
  float *y, *r, *u, *S;
  // Backward: start states of segments; states, R and U of a segment's chunks; dS; do above -dR; Z; dU;
  // things transposed; gradients of gated, Kd, the pairs, and of q, of k where it meets A_i and where it
  // meets 1 / A_i.
  float *starts, *states, *rs, *us, *dS, *up, *z, *du, *up_t, *u_t, *product_t, *d_gated, *d_kd, *d_pair;
  float *d_col, *d_g;
  // Operands of a product rounded to bf16.
  float *narrow_a = nullptr, *narrow_b = nullptr;

  ChunkBuffers(const FastWeightShape& s, float* base)
      : C(fast_weight_chunk(s)),
        cp(pad16(C)),
        kp(pad16(s.dk)),
        W(pad16(std::min(s.dv, kFastWeightChunkBlock))),
        ld(state_stride(W)),
        state(s.dk * ld) {
    const bool channel = s.decay == FastWeightDecay::kChannel;
    take(base, raw, 2 * C * kp), take(base, gated, 2 * C * kp), take(base, kd, C * kp);
    take(base, kt, s.dk * cp), take(base, alpha, channel ? (C + 1) * kp : cp), take(base, gamma, cp);
    take(base, keep, kp), take(base, pair, 2 * C * cp), take(base, ratio, C * cp);
    take(base, inverse, C * cp), take(base, inverse_beta, C * cp), take(base, beta, cp);
    take(base, y, 2 * C * W), take(base, r, C * W), take(base, u, C * W), take(base, S, state);
    if (s.precision == Precision::kBf16) {
      const size_t most = std::max(2 * C, s.dk) * std::max({kp, W, 2 * cp});
      take(base, narrow_a, most / 2), take(base, narrow_b, most / 2);
    }
  }
  // every: tokens of a segment; segments: how many start states to keep.
  ChunkBuffers(const FastWeightShape& s, size_t every, size_t segments, float* base) : ChunkBuffers(s, base) {
    const size_t chunks = (every + C - 1) / C;
    take(base, starts, segments * state), take(base, states, chunks * state);
    take(base, rs, chunks * C * W), take(base, us, chunks * C * W), take(base, dS, state);
    take(base, up, 2 * C * W), take(base, z, C * W), take(base, du, C * W);
    take(base, up_t, W * 2 * cp), take(base, u_t, W * cp), take(base, product_t, s.dk * 2 * cp);
    take(base, d_gated, 2 * C * kp), take(base, d_kd, C * kp), take(base, d_pair, 2 * C * cp);
    take(base, d_col, C * kp), take(base, d_g, (C + 1) * kp);
  }

 private:
  void take(float* base, float*& p, size_t n) {
    p = base ? base + floats : nullptr;
    floats += pad16(n);
  }
};

// Tokens of a segment of backward: what forward emitted, else so many whole chunks.
inline size_t segment_tokens(const FastWeightShape& s, size_t every) {
  const size_t C = fast_weight_chunk(s);
  return every ? every : std::max<size_t>(1, kSegment / C) * C;
}

}  // namespace braid
#endif

#if defined(BRAID_FAST_WEIGHT_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_FAST_WEIGHT_CHUNK_INL_H_
#undef BRAID_FAST_WEIGHT_CHUNK_INL_H_
#else
#define BRAID_FAST_WEIGHT_CHUNK_INL_H_
#endif

#include "kernels/common/gemm-inl.h"
#include "kernels/fast_weight/head-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

constexpr size_t whole_vectors(size_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// to = scale from, widened from bf16 if that is given; zeros up to `padded`.
HWY_INLINE void load_row(const float* from, const bf16* from_bf16, size_t n, size_t padded, float scale,
                         float* to) {
  if (from_bf16) {
    for_lanes(n, [&](auto d, size_t i) {
      const hn::RebindToUnsigned<decltype(d)> du;
      const hn::Rebind<uint16_t, decltype(d)> d16;
      const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from_bf16) + i);
      const auto x = hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits)));
      hn::StoreU(hn::Mul(hn::Set(d, scale), x), d, to + i);
    });
  } else {
    for_lanes(n, [&](auto d, size_t i) {
      hn::StoreU(hn::Mul(hn::Set(d, scale), hn::LoadU(d, from + i)), d, to + i);
    });
  }
  std::fill(to + n, to + padded, 0.0f);
}

template <class T>
HWY_INLINE const T* row_at(Mat<const T> m, size_t row, size_t col) {
  return m.data ? m.row(row) + col : nullptr;
}

// to = a x
HWY_INLINE void scale_row(const float* x, float a, size_t n, float* to) {
  const Full d;
  const VFull factor = hn::Set(d, a);
  for (size_t i = 0; i < n; i += kLanes) hn::StoreU(hn::Mul(factor, hn::LoadU(d, x + i)), d, to + i);
}
// to = x y
HWY_INLINE void mul_rows(const float* x, const float* y, size_t n, float* to) {
  const Full d;
  for (size_t i = 0; i < n; i += kLanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, y + i)), d, to + i);
}
// to += a x
HWY_INLINE void mul_add_row(float a, const float* x, size_t n, float* to) {
  const Full d;
  const VFull factor = hn::Set(d, a);
  for (size_t i = 0; i < n; i += kLanes)
    hn::StoreU(hn::MulAdd(factor, hn::LoadU(d, x + i), hn::LoadU(d, to + i)), d, to + i);
}
HWY_INLINE float dot_rows(const float* x, const float* y, size_t n) {
  return sum_lanes(n, [&](auto d, size_t i) { return hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, y + i)); });
}

// How the chunk form multiplies; C: [m, n] row-major, as in gemm-inl.h. kTriangle: rows of a triangular
// matrix that are multiplied together. What stands above the diagonal there must be zero, what stands right
// of it is not read. kPanel: columns that a product may be cut into without a loss.

// Numbers of f32.
struct Wide {
  static constexpr size_t kTriangle = 16, kPanel = kGemmVecs * kLanes;
  explicit Wide(const ChunkBuffers&) {}
  HWY_INLINE void nn(size_t m, size_t n, size_t k, const float* a, size_t lda, const float* b, size_t ldb,
                     float* c, size_t ldc, Into into) const {
    gemm_nn(m, n, k, a, lda, b, ldb, c, ldc, into);
  }
  HWY_INLINE void tn(size_t m, size_t n, size_t k, const float* a, size_t lda, const float* b, size_t ldb,
                     float* c, size_t ldc, Into into) const {
    gemm_tn(m, n, k, a, lda, b, ldb, c, ldc, into);
  }
  HWY_INLINE void tn_keep(size_t m, size_t n, size_t k, const float* a, size_t lda, const float* b,
                          size_t ldb, const float* keep, const float* from, float* c, size_t ldc) const {
    gemm_tn_keep(m, n, k, a, lda, b, ldb, keep, from, c, ldc);
  }
};

// The same numbers rounded to bf16, with sums of f32, by whatever this machine has for that (kernels/matmul).
// Its tiles are large, so a triangle is taken as a whole.
struct Narrow {
  static constexpr size_t kTriangle = kFastWeightMaxChunk, kPanel = SIZE_MAX;
  const ChunkBuffers& buffers;
  explicit Narrow(const ChunkBuffers& b) : buffers(b) {}
  void nn(size_t m, size_t n, size_t k, const float* a, size_t lda, const float* b, size_t ldb, float* c,
          size_t ldc, Into into) const {
    product(MatmulForm::kNN, {a, m, k, lda}, {b, k, n, ldb}, {c, m, n, ldc}, into);
  }
  void tn(size_t m, size_t n, size_t k, const float* a, size_t lda, const float* b, size_t ldb, float* c,
          size_t ldc, Into into) const {
    product(MatmulForm::kTN, {a, k, m, lda}, {b, k, n, ldb}, {c, m, n, ldc}, into);
  }
  void tn_keep(size_t m, size_t n, size_t k, const float* a, size_t lda, const float* b, size_t ldb,
               const float* keep, const float* from, float* c, size_t ldc) const {
    for (size_t i = 0; i < m; ++i) scale_row((from ? from : c) + i * ldc, keep[i], n, c + i * ldc);
    tn(m, n, k, a, lda, b, ldb, c, ldc, Into::kAdd);
  }

 private:
  void product(MatmulForm form, Mat<const float> a, Mat<const float> b, Mat<float> c, Into into) const {
    const Mat<bf16> a16(reinterpret_cast<bf16*>(buffers.narrow_a), a.rows, a.cols),
        b16(reinterpret_cast<bf16*>(buffers.narrow_b), b.rows, b.cols);
    convert(a, a16), convert(b, b16);
    matmul_bf16_impls().use().panel({.form = form,
                                     .m = c.rows,
                                     .n = c.cols,
                                     .k = b.rows,
                                     .a = a16.data,
                                     .b = b16.data,
                                     .a_stride = a16.stride,
                                     .b_stride = b16.stride,
                                     .c = c.data,
                                     .c_stride = c.stride,
                                     .into = into});
  }
};

// Products with a lower triangular A: [c, c], in blocks of rows that leave most of the zeros out.

// C (+)= A B
template <class Products>
HWY_INLINE void lower(const Products& p, size_t c, size_t n, const float* a, size_t lda, const float* b,
                      size_t ldb, float* to, size_t ldc, Into into) {
  for (size_t i = 0; i < c; i += Products::kTriangle) {
    const size_t rows = std::min(Products::kTriangle, c - i);
    p.nn(rows, n, i + rows, a + i * lda, lda, b, ldb, to + i * ldc, ldc, into);
  }
}
// C (+)= A^T B
template <class Products>
HWY_INLINE void lower_t(const Products& p, size_t c, size_t n, const float* a, size_t lda, const float* b,
                        size_t ldb, float* to, size_t ldc, Into into) {
  for (size_t i = 0; i < c; i += Products::kTriangle)
    p.tn(std::min(Products::kTriangle, c - i), n, c - i, a + i * lda + i, lda, b + i * ldb, ldb, to + i * ldc,
         ldc, into);
}
// The lower triangle of A B, A: [c, k], B: [k, c]; some of what is above comes along.
template <class Products>
HWY_INLINE void to_lower(const Products& p, size_t c, size_t k, const float* a, size_t lda, const float* b,
                         size_t ldb, float* to, size_t ldc) {
  for (size_t i = 0; i < c; i += Products::kTriangle) {
    const size_t rows = std::min(Products::kTriangle, c - i);
    p.nn(rows, whole_vectors(i + rows), k, a + i * lda, lda, b, ldb, to + i * ldc, ldc, Into::kOverwrite);
  }
}

// One value head of one sequence, columns [begin, end) of its values. Null stands for a state of zeros.
template <class Products>
struct ChunkTask {
  const Head& h;
  const ChunkBuffers& b;
  size_t begin, end;
  Products products{b};
  bool delta = h.s.write == FastWeightWrite::kDelta, channel = h.s.decay == Decay::kChannel;
  size_t dk = h.s.dk, kp = b.kp, cp = b.cp, cols = end - begin, W = pad16(cols), ld = state_stride(W);

  // Rows of one head lie far apart, so no hardware prefetcher follows them. Products are cut into panels of
  // columns, each with its share of the rows that come next. Backward gained 10 % by it, forward 5 %; about a
  // sixth of forward's time is still spent waiting for rows.
  struct Ahead {
    struct Part {
      const void* data = nullptr;
      size_t stride = 0, bytes = 0;  // between rows; of a row
    };
    Part parts[6] = {};
    size_t count = 0, rows = 0;
    template <class T>
    void add(Mat<T> m, size_t row, size_t col, size_t width) {
      if (m.data) parts[count++] = {m.row(row) + col, m.stride * sizeof(T), width * sizeof(T)};
    }
    // The i-th of n shares.
    void touch(size_t i, size_t n) const {
      for (size_t at = i * rows * count / n; at < (i + 1) * rows * count / n; ++at) {
        const Part& p = parts[at / rows];
        const char* row = static_cast<const char*>(p.data) + at % rows * p.stride;
        for (size_t x = 0; x < p.bytes; x += 64) hwy::Prefetch(row + x);
      }
    }
  };
  // The inputs of tokens t .. end - 1; when there are none, those that the next head, or the first head of
  // the next sequence, begins with.
  Ahead inputs_ahead(size_t t, size_t end) const {
    const FastWeightIn& in = h.in;
    size_t row = h.row0 + t, head = h.head, count = end - t;
    if (t >= end) {
      head = (h.head + 1) % h.s.value_heads;
      row = head ? h.row0 : h.row0 + h.tokens;
      count = std::min<size_t>(std::min(h.tokens, b.C), in.offsets.back() - row);
    }
    const size_t key = head / (h.s.value_heads / h.s.key_heads) * dk, value = head * h.s.dv + begin;
    Ahead a;
    a.rows = count;
    a.add(in.q, row, key, dk), a.add(in.k, row, key, dk), a.add(in.v, row, value, cols);
    a.add(in.q_bf16, row, key, dk), a.add(in.k_bf16, row, key, dk), a.add(in.v_bf16, row, value, cols);
    return a;
  }
  Ahead results_ahead(size_t t, size_t c, const FastWeightGrad& grad) const {
    Ahead a;
    a.rows = c;
    a.add(grad.dv, h.row0 + t, h.head * h.s.dv + begin, cols);
    a.add(grad.dq, h.row0 + t, h.key_head * dk, dk), a.add(grad.dk, h.row0 + t, h.key_head * dk, dk);
    return a;
  }
  // The columns that products with a triangle may touch in row i.
  static constexpr size_t triangle_columns(size_t i, size_t c) {
    return whole_vectors(std::min(c, (i / Products::kTriangle + 1) * Products::kTriangle));
  }

  // C = A B in panels of columns.
  void nn_ahead(const Ahead& ahead, size_t m, size_t n, size_t k, const float* a, size_t lda, const float* b,
                size_t ldb, float* c, size_t ldc) const {
    const size_t width = std::min(n, Products::kPanel), panels = (n + width - 1) / width;
    for (size_t i = 0; i < panels; ++i) {
      ahead.touch(i, panels);
      const size_t col = i * width;
      products.nn(m, std::min(width, n - col), k, a, lda, b + col, ldb, c + col, ldc, Into::kOverwrite);
    }
  }

  // Everything of tokens t .. t + c - 1 that does not depend on the state or the values.
  void prepare(size_t t, size_t c) const {
    const FastWeightIn& in = h.in;
    float* const k = b.raw + c * kp;
    for (size_t i = 0; i < c; ++i) {
      const size_t row = h.row0 + t + i, col = h.key_head * dk;
      load_row(row_at(in.q, row, col), row_at(in.q_bf16, row, col), dk, kp, h.s.scale, b.raw + i * kp);
      load_row(row_at(in.k, row, col), row_at(in.k_bf16, row, col), dk, kp, 1.0f, k + i * kp);
      b.beta[i] = delta ? h.beta(t + i) : 1.0f;
    }
    if (channel)
      prepare_channels(t, c, k);
    else
      prepare_scalar(t, c, k);
    if (delta) invert(c);
  }

  void prepare_scalar(size_t t, size_t c, const float* k) const {
    const size_t n = whole_vectors(c);
    const Full d;
    for (size_t i = 0; i < c; ++i)
      b.alpha[i] = h.s.decay == Decay::kNone
                       ? 0.0f
                       : h.in.g.row(h.s.decay == Decay::kHead ? 0 : h.row0 + t + i)[h.head];
    std::fill(b.alpha + c, b.alpha + n, 0.0f);
    for (size_t i = 0; i < n; i += kLanes) hn::StoreU(exp_v(d, hn::LoadU(d, b.alpha + i)), d, b.alpha + i);
    float gamma = 1;
    for (size_t i = 0; i < c; ++i) {
      float* ratio = b.ratio + i * cp;
      if (i)
        scale_row(ratio - cp, b.alpha[i], n, ratio);
      else
        std::fill_n(ratio, n, 0.0f);
      ratio[i] = 1;
      gamma *= b.alpha[i];
      b.gamma[i] = gamma;
      scale_row(b.raw + i * kp, gamma, kp, b.gated + i * kp);
      scale_row(k + i * kp, gamma, kp, b.gated + (c + i) * kp);
    }
    const float* to_end = b.ratio + (c - 1) * cp;
    for (size_t i = 0; i < c; ++i) scale_row(k + i * kp, to_end[i], kp, b.kd + i * kp);
    std::fill_n(b.keep, dk, gamma);
    if (c < n)
      for (size_t i = 0; i < dk; ++i) std::fill(b.kt + i * cp + c, b.kt + i * cp + n, 0.0f);
    transpose(c, dk, k, kp, b.kt, cp);
    to_lower(products, c, dk, b.raw, kp, b.kt, cp, b.pair, cp);
    if (delta) to_lower(products, c, dk, k, kp, b.kt, cp, b.pair + c * cp, cp);
    for (size_t i = 0; i < c; ++i) {
      const size_t filled = triangle_columns(i, c);
      mul_rows(b.pair + i * cp, b.ratio + i * cp, filled, b.pair + i * cp);
      if (!delta) continue;
      float* L = b.pair + (c + i) * cp;
      mul_rows(L, b.ratio + i * cp, filled, L);
      L[i] = 0;
    }
  }

  // With a decay per channel the pairs are sums over channels of three factors, the quotient among them.
  void prepare_channels(size_t t, size_t c, const float* k) const {
    const Full d;
    const size_t n = whole_vectors(c);
    float* const run = b.alpha + b.C * kp;
    for (size_t i = 0; i < c; ++i) {
      float *alpha = b.alpha + i * kp, *q_g = b.gated + i * kp, *k_g = b.gated + (c + i) * kp;
      for_lanes(dk, [&](auto d1, size_t x) {
        hn::StoreU(exp_v(d1, hn::LoadU(d1, h.g_channels(t + i) + x)), d1, alpha + x);
      });
      std::fill(alpha + dk, alpha + kp, 1.0f);
      if (i)
        mul_rows(run, alpha, kp, run);
      else
        std::copy_n(alpha, kp, run);
      mul_rows(b.raw + i * kp, run, kp, q_g);
      mul_rows(k + i * kp, run, kp, k_g);
    }
    std::copy_n(run, kp, b.keep);
    std::fill_n(run, kp, 1.0f);
    for (size_t i = c; i-- > 0;) {
      mul_rows(k + i * kp, run, kp, b.kd + i * kp);
      mul_rows(run, b.alpha + i * kp, kp, run);
    }
    for (size_t i = 0; i < c; ++i) {
      const float *qi = b.raw + i * kp, *ki = k + i * kp;
      float *P = b.pair + i * cp, *L = b.pair + (c + i) * cp;
      std::fill_n(P, n, 0.0f), std::fill_n(L, n, 0.0f);
      std::fill_n(run, kp, 1.0f);
      for (size_t j = i + 1; j-- > 0;) {
        const float *kj = k + j * kp, *alpha = b.alpha + j * kp;
        VFull p = hn::Zero(d), l = hn::Zero(d);
        for (size_t x = 0; x < kp; x += kLanes) {
          const VFull ratio = hn::LoadU(d, run + x), decayed = hn::Mul(ratio, hn::LoadU(d, kj + x));
          p = hn::MulAdd(hn::LoadU(d, qi + x), decayed, p);
          l = hn::MulAdd(hn::LoadU(d, ki + x), decayed, l);
          hn::StoreU(hn::Mul(ratio, hn::LoadU(d, alpha + x)), d, run + x);
        }
        P[j] = hn::GetLane(hn::SumOfLanes(d, p));
        if (j < i) L[j] = hn::GetLane(hn::SumOfLanes(d, l));
      }
    }
  }

  // (I + beta L)^-1 by forward substitution: row i = e_i - beta_i sum_j L_ij row j.
  void invert(size_t c) const {
    const Full d;
    const size_t n = whole_vectors(c);
    for (size_t i = 0; i < c; ++i) {
      const float* L = b.pair + (c + i) * cp;
      float* to = b.inverse + i * cp;
      for (size_t x = 0; x < n; x += kLanes) {
        const float* column = b.inverse + x;
        VFull even = hn::Zero(d), odd = hn::Zero(d);
        size_t j = std::min(x, i);  // rows above this are zero here
        for (; j + 2 <= i; j += 2) {
          even = hn::MulAdd(hn::Set(d, L[j]), hn::LoadU(d, column + j * cp), even);
          odd = hn::MulAdd(hn::Set(d, L[j + 1]), hn::LoadU(d, column + (j + 1) * cp), odd);
        }
        if (j < i) even = hn::MulAdd(hn::Set(d, L[j]), hn::LoadU(d, column + j * cp), even);
        hn::StoreU(hn::Mul(hn::Set(d, -b.beta[i]), hn::Add(even, odd)), d, to + x);
      }
      to[i] = 1;
    }
    std::fill(b.beta + c, b.beta + n, 0.0f);
    for (size_t i = 0; i < c; ++i) mul_rows(b.inverse + i * cp, b.beta, n, b.inverse_beta + i * cp);
  }

  // The values of the prepared tokens to r; U to u; with `read` O to y; the state from -> to, which may be
  // the same, or null if nobody needs it.
  void advance(size_t t, size_t c, const float* from, float* to, float* r, float* u, bool read,
               const Ahead& ahead) const {
    const Full d;
    const FastWeightIn& in = h.in;
    for (size_t i = 0; i < c; ++i) {
      const size_t row = h.row0 + t + i, col = h.head * h.s.dv + begin;
      load_row(row_at(in.v, row, col), row_at(in.v_bf16, row, col), cols, W, 1.0f, r + i * W);
    }
    const size_t first = read ? 0 : c, last = delta ? 2 * c : c;
    if (from && first < last)
      nn_ahead(ahead, last - first, W, dk, b.gated + first * kp, kp, from, ld, b.y + first * W, W);
    if (!from) ahead.touch(0, 2);
    if (delta) {
      if (from)
        for (size_t x = 0; x < c * W; x += kLanes)
          hn::StoreU(hn::Sub(hn::LoadU(d, r + x), hn::LoadU(d, b.y + c * W + x)), d, r + x);
      lower(products, c, W, b.inverse_beta, cp, r, W, u, W, Into::kOverwrite);
    } else {
      std::copy_n(r, c * W, u);
    }
    if (!from) ahead.touch(1, 2);
    if (read) lower(products, c, W, b.pair, cp, u, W, b.y, W, from ? Into::kAdd : Into::kOverwrite);
    if (to && from)
      products.tn_keep(dk, W, c, b.kd, kp, u, W, b.keep, from, to, ld);
    else if (to)
      products.tn(dk, W, c, b.kd, kp, u, W, to, ld, Into::kOverwrite);
  }

  const float* load_state(const float* state, float* to) const {
    if (!state) return nullptr;
    for (size_t i = 0; i < dk; ++i) load_row(state + i * h.s.dv + begin, nullptr, cols, W, 1.0f, to + i * ld);
    return to;
  }
  void store_state(const float* from, float* state) const {
    for (size_t i = 0; i < dk; ++i)
      if (from)
        std::copy_n(from + i * ld, cols, state + i * h.s.dv + begin);
      else
        std::fill_n(state + i * h.s.dv + begin, cols, 0.0f);
  }
  // State number i of those that were emitted.
  template <class T>
  T* mark(T* states, size_t i) const {
    return states + (i * h.s.value_heads + h.head) * dk * h.s.dv;
  }

  void forward(const float* s0, float* s_end, const FastWeightMarks& marks, Mat<float> o) const {
    const float* S = load_state(s0, b.S);
    for (size_t t = 0, next; t < h.tokens; t = next) {
      const size_t limit = marks.every ? (t / marks.every + 1) * marks.every : h.tokens;
      next = std::min({h.tokens, limit, t + b.C});
      prepare(t, next - t);
      Ahead ahead = inputs_ahead(next, std::min(h.tokens, next + b.C));
      ahead.add(o, h.row0 + t, h.head * h.s.dv + begin, cols);
      const bool wanted = next < h.tokens || s_end || (marks.to && next == limit);
      advance(t, next - t, S, wanted ? b.S : nullptr, b.r, b.u, true, ahead);
      S = b.S;
      for (size_t i = t; i < next; ++i)
        std::copy_n(b.y + (i - t) * W, cols, o.row(h.row0 + i) + h.head * h.s.dv + begin);
      if (marks.to && next == limit) store_state(S, mark(marks.to, next / marks.every - 1));
    }
    if (s_end) store_state(S, s_end);
  }

  // Backward of one chunk with start state S: from dS, the gradient of its end state, to that of S in b.dS if
  // it is wanted.
  //   dU = P^T dO + Kd dS      Z = (I + beta L)^-T dU      dR = beta Z = dV
  //   dQg = dO S^T      dKg = -dR S^T      dKd = U dS^T      dS <- A_C dS + Qg^T dO - Kg^T dR
  //   dP = dO U^T       dL = -dR U^T       dbeta_i = Z_i . R_i - sum_j L_ij Z_i . U_j
  void backward(size_t t, size_t c, const float* S, const float* dS, bool wanted, const float* R,
                const float* U, Mat<const float> dout, const FastWeightGrad& grad, Into keys, Into head,
                double& dg_all, const Ahead& ahead) const {
    const size_t m = delta ? 2 * c : c, mp = whole_vectors(m), n = whole_vectors(c), tp = 2 * cp;
    for (size_t i = 0; i < c; ++i)
      load_row(dout.row(h.row0 + t + i) + h.head * h.s.dv + begin, nullptr, cols, W, 1.0f, b.up + i * W);
    const Ahead results = results_ahead(t, c, grad);
    results.touch(0, 3);
    lower_t(products, c, W, b.pair, cp, b.up, W, b.du, W, Into::kOverwrite);
    results.touch(1, 3);
    if (dS) products.nn(c, W, dk, b.kd, kp, dS, ld, b.du, W, Into::kAdd);
    const float* Z = b.du;
    if (delta) {
      lower_t(products, c, W, b.inverse, cp, b.du, W, b.z, W, Into::kOverwrite);
      Z = b.z;
      for (size_t i = 0; i < c; ++i) scale_row(Z + i * W, -b.beta[i], W, b.up + (c + i) * W);
    }
    for (size_t i = 0; i < c; ++i) {
      float* dv = grad.dv.row(h.row0 + t + i) + h.head * h.s.dv + begin;
      for_lanes(cols, [&](auto d1, size_t x) {
        hn::StoreU(hn::Mul(hn::Set(d1, b.beta[i]), hn::LoadU(d1, Z + i * W + x)), d1, dv + x);
      });
    }
    // The states stand on the left, so that they need no transpose.
    if (S) {
      transpose(m, W, b.up, W, b.up_t, tp);
      nn_ahead(ahead, dk, mp, W, S, ld, b.up_t, tp, b.product_t, tp);
      transpose(dk, m, b.product_t, tp, b.d_gated, kp);
    } else {
      std::fill_n(b.d_gated, m * kp, 0.0f);
    }
    transpose(c, W, U, W, b.u_t, cp);
    if (dS) {
      products.nn(dk, n, W, dS, ld, b.u_t, cp, b.product_t, tp, Into::kOverwrite);
      transpose(dk, c, b.product_t, tp, b.d_kd, kp);
    } else {
      std::fill_n(b.d_kd, c * kp, 0.0f);
    }
    results.touch(2, 3);
    to_lower(products, c, W, b.up, W, b.u_t, cp, b.d_pair, cp);
    if (!S) ahead.touch(0, 1);
    if (delta) {
      to_lower(products, c, W, Z, W, b.u_t, cp, b.d_pair + c * cp, cp);
      for (size_t i = 0; i < c; ++i) {
        float* dL = b.d_pair + (c + i) * cp;
        const float* L = b.pair + (c + i) * cp;
        float dbeta = dot_rows(Z + i * W, R + i * W, W);
        for (size_t j = 0; j < i; ++j) dbeta -= L[j] * dL[j], dL[j] *= -b.beta[i];
        std::fill(dL + i, dL + triangle_columns(i, c), 0.0f);
        put(dbeta, grad.dbeta.row(h.row0 + t + i) + h.head, head);
      }
    }
    // The share of A_C S, which has every decay of the chunk: per channel, or one number.
    const bool decays = h.s.decay != Decay::kNone;
    float* const dg_end = b.d_g + b.C * kp;
    if (decays) {
      for (size_t i = 0; i < dk; ++i)
        dg_end[i] = S && dS ? b.keep[i] * dot_rows(S + i * ld, dS + i * ld, W) : 0.0f;
      if (!channel) *dg_end = std::accumulate(dg_end, dg_end + dk, 0.0f);
    }
    if (wanted && dS)
      products.tn_keep(dk, W, m, b.gated, kp, b.up, W, b.keep, nullptr, b.dS, ld);
    else if (wanted)
      products.tn(dk, W, m, b.gated, kp, b.up, W, b.dS, ld, Into::kOverwrite);
    pairs_backward(c);
    // q_i meets A_i, and so does k_i in one sum; in others k_j meets 1 / A_j. The pair (i, i) of P has no
    // decay.
    for (size_t i = 0; i < c; ++i) {
      const float *q = b.raw + i * kp, *k = b.raw + (c + i) * kp, diagonal = *(b.d_pair + i * cp + i);
      const float *dq = b.d_gated + i * kp, *row = b.d_gated + (c + i) * kp, *col = b.d_col + i * kp;
      float* const dq_out = grad.dq.row(h.row0 + t + i) + h.key_head * dk;
      float* const dk_out = grad.dk.row(h.row0 + t + i) + h.key_head * dk;
      for_lanes(dk, [&](auto d1, size_t x) {
        const auto qx = hn::LoadU(d1, q + x), kx = hn::LoadU(d1, k + x), dp = hn::Set(d1, diagonal);
        auto dqx = hn::LoadU(d1, dq + x), dc = hn::LoadU(d1, col + x);
        auto dr = delta ? hn::LoadU(d1, row + x) : hn::Zero(d1);
        dqx = hn::Mul(hn::Set(d1, h.s.scale), hn::MulAdd(dp, kx, dqx));
        dr = hn::Add(dr, hn::MulAdd(dp, qx, dc));
        if (keys == Into::kAdd)
          dqx = hn::Add(dqx, hn::LoadU(d1, dq_out + x)), dr = hn::Add(dr, hn::LoadU(d1, dk_out + x));
        hn::StoreU(dqx, d1, dq_out + x);
        hn::StoreU(dr, d1, dk_out + x);
      });
    }
    if (decays) put_decays(t, c, grad, head, dg_all);
  }

  // dg of one decay for all channels, before the pairs have come to d_gated and d_col. g_t is in A_i for
  // i >= t, and in A_i / A_j and A_C / A_j for j < t <= i. So no share is added that does not belong there
  // and would have to be taken away again: under a strong decay dg_t is smaller than such a share's rounding.
  void scalar_decay_backward(size_t c) const {
    const float* k = b.raw + c * kp;
    HWY_ALIGN float later[kFastWeightMaxChunk];  // shares of A_i / A_j and A_C / A_j for i >= t, by j
    for (size_t j = 0; j < c; ++j) later[j] = dot_rows(k + j * kp, b.d_col + j * kp, dk);
    double state = static_cast<double>(b.d_g[b.C * kp]);  // shares of A_i for i >= t
    for (size_t t = c; t-- > 0;) {
      float now = dot_rows(b.raw + t * kp, b.d_gated + t * kp, dk);
      if (delta) now += dot_rows(k + t * kp, b.d_gated + (c + t) * kp, dk);
      state += static_cast<double>(now);
      for (size_t row = t; row < (delta ? 2 * c : c); row += c) {
        const float *pair = b.pair + row * cp, *d_pair = b.d_pair + row * cp;
        for_lanes(t, [&](auto d1, size_t j) {
          hn::StoreU(hn::MulAdd(hn::LoadU(d1, pair + j), hn::LoadU(d1, d_pair + j), hn::LoadU(d1, later + j)),
                     d1, later + j);
        });
      }
      const float pairs = sum_lanes(t, [&](auto d1, size_t j) { return hn::LoadU(d1, later + j); });
      b.d_g[t] = static_cast<float>(state + static_cast<double>(pairs));
    }
  }

  // d_gated, d_kd and d_pair to gradients of the rows of raw: d_gated becomes [dq; dk that meets A_i], d_col
  // the rest of dk, d_g those of the log-decays. The diagonal of P is left out.
  void pairs_backward(size_t c) const { channel ? channel_pairs_backward(c) : scalar_pairs_backward(c); }

  void scalar_pairs_backward(size_t c) const {
    const float* k = b.raw + c * kp;
    const size_t dkp = whole_vectors(dk);
    const float* to_end = b.ratio + (c - 1) * cp;
    for (size_t i = 0; i < c; ++i) {
      scale_row(b.d_gated + i * kp, b.gamma[i], dkp, b.d_gated + i * kp);
      if (delta) scale_row(b.d_gated + (c + i) * kp, b.gamma[i], dkp, b.d_gated + (c + i) * kp);
      scale_row(b.d_kd + i * kp, to_end[i], dkp, b.d_col + i * kp);
    }
    if (h.s.decay != Decay::kNone) scalar_decay_backward(c);
    HWY_ALIGN float diagonal[kFastWeightMaxChunk];
    for (size_t i = 0; i < c; ++i) {
      float* dP = b.d_pair + i * cp;
      const size_t filled = triangle_columns(i, c);
      diagonal[i] = dP[i];
      mul_rows(dP, b.ratio + i * cp, filled, dP);
      dP[i] = 0;
      if (delta) mul_rows(dP + c * cp, b.ratio + i * cp, filled, dP + c * cp);
    }
    for (size_t part = 0; part < (delta ? 2 : 1); ++part) {
      const size_t row = part * c;
      lower(products, c, dkp, b.d_pair + row * cp, cp, k, kp, b.d_gated + row * kp, kp, Into::kAdd);
      lower_t(products, c, dkp, b.d_pair + row * cp, cp, b.raw + row * kp, kp, b.d_col, kp, Into::kAdd);
    }
    for (size_t i = 0; i < c; ++i) b.d_pair[i * cp + i] = diagonal[i];
  }

  // dg_t is made as in scalar_decay_backward: while rows i go down to t, d_col holds for each j < t the
  // shares of A_i / A_j and A_C / A_j with i >= t, and dg_end those of A_i.
  void channel_pairs_backward(size_t c) const {
    const Full d;
    const float* k = b.raw + c * kp;
    float *const dg_end = b.d_g + b.C * kp, *const run = b.alpha + b.C * kp;
    const size_t dkp = whole_vectors(dk);
    std::fill_n(run, kp, 1.0f);
    for (size_t i = c; i-- > 0;) {
      mul_rows(b.d_kd + i * kp, run, dkp, b.d_col + i * kp);
      mul_rows(run, b.alpha + i * kp, kp, run);
    }
    for (size_t i = 0; i < c; ++i) {
      if (i)
        mul_rows(run, b.alpha + i * kp, kp, run);
      else
        std::copy_n(b.alpha, kp, run);
      mul_rows(b.d_gated + i * kp, run, dkp, b.d_gated + i * kp);
      if (delta) mul_rows(b.d_gated + (c + i) * kp, run, dkp, b.d_gated + (c + i) * kp);
    }
    for (size_t i = c; i-- > 0;) {
      const float *dP = b.d_pair + i * cp, *dL = b.d_pair + (c + i) * cp;
      float *dq_i = b.d_gated + i * kp, *dk_i = b.d_gated + (c + i) * kp;
      for (size_t x = 0; x < dkp; x += kLanes) {
        const VFull q = hn::LoadU(d, b.raw + i * kp + x), ki = hn::LoadU(d, k + i * kp + x);
        VFull ratio = hn::LoadU(d, b.alpha + i * kp + x), dq = hn::LoadU(d, dq_i + x),
              dr = delta ? hn::LoadU(d, dk_i + x) : hn::Zero(d), pairs = hn::Zero(d);
        const VFull state = hn::MulAdd(q, dq, hn::MulAdd(ki, dr, hn::LoadU(d, dg_end + x)));
        for (size_t j = i; j-- > 0;) {
          const VFull p = hn::Set(d, dP[j]), l = delta ? hn::Set(d, dL[j]) : hn::Zero(d);
          const VFull kj = hn::LoadU(d, k + j * kp + x), decayed = hn::Mul(ratio, kj);
          float* col = b.d_col + j * kp + x;
          dq = hn::MulAdd(p, decayed, dq);
          dr = hn::MulAdd(l, decayed, dr);
          const VFull dc = hn::MulAdd(ratio, hn::MulAdd(p, q, hn::Mul(l, ki)), hn::LoadU(d, col));
          hn::StoreU(dc, d, col);
          pairs = hn::MulAdd(kj, dc, pairs);
          ratio = hn::Mul(ratio, hn::LoadU(d, b.alpha + j * kp + x));
        }
        hn::StoreU(dq, d, dq_i + x);
        if (delta) hn::StoreU(dr, d, dk_i + x);
        hn::StoreU(state, d, dg_end + x);
        hn::StoreU(hn::Add(state, pairs), d, b.d_g + i * kp + x);
      }
    }
  }

  // dg of the chunk's tokens, a row or a number each; dg_all: the sum of the numbers.
  void put_decays(size_t t, size_t c, const FastWeightGrad& grad, Into head, double& dg_all) const {
    for (size_t i = c; i-- > 0;) {
      if (channel) {
        if (grad.dg.data) put(b.d_g + i * kp, grad.dg.row(h.row0 + t + i) + h.head * dk, dk, head);
        continue;
      }
      if (h.s.decay == Decay::kToken && grad.dg.data)
        put(b.d_g[i], grad.dg.row(h.row0 + t + i) + h.head, head);
      dg_all += static_cast<double>(b.d_g[i]);
    }
  }

  // The whole sequence, segments last to first: the states of a segment's chunks are made again and kept.
  void backward(const float* s0, const float* ds_end, float* ds0, const FastWeightMarks& marks,
                Mat<const float> dout, const FastWeightGrad& grad, Into keys, Into head,
                double& dg_all) const {
    const size_t T = h.tokens, E = segment_tokens(h.s, marks.every), segments = (T + E - 1) / E;
    const auto chunk_end = [&](size_t t, size_t end) { return std::min(end, t + b.C); };
    const float* S0 = marks.states ? nullptr : load_state(s0, b.starts);
    if (!marks.states)
      for (size_t s = 0; s + 1 < segments; ++s) {
        const float* from = s ? b.starts + s * b.state : S0;
        float* const to = b.starts + (s + 1) * b.state;
        for (size_t t = s * E, next; t < (s + 1) * E; t = next, from = to) {
          next = chunk_end(t, (s + 1) * E);
          prepare(t, next - t);
          advance(t, next - t, from, to, b.r, b.u, false, inputs_ahead(next, std::min(T, next + b.C)));
        }
      }
    const float* dS = load_state(ds_end, b.dS);
    for (size_t s = segments; s-- > 0;) {
      const size_t first = s * E, end = std::min(T, first + E);
      if (marks.dstates && end == first + E) {
        const float* more = load_state(mark(marks.dstates, s), dS ? b.states : b.dS);
        for (size_t i = 0; dS && i < dk; ++i) mul_add_row(1.0f, more + i * ld, W, b.dS + i * ld);
        dS = b.dS;
      }
      const float* start = s ? b.starts + s * b.state : S0;
      if (marks.states) start = load_state(s ? mark(marks.states, s - 1) : s0, b.S);
      const size_t chunks = (end - first + b.C - 1) / b.C;
      const auto S = [&](size_t c) { return c ? b.states + c * b.state : start; };
      const auto R = [&](size_t c) { return b.rs + c * b.C * W; };
      const auto U = [&](size_t c) { return b.us + c * b.C * W; };
      for (size_t c = 0; c < chunks; ++c) {
        const size_t t = first + c * b.C, next = chunk_end(t, end);
        prepare(t, next - t);
        Ahead ahead;
        if (c + 1 < chunks) ahead = inputs_ahead(next, chunk_end(next, end));
        ahead.rows = ahead.count ? ahead.rows : next - t;
        if (c + 1 == chunks) ahead.add(dout, h.row0 + t, h.head * h.s.dv + begin, cols);
        advance(t, next - t, S(c), c + 1 < chunks ? b.states + (c + 1) * b.state : nullptr, R(c), U(c), false,
                ahead);
      }
      for (size_t c = chunks; c-- > 0;) {
        const size_t t = first + c * b.C, next = chunk_end(t, end);
        if (c + 1 < chunks) prepare(t, next - t);  // the last one is
        // The inputs of the chunk before, and its cotangent.
        const size_t before = c ? t - b.C : t;
        Ahead ahead = inputs_ahead(before, t);
        if (c) ahead.add(dout, h.row0 + before, h.head * h.s.dv + begin, cols);
        backward(t, next - t, S(c), dS, t > 0 || ds0, R(c), U(c), dout, grad, keys, head, dg_all, ahead);
        dS = b.dS;
      }
    }
    if (ds0) store_state(dS, ds0);
  }
};

template <class Products>
void chunk_fwd(const FastWeightShape& s, const FastWeightIn& in, size_t seq, size_t head, size_t begin,
               size_t end, Mat<float> o, float* s_end, const FastWeightMarks& marks, float* scratch) {
  const Head h(s, in, seq, head);
  const ChunkBuffers b(s, scratch);
  ChunkTask<Products>{h, b, begin, end}.forward(state_of(s, in.s0.empty() ? nullptr : in.s0[seq], head),
                                                state_of(s, s_end, head), marks, o);
}

template <class Products>
void chunk_bwd(const FastWeightShape& s, const FastWeightIn& in, Mat<const float> dout, const float* ds_end,
               const FastWeightGrad& grad, size_t seq, size_t key_head, float* ds0, float* dg_head,
               const FastWeightMarks& marks, float* scratch) {
  const size_t group = s.value_heads / s.key_heads;
  for (size_t head = key_head * group; head < (key_head + 1) * group; ++head) {
    const Head h(s, in, seq, head);
    const size_t E = segment_tokens(s, marks.every);
    const ChunkBuffers b(s, std::min(E, h.tokens), marks.states ? 0 : (h.tokens + E - 1) / E, scratch);
    double dg_all = 0;
    for (size_t begin = 0; begin < s.dv; begin += kFastWeightChunkBlock) {
      const auto first = [](bool yes) { return yes ? Into::kOverwrite : Into::kAdd; };
      const ChunkTask<Products> task{h, b, begin, std::min(s.dv, begin + kFastWeightChunkBlock)};
      task.backward(state_of(s, in.s0.empty() ? nullptr : in.s0[seq], head), state_of(s, ds_end, head),
                    state_of(s, ds0, head), marks, dout, grad, first(begin == 0 && head == key_head * group),
                    first(begin == 0), dg_all);
    }
    if (s.decay == Decay::kHead) dg_head[head] += static_cast<float>(dg_all);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#endif
