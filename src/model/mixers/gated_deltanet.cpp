// Gated DeltaNet, arXiv:2412.06464: the delta rule with Mamba2's decay.
#include "model/mixers/fast_weight.h"

namespace braid {
namespace {

FastWeightConfig defaults() {
  FastWeightConfig c;
  c.rule.decay = "token";
  c.output.gate = "silu";
  return c;
}

}  // namespace

MixerEntry gated_deltanet_entry() {
  return fast_weight_entry<defaults>("gated_deltanet",
                                     "Gated DeltaNet: the delta rule with one decay per head and token");
}

}  // namespace braid
