#include "io/hash.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "io/file.h"

namespace braid {

Hash& Hash::number(uint64_t n) {
  h_ = std::rotl((h_ ^ n) * 0x9e3779b97f4a7c15u, 29);
  return *this;
}

Hash& Hash::bytes(std::span<const std::byte> bytes) {
  number(bytes.size());
  size_t i = 0;
  for (; i + sizeof(uint64_t) <= bytes.size(); i += sizeof(uint64_t)) {
    uint64_t x;
    std::memcpy(&x, bytes.data() + i, sizeof x);
    number(x);
  }
  uint64_t rest = 0;
  if (i < bytes.size()) std::memcpy(&rest, bytes.data() + i, bytes.size() - i);
  return number(rest);
}

std::string Hash::hex() const { return fmt::format("{:016x}", h_); }

Result<std::string> file_hash(const std::string& path) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) return file.error();
  return Hash().bytes(file->bytes()).hex();
}

}  // namespace braid
