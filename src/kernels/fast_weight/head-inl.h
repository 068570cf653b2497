// What one value head of one sequence reads, by token. Included once per target.
#if defined(BRAID_FAST_WEIGHT_HEAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_FAST_WEIGHT_HEAD_INL_H_
#undef BRAID_FAST_WEIGHT_HEAD_INL_H_
#else
#define BRAID_FAST_WEIGHT_HEAD_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "kernels/common/into.h"
#include "kernels/common/simd-inl.h"
#include "kernels/fast_weight/fast_weight.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {
namespace {

constexpr size_t kLanes = HWY_LANES(float);

using Decay = FastWeightDecay;

HWY_INLINE float exp_one(float x) { return hn::GetLane(exp_v(One(), hn::Set(One(), x))); }

HWY_INLINE void prefetch(const float* p, size_t n) {
  for (size_t i = 0; i < n; i += 16) hwy::Prefetch(p + i);
}

// What one value head of one sequence reads, by token.
struct Head {
  const FastWeightShape& s;
  const FastWeightIn& in;
  size_t row0, tokens, head, key_head;

  Head(const FastWeightShape& shape, const FastWeightIn& of, size_t seq, size_t value_head)
      : s(shape),
        in(of),
        row0(of.offsets[seq]),
        tokens(of.offsets[seq + 1] - row0),
        head(value_head),
        key_head(value_head / (shape.value_heads / shape.key_heads)) {}
  const float* q(size_t t) const { return in.q.row(row0 + t) + key_head * s.dk; }
  const float* k(size_t t) const { return in.k.row(row0 + t) + key_head * s.dk; }
  const float* v(size_t t) const { return in.v.row(row0 + t) + head * s.dv; }
  float beta(size_t t) const { return in.beta.row(row0 + t)[head]; }
  const float* g_channels(size_t t) const { return in.g.row(row0 + t) + head * s.dk; }
  float alpha(size_t t) const {
    if (s.decay == Decay::kNone) return 1.0f;
    return exp_one(in.g.row(s.decay == Decay::kHead ? 0 : row0 + t)[head]);
  }
};

HWY_INLINE void put(const float* from, float* to, size_t n, Into into) {
  for_lanes(n, [&](auto d, size_t i) {
    const auto x = hn::LoadU(d, from + i);
    hn::StoreU(into == Into::kAdd ? hn::Add(hn::LoadU(d, to + i), x) : x, d, to + i);
  });
}
HWY_INLINE void put(float x, float* to, Into into) { *to = into == Into::kAdd ? *to + x : x; }

// The state of one head among those of a sequence.
template <class T>
T* state_of(const FastWeightShape& s, T* states, size_t head) {
  return states ? states + head * s.dk * s.dv : nullptr;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#endif
