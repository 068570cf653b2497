#include "kernels/delta_former/delta_former.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/common/ragged.h"
#include "kernels/delta_former/delta_former_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/delta_former/delta_former.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/gemm-inl.h"
#include "kernels/common/simd-inl.h"

#ifndef BRAID_DELTA_FORMER_MEMORY
#define BRAID_DELTA_FORMER_MEMORY
namespace braid {
namespace {

constexpr size_t kKeyBlock = 64;  // earlier keys per tile

// With chunks of 64 and heads of 64 (128) numbers backward's tiles take 0.3 (0.5) MB, about an L2.
constexpr size_t chunk_of(const DeltaFormerShape& s, size_t tokens) {
  const size_t wanted = s.chunk ? s.chunk : std::max(s.dk, s.dv) <= 128 ? 64 : 32;
  return std::max<size_t>(1, std::min(wanted, tokens));
}

// Hands out parts of the scratch; without a base it only counts.
struct Bump {
  float* base;
  size_t used = 0;
  float* take(size_t n) {
    float* p = base ? base + used : nullptr;
    used += (n + 15) / 16 * 16;
    return p;
  }
};

// One of the two reads of a chunk: `n` columns (tokens), each the weighted sum of rows u_i under weights of
// the keys k_i and the column's w. Tiles of weights are held transposed, [keys, columns], as in attention.
struct Stage {
  DeltaKernel f{};
  size_t n = 0, dk = 0, dv = 0, ks = 0, vs = 0, ld = 0;
  float *w, *wt, *st;      // scale * w: [columns, ks] and in panels; tile of scores, then weights
  float *acc, *top, *sum;  // forward: [columns, vs]; softmax's running maximum and sum
  float *up, *up_t, *dt, *dw, *lse, *delta;  // backward: cotangent in both forms, gradient tile, dw / scale

  Stage(const DeltaKernel& kernel, const DeltaFormerShape& s, size_t chunk, bool backward, Bump& mem)
      : f(kernel),
        dk(s.dk),
        dv(s.dv),
        ks(spread_stride(s.dk)),
        vs(spread_stride(s.dv)),
        ld(spread_stride(chunk)) {
    const size_t columns = (chunk + 31) / 32 * 32, keys = std::max(chunk, kKeyBlock);
    w = mem.take(columns * ks), wt = mem.take(columns * dk), st = mem.take(keys * ld);
    acc = backward ? nullptr : mem.take(columns * vs);
    top = backward ? nullptr : mem.take(columns), sum = backward ? nullptr : mem.take(columns);
    up = backward ? mem.take(columns * vs) : nullptr, up_t = backward ? mem.take(columns * dv) : nullptr;
    dt = backward ? mem.take(keys * ld) : nullptr, dw = backward ? mem.take(columns * ks) : nullptr;
    lse = backward ? mem.take(columns) : nullptr, delta = backward ? mem.take(columns) : nullptr;
  }
};

// What a task needs: the sequence's keys and u's of one head (and their gradients), the two stages, the
// chunk's system `at` = A^T, and for the product form the inverse, a power of A^T, a factor and a right side.
struct Memory {
  Bump mem;
  size_t chunk;
  float *k, *u, *dk, *du;
  Stage write, read;
  float *at, *coeff, *block_k, *block_u;
  float* inverse[3] = {};
  float* right = nullptr;

  Memory(const DeltaFormerShape& s, size_t tokens, bool backward, float* base)
      : mem{base},
        chunk(chunk_of(s, tokens)),
        k(mem.take(tokens * spread_stride(s.dk))),
        u(mem.take(tokens * spread_stride(s.dv))),
        dk(backward ? mem.take(tokens * spread_stride(s.dk)) : nullptr),
        du(backward ? mem.take(tokens * spread_stride(s.dv)) : nullptr),
        write(s.write, s, chunk, backward, mem),
        read(s.read, s, chunk, backward, mem),
        at(mem.take(chunk * spread_stride(chunk))),
        coeff(mem.take(chunk)),
        block_k(mem.take(kKeyBlock * spread_stride(s.dk))),
        block_u(mem.take(kKeyBlock * spread_stride(s.dv))) {
    if (s.solve == DeltaSolve::kSubstitution) return;
    for (float*& p : inverse) p = mem.take(chunk * spread_stride(chunk));
    right = mem.take(chunk * spread_stride(s.dv));
  }
};

}  // namespace
}  // namespace braid
#endif

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

constexpr size_t kLanes = HWY_LANES(float), kPanel = kGemmVecs * kLanes;
static_assert(32 % kPanel == 0);

