#include "kernels/pointwise/pointwise.h"

#include <algorithm>
#include <vector>

#include "kernels/pointwise/pointwise_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/pointwise/pointwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

template <Map M, class D, class V = hn::Vec<D>>
HWY_INLINE V map_v(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  if constexpr (M == Map::kSilu) return silu_v(d, x);
  if constexpr (M == Map::kSigmoid) return sigmoid_v(d, x);
  if constexpr (M == Map::kRelu) return hn::Max(x, hn::Zero(d));
  if constexpr (M == Map::kElu1)
    return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), hn::Add(x, one), exp_v(d, hn::Min(x, hn::Zero(d))));
  if constexpr (M == Map::kSoftplus) return softplus_v(d, x);
  if constexpr (M == Map::kLogSigmoid) return hn::Neg(softplus_v(d, hn::Neg(x)));
  if constexpr (M == Map::kGelu) {
    const V cube = hn::Mul(hn::Mul(x, x), hn::Set(d, static_cast<float>(ref::kGeluCube)));
    const V u = hn::Mul(hn::Set(d, static_cast<float>(2 * ref::kGeluRoot)), hn::MulAdd(cube, x, x));
    return hn::Mul(x, sigmoid_v(d, u));
  }
  return x;
}

template <Map M, class D, class V = hn::Vec<D>>
HWY_INLINE V slope_v(D d, V x) {
  const V one = hn::Set(d, 1.0f), zero = hn::Zero(d);
  if constexpr (M == Map::kSilu) {
    const V s = sigmoid_v(d, x);
    return hn::Mul(s, hn::MulAdd(x, hn::Sub(one, s), one));
  }
  if constexpr (M == Map::kSigmoid) {
    const V s = sigmoid_v(d, x);
    return hn::Mul(s, hn::Sub(one, s));
  }
  if constexpr (M == Map::kRelu) return hn::IfThenElseZero(hn::Gt(x, zero), one);
  if constexpr (M == Map::kElu1) return hn::IfThenElse(hn::Gt(x, zero), one, exp_v(d, hn::Min(x, zero)));
  if constexpr (M == Map::kSoftplus) return sigmoid_v(d, x);
  if constexpr (M == Map::kLogSigmoid) return sigmoid_v(d, hn::Neg(x));
  if constexpr (M == Map::kGelu) {
    const V square = hn::Mul(hn::Mul(x, x), hn::Set(d, static_cast<float>(ref::kGeluCube)));
    const V root = hn::Set(d, static_cast<float>(2 * ref::kGeluRoot));
    const V g = sigmoid_v(d, hn::Mul(root, hn::MulAdd(square, x, x)));
    const V inner = hn::Mul(root, hn::MulAdd(square, hn::Set(d, 3.0f), one));
    return hn::MulAdd(hn::Mul(hn::Mul(x, g), hn::Sub(one, g)), inner, g);
  }
  return one;
}

// Calls f with the map as a template argument, so that no loop asks which it is.
template <class F>
HWY_INLINE void with_map(Map map, const F& f) {
  switch (map) {
    case Map::kIdentity:
      return f.template operator()<Map::kIdentity>();
    case Map::kSilu:
      return f.template operator()<Map::kSilu>();
    case Map::kSigmoid:
      return f.template operator()<Map::kSigmoid>();
    case Map::kRelu:
      return f.template operator()<Map::kRelu>();
    case Map::kElu1:
      return f.template operator()<Map::kElu1>();
    case Map::kSoftplus:
      return f.template operator()<Map::kSoftplus>();
    case Map::kLogSigmoid:
      return f.template operator()<Map::kLogSigmoid>();
    case Map::kGelu:
      return f.template operator()<Map::kGelu>();
  }
}

template <class D>
HWY_INLINE hn::Vec<D> biased(D d, const MapIn& in, const float* x, size_t i) {
  const auto v = hn::LoadU(d, x + i);
  return in.bias ? hn::Add(v, hn::LoadU(d, in.bias + i)) : v;
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, float* to, Into mode) {
  hn::StoreU(mode == Into::kAdd ? hn::Add(v, hn::LoadU(d, to)) : v, d, to);
}

