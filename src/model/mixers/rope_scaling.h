// How RoPE's frequencies are changed for sequences longer than those of the first training. f = theta^(-2 i /
// rot):
//   linear   f / factor
//   llama3   f / factor where a turn is longer than original / low, f where it is shorter than original /
//   high, between
//            them a mean with the weight (turns within original - low) / (high - low)
//   yarn     the same two ends, arXiv:2309.00071: the weight falls linearly in i between the i's that turn
//   `high` and `low`
//            times within original; cos and sin are multiplied with `amplitude`
#pragma once

#include "kernels/rope/rope.h"
#include "model/fields.h"

namespace braid {

enum class RopeKind : uint8_t { kNone, kLinear, kLlama3, kYarn };
inline Choices<RopeKind> rope_kinds() {
  return {{"none", RopeKind::kNone},
          {"linear", RopeKind::kLinear},
          {"llama3", RopeKind::kLlama3},
          {"yarn", RopeKind::kYarn}};
}

struct RopeScaling {
  RopeKind scaling = RopeKind::kNone;
  double factor = 0, low = 0, high = 0, amplitude = 0;
  int64_t original = 0;
  template <class V>
  void visit(V& v) {
    v("rope_scaling", scaling, rope_kinds(), "scaling of the frequencies for long sequences");
    v("rope_factor", factor, {0, 1e6}, "length divided by the training length; 0 = 1");
    v("rope_original", original, {0, 1e9}, "llama3, yarn: training length before scaling");
    v("rope_low", low, {0, 1e6},
      "llama3, yarn: frequencies with fewer turns in rope_original are divided by the factor; 0 = 1");
    v("rope_high", high, {0, 1e6},
      "llama3, yarn: frequencies with more turns are unchanged; 0 = 4 (llama3), 32 (yarn)");
    v("rope_amplitude", amplitude, {0, 1e3}, "yarn: factor of cos and sin; 0 = 1 + log(factor) / 10");
  }
  void resolve();  // zeros become what they stand for; what has no meaning becomes zero
  void validate(double theta, const std::string& where,
                std::vector<Problem>& problems) const;               // before resolve()
  std::unique_ptr<RopeTable> table(size_t rot, double theta) const;  // after it
};

}  // namespace braid