constexpr size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

HWY_INLINE void copy_row(const float* from, float* to, size_t n, float scale = 1.0f) {
  for_lanes(n, [&](auto d, size_t i) {
    hn::StoreU(hn::Mul(hn::LoadU(d, from + i), hn::Set(d, scale)), d, to + i);
  });
}

HWY_INLINE float dot_row(const float* a, const float* b, size_t n) {
  return sum_lanes(n, [&](auto d, size_t i) { return hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i)); });
}

// Panels of [width][kPanel] from n columns that lie one below the other, with zeros up to a whole vector.
HWY_INLINE void to_panels(size_t n, size_t width, float* from, size_t stride, float* to) {
  for (size_t c = n; c < round_up(n, kLanes); ++c) std::fill_n(from + c * stride, width, 0.0f);
  for (size_t c = 0; c < n; c += kPanel)
    transpose(round_up(std::min(kPanel, n - c), kLanes), width, from + c * stride, stride, to + c * width,
              kPanel);
}

// Which keys of a block a column sees: all, or, where the block is the chunk itself, those before its own
// token or up to it.
enum class Sees { kAll, kBefore, kUpTo };

HWY_INLINE hn::Mask<Full> sees_key(Sees sees, size_t column, size_t key) {
  const Full d;
  const size_t limit = column + (sees == Sees::kUpTo ? 1 : 0);
  return hn::Lt(hn::Set(d, static_cast<float>(key)), hn::Iota(d, static_cast<float>(limit)));
}

template <DeltaKind kKind>
HWY_INLINE VFull value(const DeltaKernel& f, VFull s) {
  const Full d;
  if constexpr (kKind == DeltaKind::kRelu) return hn::Max(s, hn::Zero(d));
  if constexpr (kKind == DeltaKind::kExp) return exp_v(d, s);
  if constexpr (kKind == DeltaKind::kRound)
    return hn::Mul(hn::Round(hn::Mul(s, hn::Set(d, f.resolution))), hn::Set(d, 1.0f / f.resolution));
  return s;
}

// One vector of columns: the scores of keys [0, n) become weights. Softmax forward is the online one: weights
// are exp(s - top), and what was summed before is scaled to the new maximum.
template <DeltaKind kKind, bool kBackward>
HWY_INLINE void weigh(const Stage& g, size_t n, size_t c, Sees sees) {
  const Full d;
  float* st = g.st + c;
  const auto masked = [&](VFull x, VFull other, size_t j) {
    return sees == Sees::kAll ? x : hn::IfThenElse(sees_key(sees, c, j), x, other);
  };
  if constexpr (kKind == DeltaKind::kSoftmax && !kBackward) {
    const VFull none = hn::Set(d, -HUGE_VALF), before = hn::LoadU(d, g.top + c);
    VFull top = before;
    for (size_t j = 0; j < n; ++j) {
      const VFull s = masked(hn::LoadU(d, st + j * g.ld), none, j);
      hn::StoreU(s, d, st + j * g.ld);
      top = hn::Max(top, s);
    }
    // A lane that has seen nothing yet: -inf - 0 gives weight 0, where -inf - -inf would give NaN.
    const VFull base = hn::IfThenElse(hn::Eq(top, none), hn::Zero(d), top);
    VFull sum = hn::Zero(d);
    for (size_t j = 0; j < n; ++j) {
      const VFull p = exp_weight(hn::Sub(hn::LoadU(d, st + j * g.ld), base));
      hn::StoreU(p, d, st + j * g.ld);
      sum = hn::Add(sum, p);
    }
    HWY_ALIGN float factor[kLanes];
    hn::Store(exp_weight(hn::Sub(before, base)), d, factor);
    hn::StoreU(top, d, g.top + c);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, g.sum + c), hn::Load(d, factor), sum), d, g.sum + c);
    for (size_t x = c; x < std::min(c + kLanes, g.n); ++x)
      if (factor[x - c] != 1.0f) copy_row(g.acc + x * g.vs, g.acc + x * g.vs, g.dv, factor[x - c]);
  } else {
    const VFull lse = kKind == DeltaKind::kSoftmax ? hn::LoadU(d, g.lse + c) : hn::Zero(d);
    for (size_t j = 0; j < n; ++j) {
      const VFull s = hn::LoadU(d, st + j * g.ld);
      const VFull p = kKind == DeltaKind::kSoftmax ? exp_weight(hn::Sub(s, lse)) : value<kKind>(g.f, s);
      hn::StoreU(masked(p, hn::Zero(d), j), d, st + j * g.ld);
    }
  }
}