void map_fwd(const MapIn& in, Mat<float> y, size_t begin, size_t end) {
  with_map(in.map, [&]<Map M>() {
    for (size_t r = begin; r < end; ++r) {
      const float* x = in.x.row(r);
      float* to = y.row(r);
      for_lanes(in.x.cols, [&](auto d, size_t i) {
        hn::StoreU(hn::Mul(hn::Set(d, in.scale), map_v<M>(d, biased(d, in, x, i))), d, to + i);
      });
    }
  });
}

void map_dx(const MapIn& in, Mat<const float> dy, const MapGrad& out, size_t begin, size_t end) {
  with_map(in.map, [&]<Map M>() {
    for (size_t r = begin; r < end; ++r) {
      const float *x = in.x.row(r), *up = dy.row(r);
      float* to = out.dx.row(r);
      for_lanes(in.x.cols, [&](auto d, size_t i) {
        const auto v = hn::Mul(hn::LoadU(d, up + i), hn::Set(d, in.scale));
        store(d, hn::Mul(v, slope_v<M>(d, biased(d, in, x, i))), to + i, out.dx_mode);
      });
    }
  });
}

void map_dbias(const MapIn& in, Mat<const float> dy, const MapGrad& out, size_t begin, size_t end) {
  with_map(in.map, [&]<Map M>() {
    for (size_t r = 0; r < in.x.rows; ++r) {
      const float *x = in.x.row(r), *up = dy.row(r);
      for_lanes(end - begin, [&](auto d, size_t j) {
        const size_t i = begin + j;
        const auto v = hn::Mul(hn::LoadU(d, up + i), hn::Set(d, in.scale));
        store(d, hn::Mul(v, slope_v<M>(d, biased(d, in, x, i))), out.dbias + i, Into::kAdd);
      });
    }
  });
}

void scale_fwd(const ScaleHeadsIn& in, Mat<float> y, size_t begin, size_t end) {
  const size_t heads = in.s.cols, n = in.x.cols / heads;
  for (size_t r = begin; r < end; ++r) {
    if (n == 1 && !in.divide) {  // a plain product
      const float *x = in.x.row(r), *s = in.s.row(r);
      float* to = y.row(r);
      for_lanes(heads, [&](auto d, size_t i) {
        hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::LoadU(d, s + i)), d, to + i);
      });
      continue;
    }
    for (size_t h = 0; h < heads; ++h) {
      const float s = in.s.row(r)[h], factor = in.divide ? 1.0f / (s + in.eps) : s;
      const float* x = in.x.row(r) + h * n;
      float* to = y.row(r) + h * n;
      for_lanes(n, [&](auto d, size_t i) {
        hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, to + i);
      });
    }
  }
}

void scale_bwd(const ScaleHeadsIn& in, Mat<const float> dy, const ScaleHeadsGrad& out, size_t begin,
               size_t end) {
  const size_t heads = in.s.cols, n = in.x.cols / heads;
  for (size_t r = begin; r < end; ++r) {
    if (n == 1 && !in.divide) {
      const float *x = in.x.row(r), *s = in.s.row(r), *up = dy.row(r);
      for_lanes(heads, [&](auto d, size_t i) {
        const auto v = hn::LoadU(d, up + i), a = hn::LoadU(d, x + i), b = hn::LoadU(d, s + i);
        if (out.ds.data) store(d, hn::Mul(v, a), out.ds.row(r) + i, out.ds_mode);
        if (out.dx.data) store(d, hn::Mul(v, b), out.dx.row(r) + i, out.dx_mode);
      });
      continue;
    }
    for (size_t h = 0; h < heads; ++h) {
      const float s = in.s.row(r)[h], factor = in.divide ? 1.0f / (s + in.eps) : s;
      const float *x = in.x.row(r) + h * n, *up = dy.row(r) + h * n;
      if (out.ds.data) {
        const float sum = sum_lanes(
            n, [&](auto d, size_t i) { return hn::Mul(hn::LoadU(d, up + i), hn::LoadU(d, x + i)); });
        const float ds = in.divide ? -factor * factor * sum : sum;
        float& to = out.ds.row(r)[h];
        to = out.ds_mode == Into::kAdd ? to + ds : ds;
      }
      if (out.dx.data) {
        float* to = out.dx.row(r) + h * n;
        for_lanes(n, [&](auto d, size_t i) {
          store(d, hn::Mul(hn::LoadU(d, up + i), hn::Set(d, factor)), to + i, out.dx_mode);
        });
      }
    }
  }
}

