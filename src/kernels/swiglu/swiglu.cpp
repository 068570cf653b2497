#include "kernels/swiglu/swiglu.h"

#include "kernels/swiglu/swiglu_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/swiglu/swiglu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

namespace {

template <Gate gate>
void fwd_gate(const SwigluIn& in, Mat<float> y, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    const float *g = in.g.row(r), *u = in.u.row(r);
    float* to = y.row(r);
    for_lanes(in.g.cols, [&](auto d, size_t i) {
      const auto a = hn::LoadU(d, g + i);
      const auto value = gate == Gate::kSilu ? silu_v(d, a) : sigmoid_v(d, a);
      hn::StoreU(hn::Mul(value, hn::LoadU(d, u + i)), d, to + i);
    });
  }
}

template <Gate gate>
void bwd_gate(const SwigluIn& in, Mat<const float> dy, const SwigluGrad& out, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    const float *g = in.g.row(r), *u = in.u.row(r), *up = dy.row(r);
    float *dg = out.dg.row(r), *du = out.du.row(r), *y = out.y.data ? out.y.row(r) : nullptr;
    for_lanes(in.g.cols, [&](auto d, size_t i) {
      const auto one = hn::Set(d, 1.0f), a = hn::LoadU(d, g + i), b = hn::LoadU(d, u + i),
                 v = hn::LoadU(d, up + i);
      const auto below = hn::Add(one, exp_v(d, hn::Neg(a)));
      const auto s = hn::Div(one, below), rest = hn::Sub(one, s);
      const auto value = gate == Gate::kSilu ? hn::Div(a, below) : s;  // as silu_v and sigmoid_v, to the bit
      const auto slope = hn::Mul(s, gate == Gate::kSilu ? hn::MulAdd(a, rest, one) : rest);
      hn::StoreU(hn::Mul(hn::Mul(v, b), slope), d, dg + i);
      hn::StoreU(hn::Mul(v, value), d, du + i);
      if (y) hn::StoreU(hn::Mul(value, b), d, y + i);
    });
  }
}

void fwd(const SwigluIn& in, Mat<float> y, size_t begin, size_t end) {
  (in.gate == Gate::kSilu ? fwd_gate<Gate::kSilu> : fwd_gate<Gate::kSigmoid>)(in, y, begin, end);
}

void bwd(const SwigluIn& in, Mat<const float> dy, const SwigluGrad& out, size_t begin, size_t end) {
  (in.gate == Gate::kSilu ? bwd_gate<Gate::kSilu> : bwd_gate<Gate::kSigmoid>)(in, dy, out, begin, end);
}

}  // namespace

constexpr SwigluFns kFns{fwd, bwd};

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

constexpr size_t kRowBlock = 16;  // rows per task

void ref_fwd(const SwigluIn& in, Mat<float> y, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r)
    ref::swiglu_fwd<float>(in.gate, in.g.row(r), in.u.row(r), y.row(r), in.g.cols);
}

void ref_bwd(const SwigluIn& in, Mat<const float> dy, const SwigluGrad& out, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r)
    ref::swiglu_bwd<float>(in.gate, in.g.row(r), in.u.row(r), dy.row(r), out.dg.row(r), out.du.row(r),
                           out.y.data ? out.y.row(r) : nullptr, in.g.cols);
}

constexpr SwigluFns kRefFns{ref_fwd, ref_bwd};

}  // namespace

const Impls<SwigluFns>& swiglu_impls() {
  static const Impls<SwigluFns> table("swiglu", {"avx512", Isa::kAvx512, &N_AVX3::kFns},
                                      {"avx2", Isa::kAvx2, &N_AVX2::kFns},
                                      {"sse", Isa::kBase, &N_SSSE3::kFns}, {"ref", Isa::kBase, &kRefFns});
  return table;
}

void swiglu_fwd(const SwigluIn& in, Mat<float> y, Par par) {
  const SwigluFns& f = swiglu_impls().use(par);
  par.blocks(in.g.rows, kRowBlock, [&](size_t begin, size_t end) { f.fwd(in, y, begin, end); });
}

void swiglu_bwd(const SwigluIn& in, Mat<const float> dy, const SwigluGrad& out, Par par) {
  const SwigluFns& f = swiglu_impls().use(par);
  par.blocks(in.g.rows, kRowBlock, [&](size_t begin, size_t end) { f.bwd(in, dy, out, begin, end); });
}

}  // namespace braid
#endif