// One vector of columns: dp of the keys [0, n) becomes ds.
template <DeltaKind kKind>
HWY_INLINE void slope(const Stage& g, size_t n, size_t c, Sees sees) {
  const Full d;
  if (kKind != DeltaKind::kSoftmax && kKind != DeltaKind::kExp && kKind != DeltaKind::kRelu &&
      sees == Sees::kAll)
    return;
  const VFull delta = kKind == DeltaKind::kSoftmax ? hn::LoadU(d, g.delta + c) : hn::Zero(d);
  for (size_t j = 0; j < n; ++j) {
    float* at = g.dt + j * g.ld + c;
    const VFull p = hn::LoadU(d, g.st + j * g.ld + c), dp = hn::LoadU(d, at);
    VFull ds = dp;
    if constexpr (kKind == DeltaKind::kSoftmax) ds = hn::Mul(p, hn::Sub(dp, delta));
    if constexpr (kKind == DeltaKind::kExp) ds = hn::Mul(p, dp);
    if constexpr (kKind == DeltaKind::kRelu) ds = hn::IfThenElseZero(hn::Gt(p, hn::Zero(d)), dp);
    if (sees != Sees::kAll) ds = hn::IfThenElseZero(sees_key(sees, c, j), ds);
    hn::StoreU(ds, d, at);
  }
}

template <DeltaKind kKind>
using Kind = std::integral_constant<DeltaKind, kKind>;

template <class F>
HWY_INLINE void with_kind(DeltaKind kind, const F& f) {
  switch (kind) {
    case DeltaKind::kLinear:
      return f(Kind<DeltaKind::kLinear>());
    case DeltaKind::kRelu:
      return f(Kind<DeltaKind::kRelu>());
    case DeltaKind::kExp:
      return f(Kind<DeltaKind::kExp>());
    case DeltaKind::kSoftmax:
      return f(Kind<DeltaKind::kSoftmax>());
    case DeltaKind::kRound:
      return f(Kind<DeltaKind::kRound>());
  }
}

// to = rows columns^T in panels of columns, then each(vector of columns, keys that it may see); zeros for the
// other keys.
template <class F>
HWY_INLINE void tile(const Stage& g, size_t n, Sees sees, const float* rows, size_t stride, size_t width,
                     const float* panels, float* to, const F& each) {
  for (size_t c = 0; c < g.n; c += kPanel) {
    const size_t columns = std::min(kPanel, g.n - c), vectors = round_up(columns, kLanes);
    const size_t seen = sees == Sees::kAll ? n : std::min(n, c + columns);
    gemm_nn(seen, vectors, width, rows, stride, panels + c * width, kPanel, to + c, g.ld, Into::kOverwrite);
    for (size_t x = c; x < c + vectors; x += kLanes) each(x, seen);
    for (size_t j = seen; j < n; ++j) std::fill_n(to + j * g.ld + c, vectors, 0.0f);
  }
}

// Weights of a block of n keys, in g.st.
template <bool kBackward>
HWY_NOINLINE void weights(const Stage& g, const float* k, size_t n, Sees sees) {
  with_kind(g.f.kind, [&]<DeltaKind kKind>(Kind<kKind>) {
    tile(g, n, sees, k, g.ks, g.dk, g.wt, g.st,
         [&](size_t c, size_t seen) { weigh<kKind, kBackward>(g, seen, c, sees); });
  });
}

// Their gradient before the kernel, in g.dt.
HWY_NOINLINE void slopes(const Stage& g, const float* u, size_t n, Sees sees) {
  with_kind(g.f.kind, [&]<DeltaKind kKind>(Kind<kKind>) {
    tile(g, n, sees, u, g.vs, g.dv, g.up_t, g.dt,
         [&](size_t c, size_t seen) { slope<kKind>(g, seen, c, sees); });
  });
}

// What solve() below and its transpose share: rows that are solved one after the other after a product with
// all rows done before. 8 rows keep the product busy and the rest short.
constexpr size_t kSolveRows = 8;

