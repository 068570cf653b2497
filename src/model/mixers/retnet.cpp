// RetNet, arXiv:2307.08621: additive writes that decay by a constant 1 - 2^(-5-h) in head h; RoPE on q and k.
#include "model/mixers/fast_weight.h"

namespace braid {
namespace {

FastWeightConfig defaults() {
  FastWeightConfig c;
  c.conv = 0;
  c.rope_theta = 10000;
  c.features = {.feature = "identity", .feature_norm = "none", .value_feature = "identity"};
  c.rule.write = "additive", c.rule.decay = "constant";
  c.output.gate = "silu";
  return c;
}

}  // namespace

MixerEntry retnet_entry() {
  return fast_weight_entry<defaults>("retnet", "RetNet: additive writes, constant decay per head, RoPE");
}

}  // namespace braid
