#include "lab/makers.h"

namespace braid {

std::span<const Experiment> all_experiments() {
  static const std::vector<Experiment> all = [] {
    std::vector<Experiment> out;
    for (const std::span<const Experiment> part :
         {hqlt_experiments(), deltaformer_experiments(), gdn_experiments(), recall_experiments(),
          scaling_experiments(), theory_experiments()})
      out.insert(out.end(), part.begin(), part.end());
    return out;
  }();
  return all;
}

}  // namespace braid
