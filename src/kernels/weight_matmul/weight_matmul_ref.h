// The definition of weight_matmul, on any number type.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/weight_matmul/weight_matmul.h"

namespace braid::ref {

// Number `col` of a stored row.
template <class T>
T stored_number(WeightFormat f, const std::byte* row, const bf16* scales, size_t col) {
  if (f == WeightFormat::kF32) {
    float x;
    std::memcpy(&x, row + 4 * col, sizeof x);
    return static_cast<T>(x);
  }
  if (f == WeightFormat::kBf16) {
    bf16 x;
    std::memcpy(&x, row + 2 * col, sizeof x);
    return static_cast<T>(to_f32(x));
  }
  const T scale = static_cast<T>(to_f32(scales[col / kWeightBlock]));
  if (f == WeightFormat::kQ8)
    return scale * static_cast<T>(static_cast<float>(static_cast<int8_t>(row[col])));
  const size_t block = col / kWeightBlock, i = col % kWeightBlock, half = kWeightBlock / 2;
  const auto byte = static_cast<uint8_t>(row[block * half + i % half]);
  const auto nibble = static_cast<int8_t>(i < half ? byte << 4 : byte & 0xf0);  // in the upper half
  return scale * static_cast<T>(static_cast<float>(nibble / 16));
}

// A block of X in 16 bits. One that is all but zero becomes zero, one with an infinity or NaN becomes NaN.
inline void round16(const float* x, int16_t* numbers, float& scale) {
  float most = 0, zero = 0;
  for (size_t i = 0; i < kWeightBlock; ++i) most = std::max(most, std::fabs(x[i])), zero += 0 * x[i];
  const bool small = most < 1e-33f;  // its scale would be denormal
  scale = std::isnan(zero) ? zero : small ? 0 : most / 32767;
  const float inverse = std::isnan(zero) || small ? 0 : 32767 / most;
  for (size_t i = 0; i < kWeightBlock; ++i)
    numbers[i] = inverse == 0 ? int16_t{0} : static_cast<int16_t>(std::lrintf(x[i] * inverse));
}

template <class T>
void weight_matmul(const T* x, size_t x_stride, size_t m, const StoredMatrix& w, T* y, size_t y_stride,
                   Into into) {
  std::vector<T> rounded(has_scales(w.format) ? m * w.cols : 0);
  for (size_t i = 0; i < m && !rounded.empty(); ++i)
    for (size_t k = 0; k < w.cols; k += kWeightBlock) {
      float block[kWeightBlock], scale;
      int16_t numbers[kWeightBlock];
      for (size_t l = 0; l < kWeightBlock; ++l) block[l] = static_cast<float>(x[i * x_stride + k + l]);
      round16(block, numbers, scale);
      for (size_t l = 0; l < kWeightBlock; ++l)
        rounded[i * w.cols + k + l] = static_cast<T>(scale) * static_cast<T>(numbers[l]);
    }
  if (!rounded.empty()) x = rounded.data(), x_stride = w.cols;
  size_t first = 0;
  for (const StoredRows& part : w.parts) {
    for (size_t j = 0; j < part.count; ++j)
      for (size_t i = 0; i < m; ++i) {
        T sum{};
        for (size_t k = 0; k < w.cols; ++k)
          sum += x[i * x_stride + k] *
                 stored_number<T>(w.format, part.data + j * weight_row_bytes(w.format, w.cols),
                                  part.scales + j * weight_row_scales(w.format, w.cols), k);
        T& to = y[i * y_stride + first + j];
        to = into == Into::kAdd ? to + sum : sum;
      }
    first += part.count;
  }
}

}  // namespace braid::ref
