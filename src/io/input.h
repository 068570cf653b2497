// A file read from its beginning to its end, plain or gzip: its content tells which. For files that are
// larger than memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"

struct gzFile_s;

namespace braid {

class InputFile {
 public:
  // Begins at byte `from` of the text, which for gzip is the unpacked one.
  static Result<InputFile> open(const std::string& path, uint64_t from = 0);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  Result<size_t> read(std::span<char> to);  // how many bytes; fewer than to.size() only at the end
  uint64_t file_bytes_read() const;         // of the file as it is stored, for progress

 private:
  InputFile() = default;
  std::string path_;
  gzFile_s* file_ = nullptr;
};

Result<uint64_t> file_size(const std::string& path);  // of a regular file

}  // namespace braid
