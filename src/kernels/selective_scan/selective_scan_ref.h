// The definition of selective_scan, on any number type. Backward is below forward.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>
#include <vector>

namespace braid::ref {

struct SelectiveScanDims {
  size_t tokens, channels, state;
};

template <class T>
struct SelectiveScanArgs {  // of one sequence, dense
  const T *x, *dt;          // [tokens, channels]
  const T* A;               // [channels, state]
  const T *B, *C;           // [tokens, state]
  const T* skip;            // [channels] or null
  const T* h0;              // [channels, state] or null
  double low = 0;
};

// y [tokens, channels]; last [channels, state] or null.
template <class T>
void selective_scan_fwd(const SelectiveScanDims& n, const SelectiveScanArgs<T>& in, T* y, T* last) {
  using std::exp;
  const size_t D = n.channels, S = n.state;
  std::vector<T> h(D * S, T(0));
  if (in.h0) h.assign(in.h0, in.h0 + D * S);
  for (size_t t = 0; t < n.tokens; ++t)
    for (size_t d = 0; d < D; ++d) {
      const T x = in.x[t * D + d], dt = in.dt[t * D + d];
      T sum{};
      for (size_t s = 0; s < S; ++s) {
        T& hs = h[d * S + s];
        const T a = in.low + (1 - in.low) * exp(dt * in.A[d * S + s]);
        hs = a * hs + dt * in.B[t * S + s] * x;
        sum += in.C[t * S + s] * hs;
      }
      y[t * D + d] = in.skip ? sum + in.skip[d] * x : sum;
    }
  for (size_t i = 0; last && i < D * S; ++i) last[i] = h[i];
}

template <class T>
struct SelectiveScanGrads {
  T *dx, *ddt;  // overwritten
  T* dA;        // added to
  T *dB, *dC;   // overwritten
  T* dskip;     // added to
  T* dh0;       // overwritten
};

// With g_t = d loss / d h_t, which is C_t dy_t plus what comes back from t + 1, a_{t+1} g_{t+1}:
//   dC_t = sum_d dy_t h_t     dB_t = sum_d g_t dt_t x_t     dx_t = skip dy_t + dt_t sum_s g_t B_t
//   ddt_t = sum_s g_t (A (a_t - low) h_{t-1} + B_t x_t)     dA = sum_t g_t dt_t (a_t - low) h_{t-1}
// dlast may be null.
template <class T>
void selective_scan_bwd(const SelectiveScanDims& n, const SelectiveScanArgs<T>& in, const T* dy,
                        const T* dlast, const SelectiveScanGrads<T>& out) {
  using std::exp;
  const size_t D = n.channels, S = n.state;
  std::vector<T> h((n.tokens + 1) * D * S, T(0)), g(D * S, T(0));
  for (size_t i = 0; i < D * S; ++i) {
    if (in.h0) h[i] = in.h0[i];
    if (dlast) g[i] = dlast[i];
  }
  for (size_t t = 0; t < n.tokens; ++t)
    for (size_t d = 0; d < D; ++d)
      for (size_t s = 0; s < S; ++s)
        h[((t + 1) * D + d) * S + s] =
            (in.low + (1 - in.low) * exp(in.dt[t * D + d] * in.A[d * S + s])) * h[(t * D + d) * S + s] +
            in.dt[t * D + d] * in.B[t * S + s] * in.x[t * D + d];
  for (size_t i = 0; i < n.tokens * S; ++i) out.dB[i] = out.dC[i] = T(0);
  for (size_t t = n.tokens; t-- > 0;)
    for (size_t d = 0; d < D; ++d) {
      const T x = in.x[t * D + d], dt = in.dt[t * D + d], up = dy[t * D + d];
      T dx{}, ddt{};
      for (size_t s = 0; s < S; ++s) {
        const T A = in.A[d * S + s], moved = (1 - in.low) * exp(dt * A), before = h[(t * D + d) * S + s],
                B = in.B[t * S + s];
        T& gs = g[d * S + s];
        gs += in.C[t * S + s] * up;
        out.dC[t * S + s] += up * h[((t + 1) * D + d) * S + s];
        out.dB[t * S + s] += gs * dt * x;
        dx += gs * dt * B;
        ddt += gs * (A * moved * before + B * x);
        out.dA[d * S + s] += gs * dt * moved * before;
        gs *= in.low + moved;
      }
      out.dskip[d] += up * x;
      out.dx[t * D + d] = in.skip ? dx + in.skip[d] * up : dx;
      out.ddt[t * D + d] = ddt;
    }
  for (size_t i = 0; i < D * S; ++i) out.dh0[i] = g[i];
}

}  // namespace braid::ref