void blend_fwd(const BlendIn& in, Mat<float> y, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    const float *a = in.a.row(r), *b = in.b.row(r), *z = in.z.row(r);
    float* to = y.row(r);
    for_lanes(in.a.cols, [&](auto d, size_t i) {
      const auto vb = hn::LoadU(d, b + i), s = sigmoid_v(d, hn::LoadU(d, z + i));
      const auto keep = hn::Mul(hn::Sub(hn::Set(d, 1.0f), s), vb);
      hn::StoreU(hn::MulAdd(s, hn::LoadU(d, a + i), keep), d, to + i);
    });
  }
}

void blend_bwd(const BlendIn& in, Mat<const float> dy, const BlendGrad& out, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    const float *a = in.a.row(r), *b = in.b.row(r), *z = in.z.row(r), *up = dy.row(r);
    for_lanes(in.a.cols, [&](auto d, size_t i) {
      const auto s = sigmoid_v(d, hn::LoadU(d, z + i)), rest = hn::Sub(hn::Set(d, 1.0f), s);
      const auto v = hn::LoadU(d, up + i), da = hn::Mul(v, s), db = hn::Mul(v, rest);
      const auto difference = hn::Sub(hn::LoadU(d, a + i), hn::LoadU(d, b + i));
      if (out.dz.data) hn::StoreU(hn::Mul(hn::Mul(da, rest), difference), d, out.dz.row(r) + i);
      if (out.da.data) hn::StoreU(da, d, out.da.row(r) + i);
      if (out.db.data) hn::StoreU(db, d, out.db.row(r) + i);
    });
  }
}

void decay_rows(const DecayIn& in, Mat<const float> from, Mat<float> to, Into mode, size_t begin,
                size_t end) {
  const size_t n = from.cols / in.heads;
  for (size_t h = 0; h < in.heads; ++h) {
    const float rate = -std::exp(in.a_log[h]);
    for (size_t r = begin; r < end; ++r) {
      const float* x = from.row(r) + h * n;
      float* y = to.row(r) + h * n;
      for_lanes(n, [&](auto d, size_t i) {
        store(d, hn::Mul(hn::Set(d, rate), hn::LoadU(d, x + i)), y + i, mode);
      });
    }
  }
}

void decay_fwd(const DecayIn& in, Mat<float> g, size_t begin, size_t end) {
  decay_rows(in, in.dt, g, Into::kOverwrite, begin, end);
}

void decay_ddt(const DecayIn& in, Mat<const float> dg, const DecayGrad& out, size_t begin, size_t end) {
  decay_rows(in, dg, out.ddt, out.ddt_mode, begin, end);
}

void decay_da(const DecayIn& in, Mat<const float> dg, const DecayGrad& out, size_t begin, size_t end) {
  const size_t n = dg.cols / in.heads;
  for (size_t h = begin; h < end; ++h) {
    double sum = 0;
    for (size_t r = 0; r < dg.rows; ++r) {
      const float *up = dg.row(r) + h * n, *dt = in.dt.row(r) + h * n;
      sum += static_cast<double>(sum_lanes(
          n, [&](auto d, size_t i) { return hn::Mul(hn::LoadU(d, up + i), hn::LoadU(d, dt + i)); }));
    }
    out.da_log[h] += static_cast<float>(-std::exp(in.a_log[h]) * sum);
  }
}

constexpr float kSmallest = 0x1p-126f;  // the logarithm's argument never gets below

void forget_fwd(const ForgetIn& in, Mat<float> g, Mat<float> k, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    const float* x = in.x.row(r);
    for_lanes(in.x.cols, [&](auto d, size_t i) {
      const auto one = hn::Set(d, 1.0f), low = hn::LoadU(d, in.low + i), rest = hn::Sub(one, low);
      const auto v = hn::LoadU(d, x + i);
      const auto f = hn::MulAdd(rest, sigmoid_v(d, v), low);
      hn::StoreU(log_normal_v(d, hn::Max(f, hn::Set(d, kSmallest))), d, g.row(r) + i);
      hn::StoreU(hn::Mul(rest, sigmoid_v(d, hn::Neg(v))), d, k.row(r) + i);
    });
  }
}

