#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tensor/arena.h"
#include "tensor/tensor.h"

namespace braid {
namespace {

TEST(DType, Bf16RoundsToNearestEvenAndKeepsNaN) {
  EXPECT_EQ(to_f32(to_bf16(1.0f)), 1.0f);
  EXPECT_EQ(to_f32(to_bf16(1.0f + 0x1p-8f)), 1.0f);                // tie, even is below
  EXPECT_EQ(to_f32(to_bf16(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);  // tie, even is above
  EXPECT_TRUE(std::isnan(to_f32(to_bf16(std::nanf("")))));
  EXPECT_TRUE(std::isinf(to_f32(to_bf16(3.4e38f))));
}

TEST(DType, F16AgreesWithTheCompilerOnEveryBitPattern) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float x = to_f32(f16{static_cast<uint16_t>(bits)});
    if (std::isnan(x)) continue;
    EXPECT_EQ(to_f16(x).bits, bits);
  }
  for (float x : {65519.0f, 65520.0f, 0x1p-25f, 0x1.8p-24f, 1.00048828125f, -2.00146484375f}) {
    const _Float16 h = static_cast<_Float16>(x);
    EXPECT_EQ(to_f32(to_f16(x)), static_cast<float>(h)) << x;
  }
}

TEST(Arena, ReusesMemoryAfterReleaseAndPoisonsIt) {
  Arena arena(true);
  float* first = arena.take<float>(10).data();
  const Arena::Mark m = arena.mark();
  std::span<float> big = arena.take<float>(10 << 20);  // forces a second block
  EXPECT_TRUE(std::isnan(big.front()) && std::isnan(big.back()));
  big[0] = 1;
  arena.release(m);
  arena.take<float>(10);
  EXPECT_TRUE(std::isnan(arena.take<float>(10 << 20)[0]));
  arena.reset();
  EXPECT_EQ(arena.take<float>(10).data(), first);
  EXPECT_GE(arena.peak_bytes(), size_t{40} << 20);
}

TEST(Tensor, CopiesAreIndependent) {
  Tensor a(DType::kF32, {2, 3});
  a.as<float>()[5] = 7;
  Tensor b = a;
  b.as<float>()[5] = 1;
  EXPECT_EQ(a.as<float>()[5], 7);
  EXPECT_EQ(a.shape().text(), "[2, 3]");
}

}  // namespace
}  // namespace braid
