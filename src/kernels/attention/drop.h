// Which attention weights a dropout keeps: a hash of seed, query row, head and key position, so that forward,
// backward and any tiling agree without a stored mask.
#pragma once

#include <cstddef>
#include <cstdint>

namespace braid {

struct AttentionDrop {
  float p = 0;  // share of the weights that is dropped; the others are divided by 1 - p
  uint32_t seed = 0;
  float kept() const { return 1 / (1 - p); }
};

constexpr uint32_t mix32(uint32_t h) {
  h = (h ^ (h >> 16)) * 0x7feb352dU;
  h = (h ^ (h >> 15)) * 0x846ca68bU;
  return h ^ (h >> 16);
}
constexpr uint32_t drop_column(const AttentionDrop& d, size_t row, size_t head) {
  return mix32(mix32(d.seed + static_cast<uint32_t>(row)) + static_cast<uint32_t>(head));
}
constexpr float kDropSteps = 16777216.0f;  // the upper 24 bits are compared: exact in a float
// The factor on the weight of a key.
inline float drop_factor(const AttentionDrop& d, uint32_t column, int64_t key) {
  const uint32_t h = mix32(column + static_cast<uint32_t>(key));
  return static_cast<float>(h >> 8) >= d.p * kDropSteps ? d.kept() : 0.0f;
}

}  // namespace braid
