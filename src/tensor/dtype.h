// Number formats of stored tensors. Arithmetic is done in f32; bf16 and f16 are storage.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace braid {

enum class DType : uint8_t { kF32, kF64, kBF16, kF16, kI64, kI32, kI16, kI8, kU8, kBool };

size_t dtype_size(DType d);
std::string_view dtype_name(DType d);  // as safetensors spells it: "F32", "BF16", ...
std::optional<DType> dtype_from_name(std::string_view name);

// bf16: the upper half of an f32. Rounds to nearest even; NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;
};

inline float to_f32(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

inline bf16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1)) >> 16)};
}

// f16: IEEE binary16.
struct f16 {
  uint16_t bits = 0;
};

float to_f32(f16 x);
f16 to_f16(float x);

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<int16_t> {
  static constexpr DType value = DType::kI16;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::kI8;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::kBool;
};

}  // namespace braid