// The inverse of I + at, at strictly upper triangular, as (I - at) (I + at^2) (I + at^4) ...
HWY_NOINLINE const float* invert(const Memory& m, size_t n, size_t ld) {
  float *x = m.inverse[0], *power = m.inverse[1], *next = m.inverse[2];
  for (size_t i = 0; i < n; ++i) {
    copy_row(m.at + i * ld, x + i * ld, n, -1.0f);
    x[i * ld + i] += 1.0f;
    copy_row(m.at + i * ld, power + i * ld, n);
  }
  for (size_t reach = 2; reach < n; reach *= 2) {
    gemm_nn(n, n, n, power, ld, power, ld, next, ld, Into::kOverwrite);
    std::swap(power, next);
    for (size_t i = 0; i < n; ++i) copy_row(x + i * ld, next + i * ld, n);
    gemm_nn(n, n, n, next, ld, power, ld, x, ld, Into::kAdd);
  }
  return x;
}

// u = (I + A)^-1 u for n rows of dv numbers; m.at is A^T.
HWY_NOINLINE void solve(const DeltaFormerShape& s, const Memory& m, size_t n, float* u) {
  const size_t ld = m.write.ld, vs = m.write.vs;
  if (s.solve == DeltaSolve::kProduct) {
    for (size_t i = 0; i < n; ++i) copy_row(u + i * vs, m.right + i * vs, s.dv);
    gemm_tn(n, s.dv, n, invert(m, n, ld), ld, m.right, vs, u, vs, Into::kOverwrite);
    return;
  }
  for (size_t begin = 0; begin < n; begin += kSolveRows) {
    const size_t end = std::min(n, begin + kSolveRows);
    gemm_tn(end - begin, s.dv, begin, m.at + begin, ld, u, vs, u + begin * vs, vs, Into::kAdd, -1.0f);
    for_lanes(s.dv, [&](auto d, size_t e) {
      for (size_t r = begin + 1; r < end; ++r) {
        auto x = hn::LoadU(d, u + r * vs + e);
        for (size_t i = begin; i < r; ++i)
          x = hn::NegMulAdd(hn::Set(d, m.at[i * ld + r]), hn::LoadU(d, u + i * vs + e), x);
        hn::StoreU(x, d, u + r * vs + e);
      }
    });
  }
}

// z = (I + A)^-T z, from the last row to the first.
HWY_NOINLINE void solve_transposed(const DeltaFormerShape& s, const Memory& m, size_t n, float* z) {
  const size_t ld = m.write.ld, vs = m.write.vs;
  if (s.solve == DeltaSolve::kProduct) {
    for (size_t i = 0; i < n; ++i) copy_row(z + i * vs, m.right + i * vs, s.dv);
    gemm_nn(n, s.dv, n, invert(m, n, ld), ld, m.right, vs, z, vs, Into::kOverwrite);
    return;
  }
  for (size_t end = n, begin; end > 0; end = begin) {
    begin = (end - 1) / kSolveRows * kSolveRows;
    gemm_nn(end - begin, s.dv, n - end, m.at + begin * ld + end, ld, z + end * vs, vs, z + begin * vs, vs,
            Into::kAdd, -1.0f);
    for_lanes(s.dv, [&](auto d, size_t e) {
      for (size_t r = end - 1; r-- > begin;) {
        auto x = hn::LoadU(d, z + r * vs + e);
        for (size_t i = r + 1; i < end; ++i)
          x = hn::NegMulAdd(hn::Set(d, m.at[r * ld + i]), hn::LoadU(d, z + i * vs + e), x);
        hn::StoreU(x, d, z + r * vs + e);
      }
    });
  }
}

// m.at = g.st with column c times m.coeff[c].
HWY_INLINE void scale_columns(const Memory& m, const Stage& g) {
  for (size_t i = 0; i < g.n; ++i)
    for_lanes(g.n, [&](auto d, size_t c) {
      hn::StoreU(hn::Mul(hn::LoadU(d, g.st + i * g.ld + c), hn::LoadU(d, m.coeff + c)), d,
                 m.at + i * g.ld + c);
    });
}

HWY_INLINE float gate(Mat<const float> a, size_t row, size_t head) {
  return a.data ? a.row(row)[head] : 1.0f;
}

// The factor that turns what a column has summed into its result.
HWY_INLINE float norm(const Stage& g, size_t c) {
  if (g.f.kind != DeltaKind::kSoftmax) return 1.0f;
  return g.sum[c] == 0.0f ? 0.0f : 1.0f / g.sum[c];
}

// The columns' results and log-sum-exps, each if wanted.
HWY_INLINE void finish(const Stage& g, size_t row, size_t heads, size_t head, Mat<float> out, float* lse) {
  for (size_t c = 0; c < g.n; ++c) {
    if (out.data) copy_row(g.acc + c * g.vs, out.row(row + c) + head * g.dv, g.dv, norm(g, c));
    if (lse && g.f.kind == DeltaKind::kSoftmax)
      lse[(row + c) * heads + head] = g.sum[c] == 0.0f ? -HUGE_VALF : g.top[c] + std::log(g.sum[c]);
  }
}

