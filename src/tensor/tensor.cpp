#include "tensor/tensor.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

#include "tensor/memory.h"

namespace braid {
namespace {

constexpr size_t kAlign = 64;  // a cache line and the widest vector
constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

void* aligned_memory(size_t bytes) {
  const size_t align = bytes >= kHugePage ? kHugePage : kAlign;
  void* p = std::aligned_alloc(align, (bytes + align) / align * align);
  if (!p) throw std::bad_alloc();
  // Before the first touch: a page is what it was when it was touched. Large blocks on 4 KB pages run out of
  // TLB entries.
  if (align == kHugePage) madvise(p, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return p;
}

void Tensor::Free::operator()(void* p) const { std::free(p); }

Tensor::Tensor(DType dtype, Shape shape) : dtype_(dtype), shape_(shape), data_(aligned_memory(bytes())) {
  std::memset(data_.get(), 0, bytes());
}

Tensor::Tensor(const Tensor& other) : dtype_(other.dtype_), shape_(other.shape_) {
  if (!other.data_) return;
  data_.reset(aligned_memory(bytes()));
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
