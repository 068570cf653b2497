// dropout - zeroes numbers at random and scales the rest, with a mask that is never stored.
//   y_e = x_e * keep_e / (1 - p)          keep_e = 1 if u_e >= p, else 0
// x, y: [rows, cols], strided; e = row * cols + column counts elements, and u_e in [0, 1) is word e % 4 of
// Philox block e / 4 in substream `index` of `rng` (base/rng.h). The mask therefore depends on nothing but
// (rng, index, e). The backward is the same function on dy with the same mask.
#pragma once

#include "base/parallel.h"
#include "base/rng.h"
#include "kernels/common/impl_table.h"
#include "tensor/tensor.h"

namespace braid {

struct DropoutMask {  // all that the backward needs to keep
  Rng rng;
  uint64_t index;  // one per site and step
  float p;         // in [0, 1)
};

void dropout(const DropoutMask& mask, Mat<const float> x, Mat<float> y, Par par = {});  // y may be x

struct DropoutFns {  // rows [begin, end)
  void (*run)(const DropoutMask&, Mat<const float> x, Mat<float> y, size_t begin, size_t end);
};
const Impls<DropoutFns>& dropout_impls();

}  // namespace braid
