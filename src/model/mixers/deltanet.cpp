// DeltaNet, arXiv:2102.11174 and 2406.06484: the delta rule without decay.
#include "model/mixers/fast_weight.h"

namespace braid {
namespace {

FastWeightConfig defaults() { return {}; }

}  // namespace

MixerEntry deltanet_entry() { return fast_weight_entry<defaults>("deltanet", "DeltaNet: the delta rule"); }

}  // namespace braid
