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

// The factor on x * rstd: weight times gate.
template <class D>
HWY_INLINE hn::Vec<D> factor(D d, const RmsNormIn& in, const float* z, size_t i) {
  const auto w = hn::Add(hn::Set(d, in.offset), hn::LoadU(d, in.w + i));
  return z ? hn::Mul(w, silu_v(d, hn::LoadU(d, z + i))) : w;
}

void fwd(const RmsNormIn& in, Mat<float> y, float* rstd, size_t begin, size_t end) {
  const size_t n = in.x.cols / in.groups;
  for (size_t r = begin; r < end; ++r)
    for (size_t g = 0; g < in.groups; ++g) {
      const float* x = in.x.row(r) + g * n;
      const float* z = in.z.data ? in.z.row(r) + g * n : nullptr;
      float* out = y.row(r) + g * n;
      const float square = sum_lanes(n, [&](auto d, size_t i) {
        const auto v = hn::LoadU(d, x + i);
        return hn::Mul(v, v);
      });
      const float scale = 1.0f / std::sqrt(square / static_cast<float>(n) + in.eps);
      if (rstd) rstd[r * in.groups + g] = scale;
      for_lanes(n, [&](auto d, size_t i) {
        const auto v = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, scale));
        hn::StoreU(hn::Mul(v, factor(d, in, z, i)), d, out + i);
      });
    }
}

void dx(const RmsNormIn& in, const RmsNormSaved& saved, Mat<const float> dy, const RmsNormGrad& out,
        size_t begin, size_t end) {
  const size_t n = in.x.cols / in.groups;
  for (size_t r = begin; r < end; ++r)
    for (size_t g = 0; g < in.groups; ++g) {
      const float rstd = saved.rstd[r * in.groups + g];
      const float* x = in.x.row(r) + g * n;
      const float* z = in.z.data ? in.z.row(r) + g * n : nullptr;
      const float* up = dy.row(r) + g * n;
      if (out.dx.data) {
        const float dot = sum_lanes(n, [&](auto d, size_t i) {
          return hn::Mul(hn::Mul(hn::LoadU(d, up + i), factor(d, in, z, i)), hn::LoadU(d, x + i));
        });
        const float mean = dot * rstd * rstd / static_cast<float>(n);
        float* to = out.dx.row(r) + g * n;
        const bool add = out.dx_mode == Into::kAdd;
        for_lanes(n, [&](auto d, size_t i) {
          const auto a = hn::Mul(hn::LoadU(d, up + i), factor(d, in, z, i));
          auto v = hn::Mul(hn::Set(d, rstd), hn::NegMulAdd(hn::LoadU(d, x + i), hn::Set(d, mean), a));
          if (add) v = hn::Add(v, hn::LoadU(d, to + i));
          hn::StoreU(v, d, to + i);
        });
      }
      if (out.dz.data) {
        float* to = out.dz.row(r) + g * n;
        for_lanes(n, [&](auto d, size_t i) {
          const auto one = hn::Set(d, 1.0f), v = hn::LoadU(d, z + i), s = sigmoid_v(d, v);
          const auto slope = hn::Mul(s, hn::MulAdd(v, hn::Sub(one, s), one));
          const auto w = hn::Add(hn::Set(d, in.offset), hn::LoadU(d, in.w + i));
          const auto xh = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, rstd));
          hn::StoreU(hn::Mul(hn::Mul(hn::LoadU(d, up + i), xh), hn::Mul(w, slope)), d, to + i);
        });
      }
    }
}

void dw(const RmsNormIn& in, const RmsNormSaved& saved, Mat<const float> dy, const RmsNormGrad& out,
        size_t begin, size_t end) {
  const size_t n = in.x.cols / in.groups;
  for (size_t r = 0; r < in.x.rows; ++r)
    for (size_t g = 0; g < in.groups; ++g) {
      const float rstd = saved.rstd[r * in.groups + g];
      const float* x = in.x.row(r) + g * n + begin;
      const float* z = in.z.data ? in.z.row(r) + g * n + begin : nullptr;
      const float* up = dy.row(r) + g * n + begin;
      float* to = out.dw + begin;
      for_lanes(end - begin, [&](auto d, size_t i) {
        auto v = hn::Mul(hn::Mul(hn::LoadU(d, up + i), hn::LoadU(d, x + i)), hn::Set(d, rstd));
        if (z) v = hn::Mul(v, silu_v(d, hn::LoadU(d, z + i)));
        hn::StoreU(hn::Add(hn::LoadU(d, to + i), v), d, to + i);
      });
    }
}

constexpr RmsNormFns kFns{fwd, dx, dw};

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
                              in.offset);
}

// The reference's backward gives everything at once; the table wants dx/dz by rows and dw by columns.
void ref_group(const RmsNormIn& in, const RmsNormSaved& saved, Mat<const float> dy, size_t r, size_t g,
               std::vector<float>& dx, std::vector<float>& dw, std::vector<float>& dz) {
  const size_t n = in.x.cols / in.groups;
  dx.assign(n, 0), dw.assign(n, 0), dz.assign(n, 0);
  ref::rmsnorm_bwd<float>(in.x.row(r) + g * n, in.w, in.z.data ? in.z.row(r) + g * n : nullptr,
                          saved.rstd[r * in.groups + g], dy.row(r) + g * n, dx.data(), dw.data(), dz.data(),
                          n, in.offset);
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

Impls<RmsNormFns>& rmsnorm_impls() {
  static Impls<RmsNormFns> table("rmsnorm", {"avx512", Isa::kAvx512, &N_AVX3::kFns},
                                 {"avx2", Isa::kAvx2, &N_AVX2::kFns}, {"sse", Isa::kBase, &N_SSSE3::kFns},
                                 {"ref", Isa::kBase, &kRefFns});
  return table;
}

void rmsnorm_fwd(const RmsNormIn& in, Mat<float> y, float* rstd, Par par) {
  const RmsNormFns& f = rmsnorm_impls().use();
  par.blocks(in.x.rows, kRowBlock, [&](size_t begin, size_t end) { f.fwd(in, y, rstd, begin, end); });
}

void rmsnorm_bwd(const RmsNormIn& in, const RmsNormSaved& saved, Mat<const float> dy, const RmsNormGrad& out,
                 Par par) {
  const RmsNormFns& f = rmsnorm_impls().use();
  // dw first: dx may be written over dy.
  if (out.dw)
    par.blocks(in.x.cols / in.groups, kColBlock,
               [&](size_t begin, size_t end) { f.dw(in, saved, dy, out, begin, end); });
  par.blocks(in.x.rows, kRowBlock, [&](size_t begin, size_t end) { f.dx(in, saved, dy, out, begin, end); });
}

}  // namespace braid
#endif
