#include "kernels/rmsnorm/rmsnorm.h"

#include <vector>

#include "kernels/rmsnorm/rmsnorm_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rmsnorm/rmsnorm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

namespace {

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gate_v(D d, RmsNormGate gate, V z) {
  return gate == RmsNormGate::kSilu ? silu_v(d, z) : sigmoid_v(d, z);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V gate_slope(D d, RmsNormGate gate, V z) {
  const V one = hn::Set(d, 1.0f), s = sigmoid_v(d, z), rest = hn::Sub(one, s);
  return hn::Mul(s, gate == RmsNormGate::kSilu ? hn::MulAdd(z, rest, one) : rest);
}

// One group of one row: what is normalised, and the factor on it afterwards.
struct Group {
  const RmsNormIn& in;
  size_t n;
  const float *x, *z;  // z may be null
  bool first;          // the gate comes first

  HWY_INLINE Group(const RmsNormIn& of, size_t r, size_t g)
      : in(of),
        n(of.x.cols / of.groups),
        x(of.x.row(r) + g * n),
        z(of.z.data ? of.z.row(r) + g * n : nullptr),
        first(z && of.order == RmsNormOrder::kGateFirst) {}

  template <class D>
  HWY_INLINE hn::Vec<D> gate(D d, size_t i) const {
    return gate_v(d, in.gate, hn::LoadU(d, z + i));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> normed(D d, size_t i) const {
    const auto v = hn::LoadU(d, x + i);
    return first ? hn::Mul(v, gate(d, i)) : v;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> weight(D d, size_t i) const {
    return hn::Add(hn::Set(d, in.offset), hn::LoadU(d, in.w + i));
  }
  template <class D>
  HWY_INLINE hn::Vec<D> factor(D d, size_t i) const {
    return z && !first ? hn::Mul(weight(d, i), gate(d, i)) : weight(d, i);
  }
};

void fwd(const RmsNormIn& in, Mat<float> y, float* rstd, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r)
    for (size_t g = 0; g < in.groups; ++g) {
      const Group group(in, r, g);
      const size_t n = group.n;
      float* out = y.row(r) + g * n;
      const float square = sum_lanes(n, [&](auto d, size_t i) {
        const auto v = group.normed(d, i);
        if (group.first) hn::StoreU(v, d, out + i);  // the gate is not computed twice
        return hn::Mul(v, v);
      });
      const float scale = 1.0f / std::sqrt(square / static_cast<float>(n) + in.eps);
      if (rstd) rstd[r * in.groups + g] = scale;
      const float* from = group.first ? out : group.x;
      for_lanes(n, [&](auto d, size_t i) {
        const auto v = hn::Mul(hn::LoadU(d, from + i), hn::Set(d, scale));
        hn::StoreU(hn::Mul(v, group.factor(d, i)), d, out + i);
      });
    }
}

// dx and dz of groups that are normalised before their gate.
void dx_norm_first(const Group& group, float rstd, const float* up, bool add, float* dx, float* dz) {
  const size_t n = group.n;
  if (dx) {
    const float dot = sum_lanes(n, [&](auto d, size_t i) {
      return hn::Mul(hn::Mul(hn::LoadU(d, up + i), group.factor(d, i)), hn::LoadU(d, group.x + i));
    });
    const float mean = dot * rstd * rstd / static_cast<float>(n);
    for_lanes(n, [&](auto d, size_t i) {
      const auto a = hn::Mul(hn::LoadU(d, up + i), group.factor(d, i));
      auto v = hn::Mul(hn::Set(d, rstd), hn::NegMulAdd(hn::LoadU(d, group.x + i), hn::Set(d, mean), a));
      if (add) v = hn::Add(v, hn::LoadU(d, dx + i));
      hn::StoreU(v, d, dx + i);
    });
  }
  if (dz)
    for_lanes(n, [&](auto d, size_t i) {
      const auto slope = gate_slope(d, group.in.gate, hn::LoadU(d, group.z + i));
      const auto xh = hn::Mul(hn::LoadU(d, group.x + i), hn::Set(d, rstd));
      hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, up + i), xh), hn::Mul(group.weight(d, i), slope)), d, dz + i);
    });
}

