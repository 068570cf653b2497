#include "tensor/tensor.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace braid {
namespace {

constexpr size_t kAlign = 64;  // a cache line and the widest vector

void* aligned(size_t bytes) {
  void* p = std::aligned_alloc(kAlign, (bytes + kAlign - 1) / kAlign * kAlign + kAlign);
  if (!p) throw std::bad_alloc();
  return p;
}

}  // namespace

void Tensor::Free::operator()(void* p) const { std::free(p); }

Tensor::Tensor(DType dtype, Shape shape) : dtype_(dtype), shape_(shape), data_(aligned(bytes())) {
  std::memset(data_.get(), 0, bytes());
}

Tensor::Tensor(const Tensor& other) : dtype_(other.dtype_), shape_(other.shape_) {
  if (!other.data_) return;
  data_.reset(aligned(bytes()));
  std::memcpy(data_.get(), other.data_.get(), bytes());
}

Tensor& Tensor::operator=(const Tensor& other) {
  if (this != &other) *this = Tensor(other);
  return *this;
}

void convert_to_f32(const View& from, std::span<float> to) {
  check(static_cast<size_t>(from.shape.count()) == to.size(), "convert_to_f32: sizes differ");
  const auto all = [&]<class T>(const T*) {
    const std::span<const T> in = from.as<T>();
    for (size_t i = 0; i < to.size(); ++i) {
      if constexpr (std::is_same_v<T, double> || std::is_same_v<T, float>)
        to[i] = static_cast<float>(in[i]);
      else
        to[i] = to_f32(in[i]);
    }
  };
  switch (from.dtype) {
    case DType::kF32:
      return all(static_cast<const float*>(nullptr));
    case DType::kF64:
      return all(static_cast<const double*>(nullptr));
    case DType::kBF16:
      return all(static_cast<const bf16*>(nullptr));
    case DType::kF16:
      return all(static_cast<const f16*>(nullptr));
    default:
      check(false, "convert_to_f32: not a float dtype");
  }
}

}  // namespace braid
