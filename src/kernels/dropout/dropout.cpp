#include "kernels/dropout/dropout.h"

#include <algorithm>
#include <cmath>

#include "kernels/dropout/dropout_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/dropout/dropout.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

// Philox itself is scalar and takes nearly all of the time; only the product is vectorised.
void run(const DropoutMask& mask, Mat<const float> x, Mat<float> y, size_t begin, size_t end) {
  constexpr size_t kChunk = 256;
  int32_t draws[kChunk + 8];  // u in units of 2^-24, for whole blocks
  const float scale = 1.0f / (1.0f - mask.p);
  const int32_t least = static_cast<int32_t>(std::ceil(mask.p * 0x1p24f));  // exact: p has 24 bits
  for (size_t r = begin; r < end; ++r)
    for (size_t c = 0; c < x.cols; c += kChunk) {
      const size_t n = std::min(kChunk, x.cols - c);
      const uint64_t first = r * x.cols + c, block = first / 4, last = (first + n - 1) / 4;
      for (uint64_t b = block; b <= last; ++b) {
        const Philox words = mask.rng.block(mask.index, b);
        for (size_t i = 0; i < 4; ++i) draws[(b - block) * 4 + i] = static_cast<int32_t>(words[i] >> 8);
      }
      const int32_t* u = draws + first % 4;
      const float* from = x.row(r) + c;
      float* to = y.row(r) + c;
      for_lanes(n, [&](auto d, size_t i) {
        const hn::RebindToSigned<decltype(d)> di;
        const auto keep = hn::Gt(hn::LoadU(di, u + i), hn::Set(di, least - 1));
        // A product, not a choice: what was NaN stays NaN.
        const auto factor = hn::IfThenElseZero(hn::RebindMask(d, keep), hn::Set(d, scale));
        hn::StoreU(hn::Mul(hn::LoadU(d, from + i), factor), d, to + i);
      });
    }
}

constexpr DropoutFns kFns{run};

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

constexpr size_t kRowBlock = 16;  // rows per task

void ref_run(const DropoutMask& mask, Mat<const float> x, Mat<float> y, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r)
    ref::dropout<float>(mask.rng, mask.index, mask.p, r * x.cols, x.row(r), y.row(r), x.cols);
}

constexpr DropoutFns kRefFns{ref_run};

}  // namespace

const Impls<DropoutFns>& dropout_impls() {
  static const Impls<DropoutFns> table("dropout", {"avx512", Isa::kAvx512, &N_AVX3::kFns},
                                       {"avx2", Isa::kAvx2, &N_AVX2::kFns},
                                       {"sse", Isa::kBase, &N_SSSE3::kFns}, {"ref", Isa::kBase, &kRefFns});
  return table;
}

void dropout(const DropoutMask& mask, Mat<const float> x, Mat<float> y, Par par) {
  const DropoutFns& f = dropout_impls().use(par);
  par.blocks(x.rows, kRowBlock, [&](size_t begin, size_t end) { f.run(mask, x, y, begin, end); });
}

}  // namespace braid
#endif