void fwd(const DeltaFormerShape& s, const DeltaFormerIn& in, const DeltaFormerOut& out, size_t seq,
         size_t head, float* scratch) {
  const size_t row0 = in.offsets[seq], tokens = in.offsets[seq + 1] - row0, hk = head * s.dk,
               hv = head * s.dv;
  Memory m(s, tokens, false, scratch);
  Stage &w = m.write, &r = m.read;
  const size_t ks = w.ks, vs = w.vs;
  const bool writes = out.u.data != nullptr, reads = out.o.data != nullptr;
  const Mat<const float> w_rows = s.similarity == DeltaSimilarity::kQuery ? in.q : in.k;
  for (size_t t = 0; writes && t < tokens; ++t) copy_row(in.k.row(row0 + t) + hk, m.k + t * ks, s.dk);
  for (size_t t0 = 0; t0 < tokens; t0 += m.chunk) {
    const size_t n = std::min(m.chunk, tokens - t0), row = row0 + t0;
    const auto start = [&](Stage& g, Mat<const float> columns) {
      g.n = n;
      for (size_t c = 0; c < n; ++c) copy_row(columns.row(row + c) + hk, g.w + c * ks, s.dk, g.f.scale);
      to_panels(n, s.dk, g.w, ks, g.wt);
      std::fill_n(g.acc, n * vs, 0.0f);
      std::fill_n(g.top, round_up(n, kLanes), -HUGE_VALF);
      std::fill_n(g.sum, round_up(n, kLanes), 0.0f);
    };
    if (writes) start(w, w_rows);
    if (reads) start(r, in.q);
    const auto block = [&](const float* k, const float* u, size_t keys) {
      for (const Stage* g : {&w, &r}) {
        if (!(g == &w ? writes : reads)) continue;
        weights<false>(*g, k, keys, Sees::kAll);
        gemm_tn(n, s.dv, keys, g->st, g->ld, u, vs, g->acc, vs, Into::kAdd);
      }
    };
    if (!in.past.empty())
      for (const KvSegment& seg : in.past[seq])
        for (size_t j = 0; j < seg.count; j += kKeyBlock) {
          const size_t keys = std::min(kKeyBlock, seg.count - j);
          // Copied even for one column: rows of a head are far apart, and both stages read them.
          for (size_t i = j; i < j + keys; ++i) {
            copy_row(seg.k + i * seg.k_stride + hk, m.block_k + (i - j) * ks, s.dk);
            copy_row(seg.v + i * seg.v_stride + hv, m.block_u + (i - j) * vs, s.dv);
          }
          block(m.block_k, m.block_u, keys);
        }
    float *kc = m.k + t0 * ks, *uc = m.u + t0 * vs;
    if (writes) {
      for (size_t j = 0; j < t0; j += kKeyBlock)
        block(m.k + j * ks, m.u + j * vs, std::min(kKeyBlock, t0 - j));
      // The rest of the sum is over the chunk's own u: a triangular system.
      weights<false>(w, kc, n, Sees::kBefore);
      for (size_t c = 0; c < n; ++c) {
        const float a = gate(in.a, row + c, head);
        m.coeff[c] = gate(in.b, row + c, head) * norm(w, c);
        const float* v = in.v.row(row + c) + hv;
        for_lanes(s.dv, [&](auto d, size_t e) {
          const auto av = hn::Mul(hn::Set(d, a), hn::LoadU(d, v + e));
          hn::StoreU(hn::NegMulAdd(hn::Set(d, m.coeff[c]), hn::LoadU(d, w.acc + c * vs + e), av), d,
                     uc + c * vs + e);
        });
      }
      scale_columns(m, w);
      solve(s, m, n, uc);
      for (size_t c = 0; c < n; ++c) copy_row(uc + c * vs, out.u.row(row + c) + hv, s.dv);
      if (out.m.data) gemm_tn(n, s.dv, n, w.st, w.ld, uc, vs, w.acc, vs, Into::kAdd);
      finish(w, row, s.heads, head, out.m, out.lse_write);
    }
    if (reads) {
      if (writes) {
        weights<false>(r, kc, n, Sees::kUpTo);
        gemm_tn(n, s.dv, n, r.st, r.ld, uc, vs, r.acc, vs, Into::kAdd);
      }
      finish(r, row, s.heads, head, out.o, out.lse_read);
    }
  }
}

