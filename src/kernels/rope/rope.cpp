#include "kernels/rope/rope.h"

#include <cmath>

#include "base/check.h"
#include "kernels/rope/rope_ref.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rope/rope.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

template <class D>
HWY_INLINE void put(D d, hn::Vec<D> v, float* to, bool add) {
  hn::StoreU(add ? hn::Add(v, hn::LoadU(d, to)) : v, d, to);
}

void rotate(const RopeIn& in, Mat<float> y, float direction, Into mode, size_t begin, size_t end) {
  const size_t dh = in.x.cols / in.heads, rot = in.table->rot(), h = rot / 2;
  const bool add = mode == Into::kAdd;
  for (size_t r = begin; r < end; ++r) {
    const size_t position = static_cast<size_t>(in.positions[r]);
    const float *cos = in.table->cos(position), *sin = in.table->sin(position);
    for (size_t head = 0; head < in.heads; ++head) {
      const float* x = in.x.row(r) + head * dh;
      float* to = y.row(r) + head * dh;
      for_lanes(h, [&](auto d, size_t i) {
        const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + h + i), c = hn::LoadU(d, cos + i),
                   s = hn::Mul(hn::LoadU(d, sin + i), hn::Set(d, direction));
        put(d, hn::MulSub(a, c, hn::Mul(b, s)), to + i, add);
        put(d, hn::MulAdd(b, c, hn::Mul(a, s)), to + h + i, add);
      });
      if (add || to != x)
        for_lanes(dh - rot, [&](auto d, size_t i) { put(d, hn::LoadU(d, x + rot + i), to + rot + i, add); });
    }
  }
}

constexpr RopeFns kFns{rotate};

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace braid {
namespace {

constexpr size_t kRowBlock = 32;  // rows per task

void ref_rotate(const RopeIn& in, Mat<float> y, float direction, Into mode, size_t begin, size_t end) {
  const size_t dh = in.x.cols / in.heads, rot = in.table->rot();
  std::vector<float> out(dh);
  for (size_t r = begin; r < end; ++r) {
    const size_t p = static_cast<size_t>(in.positions[r]);
    for (size_t head = 0; head < in.heads; ++head) {
      const float* x = in.x.row(r) + head * dh;
      (direction > 0 ? ref::rope_fwd<float> : ref::rope_bwd<float>)(x, in.table->cos(p), in.table->sin(p),
                                                                    out.data(), rot, dh);
      float* to = y.row(r) + head * dh;
      for (size_t i = 0; i < dh; ++i) to[i] = mode == Into::kAdd ? to[i] + out[i] : out[i];
    }
  }
}

constexpr RopeFns kRefFns{ref_rotate};

void run(const RopeIn& in, Mat<float> y, float direction, Into mode, Par par) {
  const RopeFns& f = rope_impls().use(par);
  par.blocks(in.x.rows, kRowBlock,
             [&](size_t begin, size_t end) { f.rotate(in, y, direction, mode, begin, end); });
}

}  // namespace

RopeTable::RopeTable(size_t rot, double theta) : frequency_(rot / 2) {
  check(rot % 2 == 0, "RopeTable: rot must be even");
  for (size_t i = 0; i < frequency_.size(); ++i)
    frequency_[i] = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rot));
}

void RopeTable::ensure(size_t needed) const {
  if (needed <= positions()) return;
  const std::lock_guard lock(growing_);
  const size_t h = frequency_.size();
  while (positions() < needed) {
    const size_t first = positions(), b = block_of(first), count = kFirst << b;
    check(b < kBlocks, "RopeTable: too many positions");
    blocks_[b] = std::make_unique<float[]>(count * rot());
    for (size_t p = 0; p < count; ++p)
      for (size_t i = 0; i < h; ++i) {
        const double angle = static_cast<double>(first + p) * frequency_[i];
        blocks_[b][p * rot() + i] = static_cast<float>(amplitude_ * std::cos(angle));
        blocks_[b][p * rot() + h + i] = static_cast<float>(amplitude_ * std::sin(angle));
      }
    positions_.store(first + count, std::memory_order_release);
  }
}

const Impls<RopeFns>& rope_impls() {
  static const Impls<RopeFns> table("rope", {"avx512", Isa::kAvx512, &N_AVX3::kFns},
                                    {"avx2", Isa::kAvx2, &N_AVX2::kFns}, {"sse", Isa::kBase, &N_SSSE3::kFns},
                                    {"ref", Isa::kBase, &kRefFns});
  return table;
}

void rope_fwd(const RopeIn& in, Mat<float> y, Par par) { run(in, y, 1.0f, Into::kOverwrite, par); }

void rope_bwd(const RopeIn& in, Mat<float> dx, Into mode, Par par) { run(in, dx, -1.0f, mode, par); }

}  // namespace braid
#endif
