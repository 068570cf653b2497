// Storage. A View looks at memory somebody else owns, a Tensor owns its memory, a Mat is what kernels take.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace braid {

// A row-major matrix of known type: `rows` rows of `cols` numbers, `stride` numbers apart.
template <class T>
struct Mat {
  T* data = nullptr;
  size_t rows = 0, cols = 0, stride = 0;

  Mat() = default;
  Mat(T* d, size_t r, size_t c) : data(d), rows(r), cols(c), stride(c) {}
  Mat(T* d, size_t r, size_t c, size_t s) : data(d), rows(r), cols(c), stride(s) {}
  template <class U>
  requires std::is_same_v<T, const U> Mat(Mat<U> m)
      : data(m.data), rows(m.rows), cols(m.cols), stride(m.stride) {}  // NOLINT: Mat<T> reads as Mat<const T>

  T* row(size_t i) const { return data + i * stride; }
  size_t count() const { return rows * cols; }
  Mat row_range(size_t begin, size_t end) const { return {row(begin), end - begin, cols, stride}; }
  Mat col_range(size_t begin, size_t end) const { return {data + begin, rows, end - begin, stride}; }
  bool contiguous() const { return stride == cols || rows <= 1; }
};

template <class T>
void copy(Mat<const T> from, Mat<T> to) {
  for (size_t r = 0; r < from.rows; ++r) std::copy_n(from.row(r), from.cols, to.row(r));
}

// Contiguous tensor of any dtype in memory owned elsewhere.
struct View {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  size_t bytes() const { return static_cast<size_t>(shape.count()) * dtype_size(dtype); }
  template <class T>
  std::span<const T> as() const {
    check(dtype == DTypeOf<T>::value, "View::as: another dtype is stored");
    return {static_cast<const T*>(data), static_cast<size_t>(shape.count())};
  }
};

// Owning, 64-byte aligned. Copies copy the contents.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, Shape shape);  // zero-filled
  Tensor(const Tensor& other);
  Tensor& operator=(const Tensor& other);
  Tensor(Tensor&&) = default;
  Tensor& operator=(Tensor&&) = default;

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  size_t bytes() const { return static_cast<size_t>(shape_.count()) * dtype_size(dtype_); }
  void* data() { return data_.get(); }
  const void* data() const { return data_.get(); }
  View view() const { return {data_.get(), dtype_, shape_}; }
  template <class T>
  std::span<T> as() {
    check(dtype_ == DTypeOf<T>::value, "Tensor::as: another dtype is stored");
    return {static_cast<T*>(data()), static_cast<size_t>(shape_.count())};
  }
  template <class T>
  std::span<const T> as() const {
    return view().as<T>();
  }
  // Rank 2, or rank 1 as a single row.
  Mat<float> mat() { return {as<float>().data(), rows(), cols()}; }
  Mat<const float> mat() const { return {as<float>().data(), rows(), cols()}; }

 private:
  struct Free {
    void operator()(void* p) const;
  };
  size_t rows() const { return shape_.rank() >= 2 ? shape_.count() / shape_[shape_.rank() - 1] : 1; }
  size_t cols() const { return shape_.rank() ? shape_[shape_.rank() - 1] : 1; }

  DType dtype_ = DType::kF32;
  Shape shape_{0};
  std::unique_ptr<void, Free> data_;
};

// Converts numbers of any float dtype to f32.
void convert_to_f32(const View& from, std::span<float> to);

}  // namespace braid