// df = dg / f - dk, and what x and low change in f.
template <class D>
HWY_INLINE void forget_slopes(D d, const ForgetIn& in, Mat<const float> dg, Mat<const float> dk, size_t r,
                              size_t i, hn::Vec<D>& dx, hn::Vec<D>& dlow) {
  const auto one = hn::Set(d, 1.0f), low = hn::LoadU(d, in.low + i), rest = hn::Sub(one, low);
  const auto v = hn::LoadU(d, in.x.row(r) + i), s = sigmoid_v(d, v), t = sigmoid_v(d, hn::Neg(v));
  const auto f = hn::Max(hn::MulAdd(rest, s, low), hn::Set(d, kSmallest));
  const auto df = hn::Sub(hn::Div(hn::LoadU(d, dg.row(r) + i), f), hn::LoadU(d, dk.row(r) + i));
  dlow = hn::Mul(df, t);
  dx = hn::Mul(hn::Mul(dlow, rest), s);
}

void forget_dx(const ForgetIn& in, Mat<const float> dg, Mat<const float> dk, const ForgetGrad& out,
               size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r)
    for_lanes(in.x.cols, [&](auto d, size_t i) {
      hn::Vec<decltype(d)> dx, dlow;
      forget_slopes(d, in, dg, dk, r, i, dx, dlow);
      store(d, dx, out.dx.row(r) + i, out.dx_mode);
    });
}

void forget_dlow(const ForgetIn& in, Mat<const float> dg, Mat<const float> dk, const ForgetGrad& out,
                 size_t begin, size_t end) {
  for (size_t r = 0; r < in.x.rows; ++r)
    for_lanes(end - begin, [&](auto d, size_t j) {
      hn::Vec<decltype(d)> dx, dlow;
      forget_slopes(d, in, dg, dk, r, begin + j, dx, dlow);
      store(d, dlow, out.dlow + begin + j, Into::kAdd);
    });
}

void l1_fwd(const L1NormIn& in, Mat<float> y, size_t begin, size_t end) {
  const size_t n = in.x.cols / in.heads;
  for (size_t r = begin; r < end; ++r)
    for (size_t h = 0; h < in.heads; ++h) {
      const float* x = in.x.row(r) + h * n;
      float* to = y.row(r) + h * n;
      const float sum = sum_lanes(n, [&](auto d, size_t i) { return hn::Abs(hn::LoadU(d, x + i)); });
      const float factor = 1.0f / std::max(sum, in.eps);
      for_lanes(n, [&](auto d, size_t i) {
        hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, to + i);
      });
    }
}

void l1_bwd(const L1NormIn& in, Mat<const float> dy, Mat<float> dx, Into mode, size_t begin, size_t end) {
  const size_t n = in.x.cols / in.heads;
  for (size_t r = begin; r < end; ++r)
    for (size_t h = 0; h < in.heads; ++h) {
      const float *x = in.x.row(r) + h * n, *up = dy.row(r) + h * n;
      float* to = dx.row(r) + h * n;
      const float sum = sum_lanes(n, [&](auto d, size_t i) { return hn::Abs(hn::LoadU(d, x + i)); });
      const float dot =
          sum_lanes(n, [&](auto d, size_t i) { return hn::Mul(hn::LoadU(d, up + i), hn::LoadU(d, x + i)); });
      const float factor = 1.0f / std::max(sum, in.eps), back = sum > in.eps ? dot * factor : 0.0f;
      for_lanes(n, [&](auto d, size_t i) {
        const auto v = hn::LoadU(d, x + i), pull = hn::Set(d, back);
        const auto signed_pull = hn::IfThenElse(hn::Gt(v, hn::Zero(d)), pull,
                                                hn::IfThenElseZero(hn::Lt(v, hn::Zero(d)), hn::Neg(pull)));
        store(d, hn::Mul(hn::Sub(hn::LoadU(d, up + i), signed_pull), hn::Set(d, factor)), to + i, mode);
      });
    }
}

}  // namespace

constexpr PointwiseFns kFns{map_fwd,    map_dx,    map_dbias,   scale_fwd, scale_bwd,
                            blend_fwd,  blend_bwd, decay_fwd,   decay_ddt, decay_da,
                            forget_fwd, forget_dx, forget_dlow, l1_fwd,    l1_bwd};

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

