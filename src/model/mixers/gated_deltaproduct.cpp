// Gated DeltaProduct, arXiv:2502.10297: one decay and several delta steps per token.
#include "model/mixers/fast_weight.h"

namespace braid {
namespace {

FastWeightConfig defaults() {
  FastWeightConfig c;
  c.steps = 2;
  c.rule.decay = "token", c.rule.negative_eigenvalues = true;
  c.output.gate = "silu";
  return c;
}

}  // namespace

MixerEntry gated_deltaproduct_entry() {
  return fast_weight_entry<defaults>("gated_deltaproduct",
                                     "Gated DeltaProduct: one decay and several delta steps per token");
}

}  // namespace braid
