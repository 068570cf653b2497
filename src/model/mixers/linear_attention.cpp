// Linear attention, arXiv:2006.16236: S_t = S_{t-1} + k v^T with features 1 + elu, divided by the sum of the
// features. normalise=false, feature=silu, feature_norm=l2 is the plain additive memory.
#include "model/mixers/fast_weight.h"

namespace braid {
namespace {

FastWeightConfig defaults() {
  FastWeightConfig c;
  c.conv = 0;
  c.rule.write = "additive";
  c.features = {.feature = "elu1", .feature_norm = "none", .value_feature = "identity"};
  c.normalise = true;
  c.output.out_norm = "none";
  return c;
}

}  // namespace

MixerEntry linear_attention_entry() {
  return fast_weight_entry<defaults>(
      "linear_attention", "linear attention: additive writes, 1 + elu features, normalised or plain");
}

}  // namespace braid
