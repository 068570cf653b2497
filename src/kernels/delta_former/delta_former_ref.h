// The definition of DeltaFormer, on any number type, for one head of one sequence. Backward is below forward.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>
#include <vector>

#include "kernels/delta_former/delta_former.h"

namespace braid::ref {

// f of one score; not for softmax.
template <class T>
T delta_value(const DeltaKernel& f, T s) {
  using std::exp, std::real;
  switch (f.kind) {
    case DeltaKind::kRelu:
      return real(s) > 0 ? s : T(0);
    case DeltaKind::kExp:
      return exp(s);
    case DeltaKind::kRound: {
      const auto r = static_cast<decltype(real(s))>(f.resolution);
      const T nearest(std::rint(real(s) * r) / r);
      // Straight through: what a complex step adds to s passes unrounded.
      return f.straight_through ? nearest + (s - T(real(s))) : nearest;
    }
    default:
      return s;
  }
}

template <class T>
T delta_slope(const DeltaKernel& f, T s) {
  using std::exp, std::real;
  switch (f.kind) {
    case DeltaKind::kRelu:
      return T(real(s) > 0 ? 1 : 0);
    case DeltaKind::kExp:
      return exp(s);
    case DeltaKind::kRound:
      return T(f.straight_through ? 1 : 0);
    default:
      return T(1);
  }
}

template <class T>
struct DeltaRow {
  std::vector<T> s, p;  // scores and weights of the rows that were read
  T lse;
};

// One read with w: out [dv] = sum_{i<n} kappa(k_i, w) u_i.
template <class T>
DeltaRow<T> delta_read(const DeltaKernel& f, size_t dk, size_t dv, size_t n, const T* k, const T* u,
                       const T* w, T* out) {
  using std::exp, std::log, std::real;
  DeltaRow<T> r{std::vector<T>(n), std::vector<T>(n), T(-HUGE_VAL)};
  double top = -HUGE_VAL;
  for (size_t i = 0; i < n; ++i) {
    for (size_t e = 0; e < dk; ++e) r.s[i] += T(f.scale) * k[i * dk + e] * w[e];
    top = std::fmax(top, static_cast<double>(real(r.s[i])));
  }
  if (f.kind == DeltaKind::kSoftmax) {
    T sum{};
    for (size_t i = 0; i < n; ++i) sum += r.p[i] = exp(r.s[i] - T(top));
    for (size_t i = 0; i < n; ++i) r.p[i] /= sum;
    if (n > 0) r.lse = T(top) + log(sum);
  } else {
    for (size_t i = 0; i < n; ++i) r.p[i] = delta_value(f, r.s[i]);
  }
  for (size_t e = 0; e < dv; ++e) out[e] = T(0);
  for (size_t i = 0; i < n; ++i)
    for (size_t e = 0; e < dv; ++e) out[e] += r.p[i] * u[i * dv + e];
  return r;
}

// n tokens after `past` cached ones: k [past + n, dk], u [past + n, dv] with the first `past` rows given;
// q [n, dk], v and o [n, dv]; a, b [n] or null for ones.
template <class T>
struct DeltaFormerArgs {
  const T *q, *k, *v, *a, *b;
};

// m: [n, dv], the sums that b multiplies; lse: [2, n] of the softmaxes of write and read. Both may be null.
template <class T>
void delta_former_fwd(const DeltaFormerShape& d, size_t past, size_t n, const DeltaFormerArgs<T>& in, T* o,
                      T* u, T* m = nullptr, T* lse = nullptr) {
  std::vector<T> sum(d.dv);
  for (size_t t = 0; t < n; ++t) {
    const T *q = in.q + t * d.dk, *k = in.k + (past + t) * d.dk;
    const T* w = d.similarity == DeltaSimilarity::kQuery ? q : k;
    const T write_lse = delta_read(d.write, d.dk, d.dv, past + t, in.k, u, w, sum.data()).lse;
    for (size_t e = 0; e < d.dv; ++e) {
      u[(past + t) * d.dv + e] =
          (in.a ? in.a[t] : T(1)) * in.v[t * d.dv + e] - (in.b ? in.b[t] : T(1)) * sum[e];
      if (m) m[t * d.dv + e] = sum[e];
    }
    const T read_lse = delta_read(d.read, d.dk, d.dv, past + t + 1, in.k, u, q, o + t * d.dv).lse;
    if (lse) lse[t] = write_lse, lse[n + t] = read_lse;
  }
}

template <class T>
struct DeltaFormerGrads {
  T *dq, *dk, *dv, *da, *db;  // like the inputs, all overwritten
};

// Cotangent `up` of one read back to the rows and to w: du_i += p_i up, ds_i = f'(s_i) (up . u_i), or for
// softmax p_i (up . u_i - delta) with delta = sum_i p_i (up . u_i) = up . out.
template <class T>
void delta_read_back(const DeltaKernel& f, size_t dk, size_t dv, const DeltaRow<T>& r, const T* k, const T* u,
                     const T* w, const T* out, const T* up, T* d_k, T* d_u, T* d_w) {
  T delta{};
  for (size_t e = 0; e < dv; ++e) delta += up[e] * out[e];
  for (size_t i = 0; i < r.s.size(); ++i) {
    T dp{};
    for (size_t e = 0; e < dv; ++e) {
      dp += up[e] * u[i * dv + e];
      d_u[i * dv + e] += r.p[i] * up[e];
    }
    const T ds =
        T(f.scale) * (f.kind == DeltaKind::kSoftmax ? r.p[i] * (dp - delta) : delta_slope(f, r.s[i]) * dp);
    for (size_t e = 0; e < dk; ++e) {
      d_k[i * dk + e] += ds * w[e];
      d_w[e] += ds * k[i * dk + e];
    }
  }
}

// From the last token to the first, du_t is complete when t is reached: call it z. Then with m_t the sum,
//   dv = a z     da = z . v     db = -z . m     and the sum's cotangent is -b z.
// No past; u as forward left it; du: cotangent of u or null.
template <class T>
void delta_former_bwd(const DeltaFormerShape& d, size_t n, const DeltaFormerArgs<T>& in, const T* u,
                      const T* dout, const T* du, const DeltaFormerGrads<T>& g) {
  std::vector<T> all(n * d.dv), out(d.dv), zeta(d.dv);
  if (du) all.assign(du, du + n * d.dv);
  for (size_t i = 0; i < n * d.dk; ++i) g.dq[i] = g.dk[i] = T(0);
  for (size_t t = n; t-- > 0;) {
    const bool by_query = d.similarity == DeltaSimilarity::kQuery;
    const T *q = in.q + t * d.dk, *w = by_query ? q : in.k + t * d.dk, *z = &all[t * d.dv];
    T *dq = g.dq + t * d.dk, *dw = by_query ? dq : g.dk + t * d.dk;
    DeltaRow<T> r = delta_read(d.read, d.dk, d.dv, t + 1, in.k, u, q, out.data());
    delta_read_back(d.read, d.dk, d.dv, r, in.k, u, q, out.data(), dout + t * d.dv, g.dk, all.data(), dq);
    r = delta_read(d.write, d.dk, d.dv, t, in.k, u, w, out.data());
    g.da[t] = g.db[t] = T(0);
    for (size_t e = 0; e < d.dv; ++e) {
      g.dv[t * d.dv + e] = (in.a ? in.a[t] : T(1)) * z[e];
      g.da[t] += z[e] * in.v[t * d.dv + e];
      g.db[t] -= z[e] * out[e];
      zeta[e] = -(in.b ? in.b[t] : T(1)) * z[e];
    }
    delta_read_back(d.write, d.dk, d.dv, r, in.k, u, w, out.data(), zeta.data(), g.dk, all.data(), dw);
  }
}

}  // namespace braid::ref
