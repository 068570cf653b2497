#include "kernels/delta_gates/delta_gates.h"

#include "base/check.h"
#include "kernels/delta_gates/delta_gates_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/delta_gates/delta_gates.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

// Heads in the outer loop: a few hundred short rows stay in L1, and what belongs to a head in registers.
void fwd(const DeltaGatesIn& in, Mat<float> g, Mat<float> beta, size_t begin, size_t end) {
  for_lanes(in.a.cols, [&](auto d, size_t i) {
    const auto rate = hn::Neg(exp_v(d, hn::LoadU(d, in.A_log + i))), bias = hn::LoadU(d, in.dt_bias + i),
               top = hn::Set(d, in.beta_max);
    for (size_t r = begin; r < end; ++r) {
      const auto x = hn::Add(hn::LoadU(d, in.a.row(r) + i), bias), b = hn::LoadU(d, in.b.row(r) + i);
      hn::StoreU(hn::Mul(rate, softplus_v(d, x)), d, g.row(r) + i);
      hn::StoreU(hn::Mul(top, sigmoid_v(d, b)), d, beta.row(r) + i);
    }
  });
}

void bwd(const DeltaGatesIn& in, Mat<const float> dg, Mat<const float> dbeta, const DeltaGatesGrad& out,
         float* sums, size_t begin, size_t end) {
  for_lanes(in.a.cols, [&](auto d, size_t i) {
    const auto rate = hn::Neg(exp_v(d, hn::LoadU(d, in.A_log + i))), bias = hn::LoadU(d, in.dt_bias + i),
               top = hn::Set(d, in.beta_max), one = hn::Set(d, 1.0f);
    auto dA_log = hn::Zero(d), ddt_bias = hn::Zero(d);
    for (size_t r = begin; r < end; ++r) {
      const auto x = hn::Add(hn::LoadU(d, in.a.row(r) + i), bias),
                 up = hn::Mul(rate, hn::LoadU(d, dg.row(r) + i)), da = hn::Mul(up, sigmoid_v(d, x)),
                 s = sigmoid_v(d, hn::LoadU(d, in.b.row(r) + i)),
                 db = hn::Mul(hn::Mul(top, hn::LoadU(d, dbeta.row(r) + i)), hn::Mul(s, hn::Sub(one, s)));
      dA_log = hn::MulAdd(up, softplus_v(d, x), dA_log);
      ddt_bias = hn::Add(ddt_bias, da);
      hn::StoreU(da, d, out.da.row(r) + i);
      hn::StoreU(db, d, out.db.row(r) + i);
    }
    hn::StoreU(dA_log, d, sums + i);
    hn::StoreU(ddt_bias, d, sums + in.a.cols + i);
  });
}

constexpr DeltaGatesFns kFns{fwd, bwd};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

void ref_fwd(const DeltaGatesIn& in, Mat<float> g, Mat<float> beta, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r)
    for (size_t h = 0; h < in.a.cols; ++h)
      ref::delta_gates_fwd<float>(in.a.row(r)[h], in.b.row(r)[h], in.A_log[h], in.dt_bias[h], in.beta_max,
                                  g.row(r) + h, beta.row(r) + h);
}

void ref_bwd(const DeltaGatesIn& in, Mat<const float> dg, Mat<const float> dbeta, const DeltaGatesGrad& out,
             float* sums, size_t begin, size_t end) {
  const size_t H = in.a.cols;
  std::fill_n(sums, 2 * H, 0.0f);
  for (size_t r = begin; r < end; ++r)
    for (size_t h = 0; h < H; ++h)
      ref::delta_gates_bwd<float>(in.a.row(r)[h], in.b.row(r)[h], in.A_log[h], in.dt_bias[h], in.beta_max,
                                  dg.row(r)[h], dbeta.row(r)[h], out.da.row(r) + h, out.db.row(r) + h,
                                  sums + h, sums + H + h);
}

constexpr DeltaGatesFns kRefFns{ref_fwd, ref_bwd};

size_t block_count(size_t rows) { return (rows + kDeltaGatesBlock - 1) / kDeltaGatesBlock; }

}  // namespace

const Impls<DeltaGatesFns>& delta_gates_impls() {
  static const Impls<DeltaGatesFns> table("delta_gates", {"avx512", Isa::kAvx512, &N_AVX3::kFns},
                                          {"avx2", Isa::kAvx2, &N_AVX2::kFns},
                                          {"sse", Isa::kBase, &N_SSSE3::kFns}, {"ref", Isa::kBase, &kRefFns});
  return table;
}

void delta_gates_fwd(const DeltaGatesIn& in, Mat<float> g, Mat<float> beta, Par par) {
  const DeltaGatesFns& f = delta_gates_impls().use(par);
  par.blocks(in.a.rows, kDeltaGatesBlock, [&](size_t begin, size_t end) { f.fwd(in, g, beta, begin, end); });
}

size_t delta_gates_bwd_scratch(size_t rows, size_t heads) { return block_count(rows) * 2 * heads; }

void delta_gates_bwd(const DeltaGatesIn& in, Mat<const float> dg, Mat<const float> dbeta,
                     const DeltaGatesGrad& out, std::span<float> scratch, Par par) {
  const DeltaGatesFns& f = delta_gates_impls().use(par);
  const size_t rows = in.a.rows, H = in.a.cols;
  check(scratch.size() >= delta_gates_bwd_scratch(rows, H), "delta_gates_bwd: scratch is too small");
  par.blocks(rows, kDeltaGatesBlock, [&](size_t begin, size_t end) {
    f.bwd(in, dg, dbeta, out, &scratch[begin / kDeltaGatesBlock * 2 * H], begin, end);
  });
  for (size_t i = 0; i < block_count(rows); ++i)
    for (size_t h = 0; h < H; ++h) {
      if (out.dA_log) out.dA_log[h] += scratch[i * 2 * H + h];
      if (out.ddt_bias) out.ddt_bias[h] += scratch[(i * 2 + 1) * H + h];
    }
}

}  // namespace braid
#endif
