// A 64-bit hash that tells whether data, settings or files changed since they were saved. Not against
// forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace braid {

// Eight bytes at a time, since models are large: a step is a bijection of the sum so far, so one changed word
// always changes the result.
class Hash {
 public:
  Hash& bytes(std::span<const std::byte> bytes);  // and how many: "ab", "c" differs from "a", "bc"
  Hash& text(std::string_view text) { return bytes(std::as_bytes(std::span(text))); }
  Hash& number(uint64_t n);
  std::string hex() const;  // 16 digits

 private:
  uint64_t h_ = 0;
};

Result<std::string> file_hash(const std::string& path);  // hex, of all its bytes

}  // namespace braid
