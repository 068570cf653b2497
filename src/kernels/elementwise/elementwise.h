// elementwise - sums, multiples, number formats, and the sum of squares for the gradient norm.
//   add: y = a + b     add_to: y += a     scale: y = factor * x     sum_squares: sum of x_i^2, in double
//   convert: f32 <-> bf16, rounded to nearest even, NaN stays NaN
// All Mats are [rows, cols] of the same size, strided. An output may be an input of the same type.
#pragma once

#include <span>

#include "base/parallel.h"
#include "kernels/common/impl_table.h"
#include "tensor/tensor.h"

namespace braid {

void add(Mat<const float> a, Mat<const float> b, Mat<float> y, Par par = {});
void add_to(Mat<const float> a, Mat<float> y, Par par = {});
void scale(Mat<const float> x, float factor, Mat<float> y, Par par = {});
void convert(Mat<const float> x, Mat<bf16> y, Par par = {});
void convert(Mat<const bf16> x, Mat<float> y, Par par = {});

// Blocks of kSumBlock numbers each leave their sum in `partials`, which are then added in order. Squares and
// sums are in double, so nothing overflows; a NaN or infinity in x makes the result non-finite.
inline constexpr size_t kSumBlock = 4096;
constexpr size_t sum_partials(size_t n) { return (n + kSumBlock - 1) / kSumBlock; }
double sum_squares(std::span<const float> x, std::span<double> partials, Par par = {});

struct ElementwiseFns {  // rows [begin, end)
  void (*add)(Mat<const float> a, Mat<const float> b, Mat<float> y, size_t begin, size_t end);
  void (*scale)(Mat<const float> x, float factor, Mat<float> y, size_t begin, size_t end);
  void (*to_bf16)(Mat<const float> x, Mat<bf16> y, size_t begin, size_t end);
  void (*to_f32)(Mat<const bf16> x, Mat<float> y, size_t begin, size_t end);
  double (*sum_squares)(const float* x, size_t n);
};
const Impls<ElementwiseFns>& elementwise_impls();

}  // namespace braid
