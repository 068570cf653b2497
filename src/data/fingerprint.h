// A 64-bit hash that tells whether data or settings changed since a run was saved. Not against forgery.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace braid {

class Fingerprint {
 public:
  Fingerprint& text(std::string_view text) {
    number(text.size());  // so that "ab", "c" differs from "a", "bc"
    for (const char c : text) byte(static_cast<unsigned char>(c));
    return *this;
  }
  Fingerprint& number(uint64_t n) {
    for (int shift = 0; shift < 64; shift += 8) byte(static_cast<unsigned char>(n >> shift));
    return *this;
  }
  std::string hex() const { return fmt::format("{:016x}", h_); }

 private:
  void byte(unsigned char b) { h_ = (h_ ^ b) * 0x100000001b3u; }  // FNV-1a: the same on every machine
  uint64_t h_ = 0xcbf29ce484222325u;
};

}  // namespace braid
