// Gated linear attention, arXiv:2312.06635: additive writes, decay per key channel from a low-rank
// projection.
#include "model/mixers/fast_weight.h"

namespace braid {
namespace {

FastWeightConfig defaults() {
  FastWeightConfig c;
  c.conv = 0;
  c.features = {.feature = "identity", .feature_norm = "none", .value_feature = "identity"};
  c.rule.write = "additive", c.rule.decay = "sigmoid";
  c.output.gate = "silu";
  return c;
}

}  // namespace

MixerEntry gla_entry() {
  return fast_weight_entry<defaults>("gla", "gated linear attention: additive writes, decay per key channel");
}

}  // namespace braid
