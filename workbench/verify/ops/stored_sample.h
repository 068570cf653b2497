// A stored matrix of random numbers that owns its memory: for checks, tests and timings.
#pragma once

#include <vector>

#include "kernels/weight_matmul/weight_matmul_ref.h"

namespace braid {

class StoredSample {
 public:
  // The first `cut` rows and the others are separate allocations; 0: one.
  StoredSample(WeightFormat f, size_t rows, size_t cols, uint64_t seed, size_t cut = 0)
      : format_(f),
        rows_(rows),
        cols_(cols),
        cut_(cut),
        data_(DType::kU8, {static_cast<int64_t>(rows * weight_row_bytes(f, cols) + kGap)}),
        scales_(rows * weight_row_scales(f, cols) + kGap) {
    std::vector<float> row(cols);
    uint64_t x = seed;
    for (size_t r = 0; r < rows; ++r) {
      for (float& y : row) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        y = static_cast<float>(x >> 40) * 0x1p-23f - 1.0f;
      }
      store_row(f, row, data(r), scales(r));
    }
    if (cut > 0) parts_.push_back({data(0), scales(0), cut});
    parts_.push_back({data(cut), scales(cut), rows - cut});
  }
  StoredSample(const StoredSample&) = delete;
  StoredSample& operator=(const StoredSample&) = delete;

  StoredMatrix matrix() const { return {format_, rows_, cols_, parts_}; }
  double number(size_t row, size_t col) const {
    auto* self = const_cast<StoredSample*>(this);
    return ref::stored_number<double>(format_, self->data(row), self->scales(row), col);
  }

 private:
  static constexpr size_t kGap = 64;  // between the parts
  std::byte* data(size_t row) {
    return static_cast<std::byte*>(data_.data()) + row * weight_row_bytes(format_, cols_) +
           (row >= cut_ && cut_ > 0 ? kGap : 0);
  }
  bf16* scales(size_t row) {
    return scales_.data() + row * weight_row_scales(format_, cols_) + (row >= cut_ && cut_ > 0 ? kGap : 0);
  }

  WeightFormat format_;
  size_t rows_, cols_, cut_;
  Tensor data_;
  std::vector<bf16> scales_;
  std::vector<StoredRows> parts_;
};

}  // namespace braid
