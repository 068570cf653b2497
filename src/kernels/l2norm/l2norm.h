// l2norm - rows, or heads of rows, scaled to length one (queries and keys of delta-rule mixers).
//   y = x * rstd          rstd = 1 / sqrt(sum(x^2) + eps)
// x, y: [rows, groups * width]; each row is `groups` independent groups (heads). eps stands inside the root.
// Backward: docs/explanation/math/l2norm.md
#pragma once

#include "base/parallel.h"
#include "kernels/common/impl_table.h"
#include "kernels/common/into.h"
#include "tensor/tensor.h"

namespace braid {

struct L2NormIn {
  Mat<const float> x;
  size_t groups = 1;
  float eps = 1e-6f;
};

struct L2NormSaved {
  const float* rstd;  // [rows * groups]
};

// rstd: [rows * groups], may be null when no backward follows. y may be x.
void l2norm_fwd(const L2NormIn& in, Mat<float> y, float* rstd, Par par = {});
// dx may be dy or x.
void l2norm_bwd(const L2NormIn& in, const L2NormSaved& saved, Mat<const float> dy, Mat<float> dx, Into mode,
                Par par = {});

struct L2NormFns {  // rows [begin, end)
  void (*fwd)(const L2NormIn&, Mat<float> y, float* rstd, size_t begin, size_t end);
  void (*bwd)(const L2NormIn&, const L2NormSaved&, Mat<const float> dy, Mat<float> dx, Into, size_t begin,
              size_t end);
};
const Impls<L2NormFns>& l2norm_impls();

}  // namespace braid
