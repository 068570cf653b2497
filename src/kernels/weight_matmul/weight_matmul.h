// weight_matmul - Y (=|+=) X W^T for inference, with W as it is stored. X: [M, K], W: [N, K], Y: [M, N]; X
// and Y are f32, and a stored number stands for exactly one f32 number:
//   f32, bf16   itself
//   q8          scale * q, q a byte from -127 to 127
//   q4          scale * q, q from -8 to 7 in two's complement; byte i of a block's 16 holds q[i], and
//   q[i + 16] in its upper half
// Blocks of kWeightBlock numbers in a row share a scale in bf16. Numbers lie row by row, scales in a matrix
// of their own: [N, K / kWeightBlock].
//
// With f32 and bf16 all is f32. With q8 and q4 X is rounded to 16 bits in blocks of the same size, whose
// largest number becomes 32767; the sum over a block is then exact in integers, the sum over blocks f32. What
// X loses, at most 2^-16 of a block's largest number, is 1/256 of what W lost in q8 and 1/4096 in q4, and
// two integer products of 16 bits take the place of one of 32.
//
// With few rows of X (decoding) W is read once, at the speed of memory, and a number of Y is summed in the
// same order however many rows there are: sequences that are decoded together get what each would get alone.
// With many rows (prefill) panels of W are widened to f32 or to 16 bits for a product blocked for the caches.
// On AMX numbers that are not bf16 are split into the sum of two that are, x = high + low but for 2^-17 of x,
// and Y is the sum of two or three products of bf16. No sum depends on threads. There is no backward:
// training has its weights in f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/parallel.h"
#include "kernels/common/impl_table.h"
#include "kernels/common/into.h"
#include "kernels/weight_matmul/activations.h"
#include "tensor/tensor.h"

namespace braid {

enum class WeightFormat : uint8_t { kF32, kBf16, kQ8, kQ4 };
std::string_view weight_format_name(WeightFormat f);  // "f32", "bf16", "q8", "q4"
std::optional<WeightFormat> weight_format_from_name(std::string_view name);

inline constexpr size_t kWeightBlock = 32;
constexpr bool has_scales(WeightFormat f) { return f == WeightFormat::kQ8 || f == WeightFormat::kQ4; }
constexpr bool weight_fits(WeightFormat f, size_t cols) { return !has_scales(f) || cols % kWeightBlock == 0; }
constexpr size_t weight_row_bytes(WeightFormat f, size_t cols) {  // without the scales
  return f == WeightFormat::kF32    ? 4 * cols
         : f == WeightFormat::kBf16 ? 2 * cols
         : f == WeightFormat::kQ8   ? cols
                                    : cols / 2;
}
constexpr size_t weight_row_scales(WeightFormat f, size_t cols) {
  return has_scales(f) ? cols / kWeightBlock : 0;
}

// Contiguous rows of a matrix.
struct StoredRows {
  const std::byte* data = nullptr;
  const bf16* scales = nullptr;
  size_t count = 0;
};
// A matrix in memory that somebody else owns. Released files keep the rows of some matrices in several
// places.
struct StoredMatrix {
  WeightFormat format = WeightFormat::kF32;
  size_t rows = 0, cols = 0;
  std::span<const StoredRows> parts = {};
  bool present() const { return rows > 0; }
  size_t bytes() const {
    return rows * (weight_row_bytes(format, cols) + weight_row_scales(format, cols) * sizeof(bf16));
  }
};

// Products that run together: the outputs must not overlap.
struct WeightProduct {
  Mat<const float> x;
  StoredMatrix w;
  Mat<float> y;
};
size_t weight_matmul_scratch(std::span<const WeightProduct> products, Activations activations = {},
                             Par par = {});  // floats
void weight_matmul(std::span<const WeightProduct> products, Into into, Activations activations,
                   std::span<float> scratch, Par par = {});

// Rows of W by number, as f32.
void weight_rows(const StoredMatrix& w, const int32_t* ids, Mat<float> y, Par par = {});

// One row to a format; `scales` only for those that have them. Each block's scale is the smallest bf16 number
// that brings its largest number into range: what is lost is half a step at most, in q4 one step at the other
// end of the range. A block with an infinity or NaN becomes NaN.
void store_row(WeightFormat f, std::span<const float> row, std::byte* data, bf16* scales);

// X rounded for products with q8 and q4: rows one after the other, [M, K] and [M, K / kWeightBlock].
struct Rounded {
  const int16_t* numbers = nullptr;
  const float* scales = nullptr;
};

// X for products of bf16: [M, K] twice.
struct HighLow {
  const bf16 *high = nullptr, *low = nullptr;
};

// What one thread does.
struct WeightTask {
  WeightFormat format;
  const std::byte* w;  // the first row
  const bf16* scales;
  size_t rows, cols;  // of W here
  Into into;
  Mat<float> y;  // [rows of X, rows]
  Mat<const float> x;
  const float* packed;  // x, for few rows of it and numbers without scales
  Rounded rounded;      // x, for numbers with scales
  HighLow split;        // x, for products of bf16
};
inline constexpr size_t kFewRows = 32;  // up to here W's rows are read row by row

struct WeightMatmulFns {
  // A few rows, interleaved vector by vector and padded with zeros to whole blocks.
  void (*pack)(Mat<const float> x, float* to);
  void (*round16)(std::span<const float> row, int16_t* numbers, float* scales);
  void (*few)(const WeightTask& t);
  void (*many)(const WeightTask& t);
  void (*widen)(WeightFormat f, const std::byte* row, const bf16* scales, size_t begin, size_t count,
                float* to);
  bool splits = false;  // many rows: products of bf16, except with W in f32
};
const Impls<WeightMatmulFns>& weight_matmul_impls();
// Whether X is rounded to 16 bits or less: a whole model then agrees with its reference to kTol16.
bool weight_matmul_rounds(WeightFormat f, Activations activations = {}, Par par = {});

}  // namespace braid