void dx_gate_first(const Group& group, float rstd, const float* up, bool add, float* dx, float* dz) {
  const float dot = sum_lanes(group.n, [&](auto d, size_t i) {
    return hn::Mul(hn::Mul(hn::LoadU(d, up + i), group.weight(d, i)), group.normed(d, i));
  });
  const float mean = dot * rstd * rstd / static_cast<float>(group.n);
  for_lanes(group.n, [&](auto d, size_t i) {
    const auto x = hn::LoadU(d, group.x + i), z = hn::LoadU(d, group.z + i), gate = group.gate(d, i),
               a = hn::Mul(hn::LoadU(d, up + i), group.weight(d, i)),
               du = hn::Mul(hn::Set(d, rstd), hn::NegMulAdd(hn::Mul(x, gate), hn::Set(d, mean), a));
    if (dx) {
      const auto v = hn::Mul(du, gate);
      hn::StoreU(add ? hn::Add(v, hn::LoadU(d, dx + i)) : v, d, dx + i);
    }
    if (dz) hn::StoreU(hn::Mul(hn::Mul(du, x), gate_slope(d, group.in.gate, z)), d, dz + i);
  });
}

void dx(const RmsNormIn& in, const RmsNormSaved& saved, Mat<const float> dy, const RmsNormGrad& out,
        size_t begin, size_t end) {
  const bool add = out.dx_mode == Into::kAdd;
  for (size_t r = begin; r < end; ++r)
    for (size_t g = 0; g < in.groups; ++g) {
      const Group group(in, r, g);
      const size_t at = g * group.n;
      (group.first ? dx_gate_first : dx_norm_first)(group, saved.rstd[r * in.groups + g], dy.row(r) + at, add,
                                                    out.dx.data ? out.dx.row(r) + at : nullptr,
                                                    out.dz.data ? out.dz.row(r) + at : nullptr);
    }
}

// The same for both orders: dy x rstd f(z).
void dw(const RmsNormIn& in, const RmsNormSaved& saved, Mat<const float> dy, const RmsNormGrad& out,
        size_t begin, size_t end) {
  for (size_t r = 0; r < in.x.rows; ++r)
    for (size_t g = 0; g < in.groups; ++g) {
      const Group group(in, r, g);
      const auto rstd = saved.rstd[r * in.groups + g];
      const float* up = dy.row(r) + g * group.n + begin;
      float* to = out.dw + begin;
      for_lanes(end - begin, [&](auto d, size_t i) {
        auto v = hn::Mul(hn::Mul(hn::LoadU(d, up + i), hn::LoadU(d, group.x + begin + i)), hn::Set(d, rstd));
        if (group.z) v = hn::Mul(v, group.gate(d, begin + i));
        hn::StoreU(hn::Add(hn::LoadU(d, to + i), v), d, to + i);
      });
    }
}

constexpr RmsNormFns kFns{fwd, dx, dw};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

constexpr size_t kRowBlock = 32;  // rows per task: 32 x 1024 floats fill an L2 half
constexpr size_t kColBlock = 64;  // columns per task of dw

void ref_fwd(const RmsNormIn& in, Mat<float> y, float* rstd, size_t begin, size_t end) {
  const size_t n = in.x.cols / in.groups;
  for (size_t r = begin; r < end; ++r)
    for (size_t g = 0; g < in.groups; ++g)
      ref::rmsnorm_fwd<float>(in.x.row(r) + g * n, in.w, in.z.data ? in.z.row(r) + g * n : nullptr,
                              y.row(r) + g * n, rstd ? rstd + r * in.groups + g : nullptr, n, in.eps,
                              in.offset, {in.gate, in.order});
}

// The reference's backward gives everything at once; the table wants dx/dz by rows and dw by columns.
void ref_group(const RmsNormIn& in, const RmsNormSaved& saved, Mat<const float> dy, size_t r, size_t g,
               std::vector<float>& dx, std::vector<float>& dw, std::vector<float>& dz) {
  const size_t n = in.x.cols / in.groups;
  dx.assign(n, 0), dw.assign(n, 0), dz.assign(n, 0);
  ref::rmsnorm_bwd<float>(in.x.row(r) + g * n, in.w, in.z.data ? in.z.row(r) + g * n : nullptr,
                          saved.rstd[r * in.groups + g], dy.row(r) + g * n, dx.data(), dw.data(), dz.data(),
                          n, in.offset, {in.gate, in.order});
}