void bwd(const DeltaFormerShape& s, const DeltaFormerIn& in, const DeltaFormerSaved& saved,
         Mat<const float> dout, Mat<const float> du, const DeltaFormerGrad& grad, size_t seq, size_t head,
         float* scratch) {
  const size_t row0 = in.offsets[seq], tokens = in.offsets[seq + 1] - row0, hk = head * s.dk,
               hv = head * s.dv;
  Memory m(s, tokens, true, scratch);
  Stage &w = m.write, &r = m.read;
  const size_t ks = w.ks, vs = w.vs;
  const bool by_query = s.similarity == DeltaSimilarity::kQuery;
  for (size_t t = 0; t < tokens; ++t) {
    copy_row(in.k.row(row0 + t) + hk, m.k + t * ks, s.dk);
    copy_row(saved.u.row(row0 + t) + hv, m.u + t * vs, s.dv);
    std::fill_n(m.dk + t * ks, s.dk, 0.0f);
    if (du.data)
      copy_row(du.row(row0 + t) + hv, m.du + t * vs, s.dv);
    else
      std::fill_n(m.du + t * vs, s.dv, 0.0f);
  }
  for (size_t end = tokens, t0; end > 0; end = t0) {
    t0 = (end - 1) / m.chunk * m.chunk;
    const size_t n = end - t0, row = row0 + t0;
    float *kc = m.k + t0 * ks, *z = m.du + t0 * vs;
    const auto start = [&](Stage& g, Mat<const float> columns, const float* lse) {
      g.n = n;
      for (size_t c = 0; c < n; ++c) {
        copy_row(columns.row(row + c) + hk, g.w + c * ks, s.dk, g.f.scale);
        std::fill_n(g.dw + c * ks, s.dk, 0.0f);
      }
      to_panels(n, s.dk, g.w, ks, g.wt);
      std::fill_n(g.lse, round_up(n, kLanes), 0.0f);
      std::fill_n(g.delta, round_up(n, kLanes), 0.0f);
      // Without any weight p must be 0 everywhere: exp(s - inf).
      for (size_t c = 0; g.f.kind == DeltaKind::kSoftmax && c < n; ++c) {
        const float top = lse[(row + c) * s.heads + head];
        g.lse[c] = top == -HUGE_VALF ? HUGE_VALF : top;
      }
    };
    start(w, by_query ? in.q : in.k, saved.lse_write);
    start(r, in.q, saved.lse_read);
    for (size_t c = 0; c < n; ++c) {
      copy_row(dout.row(row + c) + hv, r.up + c * vs, s.dv);
      r.delta[c] = dot_row(saved.o.row(row + c) + hv, r.up + c * vs, s.dv);
    }
    to_panels(n, s.dv, r.up, vs, r.up_t);
    // Gradients of the block's keys and of the columns, from the weights in st.
    const auto block_grads = [&](const Stage& g, size_t at, size_t keys, Sees sees) {
      if (g.f.kind == DeltaKind::kRound && !g.f.straight_through) return;
      slopes(g, m.u + at * vs, keys, sees);
      gemm_nn(keys, s.dk, n, g.dt, g.ld, g.w, ks, m.dk + at * ks, ks, Into::kAdd);
      gemm_tn(n, s.dk, keys, g.dt, g.ld, m.k + at * ks, ks, g.dw, ks, Into::kAdd);
    };
    // The chunk itself: what its reads send to u, then back through the system. That completes z = du.
    weights<true>(r, kc, n, Sees::kUpTo);
    gemm_nn(n, s.dv, n, r.st, r.ld, r.up, vs, z, vs, Into::kAdd);
    block_grads(r, t0, n, Sees::kUpTo);
    weights<true>(w, kc, n, Sees::kBefore);
    for (size_t c = 0; c < n; ++c) m.coeff[c] = gate(in.b, row + c, head);
    scale_columns(m, w);
    solve_transposed(s, m, n, z);
    for (size_t c = 0; c < n; ++c) {
      const float *zc = z + c * vs, *sum = saved.m.row(row + c) + hv, *v = in.v.row(row + c) + hv;
      const float zm = dot_row(zc, sum, s.dv);
      w.delta[c] = -m.coeff[c] * zm;
      copy_row(zc, w.up + c * vs, s.dv, -m.coeff[c]);
      copy_row(zc, grad.dv.row(row + c) + hv, s.dv, gate(in.a, row + c, head));
      if (grad.da.data) grad.da.row(row + c)[head] = dot_row(zc, v, s.dv);
      if (grad.db.data) grad.db.row(row + c)[head] = -zm;
    }
    to_panels(n, s.dv, w.up, vs, w.up_t);
    block_grads(w, t0, n, Sees::kBefore);
    for (size_t j = 0; j < t0; j += kKeyBlock)
      for (const Stage* g : {&w, &r}) {
        const size_t keys = std::min(kKeyBlock, t0 - j);
        weights<true>(*g, m.k + j * ks, keys, Sees::kAll);
        gemm_nn(keys, s.dv, n, g->st, g->ld, g->up, vs, m.du + j * vs, vs, Into::kAdd);
        block_grads(*g, j, keys, Sees::kAll);
      }
    for (size_t c = 0; c < n; ++c) {
      float *dq = grad.dq.row(row + c) + hk, *dk = m.dk + (t0 + c) * ks, *to = by_query ? dq : dk;
      copy_row(r.dw + c * ks, dq, s.dk, s.read.scale);
      for_lanes(s.dk, [&](auto d, size_t e) {
        const auto dw = hn::Mul(hn::LoadU(d, w.dw + c * ks + e), hn::Set(d, s.write.scale));
        hn::StoreU(hn::Add(hn::LoadU(d, to + e), dw), d, to + e);
      });
      copy_row(dk, grad.dk.row(row + c) + hk, s.dk);
    }
  }
}

