#include "kernels/l2norm/l2norm.h"

#include "kernels/l2norm/l2norm_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/l2norm/l2norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

void fwd(const L2NormIn& in, Mat<float> y, float* rstd, size_t begin, size_t end) {
  const size_t n = in.x.cols / in.groups;
  for (size_t r = begin; r < end; ++r)
    for (size_t g = 0; g < in.groups; ++g) {
      const float* x = in.x.row(r) + g * n;
      float* to = y.row(r) + g * n;
      const float square = sum_lanes(n, [&](auto d, size_t i) {
        const auto v = hn::LoadU(d, x + i);
        return hn::Mul(v, v);
      });
      const float scale = 1.0f / std::sqrt(square + in.eps);
      if (rstd) rstd[r * in.groups + g] = scale;
      for_lanes(n, [&](auto d, size_t i) {
        hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, scale)), d, to + i);
      });
    }
}

void bwd(const L2NormIn& in, const L2NormSaved& saved, Mat<const float> dy, Mat<float> dx, Into mode,
         size_t begin, size_t end) {
  const size_t n = in.x.cols / in.groups;
  const bool add = mode == Into::kAdd;
  for (size_t r = begin; r < end; ++r)
    for (size_t g = 0; g < in.groups; ++g) {
      const float rstd = saved.rstd[r * in.groups + g];
      const float *x = in.x.row(r) + g * n, *up = dy.row(r) + g * n;
      float* to = dx.row(r) + g * n;
      const float dot =
          sum_lanes(n, [&](auto d, size_t i) { return hn::Mul(hn::LoadU(d, up + i), hn::LoadU(d, x + i)); });
      const float along = dot * rstd * rstd;
      for_lanes(n, [&](auto d, size_t i) {
        auto v = hn::NegMulAdd(hn::LoadU(d, x + i), hn::Set(d, along), hn::LoadU(d, up + i));
        v = hn::Mul(hn::Set(d, rstd), v);
        if (add) v = hn::Add(v, hn::LoadU(d, to + i));
        hn::StoreU(v, d, to + i);
      });
    }
}

constexpr L2NormFns kFns{fwd, bwd};

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

constexpr size_t kRowBlock = 32;  // rows per task

void ref_fwd(const L2NormIn& in, Mat<float> y, float* rstd, size_t begin, size_t end) {
  const size_t n = in.x.cols / in.groups;
  for (size_t r = begin; r < end; ++r)
    for (size_t g = 0; g < in.groups; ++g)
      ref::l2norm_fwd<float>(in.x.row(r) + g * n, y.row(r) + g * n, rstd ? rstd + r * in.groups + g : nullptr,
                             n, in.eps);
}

void ref_bwd(const L2NormIn& in, const L2NormSaved& saved, Mat<const float> dy, Mat<float> dx, Into mode,
             size_t begin, size_t end) {
  const size_t n = in.x.cols / in.groups;
  for (size_t r = begin; r < end; ++r)
    for (size_t g = 0; g < in.groups; ++g)
      ref::l2norm_bwd<float>(in.x.row(r) + g * n, saved.rstd[r * in.groups + g], dy.row(r) + g * n,
                             dx.row(r) + g * n, n, mode == Into::kAdd);
}

constexpr L2NormFns kRefFns{ref_fwd, ref_bwd};

}  // namespace

const Impls<L2NormFns>& l2norm_impls() {
  static const Impls<L2NormFns> table("l2norm", {"avx512", Isa::kAvx512, &N_AVX3::kFns},
                                      {"avx2", Isa::kAvx2, &N_AVX2::kFns},
                                      {"sse", Isa::kBase, &N_SSSE3::kFns}, {"ref", Isa::kBase, &kRefFns});
  return table;
}

void l2norm_fwd(const L2NormIn& in, Mat<float> y, float* rstd, Par par) {
  const L2NormFns& f = l2norm_impls().use(par);
  par.blocks(in.x.rows, kRowBlock, [&](size_t begin, size_t end) { f.fwd(in, y, rstd, begin, end); });
}

void l2norm_bwd(const L2NormIn& in, const L2NormSaved& saved, Mat<const float> dy, Mat<float> dx, Into mode,
                Par par) {
  const L2NormFns& f = l2norm_impls().use(par);
  par.blocks(in.x.rows, kRowBlock,
             [&](size_t begin, size_t end) { f.bwd(in, saved, dy, dx, mode, begin, end); });
}

}  // namespace braid
#endif
