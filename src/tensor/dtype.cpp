#include "tensor/dtype.h"

#include <array>
#include <cmath>

namespace braid {
namespace {

struct Entry {
  std::string_view name;
  size_t size;
};
constexpr std::array<Entry, 10> kEntries{{{"F32", 4},
                                          {"F64", 8},
                                          {"BF16", 2},
                                          {"F16", 2},
                                          {"I64", 8},
                                          {"I32", 4},
                                          {"I16", 2},
                                          {"I8", 1},
                                          {"U8", 1},
                                          {"BOOL", 1}}};

}  // namespace

size_t dtype_size(DType d) { return kEntries[static_cast<size_t>(d)].size; }
std::string_view dtype_name(DType d) { return kEntries[static_cast<size_t>(d)].name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kEntries.size(); ++i)
    if (kEntries[i].name == name) return static_cast<DType>(i);
  return std::nullopt;
}

float to_f32(f16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16, exponent = (x.bits >> 10) & 31,
                 mantissa = x.bits & 1023;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0)
    return std::copysign(static_cast<float>(mantissa) * 0x1p-24f, std::bit_cast<float>(sign));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

f16 to_f16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000);
  const float a = std::fabs(x);
  if (std::isnan(x)) return {static_cast<uint16_t>(sign | 0x7e00)};
  if (a >= 65520.0f) return {static_cast<uint16_t>(sign | 0x7c00)};
  if (a < 0x1p-14f) return {static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(a * 0x1p24f)))};
  const uint32_t rounded = (u & 0x7fffffffu) + 0xfffu + ((u >> 13) & 1);
  return {static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)))};
}

}  // namespace braid