constexpr DeltaFormerFns kFns{fwd, bwd};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

// The reference wants dense rows of one head.
void append(std::vector<float>& to, const float* from, size_t rows, size_t stride, size_t begin,
            size_t width) {
  for (size_t i = 0; i < rows; ++i)
    to.insert(to.end(), from + i * stride + begin, from + i * stride + begin + width);
}
const float* or_null(const std::vector<float>& x) { return x.empty() ? nullptr : x.data(); }

void ref_fwd(const DeltaFormerShape& s, const DeltaFormerIn& in, const DeltaFormerOut& out, size_t seq,
             size_t head, float*) {
  const size_t row = in.offsets[seq], n = in.offsets[seq + 1] - row, hk = head * s.dk, hv = head * s.dv;
  std::vector<float> k, u, o(n * s.dv), m(n * s.dv), lse(2 * n);
  if (!in.past.empty())
    for (const KvSegment& seg : in.past[seq]) {
      append(k, seg.k, seg.count, seg.k_stride, hk, s.dk);
      append(u, seg.v, seg.count, seg.v_stride, hv, s.dv);
    }
  const size_t past = k.size() / s.dk;
  // Without o the reference still reads, with the keys.
  const std::vector<float> q = dense(in.q.data ? in.q : in.k, row, n, hk, s.dk);
  if (!out.u.data) {
    for (size_t t = 0; t < n; ++t)
      lse[n + t] =
          ref::delta_read<float>(s.read, s.dk, s.dv, past, k.data(), u.data(), &q[t * s.dk], &o[t * s.dv])
              .lse;
  } else {
    append(k, in.k.row(row), n, in.k.stride, hk, s.dk);
    u.resize((past + n) * s.dv);
    const std::vector<float> v = dense(in.v, row, n, hv, s.dv), a = dense(in.a, row, n, head, 1),
                             b = dense(in.b, row, n, head, 1);
    ref::delta_former_fwd<float>(s, past, n, {q.data(), k.data(), v.data(), or_null(a), or_null(b)}, o.data(),
                                 u.data(), m.data(), lse.data());
    u.erase(u.begin(), u.begin() + static_cast<std::ptrdiff_t>(past * s.dv));
    scatter(u, out.u, row, n, hv, s.dv);
    scatter(m, out.m, row, n, hv, s.dv);
  }
  scatter(o, out.o, row, n, hv, s.dv);
  for (size_t t = 0; t < n; ++t) {
    if (out.lse_write && out.u.data) out.lse_write[(row + t) * s.heads + head] = lse[t];
    if (out.lse_read) out.lse_read[(row + t) * s.heads + head] = lse[n + t];
  }
}

