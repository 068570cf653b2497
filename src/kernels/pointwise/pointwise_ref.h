// The definitions of pointwise, number by number, on any number type. Each backward is below its forward.
#pragma once

#include <cmath>
#include <complex>
#include <cstddef>

#include "kernels/common/ref_math.h"
#include "kernels/pointwise/pointwise.h"

namespace braid::ref {

inline constexpr double kGeluRoot = 0.7978845608028654, kGeluCube = 0.044715;  // sqrt(2 / pi)

template <class T>
T map(Map f, T x) {
  using std::exp;
  switch (f) {
    case Map::kIdentity:
      return x;
    case Map::kSilu:
      return x * sigmoid(x);
    case Map::kSigmoid:
      return sigmoid(x);
    case Map::kRelu:
      return real_part(x) > 0 ? x : T(0);
    case Map::kElu1:
      return real_part(x) > 0 ? x + T(1) : exp(x);
    case Map::kSoftplus:
      return softplus(x);
    case Map::kLogSigmoid:
      return -softplus(-x);
    case Map::kGelu:  // (1 + tanh(u)) / 2 = sigmoid(2 u)
      return x * sigmoid(T(2 * kGeluRoot) * (x + T(kGeluCube) * x * x * x));
  }
  return x;
}

template <class T>
T map_slope(Map f, T x) {
  using std::exp;
  const T s = sigmoid(x);
  switch (f) {
    case Map::kIdentity:
      return T(1);
    case Map::kSilu:
      return s * (T(1) + x * (T(1) - s));
    case Map::kSigmoid:
      return s * (T(1) - s);
    case Map::kRelu:
      return real_part(x) > 0 ? T(1) : T(0);
    case Map::kElu1:
      return real_part(x) > 0 ? T(1) : exp(x);
    case Map::kSoftplus:
      return s;
    case Map::kLogSigmoid:
      return T(1) - s;
    case Map::kGelu: {
      const T u = T(2 * kGeluRoot) * (x + T(kGeluCube) * x * x * x), g = sigmoid(u);
      return g + x * g * (T(1) - g) * T(2 * kGeluRoot) * (T(1) + T(3 * kGeluCube) * x * x);
    }
  }
  return T(1);
}

// One head: x, y [n].
template <class T>
void scale_head_fwd(const T* x, T s, bool divide, T eps, T* y, size_t n) {
  const T r = divide ? T(1) / (s + eps) : s;
  for (size_t i = 0; i < n; ++i) y[i] = x[i] * r;
}

template <class T>  // dx = dy r     ds = sum dy x, times -r^2 for a divisor
void scale_head_bwd(const T* x, T s, bool divide, T eps, const T* dy, T* dx, T* ds, size_t n) {
  const T r = divide ? T(1) / (s + eps) : s;
  T sum{};
  for (size_t i = 0; i < n; ++i) {
    sum += dy[i] * x[i];
    dx[i] = dy[i] * r;
  }
  *ds = divide ? -r * r * sum : sum;
}

template <class T>
T blend(T a, T b, T z) {
  const T s = sigmoid(z);
  return s * a + (T(1) - s) * b;
}

template <class T>
void blend_bwd(T a, T b, T z, T dy, T* da, T* db, T* dz) {
  const T s = sigmoid(z);
  *da = dy * s;
  *db = dy * (T(1) - s);
  *dz = dy * (a - b) * s * (T(1) - s);
}

template <class T>
T decay(T a_log, T dt) {
  using std::exp;
  return -exp(a_log) * dt;
}  // ddt = -exp(a_log) dg     da_log = sum dg g

template <class T>
void forget(T x, T low, T* g, T* k) {
  using std::log;
  const T f = low + (T(1) - low) * sigmoid(x);
  *g = log(f);
  *k = T(1) - f;
}

template <class T>  // df = dg / f - dk     dx = df (1 - low) s (1 - s)     dlow = df (1 - s)
void forget_bwd(T x, T low, T dg, T dk, T* dx, T* dlow) {
  const T s = sigmoid(x), f = low + (T(1) - low) * s, df = dg / f - dk;
  *dx = df * (T(1) - low) * s * (T(1) - s);
  *dlow = df * (T(1) - s);
}

// One head: x, y [n].
template <class T>
void l1norm_fwd(const T* x, T eps, T* y, size_t n) {
  T sum{};
  for (size_t i = 0; i < n; ++i) sum += real_part(x[i]) < 0 ? -x[i] : x[i];
  const T divisor = real_part(sum) > real_part(eps) ? sum : eps;
  for (size_t i = 0; i < n; ++i) y[i] = x[i] / divisor;
}

template <class T>  // dx = (dy - sign(x) (dy . y)) / sum |x|, or dy / eps
void l1norm_bwd(const T* x, T eps, const T* dy, T* dx, size_t n) {
  T sum{}, dot{};
  for (size_t i = 0; i < n; ++i) {
    sum += real_part(x[i]) < 0 ? -x[i] : x[i];
    dot += dy[i] * x[i];
  }
  if (real_part(sum) <= real_part(eps)) sum = eps, dot = T(0);
  for (size_t i = 0; i < n; ++i) {
    const T sign = real_part(x[i]) < 0 ? T(-1) : real_part(x[i]) > 0 ? T(1) : T(0);
    dx[i] = (dy[i] - sign * dot / sum) / sum;
  }
}

// One column of P: [layers].
template <class T>
T lower_bound(const T* P, size_t stride, size_t layers, size_t layer) {
  using std::exp;
  double most = real_part(P[0]);
  for (size_t j = 1; j < layers; ++j)
    most = real_part(P[j * stride]) > most ? real_part(P[j * stride]) : most;
  T sum{}, part{};
  for (size_t j = 0; j < layers; ++j) {
    const T e = exp(P[j * stride] - T(most));
    sum += e;
    if (j >= 1 && j <= layer) part += e;
  }
  return part / sum;
}

template <class T>  // dP_j += dlow p_j ([1 <= j <= layer] - low)
void lower_bound_bwd(const T* P, size_t stride, size_t layers, size_t layer, T dlow, T* dP, size_t dstride) {
  using std::exp;
  double most = real_part(P[0]);
  for (size_t j = 1; j < layers; ++j)
    most = real_part(P[j * stride]) > most ? real_part(P[j * stride]) : most;
  T sum{};
  for (size_t j = 0; j < layers; ++j) sum += exp(P[j * stride] - T(most));
  const T low = lower_bound(P, stride, layers, layer);
  for (size_t j = 0; j < layers; ++j)
    dP[j * dstride] +=
        dlow * exp(P[j * stride] - T(most)) / sum * ((j >= 1 && j <= layer ? T(1) : T(0)) - low);
}

}  // namespace braid::ref
