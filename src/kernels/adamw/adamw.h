// adamw - one step of Adam with decoupled weight decay, fused over flat arrays.
//   g' = grad_scale g     m = beta1 m + (1 - beta1) g'     v = beta2 v + (1 - beta2) g'^2
//   p  = (1 - lr weight_decay) p - lr (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps)
// p, g, m, v: [n]; m and v start at zero; step counts from 1. arXiv:1711.05101 with the schedule inside lr,
// as torch.optim.AdamW. Gradient clipping comes in as grad_scale, so g is read once and never written.
#pragma once

#include <cstdint>
#include <span>

#include "base/parallel.h"
#include "kernels/common/impl_table.h"

namespace braid {

struct AdamWIn {
  double lr;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  double grad_scale = 1;
  int64_t step = 1;
};

struct AdamWState {
  std::span<float> p;
  std::span<const float> g;
  std::span<float> m, v;
};

void adamw(const AdamWIn& in, const AdamWState& s, Par par = {});

struct AdamWFns {  // elements [begin, end)
  void (*run)(const AdamWIn&, const AdamWState&, size_t begin, size_t end);
};
const Impls<AdamWFns>& adamw_impls();

}  // namespace braid