void ref_bwd(const DeltaFormerShape& s, const DeltaFormerIn& in, const DeltaFormerSaved& saved,
             Mat<const float> dout, Mat<const float> du, const DeltaFormerGrad& grad, size_t seq, size_t head,
             float*) {
  const size_t row = in.offsets[seq], n = in.offsets[seq + 1] - row, hk = head * s.dk, hv = head * s.dv;
  const std::vector<float> q = dense(in.q, row, n, hk, s.dk), k = dense(in.k, row, n, hk, s.dk),
                           v = dense(in.v, row, n, hv, s.dv), a = dense(in.a, row, n, head, 1),
                           b = dense(in.b, row, n, head, 1), u = dense(saved.u, row, n, hv, s.dv),
                           up = dense(dout, row, n, hv, s.dv), u_up = dense(du, row, n, hv, s.dv);
  std::vector<float> dq(n * s.dk), dk(n * s.dk), dv(n * s.dv), da(n), db(n);
  ref::delta_former_bwd<float>(s, n, {q.data(), k.data(), v.data(), or_null(a), or_null(b)}, u.data(),
                               up.data(), or_null(u_up),
                               {dq.data(), dk.data(), dv.data(), da.data(), db.data()});
  scatter(dq, grad.dq, row, n, hk, s.dk);
  scatter(dk, grad.dk, row, n, hk, s.dk);
  scatter(dv, grad.dv, row, n, hv, s.dv);
  scatter(da, grad.da, row, n, head, 1);
  scatter(db, grad.db, row, n, head, 1);
}

constexpr DeltaFormerFns kRefFns{ref_fwd, ref_bwd};

size_t scratch_per_thread(const DeltaFormerShape& shape, std::span<const uint32_t> offsets, bool backward) {
  return Memory(shape, longest_sequence(offsets), backward, nullptr).mem.used;
}

// run(sequence, head, scratch) for all.
template <class Run>
void for_heads(const DeltaFormerShape& s, const DeltaFormerIn& in, bool backward, std::span<float> scratch,
               Par par, const Run& run) {
  check(s.chunk <= kDeltaMaxChunk, "delta_former: chunk above kDeltaMaxChunk");
  const size_t each = scratch_per_thread(s, in.offsets, backward), total = in.seqs() * s.heads;
  check(scratch.size() >= each * static_cast<size_t>(par.threads()), "delta_former: scratch too small");
  take_turns(total, 1, par,
             [&](size_t i, size_t worker) { run(i / s.heads, i % s.heads, scratch.data() + worker * each); });
}

}  // namespace

const Impls<DeltaFormerFns>& delta_former_impls() {
  static const Impls<DeltaFormerFns> table(
      "delta_former", {"avx512", Isa::kAvx512, &N_AVX3::kFns}, {"avx2", Isa::kAvx2, &N_AVX2::kFns},
      {"sse", Isa::kBase, &N_SSSE3::kFns}, {"ref", Isa::kBase, &kRefFns});
  return table;
}

size_t delta_former_fwd_scratch(const DeltaFormerShape& shape, std::span<const uint32_t> offsets, Par par) {
  return scratch_per_thread(shape, offsets, false) * static_cast<size_t>(par.threads());
}

size_t delta_former_bwd_scratch(const DeltaFormerShape& shape, std::span<const uint32_t> offsets, Par par) {
  return scratch_per_thread(shape, offsets, true) * static_cast<size_t>(par.threads());
}

void delta_former_fwd(const DeltaFormerShape& shape, const DeltaFormerIn& in, const DeltaFormerOut& out,
                      std::span<float> scratch, Par par) {
  const DeltaFormerFns& f = delta_former_impls().use(par);
  for_heads(shape, in, false, scratch, par,
            [&](size_t s, size_t head, float* mem) { f.fwd(shape, in, out, s, head, mem); });
}

void delta_former_bwd(const DeltaFormerShape& shape, const DeltaFormerIn& in, const DeltaFormerSaved& saved,
                      Mat<const float> dout, Mat<const float> du, const DeltaFormerGrad& grad,
                      std::span<float> scratch, Par par) {
  check(in.past.empty(), "delta_former_bwd: sequences with a past have no backward");
  const DeltaFormerFns& f = delta_former_impls().use(par);
  for_heads(shape, in, true, scratch, par, [&](size_t s, size_t head, float* mem) {
    f.bwd(shape, in, saved, dout, du, grad, s, head, mem);
  });
}

void delta_former_compress(const DeltaFormerShape& shape, Mat<const float> keys,
                           std::span<const KvSegment> past, Mat<float> u, std::span<float> scratch, Par par) {
  const uint32_t offsets[] = {0, static_cast<uint32_t>(keys.rows)};
  delta_former_fwd(shape, {.q = keys, .offsets = offsets, .past = {&past, 1}}, {.o = u}, scratch, par);
  delta_former_fwd(shape, {.q = keys, .k = keys, .v = u, .offsets = offsets}, {.u = u}, scratch, par);
}

}  // namespace braid
#endif
