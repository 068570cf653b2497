#include "base/rng.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace braid {
namespace {

// FNV-1a: stable across machines and compilers, unlike std::hash.
uint64_t hash(std::string_view text, uint64_t h = 0xcbf29ce484222325u) {
  for (const unsigned char c : text) h = (h ^ c) * 0x100000001b3u;
  return h;
}

uint64_t mix(uint64_t x) {  // splitmix64's finaliser
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::array<uint32_t, 2> key_of(uint64_t x) {
  x = mix(x);
  return {static_cast<uint32_t>(x), static_cast<uint32_t>(x >> 32)};
}

}  // namespace

Philox philox4x32(Philox c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * c[0], p1 = 0xCD9E8D57ull * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c;
}

Rng::Rng(uint64_t seed, std::string_view purpose)
    : key_(key_of(mix(seed + 0x9e3779b97f4a7c15u) ^ hash(purpose))) {}

Philox Rng::block(uint64_t index, uint64_t block) const {
  return philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                     static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32)},
                    key_);
}

uint32_t Rng::next() {
  if (have_ == 0) {
    buffer_ = block(substream_, draw_++);
    have_ = 4;
  }
  return buffer_[4 - have_--];
}

uint64_t Rng::below(uint64_t n) {
  check(n > 0, "Rng::below needs n > 0");
  // Rejection keeps it exactly uniform; for small n the loop ends at once with probability 1 - n/2^64.
  const uint64_t limit = ~uint64_t{0} - ~uint64_t{0} % n;
  uint64_t x = next64();
  while (x >= limit) x = next64();
  return x % n;
}

float Rng::normal() {
  // Box-Muller; one of the pair is enough here. 1 - u lies in (0, 1], so the log is finite.
  const double u = 1.0 - (next() * 0x1p-32), v = next() * 0x1p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
}

Permutation::Permutation(uint64_t n, uint64_t seed, uint64_t epoch)
    : n_(n),
      half_bits_((std::bit_width(n > 1 ? n - 1 : 1) + 1) / 2),
      key_(key_of(mix(seed ^ 0x5851f42d4c957f2du) + epoch)) {}

uint64_t Permutation::operator()(uint64_t i) const {
  check(i < n_, "Permutation index out of range");
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  // A Feistel network permutes 2^(2 half_bits); walking its cycle back into 0 .. n-1 keeps it a permutation.
  do {
    uint64_t left = i >> half_bits_, right = i & mask;
    for (uint32_t round = 0; round < 4; ++round) {
      const Philox f =
          philox4x32({static_cast<uint32_t>(right), static_cast<uint32_t>(right >> 32), round, 0}, key_);
      const uint64_t next = left ^ (((static_cast<uint64_t>(f[1]) << 32) | f[0]) & mask);
      left = right;
      right = next;
    }
    i = (left << half_bits_) | right;
  } while (i >= n_);
  return i;
}

}  // namespace braid
