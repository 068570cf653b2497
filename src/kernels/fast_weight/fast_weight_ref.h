// The definition of the fast-weight recurrence, on any number type. Backward is below forward.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>
#include <vector>

#include "kernels/fast_weight/fast_weight.h"

namespace braid::ref {

template <class T>
struct FastWeightDims {
  size_t value_heads, key_heads, dk, dv;
  FastWeightDecay decay;
  FastWeightWrite write;
  T scale;
  size_t key_head(size_t head) const { return head / (value_heads / key_heads); }
  bool delta() const { return write == FastWeightWrite::kDelta; }
  size_t g_count(size_t n) const {
    switch (decay) {
      case FastWeightDecay::kNone:
        return 0;
      case FastWeightDecay::kHead:
        return value_heads;
      case FastWeightDecay::kToken:
        return n * value_heads;
      case FastWeightDecay::kChannel:
        return n * value_heads * dk;
    }
    return 0;
  }
  // Which number of g holds at time t for key channel i of a head. Not for kNone.
  size_t g_at(size_t t, size_t head, size_t i) const {
    if (decay == FastWeightDecay::kHead) return head;
    return decay == FastWeightDecay::kToken ? t * value_heads + head : (t * value_heads + head) * dk + i;
  }
};

// One sequence of n tokens: q, k [n, key_heads*dk], v [n, value_heads*dv], beta [n, value_heads] (delta), g
// as the decay says, s0 [value_heads, dk, dv] or null for zeros.
template <class T>
struct FastWeightArgs {
  const T *q, *k, *v, *g, *beta, *s0;
};

// S: [dk, dv] becomes alpha S; the error e = v - S^T k of the decayed state (delta) or v; then S + k u^T.
template <class T>
void fast_weight_step(const FastWeightDims<T>& d, const FastWeightArgs<T>& in, size_t t, size_t h, T* S,
                      T* e) {
  using std::exp;
  const T* k = in.k + (t * d.key_heads + d.key_head(h)) * d.dk;
  if (d.decay != FastWeightDecay::kNone)
    for (size_t i = 0; i < d.dk; ++i) {
      const T alpha = exp(in.g[d.g_at(t, h, i)]);
      for (size_t j = 0; j < d.dv; ++j) S[i * d.dv + j] *= alpha;
    }
  for (size_t j = 0; j < d.dv; ++j) {
    e[j] = in.v[(t * d.value_heads + h) * d.dv + j];
    if (d.delta())
      for (size_t i = 0; i < d.dk; ++i) e[j] -= S[i * d.dv + j] * k[i];
  }
  const T beta = d.delta() ? in.beta[t * d.value_heads + h] : T(1);
  for (size_t i = 0; i < d.dk; ++i)
    for (size_t j = 0; j < d.dv; ++j) S[i * d.dv + j] += k[i] * beta * e[j];
}

// o: [n, value_heads*dv]; s_end: [value_heads, dk, dv] or null; emitted: [n / every, value_heads, dk, dv],
// the states after every, 2 every, .. tokens, or null.
template <class T>
void fast_weight_fwd(const FastWeightDims<T>& d, size_t n, const FastWeightArgs<T>& in, T* o, T* s_end,
                     size_t every = 0, T* emitted = nullptr) {
  const size_t size = d.dk * d.dv;
  std::vector<T> S(size), e(d.dv);
  for (size_t h = 0; h < d.value_heads; ++h) {
    for (size_t x = 0; x < size; ++x) S[x] = in.s0 ? in.s0[h * size + x] : T(0);
    for (size_t t = 0; t < n; ++t) {
      fast_weight_step(d, in, t, h, S.data(), e.data());
      const T* q = in.q + (t * d.key_heads + d.key_head(h)) * d.dk;
      for (size_t j = 0; j < d.dv; ++j) {
        T sum{};
        for (size_t i = 0; i < d.dk; ++i) sum += S[i * d.dv + j] * q[i];
        o[(t * d.value_heads + h) * d.dv + j] = d.scale * sum;
      }
      if (emitted && (t + 1) % every == 0)
        for (size_t x = 0; x < size; ++x)
          emitted[(((t + 1) / every - 1) * d.value_heads + h) * size + x] = S[x];
    }
    if (s_end)
      for (size_t x = 0; x < size; ++x) s_end[h * size + x] = S[x];
  }
}

template <class T>
struct FastWeightGrads {
  T *dq, *dk, *dv, *dg, *dbeta, *ds0;  // like the inputs, all overwritten; ds0 may be null
};

// Backwards in time with dS, the gradient of the state after token t:
//   dS += scale q do^T     dq = scale S do     du = dS^T k     dk = dS u
//   delta:  dbeta = du . e     dv = beta du     dk -= beta S~ du     dS -= beta k du^T
//   additive:  dv = du
//   dg_i = sum_j dS_ij S~_ij     dS = alpha dS, on to token t - 1
// S~ is the decayed state, e and u what the step wrote; dg is summed over whatever shares one g.
template <class T>
void fast_weight_bwd(const FastWeightDims<T>& d, size_t n, const FastWeightArgs<T>& in, const T* dout,
                     const T* ds_end, const FastWeightGrads<T>& out, size_t every = 0,
                     const T* d_emitted = nullptr) {
  using std::exp;
  const size_t size = d.dk * d.dv;
  for (size_t x = 0; x < n * d.key_heads * d.dk; ++x) out.dq[x] = out.dk[x] = T(0);
  for (size_t x = 0; x < d.g_count(n); ++x) out.dg[x] = T(0);
  std::vector<T> S((n + 1) * size), E(n * d.dv), dS(size), du(d.dv);
  for (size_t h = 0; h < d.value_heads; ++h) {
    for (size_t x = 0; x < size; ++x) {
      S[x] = in.s0 ? in.s0[h * size + x] : T(0);
      dS[x] = ds_end ? ds_end[h * size + x] : T(0);
    }
    for (size_t t = 0; t < n; ++t) {
      for (size_t x = 0; x < size; ++x) S[(t + 1) * size + x] = S[t * size + x];
      fast_weight_step(d, in, t, h, &S[(t + 1) * size], &E[t * d.dv]);
    }
    for (size_t t = n; t-- > 0;) {
      const size_t key = (t * d.key_heads + d.key_head(h)) * d.dk, value = (t * d.value_heads + h) * d.dv;
      const T *q = in.q + key, *k = in.k + key, *up = dout + value, *e = &E[t * d.dv],
              *after = &S[(t + 1) * size], *before = &S[t * size];
      const T beta = d.delta() ? in.beta[t * d.value_heads + h] : T(1);
      if (d_emitted && (t + 1) % every == 0)
        for (size_t x = 0; x < size; ++x)
          dS[x] += d_emitted[(((t + 1) / every - 1) * d.value_heads + h) * size + x];
      for (size_t j = 0; j < d.dv; ++j) du[j] = T(0);
      for (size_t i = 0; i < d.dk; ++i)
        for (size_t j = 0; j < d.dv; ++j) {
          const size_t x = i * d.dv + j;
          dS[x] += d.scale * q[i] * up[j];
          out.dq[key + i] += d.scale * after[x] * up[j];
          du[j] += dS[x] * k[i];
          out.dk[key + i] += dS[x] * beta * e[j];
        }
      T dbeta{};
      for (size_t j = 0; j < d.dv; ++j) {
        dbeta += du[j] * e[j];
        out.dv[value + j] = beta * du[j];
      }
      if (d.delta()) out.dbeta[t * d.value_heads + h] = dbeta;
      for (size_t i = 0; i < d.dk; ++i) {
        const bool decays = d.decay != FastWeightDecay::kNone;
        const T alpha = decays ? exp(in.g[d.g_at(t, h, i)]) : T(1);
        for (size_t j = 0; j < d.dv; ++j) {
          const size_t x = i * d.dv + j;
          const T decayed = alpha * before[x];
          if (d.delta()) {
            out.dk[key + i] -= beta * decayed * du[j];
            dS[x] -= beta * k[i] * du[j];
          }
          if (decays) out.dg[d.g_at(t, h, i)] += dS[x] * decayed;
          dS[x] *= alpha;
        }
      }
    }
    if (out.ds0)
      for (size_t x = 0; x < size; ++x) out.ds0[h * size + x] = dS[x];
  }
}

}  // namespace braid::ref
