// The parts of FastWeightFns, each compiled in a file of its own. Included once per target.
#if defined(BRAID_FAST_WEIGHT_PARTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BRAID_FAST_WEIGHT_PARTS_INL_H_
#undef BRAID_FAST_WEIGHT_PARTS_INL_H_
#else
#define BRAID_FAST_WEIGHT_PARTS_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/fast_weight/fast_weight.h"

HWY_BEFORE_NAMESPACE();
namespace braid {
namespace HWY_NAMESPACE {

FastWeightFns::Fwd recurrent_fwd, chunk_fwd, narrow_fwd;  // forward.cpp
FastWeightFns::Bwd recurrent_bwd;                         // recurrent_backward.cpp
FastWeightFns::Bwd chunk_bwd, narrow_bwd;                 // chunk_backward.cpp

}  // namespace HWY_NAMESPACE
}  // namespace braid
HWY_AFTER_NAMESPACE();

#endif
