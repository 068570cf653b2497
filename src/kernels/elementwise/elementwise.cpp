#include "kernels/elementwise/elementwise.h"

#include "base/check.h"
#include "kernels/elementwise/elementwise_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise/elementwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

void add_rows(Mat<const float> a, Mat<const float> b, Mat<float> y, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    const float *p = a.row(r), *q = b.row(r);
    float* to = y.row(r);
    for_lanes(y.cols, [&](auto d, size_t i) {
      hn::StoreU(hn::Add(hn::LoadU(d, p + i), hn::LoadU(d, q + i)), d, to + i);
    });
  }
}

void scale_rows(Mat<const float> x, float factor, Mat<float> y, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    const float* p = x.row(r);
    float* to = y.row(r);
    for_lanes(y.cols, [&](auto d, size_t i) {
      hn::StoreU(hn::Mul(hn::Set(d, factor), hn::LoadU(d, p + i)), d, to + i);
    });
  }
}

// f32 to bf16, ties to even; a NaN stays one.
struct Rounded {
  template <class D, class V, class D16 = hn::Rebind<uint16_t, D>>
  static HWY_INLINE hn::Vec<D16> of(D d, V v) {
    const hn::RebindToUnsigned<D> du;
    (void)d;
    const auto bits = hn::BitCast(du, v), high = hn::ShiftRight<16>(bits);
    const auto half = hn::Add(hn::Set(du, 0x7fffu), hn::And(high, hn::Set(du, 1u)));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, half)), nan = hn::Or(high, hn::Set(du, 0x40u));
    return hn::TruncateTo(D16(), hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), nan, rounded));
  }
};

#if HWY_TARGET == HWY_AVX3
// Isa::kAvx512Dot. The same bits by one instruction; vectors with tiny numbers (below 2^-126), which it would
// take for zero, go the long way.
struct RoundedByMachine {
  template <class D, class V, class D16 = hn::Rebind<uint16_t, D>>
  static HWY_INLINE hn::Vec<D16> of(D d, V v) {
    if constexpr (hn::MaxLanes(D()) == 16) {
      constexpr int kDenormal = 0x20;
      if (HWY_LIKELY(_mm512_fpclass_ps_mask(v.raw, kDenormal) == 0)) {
        hn::Vec<D16> to;
        asm("vcvtneps2bf16 %1, %0" : "=v"(to.raw) : "v"(v.raw));
        return to;
      }
    }
    return Rounded::of(d, v);
  }
};
#endif

template <class Rounding>
void rows_to_bf16(Mat<const float> x, Mat<bf16> y, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    const float* p = x.row(r);
    uint16_t* to = &y.row(r)->bits;
    for_lanes(y.cols, [&](auto d, size_t i) {
      hn::StoreU(Rounding::of(d, hn::LoadU(d, p + i)), hn::Rebind<uint16_t, decltype(d)>(), to + i);
    });
  }
}

void rows_to_f32(Mat<const bf16> x, Mat<float> y, size_t begin, size_t end) {
  for (size_t r = begin; r < end; ++r) {
    const uint16_t* p = &x.row(r)->bits;
    float* to = y.row(r);
    for_lanes(y.cols, [&](auto d, size_t i) {
      const hn::RebindToUnsigned<decltype(d)> du;
      const hn::Rebind<uint16_t, decltype(d)> d16;
      hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, p + i)))), d, to + i);
    });
  }
}

double squares(const float* x, size_t n) {
  const hn::ScalableTag<double> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const size_t lanes = hn::Lanes(dd);
  auto a = hn::Zero(dd), b = hn::Zero(dd);
  size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto u = hn::PromoteTo(dd, hn::LoadU(df, x + i)),
               v = hn::PromoteTo(dd, hn::LoadU(df, x + i + lanes));
    a = hn::MulAdd(u, u, a);
    b = hn::MulAdd(v, v, b);
  }
  return hn::GetLane(hn::SumOfLanes(dd, hn::Add(a, b))) + ref::sum_squares(x + i, n - i);
}

constexpr ElementwiseFns kFns{add_rows, scale_rows, rows_to_bf16<Rounded>, rows_to_f32, squares};
#if HWY_TARGET == HWY_AVX3
constexpr ElementwiseFns kDotFns{add_rows, scale_rows, rows_to_bf16<RoundedByMachine>, rows_to_f32, squares};
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

constexpr size_t kRowBlock = 32;  // rows per task

constexpr ElementwiseFns kRefFns{
    [](Mat<const float> a, Mat<const float> b, Mat<float> y, size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r) ref::add(a.row(r), b.row(r), y.row(r), y.cols);
    },
    [](Mat<const float> x, float factor, Mat<float> y, size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r) ref::scale(x.row(r), factor, y.row(r), y.cols);
    },
    [](Mat<const float> x, Mat<bf16> y, size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r)
        for (size_t i = 0; i < y.cols; ++i) y.row(r)[i] = to_bf16(x.row(r)[i]);
    },
    [](Mat<const bf16> x, Mat<float> y, size_t begin, size_t end) {
      for (size_t r = begin; r < end; ++r)
        for (size_t i = 0; i < y.cols; ++i) y.row(r)[i] = to_f32(x.row(r)[i]);
    },
    ref::sum_squares<float>};

}  // namespace

const Impls<ElementwiseFns>& elementwise_impls() {
  static const Impls<ElementwiseFns> table(
      "elementwise", {"avx512dot", Isa::kAvx512Dot, &N_AVX3::kDotFns},
      {"avx512", Isa::kAvx512, &N_AVX3::kFns}, {"avx2", Isa::kAvx2, &N_AVX2::kFns},
      {"sse", Isa::kBase, &N_SSSE3::kFns}, {"ref", Isa::kBase, &kRefFns});
  return table;
}

void add(Mat<const float> a, Mat<const float> b, Mat<float> y, Par par) {
  const ElementwiseFns& f = elementwise_impls().use(par);
  par.blocks(y.rows, kRowBlock, [&](size_t begin, size_t end) { f.add(a, b, y, begin, end); });
}

void add_to(Mat<const float> a, Mat<float> y, Par par) { add(y, a, y, par); }

void scale(Mat<const float> x, float factor, Mat<float> y, Par par) {
  const ElementwiseFns& f = elementwise_impls().use(par);
  par.blocks(y.rows, kRowBlock, [&](size_t begin, size_t end) { f.scale(x, factor, y, begin, end); });
}

void convert(Mat<const float> x, Mat<bf16> y, Par par) {
  const ElementwiseFns& f = elementwise_impls().use(par);
  par.blocks(y.rows, kRowBlock, [&](size_t begin, size_t end) { f.to_bf16(x, y, begin, end); });
}

void convert(Mat<const bf16> x, Mat<float> y, Par par) {
  const ElementwiseFns& f = elementwise_impls().use(par);
  par.blocks(y.rows, kRowBlock, [&](size_t begin, size_t end) { f.to_f32(x, y, begin, end); });
}

double sum_squares(std::span<const float> x, std::span<double> partials, Par par) {
  check(partials.size() >= sum_partials(x.size()), "sum_squares: too few partials");
  const ElementwiseFns& f = elementwise_impls().use(par);
  par.blocks(x.size(), kSumBlock, [&](size_t begin, size_t end) {
    partials[begin / kSumBlock] = f.sum_squares(x.data() + begin, end - begin);
  });
  double sum = 0;
  for (const double s : partials.first(sum_partials(x.size()))) sum += s;
  return sum;
}

}  // namespace braid
#endif
