#include "kernels/adamw/adamw.h"

#include "base/check.h"
#include "kernels/adamw/adamw_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/adamw/adamw.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

void run(const AdamWIn& in, const AdamWState& s, size_t begin, size_t end) {
  // In double first: 1 - 0.999f is off by 1e-5.
  const float b1 = static_cast<float>(in.beta1), b2 = static_cast<float>(in.beta2),
              a1 = static_cast<float>(1 - in.beta1), a2 = static_cast<float>(1 - in.beta2),
              rate = static_cast<float>(in.lr / (1 - std::pow(in.beta1, in.step))),
              root = static_cast<float>(1 / std::sqrt(1 - std::pow(in.beta2, in.step))),
              decay = static_cast<float>(in.lr * in.weight_decay), eps = static_cast<float>(in.eps),
              scale = static_cast<float>(in.grad_scale);
  float *p = s.p.data() + begin, *m = s.m.data() + begin, *v = s.v.data() + begin;
  const float* g = s.g.data() + begin;
  for_lanes(end - begin, [&](auto d, size_t i) {
    const auto grad = hn::Mul(hn::Set(d, scale), hn::LoadU(d, g + i));
    const auto mean = hn::MulAdd(hn::Set(d, b1), hn::LoadU(d, m + i), hn::Mul(hn::Set(d, a1), grad));
    const auto square =
        hn::MulAdd(hn::Set(d, b2), hn::LoadU(d, v + i), hn::Mul(hn::Mul(hn::Set(d, a2), grad), grad));
    const auto old = hn::LoadU(d, p + i);
    // Not old * (1 - decay): a decay of 1e-6 would be rounded by up to 3 %.
    const auto kept = hn::NegMulAdd(hn::Set(d, decay), old, old);
    const auto below = hn::MulAdd(hn::Sqrt(square), hn::Set(d, root), hn::Set(d, eps));
    hn::StoreU(mean, d, m + i);
    hn::StoreU(square, d, v + i);
    hn::StoreU(hn::NegMulAdd(hn::Set(d, rate), hn::Div(mean, below), kept), d, p + i);
  });
}

constexpr AdamWFns kFns{run};

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

constexpr size_t kBlock = 16384;  // elements per task: 256 KB of p, g, m, v

constexpr AdamWFns kRefFns{[](const AdamWIn& in, const AdamWState& s, size_t begin, size_t end) {
  ref::adamw<float>(in, s.p.data() + begin, s.g.data() + begin, s.m.data() + begin, s.v.data() + begin,
                    end - begin);
}};

}  // namespace

const Impls<AdamWFns>& adamw_impls() {
  static const Impls<AdamWFns> table("adamw", {"avx512", Isa::kAvx512, &N_AVX3::kFns},
                                     {"avx2", Isa::kAvx2, &N_AVX2::kFns}, {"sse", Isa::kBase, &N_SSSE3::kFns},
                                     {"ref", Isa::kBase, &kRefFns});
  return table;
}

void adamw(const AdamWIn& in, const AdamWState& s, Par par) {
  const size_t n = s.p.size();
  check(s.g.size() == n && s.m.size() == n && s.v.size() == n, "adamw: sizes differ");
  check(in.step >= 1, "adamw: steps count from 1");
  const AdamWFns& f = adamw_impls().use(par);
  par.blocks(n, kBlock, [&](size_t begin, size_t end) { f.run(in, s, begin, end); });
}

}  // namespace braid
#endif
