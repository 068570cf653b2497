// embedding - rows of a table by number.
//   y[i] = table[ids[i]]          backward: dtable[ids[i]] += dy[i]
// table: [vocabulary, cols], y: [rows, cols]. Every id lies in the table: the caller has checked.
// The backward walks the rows in order for each block of columns, so repeated ids always add up the same way.
#pragma once

#include <cstdint>

#include "base/parallel.h"
#include "kernels/common/impl_table.h"
#include "tensor/tensor.h"

namespace braid {

void embedding_fwd(const int32_t* ids, Mat<const float> table, Mat<float> y, Par par = {});
void embedding_bwd(const int32_t* ids, Mat<const float> dy, Mat<float> dtable, Par par = {});  // adds

struct EmbeddingFns {
  void (*fwd)(const int32_t* ids, Mat<const float> table, Mat<float> y, size_t begin, size_t end);  // rows
  void (*bwd)(const int32_t* ids, Mat<const float> dy, Mat<float> dtable, size_t begin,
              size_t end);  // columns
};
const Impls<EmbeddingFns>& embedding_impls();

}  // namespace braid
