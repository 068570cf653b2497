#include "kernels/cross_entropy/cross_entropy.h"

#include "kernels/cross_entropy/cross_entropy_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cross_entropy/cross_entropy.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

// The first place where x equals `value`; 0 if there is none (a row with NaN).
HWY_INLINE size_t find_first(const float* x, size_t n, float value) {
  const Full d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const intptr_t at = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, x + i), hn::Set(d, value)));
    if (at >= 0) return i + static_cast<size_t>(at);
  }
  for (; i < n; ++i)
    if (x[i] == value) return i;
  return 0;
}

void run(const CrossEntropyIn& in, const CrossEntropyOut& out, size_t begin, size_t end) {
  const size_t n = in.logits.cols;
  for (size_t r = begin; r < end; ++r) {
    const float* x = in.logits.row(r);
    const size_t target = static_cast<size_t>(in.target[r]);
    const float top = max_lanes(n, [&](auto d, size_t i) { return hn::LoadU(d, x + i); });
    if (out.argmax) out.argmax[r] = static_cast<int32_t>(find_first(x, n, top));
    if (!out.loss && !out.dlogits.data) continue;
    const float hit = x[target];  // before dlogits is written over the logits
    float* to = out.dlogits.data ? out.dlogits.row(r) : nullptr;
    // The exponentials are kept in dlogits: reading them back from L2 is cheaper than a second exp.
    const float sum = sum_lanes(n, [&](auto d, size_t i) {
      const auto e = exp_v(d, hn::Sub(hn::LoadU(d, x + i), hn::Set(d, top)));
      if (to) hn::StoreU(e, d, to + i);
      return e;
    });
    // Not through logsumexp = top + log(sum): at logits of 1e4 that would round the loss to 1e-3.
    if (out.loss) out.loss[r] = std::log(sum) + (top - hit);
    if (!to) continue;
    const float weight = in.weight ? in.weight[r] : 1.0f,
                drift = in.z != 0 ? 1 + 2 * in.z * (std::log(sum) + top) : 1.0f,
                factor = weight * drift / sum;
    for_lanes(n, [&](auto d, size_t i) {
      hn::StoreU(hn::Mul(hn::LoadU(d, to + i), hn::Set(d, factor)), d, to + i);
    });
    to[target] -= weight;
  }
}

constexpr CrossEntropyFns kFns{run};

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

constexpr size_t kRowBlock = 4;  // rows per task: a row of a large vocabulary is work enough

void ref_run(const CrossEntropyIn& in, const CrossEntropyOut& out, size_t begin, size_t end) {
  const size_t n = in.logits.cols;
  for (size_t r = begin; r < end; ++r) {
    const float* x = in.logits.row(r);
    const size_t target = static_cast<size_t>(in.target[r]);
    if (out.argmax) out.argmax[r] = static_cast<int32_t>(ref::first_maximum(x, n));
    if (out.loss) out.loss[r] = ref::cross_entropy_loss(x, target, n);
    if (out.dlogits.data)
      ref::cross_entropy_grad(x, target, in.weight ? in.weight[r] : 1.0f, in.z, out.dlogits.row(r), n);
  }
}

constexpr CrossEntropyFns kRefFns{ref_run};

}  // namespace

const Impls<CrossEntropyFns>& cross_entropy_impls() {
  static const Impls<CrossEntropyFns> table(
      "cross_entropy", {"avx512", Isa::kAvx512, &N_AVX3::kFns}, {"avx2", Isa::kAvx2, &N_AVX2::kFns},
      {"sse", Isa::kBase, &N_SSSE3::kFns}, {"ref", Isa::kBase, &kRefFns});
  return table;
}

void cross_entropy(const CrossEntropyIn& in, const CrossEntropyOut& out, Par par) {
  const CrossEntropyFns& f = cross_entropy_impls().use(par);
  par.blocks(in.logits.rows, kRowBlock, [&](size_t begin, size_t end) { f.run(in, out, begin, end); });
}

}  // namespace braid
#endif