constexpr size_t kRowBlock = 32;  // rows per task
constexpr size_t kColBlock = 64;  // columns per task of a sum over rows

void put(float& to, float v, Into mode) { to = mode == Into::kAdd ? to + v : v; }

namespace plain {

void map_fwd(const MapIn& in, Mat<float> y, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r)
    for (size_t i = 0; i < in.x.cols; ++i)
      y.row(r)[i] = in.scale * ref::map<float>(in.map, in.x.row(r)[i] + (in.bias ? in.bias[i] : 0));
}
float map_slope(const MapIn& in, Mat<const float> dy, size_t r, size_t i) {
  return in.scale * dy.row(r)[i] * ref::map_slope<float>(in.map, in.x.row(r)[i] + (in.bias ? in.bias[i] : 0));
}
void map_dx(const MapIn& in, Mat<const float> dy, const MapGrad& out, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r)
    for (size_t i = 0; i < in.x.cols; ++i) put(out.dx.row(r)[i], map_slope(in, dy, r, i), out.dx_mode);
}
void map_dbias(const MapIn& in, Mat<const float> dy, const MapGrad& out, size_t begin, size_t end) {
  for (size_t r = 0; r < in.x.rows; ++r)
    for (size_t i = begin; i < end; ++i) out.dbias[i] += map_slope(in, dy, r, i);
}

void scale_fwd(const ScaleHeadsIn& in, Mat<float> y, size_t begin, size_t end) {
  const size_t n = in.x.cols / in.s.cols;
  for (size_t r = begin; r < end; ++r)
    for (size_t h = 0; h < in.s.cols; ++h)
      ref::scale_head_fwd<float>(in.x.row(r) + h * n, in.s.row(r)[h], in.divide, in.eps, y.row(r) + h * n, n);
}
void scale_bwd(const ScaleHeadsIn& in, Mat<const float> dy, const ScaleHeadsGrad& out, size_t begin,
               size_t end) {
  const size_t n = in.x.cols / in.s.cols;
  std::vector<float> dx(n);
  for (size_t r = begin; r < end; ++r)
    for (size_t h = 0; h < in.s.cols; ++h) {
      float ds;
      ref::scale_head_bwd<float>(in.x.row(r) + h * n, in.s.row(r)[h], in.divide, in.eps, dy.row(r) + h * n,
                                 dx.data(), &ds, n);
      if (out.ds.data) put(out.ds.row(r)[h], ds, out.ds_mode);
      for (size_t i = 0; out.dx.data && i < n; ++i) put(out.dx.row(r)[h * n + i], dx[i], out.dx_mode);
    }
}

void blend_fwd(const BlendIn& in, Mat<float> y, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r)
    for (size_t i = 0; i < in.a.cols; ++i)
      y.row(r)[i] = ref::blend<float>(in.a.row(r)[i], in.b.row(r)[i], in.z.row(r)[i]);
}
void blend_bwd(const BlendIn& in, Mat<const float> dy, const BlendGrad& out, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r)
    for (size_t i = 0; i < in.a.cols; ++i) {
      float da, db, dz;
      ref::blend_bwd<float>(in.a.row(r)[i], in.b.row(r)[i], in.z.row(r)[i], dy.row(r)[i], &da, &db, &dz);
      if (out.da.data) out.da.row(r)[i] = da;
      if (out.db.data) out.db.row(r)[i] = db;
      if (out.dz.data) out.dz.row(r)[i] = dz;
    }
}

void decay_fwd(const DecayIn& in, Mat<float> g, size_t begin, size_t end) {
  const size_t n = in.dt.cols / in.heads;
  for (size_t r = begin; r < end; ++r)
    for (size_t i = 0; i < in.dt.cols; ++i) g.row(r)[i] = ref::decay<float>(in.a_log[i / n], in.dt.row(r)[i]);
}
void decay_ddt(const DecayIn& in, Mat<const float> dg, const DecayGrad& out, size_t begin, size_t end) {
  const size_t n = dg.cols / in.heads;
  for (size_t r = begin; r < end; ++r)
    for (size_t i = 0; i < dg.cols; ++i)
      put(out.ddt.row(r)[i], ref::decay<float>(in.a_log[i / n], dg.row(r)[i]), out.ddt_mode);
}
void decay_da(const DecayIn& in, Mat<const float> dg, const DecayGrad& out, size_t begin, size_t end) {
  const size_t n = dg.cols / in.heads;
  for (size_t h = begin; h < end; ++h) {
    double sum = 0;
    for (size_t r = 0; r < dg.rows; ++r)
      for (size_t i = h * n; i < (h + 1) * n; ++i)
        sum += dg.row(r)[i] * ref::decay<float>(in.a_log[h], in.dt.row(r)[i]);
    out.da_log[h] += static_cast<float>(sum);
  }
}

