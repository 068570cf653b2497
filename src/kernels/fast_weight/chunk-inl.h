// The chunk form: C tokens at a time as matrix products, with one triangular inverse per chunk. For f32 the
// flops are least with small chunks: 6 dk dv + 4 C (dk + dv) per token, against 7 dk dv of the recurrence.
// Products of bf16 want larger ones: rounding the state to bf16 and units with large tiles cost by the chunk.
// Derivation: docs/explanation/math/fast_weight.md. Included once per target.
//
// Inside a chunk with start state S and decays A_i = alpha_1 .. alpha_i (numbers, or one per key channel):
//   Qg_i = A_i scale q_i     Kg_i = A_i k_i     Kd_i = (A_C / A_i) k_i                       [C, dk]
//   P_ij = scale q_i (A_i / A_j) k_j, j <= i    L_ij = k_i (A_i / A_j) k_j, j < i            [C, C]
//   R = V - Kg S      U = (I + beta L)^-1 beta R      O = Qg S + P U      S' = A_C S + Kd^T U
// Additive: U = V. Quotients of decays are products of the alphas between i and j, so nothing overflows or
// loses digits, however strong the decay. A NaN or infinity reaches the whole chunk it is in.
#if defined(BRAID_FAST_WEIGHT_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_FAST_WEIGHT_CHUNK_INL_H_
#undef BRAID_FAST_WEIGHT_CHUNK_INL_H_
#else
#define BRAID_FAST_WEIGHT_CHUNK_INL_H_
#endif

#include "kernels/common/gemm-inl.h"
#include "kernels/fast_weight/chunk_sizes.h"
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
// matrix that are multiplied together. Elements above the diagonal of that block must be zero, elements right
// of it are not read. kPanel: columns that a product may be cut into without a loss.

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
    convert(a, a16, buffers.par), convert(b, b16, buffers.par);
    matmul_bf16_impls()
        .use(buffers.par)
        .panel({.form = form,
                .m = c.rows,
                .n = c.cols,
                .k = b.rows,
                .a = a16.data,
                .b = b16.data,
                .a_stride = a16.stride,
                .b_stride = b16.stride,
                .c = c.data,
                .c_stride = c.stride,
                .into = into,
                .par = buffers.par});
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
  // Where backward's results go. keys: whether dq and dk begin here; head: whether dg and dbeta do; dg_all:
  // the sum of dg of a scalar decay.
  struct Gradients {
    Mat<const float> dout;
    const FastWeightGrad& grad;
    Into keys, head;
    double& dg_all;
  };
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
  // the same, or null if it is not needed.
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

  // Defined where they are used, in forward.cpp and chunk_backward.cpp.
  void forward(const float* s0, float* s_end, const FastWeightMarks& marks, Mat<float> o) const;
  void backward(const float* s0, const float* ds_end, float* ds0, const FastWeightMarks& marks,
                const Gradients& out) const;

 private:
  // One chunk in backward: its tokens, start state, gradient of the end state, R and U.
  struct Chunk {
    size_t t, c;
    const float *S, *dS, *R, *U;
  };
  Ahead results_ahead(size_t t, size_t c, const FastWeightGrad& grad) const;
  void chunk_backward(const Chunk& at, bool wanted, const Gradients& out, const Ahead& ahead) const;
  const float* values_backward(const Chunk& at, const Gradients& out, const Ahead& results) const;
  void state_products_backward(const Chunk& at, const Ahead& ahead) const;
  void strengths_backward(const Chunk& at, const float* Z, const Gradients& out) const;
  void state_decay_backward(const Chunk& at) const;
  void scalar_decay_backward(size_t c) const;
  void scalar_pairs_backward(size_t c) const;
  void channel_pairs_backward(size_t c) const;
  void put_keys(const Chunk& at, const Gradients& out) const;
  void put_decays(const Chunk& at, const Gradients& out) const;
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#endif
