#include "eval/python_random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "base/check.h"

namespace braid {

PythonRandom::PythonRandom(uint64_t seed) {
  // init_by_array of the reference implementation; the key is the seed in words of 32 bits.
  const std::vector<uint32_t> key =
      seed >> 32 ? std::vector{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}
                 : std::vector{static_cast<uint32_t>(seed)};
  constexpr size_t kSize = 624;
  state_[0] = 19650218;
  for (size_t i = 1; i < kSize; ++i)
    state_[i] = 1812433253u * (state_[i - 1] ^ state_[i - 1] >> 30) + static_cast<uint32_t>(i);
  size_t i = 1, j = 0;
  const auto wrap = [&] {
    if (++i >= kSize) state_[0] = state_[kSize - 1], i = 1;
  };
  for (size_t k = std::max(kSize, key.size()); k > 0; --k) {
    state_[i] =
        (state_[i] ^ (state_[i - 1] ^ state_[i - 1] >> 30) * 1664525u) + key[j] + static_cast<uint32_t>(j);
    wrap();
    if (++j >= key.size()) j = 0;
  }
  for (size_t k = kSize - 1; k > 0; --k) {
    state_[i] = (state_[i] ^ (state_[i - 1] ^ state_[i - 1] >> 30) * 1566083941u) - static_cast<uint32_t>(i);
    wrap();
  }
  state_[0] = 0x80000000u;
}

uint32_t PythonRandom::next() {
  constexpr size_t kSize = 624, kShift = 397;
  if (at_ == kSize) {
    for (size_t i = 0; i < kSize; ++i) {
      const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kSize] & 0x7fffffffu);
      state_[i] = state_[(i + kShift) % kSize] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    at_ = 0;
  }
  uint32_t y = state_[at_++];
  y ^= y >> 11;
  y ^= y << 7 & 0x9d2c5680u;
  y ^= y << 15 & 0xefc60000u;
  return y ^ y >> 18;
}

uint64_t PythonRandom::bits(int count) {
  check(count >= 1 && count <= 64, "PythonRandom::bits");
  if (count <= 32) return next() >> (32 - count);
  const uint64_t low = next();
  return low | static_cast<uint64_t>(next() >> (64 - count)) << 32;
}

double PythonRandom::uniform() {
  const uint32_t a = next() >> 5, b = next() >> 6;
  return (a * 67108864.0 + b) / 9007199254740992.0;
}

uint64_t PythonRandom::below(uint64_t n) {
  check(n > 0, "PythonRandom::below(0)");
  const int width = static_cast<int>(std::bit_width(n));
  uint64_t r = bits(width);
  while (r >= n) r = bits(width);
  return r;
}

size_t PythonRandom::choice(size_t n) { return static_cast<size_t>(uniform() * static_cast<double>(n)); }

std::vector<size_t> PythonRandom::sample(size_t n, size_t k) {
  check(k <= n, "PythonRandom::sample: more than there are");
  // CPython copies the population if that takes less memory than a set of k.
  double set_size = 21;
  if (k > 5) set_size += std::pow(4, std::ceil(std::log(static_cast<double>(3 * k)) / std::log(4.0)));
  std::vector<size_t> out(k);
  if (static_cast<double>(n) <= set_size) {
    std::vector<size_t> pool(n);
    std::iota(pool.begin(), pool.end(), size_t{0});
    for (size_t i = 0; i < k; ++i) {
      const size_t j = below(n - i);
      out[i] = pool[j];
      pool[j] = pool[n - i - 1];
    }
    return out;
  }
  std::unordered_set<size_t> drawn;
  for (size_t& o : out) {
    do o = below(n);
    while (!drawn.insert(o).second);
  }
  return out;
}

}  // namespace braid
