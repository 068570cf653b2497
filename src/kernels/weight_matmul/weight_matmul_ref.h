// The definition of weight_matmul, on any number type.
#pragma once

#include <cstring>

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

template <class T>
void weight_matmul(const T* x, size_t x_stride, size_t m, const StoredMatrix& w, T* y, size_t y_stride,
                   Into into) {
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