void forget_fwd(const ForgetIn& in, Mat<float> g, Mat<float> k, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r)
    for (size_t i = 0; i < in.x.cols; ++i)
      ref::forget<float>(in.x.row(r)[i], in.low[i], &g.row(r)[i], &k.row(r)[i]);
}
void forget_dx(const ForgetIn& in, Mat<const float> dg, Mat<const float> dk, const ForgetGrad& out,
               size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r)
    for (size_t i = 0; i < in.x.cols; ++i) {
      float dx, dlow;
      ref::forget_bwd<float>(in.x.row(r)[i], in.low[i], dg.row(r)[i], dk.row(r)[i], &dx, &dlow);
      put(out.dx.row(r)[i], dx, out.dx_mode);
    }
}
void forget_dlow(const ForgetIn& in, Mat<const float> dg, Mat<const float> dk, const ForgetGrad& out,
                 size_t begin, size_t end) {
  for (size_t r = 0; r < in.x.rows; ++r)
    for (size_t i = begin; i < end; ++i) {
      float dx, dlow;
      ref::forget_bwd<float>(in.x.row(r)[i], in.low[i], dg.row(r)[i], dk.row(r)[i], &dx, &dlow);
      out.dlow[i] += dlow;
    }
}

void l1_fwd(const L1NormIn& in, Mat<float> y, size_t begin, size_t end) {
  const size_t n = in.x.cols / in.heads;
  for (size_t r = begin; r < end; ++r)
    for (size_t h = 0; h < in.heads; ++h)
      ref::l1norm_fwd<float>(in.x.row(r) + h * n, in.eps, y.row(r) + h * n, n);
}
void l1_bwd(const L1NormIn& in, Mat<const float> dy, Mat<float> dx, Into mode, size_t begin, size_t end) {
  const size_t n = in.x.cols / in.heads;
  std::vector<float> d(n);
  for (size_t r = begin; r < end; ++r)
    for (size_t h = 0; h < in.heads; ++h) {
      ref::l1norm_bwd<float>(in.x.row(r) + h * n, in.eps, dy.row(r) + h * n, d.data(), n);
      for (size_t i = 0; i < n; ++i) put(dx.row(r)[h * n + i], d[i], mode);
    }
}

constexpr PointwiseFns kFns{map_fwd,    map_dx,    map_dbias,   scale_fwd, scale_bwd,
                            blend_fwd,  blend_bwd, decay_fwd,   decay_ddt, decay_da,
                            forget_fwd, forget_dx, forget_dlow, l1_fwd,    l1_bwd};

}  // namespace plain
}  // namespace

const Impls<PointwiseFns>& pointwise_impls() {
  static const Impls<PointwiseFns> table(
      "pointwise", {"avx512", Isa::kAvx512, &N_AVX3::kFns}, {"avx2", Isa::kAvx2, &N_AVX2::kFns},
      {"sse", Isa::kBase, &N_SSSE3::kFns}, {"ref", Isa::kBase, &plain::kFns});
  return table;
}

void map_fwd(const MapIn& in, Mat<float> y, Par par) {
  const PointwiseFns& f = pointwise_impls().use(par);
  par.blocks(in.x.rows, kRowBlock, [&](size_t b, size_t e) { f.map_fwd(in, y, b, e); });
}

void map_bwd(const MapIn& in, Mat<const float> dy, const MapGrad& out, Par par) {
  const PointwiseFns& f = pointwise_impls().use(par);
  // The bias first: dx may be written over dy.
  if (out.dbias)
    par.blocks(in.x.cols, kColBlock, [&](size_t b, size_t e) { f.map_dbias(in, dy, out, b, e); });
  if (out.dx.data) par.blocks(in.x.rows, kRowBlock, [&](size_t b, size_t e) { f.map_dx(in, dy, out, b, e); });
}

