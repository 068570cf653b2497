// matmul - C (=|+=) op(A) op(B) with f32 sums; row-major, weights stored [out, in] as PyTorch and safetensors
// have them.
//   nt:  C[M,N] = A[M,K] B[N,K]^T     forward of a linear layer: Y = X W^T
//   nn:  C[M,N] = A[M,K] B[K,N]       dX = dY W
//   tn:  C[M,N] = A[K,M]^T B[K,N]     dW += dY^T X
// f32: our own blocked product, because one number of C is then summed in the same order however the rest is
// cut, and because it is faster than oneDNN's at the shapes of training in slices (docs/explanation/design.md
// has the figures); oneDNN stays in the table for comparison. nt with a few rows (decoding): dot products
// that read W once at memory speed. bf16 operands go to oneDNN's AMX kernels where the machine has them, to
// our own with dot products of pairs where those are fast (AMD since Zen 4), otherwise they are widened to
// f32 tile by tile. Work is cut into panels that depend on the shape alone, and oneDNN is held to one thread
// per call, so that no sum depends on the number of threads.
#pragma once

#include "base/parallel.h"
#include "kernels/common/impl_table.h"
#include "kernels/common/into.h"
#include "tensor/tensor.h"

namespace braid {

enum class MatmulForm { kNT, kNN, kTN };
enum class Precision { kF32, kBf16 };

// A weight in the order in which the product reads it. Packing costs a few percent of a product with 512
// rows, so weights that are used for many inputs are packed once. Null: not packed (this implementation does
// not use it).
struct PackedWeight {
  const float* data = nullptr;
  size_t cols = 0;  // padded
};
size_t packed_weight_size(Precision precision, MatmulForm form, size_t rows, size_t cols,
                          Par par = {});  // floats, for b of this shape as nt or nn takes it
PackedWeight pack_weight(MatmulForm form, Mat<const float> b, std::span<float> to, Par par = {});
PackedWeight pack_weight(MatmulForm form, Mat<const bf16> b, std::span<float> to, Par par = {});

void matmul(MatmulForm form, Mat<const float> a, Mat<const float> b, Mat<float> c, Into into, Par par = {});
void matmul(MatmulForm form, Mat<const bf16> a, Mat<const bf16> b, Mat<float> c, Into into, Par par = {});
// With b packed for the same form, or null.
void matmul(MatmulForm form, Mat<const float> a, Mat<const float> b, PackedWeight packed, Mat<float> c,
            Into into, Par par = {});
void matmul(MatmulForm form, Mat<const bf16> a, Mat<const bf16> b, PackedWeight packed, Mat<float> c,
            Into into, Par par = {});

// One panel: all of it in the calling thread.
template <class T>
struct MatmulPanel {
  MatmulForm form;
  size_t m, n, k;
  const T *a, *b;
  size_t a_stride, b_stride;
  float* c;
  size_t c_stride;
  Into into;
  const float* packed = nullptr;  // all of B packed, or null
  size_t packed_cols = 0;
  size_t packed_col = 0;  // where this panel begins
  Par par = {};           // which kernels a panel is made of
};

struct MatmulFns {
  void (*panel)(const MatmulPanel<float>&);
  // nt with m <= kSkinnyRows. A row of C has the same bits whatever the other rows are: tokens that are
  // decoded together get the numbers that each would get alone.
  void (*skinny)(const MatmulPanel<float>&);
  // nn with m <= kSkinnyRows: B as it is, because packing is worth it for many rows only. Null: panel.
  void (*thin)(const MatmulPanel<float>&) = nullptr;
  size_t (*packed_width)() = nullptr;  // columns are padded to a multiple of this
  void (*pack)(MatmulForm, Mat<const float> b, size_t k, size_t depth,
               float* to) = nullptr;  // rows k .. of op(b)
};
struct MatmulBf16Fns {
  void (*panel)(const MatmulPanel<bf16>&);
  size_t (*packed_width)() = nullptr;
  void (*pack)(MatmulForm, Mat<const bf16> b, size_t k, size_t depth, float* to) = nullptr;
};
inline constexpr size_t kSkinnyRows = 8;

const Impls<MatmulFns>& matmul_impls();
const Impls<MatmulBf16Fns>& matmul_bf16_impls();

// The highest f32 multiply-add rate of one core with these instructions, measured now with registers only, in
// flop/s.
double measure_fma_peak(Isa isa);

}  // namespace braid
