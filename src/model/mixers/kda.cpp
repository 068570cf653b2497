// Kimi Delta Attention, arXiv:2510.26692: the delta rule with a decay per key channel.
#include "model/mixers/fast_weight.h"

namespace braid {
namespace {

FastWeightConfig defaults() {
  FastWeightConfig c;
  c.rule.decay = "channel";
  c.output.gate = "sigmoid";
  return c;
}

}  // namespace

MixerEntry kda_entry() {
  return fast_weight_entry<defaults>("kda",
                                     "Kimi Delta Attention: the delta rule with a decay per key channel");
}

}  // namespace braid