void ref_dx(const RmsNormIn& in, const RmsNormSaved& saved, Mat<const float> dy, const RmsNormGrad& out,
            size_t begin, size_t end) {
  const size_t n = in.x.cols / in.groups;
  std::vector<float> dx, dw, dz;
  for (size_t r = begin; r < end; ++r)
    for (size_t g = 0; g < in.groups; ++g) {
      ref_group(in, saved, dy, r, g, dx, dw, dz);
      for (size_t i = 0; i < n; ++i) {
        if (out.dx.data) {
          float& to = out.dx.row(r)[g * n + i];
          to = out.dx_mode == Into::kAdd ? to + dx[i] : dx[i];
        }
        if (out.dz.data) out.dz.row(r)[g * n + i] = dz[i];
      }
    }
}

void ref_dw(const RmsNormIn& in, const RmsNormSaved& saved, Mat<const float> dy, const RmsNormGrad& out,
            size_t begin, size_t end) {
  std::vector<float> dx, dw, dz;
  for (size_t r = 0; r < in.x.rows; ++r)
    for (size_t g = 0; g < in.groups; ++g) {
      ref_group(in, saved, dy, r, g, dx, dw, dz);
      for (size_t i = begin; i < end; ++i) out.dw[i] += dw[i];
    }
}

constexpr RmsNormFns kRefFns{ref_fwd, ref_dx, ref_dw};

}  // namespace

const Impls<RmsNormFns>& rmsnorm_impls() {
  static const Impls<RmsNormFns> table("rmsnorm", {"avx512", Isa::kAvx512, &N_AVX3::kFns},
                                       {"avx2", Isa::kAvx2, &N_AVX2::kFns},
                                       {"sse", Isa::kBase, &N_SSSE3::kFns}, {"ref", Isa::kBase, &kRefFns});
  return table;
}

namespace {

// Columns of group g, which may not be there.
template <class T>
Mat<T> group_of(const RmsNormIn& in, Mat<T> m, size_t g) {
  const size_t n = in.x.cols / in.groups;
  return m.data ? m.col_range(g * n, (g + 1) * n) : m;
}

// Group g of an input with a weight per group, as an input of its own.
RmsNormIn group_alone(const RmsNormIn& in, size_t g) {
  RmsNormIn one = in;
  one.x = group_of(in, in.x, g), one.z = group_of(in, in.z, g), one.w = in.w + g * one.x.cols;
  one.groups = 1, one.weight_per_group = false;
  return one;
}

}  // namespace

void rmsnorm_fwd(const RmsNormIn& in, Mat<float> y, float* rstd, Par par) {
  if (in.weight_per_group && in.groups > 1) {
    for (size_t g = 0; g < in.groups; ++g)
      rmsnorm_fwd(group_alone(in, g), group_of(in, y, g), rstd ? rstd + g * in.x.rows : nullptr, par);
    return;
  }
  const RmsNormFns& f = rmsnorm_impls().use(par);
  par.blocks(in.x.rows, kRowBlock, [&](size_t begin, size_t end) { f.fwd(in, y, rstd, begin, end); });
}

void rmsnorm_bwd(const RmsNormIn& in, const RmsNormSaved& saved, Mat<const float> dy, const RmsNormGrad& out,
                 Par par) {
  if (in.weight_per_group && in.groups > 1) {
    for (size_t g = 0; g < in.groups; ++g)
      rmsnorm_bwd(group_alone(in, g), {saved.rstd + g * in.x.rows}, group_of(in, dy, g),
                  {.dx = group_of(in, out.dx, g),
                   .dx_mode = out.dx_mode,
                   .dw = out.dw ? out.dw + g * (in.x.cols / in.groups) : nullptr,
                   .dz = group_of(in, out.dz, g)},
                  par);
    return;
  }
  const RmsNormFns& f = rmsnorm_impls().use(par);
  // dw first: dx may be written over dy.
  if (out.dw)
    par.blocks(in.x.cols / in.groups, kColBlock,
               [&](size_t begin, size_t end) { f.dw(in, saved, dy, out, begin, end); });
  par.blocks(in.x.rows, kRowBlock, [&](size_t begin, size_t end) { f.dx(in, saved, dy, out, begin, end); });
}

}  // namespace braid
#endif
