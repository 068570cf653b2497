// SHA-256 (FIPS 180-4): sums that other programs print, too. For Braid's own files hash.h is faster.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace braid {

class Sha256 {
 public:
  Sha256& text(std::string_view bytes);
  std::string hex() const;  // 64 digits, of everything so far

 private:
  void block(const uint8_t* bytes);

  std::array<uint32_t, 8> h_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> buffer_{};
  uint64_t length_ = 0;  // bytes
};

}  // namespace braid
