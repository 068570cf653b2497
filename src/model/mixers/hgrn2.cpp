// HGRN2, arXiv:2404.07904: additive writes with key 1 - f and decay f, whose lower bound grows with depth.
#include "model/mixers/fast_weight.h"

namespace braid {
namespace {

FastWeightConfig defaults() {
  FastWeightConfig c;
  c.conv = 0;
  c.features = {.feature = "silu", .feature_norm = "none", .value_feature = "identity"};
  c.rule.write = "additive", c.rule.decay = "forget";
  c.output.out_norm = "full";
  return c;
}

}  // namespace

MixerEntry hgrn2_entry() {
  return fast_weight_entry<defaults>("hgrn2",
                                     "HGRN2: additive writes, decay per key channel, key = 1 - decay");
}

}  // namespace braid
