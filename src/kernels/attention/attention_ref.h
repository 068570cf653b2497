// The definition of causal softmax attention, on any number type. Backward is below forward.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/attention/drop.h"

namespace braid::ref {

template <class T>
struct AttentionDims {
  size_t heads, kv_heads, dk, dv;
  size_t window;  // 0 = all
  T scale;
  size_t chunk = 0;  // 0 = off
  AttentionDrop drop = {};
  size_t row0 = 0, head0 = 0;  // number of the first query and head, for drop
  T factor(size_t query, size_t head, int64_t key) const {
    return drop.p > 0 ? T(drop_factor(drop, drop_column(drop, row0 + query, head0 + head), key)) : T(1);
  }
  size_t kv_head(size_t head) const { return head / (heads / kv_heads); }
};

template <class T>
bool attention_sees(const AttentionDims<T>& d, int64_t query, int64_t key) {
  const auto window = static_cast<int64_t>(d.window), chunk = static_cast<int64_t>(d.chunk);
  return key <= query && (window == 0 || query - key < window) &&
         (chunk == 0 || query / chunk == key / chunk);
}

// One sequence: q [nq, heads*dk] at positions first .., k [nk, kv_heads*dk] and v [nk, kv_heads*dv] at the
// positions key_at[j] (null: 0 ..); o [nq, heads*dv], lse [nq, heads] or null. A query that sees nothing
// gives o = 0 and lse = -inf.
template <class T>
void attention_fwd(const AttentionDims<T>& d, const T* q, const T* k, const T* v, size_t nq, size_t nk,
                   int64_t first, const int64_t* key_at, T* o, T* lse) {
  using std::exp, std::log, std::real;
  const auto sees = [&](size_t i, size_t j) {
    return attention_sees(d, first + static_cast<int64_t>(i), key_at ? key_at[j] : static_cast<int64_t>(j));
  };
  std::vector<T> s(nk);
  for (size_t i = 0; i < nq; ++i)
    for (size_t h = 0; h < d.heads; ++h) {
      const size_t hk = d.kv_head(h);
      double top = -HUGE_VAL;
      for (size_t j = 0; j < nk; ++j) {
        if (!sees(i, j)) continue;
        s[j] = T(0);
        for (size_t e = 0; e < d.dk; ++e)
          s[j] += d.scale * q[(i * d.heads + h) * d.dk + e] * k[(j * d.kv_heads + hk) * d.dk + e];
        if (real(s[j]) > top) top = static_cast<double>(real(s[j]));
      }
      const T base(std::isinf(top) ? 0.0 : top);  // -inf - -inf would be NaN
      T sum{};
      T* out = o + (i * d.heads + h) * d.dv;
      for (size_t e = 0; e < d.dv; ++e) out[e] = T(0);
      for (size_t j = 0; j < nk; ++j) {
        if (!sees(i, j)) continue;
        const T p = exp(s[j] - base);
        sum += p;
        const T kept = p * d.factor(i, h, key_at ? key_at[j] : static_cast<int64_t>(j));
        for (size_t e = 0; e < d.dv; ++e) out[e] += kept * v[(j * d.kv_heads + hk) * d.dv + e];
      }
      const bool any = real(sum) != 0;  // also for NaN
      if (any)
        for (size_t e = 0; e < d.dv; ++e) out[e] /= sum;
      if (lse) lse[i * d.heads + h] = any ? base + log(sum) : T(-HUGE_VAL);
    }
}

// Queries and keys of the same n positions. With p_ij = exp(s_ij - lse_i) and delta_i = do_i . o_i:
//   dv_j = sum_i f_ij p_ij do_i     ds_ij = p_ij (f_ij do_i . v_j - delta_i)     f_ij: 1, or the dropout's
//   dq_i = scale sum_j ds_ij k_j     dk_j = scale sum_i ds_ij q_i
// Sums over i run over all query heads of a kv head. dq, dk, dv are overwritten.
template <class T>
void attention_bwd(const AttentionDims<T>& d, const T* q, const T* k, const T* v, const T* o, const T* lse,
                   const T* dout, size_t n, T* dq, T* dk, T* dv) {
  using std::exp, std::real;
  for (size_t i = 0; i < n * d.heads * d.dk; ++i) dq[i] = T(0);
  for (size_t i = 0; i < n * d.kv_heads * d.dk; ++i) dk[i] = T(0);
  for (size_t i = 0; i < n * d.kv_heads * d.dv; ++i) dv[i] = T(0);
  for (size_t i = 0; i < n; ++i)
    for (size_t h = 0; h < d.heads; ++h) {
      const size_t hq = i * d.heads + h;
      if (real(lse[hq]) == -HUGE_VAL) continue;  // saw nothing
      T delta{};
      for (size_t e = 0; e < d.dv; ++e) delta += dout[hq * d.dv + e] * o[hq * d.dv + e];
      for (size_t j = 0; j < n; ++j) {
        if (!attention_sees(d, static_cast<int64_t>(i), static_cast<int64_t>(j))) continue;
        const size_t hk = j * d.kv_heads + d.kv_head(h);
        T s{}, dp{};
        for (size_t e = 0; e < d.dk; ++e) s += d.scale * q[hq * d.dk + e] * k[hk * d.dk + e];
        for (size_t e = 0; e < d.dv; ++e) dp += dout[hq * d.dv + e] * v[hk * d.dv + e];
        const T f = d.factor(i, h, static_cast<int64_t>(j)), p = exp(s - lse[hq]),
                ds = d.scale * p * (f * dp - delta);
        for (size_t e = 0; e < d.dv; ++e) dv[hk * d.dv + e] += f * p * dout[hq * d.dv + e];
        for (size_t e = 0; e < d.dk; ++e) dq[hq * d.dk + e] += ds * k[hk * d.dk + e];
        for (size_t e = 0; e < d.dk; ++e) dk[hk * d.dk + e] += ds * q[hq * d.dk + e];
      }
    }
}

}  // namespace braid::ref