void scale_heads_fwd(const ScaleHeadsIn& in, Mat<float> y, Par par) {
  const PointwiseFns& f = pointwise_impls().use(par);
  par.blocks(in.x.rows, kRowBlock, [&](size_t b, size_t e) { f.scale_fwd(in, y, b, e); });
}

void scale_heads_bwd(const ScaleHeadsIn& in, Mat<const float> dy, const ScaleHeadsGrad& out, Par par) {
  const PointwiseFns& f = pointwise_impls().use(par);
  par.blocks(in.x.rows, kRowBlock, [&](size_t b, size_t e) { f.scale_bwd(in, dy, out, b, e); });
}

void blend_fwd(const BlendIn& in, Mat<float> y, Par par) {
  const PointwiseFns& f = pointwise_impls().use(par);
  par.blocks(in.a.rows, kRowBlock, [&](size_t b, size_t e) { f.blend_fwd(in, y, b, e); });
}

void blend_bwd(const BlendIn& in, Mat<const float> dy, const BlendGrad& out, Par par) {
  const PointwiseFns& f = pointwise_impls().use(par);
  par.blocks(in.a.rows, kRowBlock, [&](size_t b, size_t e) { f.blend_bwd(in, dy, out, b, e); });
}

void decay_fwd(const DecayIn& in, Mat<float> g, Par par) {
  const PointwiseFns& f = pointwise_impls().use(par);
  par.blocks(in.dt.rows, kRowBlock, [&](size_t b, size_t e) { f.decay_fwd(in, g, b, e); });
}

void decay_bwd(const DecayIn& in, Mat<const float> dg, const DecayGrad& out, Par par) {
  const PointwiseFns& f = pointwise_impls().use(par);
  if (out.da_log) par.blocks(in.heads, 1, [&](size_t b, size_t e) { f.decay_da(in, dg, out, b, e); });
  if (out.ddt.data)
    par.blocks(dg.rows, kRowBlock, [&](size_t b, size_t e) { f.decay_ddt(in, dg, out, b, e); });
}

void forget_fwd(const ForgetIn& in, Mat<float> g, Mat<float> k, Par par) {
  const PointwiseFns& f = pointwise_impls().use(par);
  par.blocks(in.x.rows, kRowBlock, [&](size_t b, size_t e) { f.forget_fwd(in, g, k, b, e); });
}

void forget_bwd(const ForgetIn& in, Mat<const float> dg, Mat<const float> dk, const ForgetGrad& out,
                Par par) {
  const PointwiseFns& f = pointwise_impls().use(par);
  if (out.dlow)
    par.blocks(in.x.cols, kColBlock, [&](size_t b, size_t e) { f.forget_dlow(in, dg, dk, out, b, e); });
  if (out.dx.data)
    par.blocks(in.x.rows, kRowBlock, [&](size_t b, size_t e) { f.forget_dx(in, dg, dk, out, b, e); });
}

void l1norm_fwd(const L1NormIn& in, Mat<float> y, Par par) {
  const PointwiseFns& f = pointwise_impls().use(par);
  par.blocks(in.x.rows, kRowBlock, [&](size_t b, size_t e) { f.l1_fwd(in, y, b, e); });
}

void l1norm_bwd(const L1NormIn& in, Mat<const float> dy, Mat<float> dx, Into mode, Par par) {
  const PointwiseFns& f = pointwise_impls().use(par);
  par.blocks(in.x.rows, kRowBlock, [&](size_t b, size_t e) { f.l1_bwd(in, dy, dx, mode, b, e); });
}

void lower_bound_fwd(Mat<const float> P, size_t layer, float* low) {
  for (size_t i = 0; i < P.cols; ++i) low[i] = ref::lower_bound<float>(P.data + i, P.stride, P.rows, layer);
}

void lower_bound_bwd(Mat<const float> P, size_t layer, const float* dlow, Mat<float> dP) {
  for (size_t i = 0; i < P.cols; ++i)
    ref::lower_bound_bwd<float>(P.data + i, P.stride, P.rows, layer, dlow[i], dP.data + i, dP.stride);
}

}  // namespace braid
#endif
