#include "io/input.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kBuffer = 1 << 18, kLargestRead = 1 << 30;

}  // namespace

Result<uint64_t> file_size(const std::string& path) {
  std::error_code ec;
  const fs::file_type type = fs::status(path, ec).type();
  if (type == fs::file_type::not_found) return Error{path + ": no such file", "check the path"};
  if (type != fs::file_type::regular) return Error{path + ": not a file", "give a text, jsonl or gzip file"};
  const uint64_t size = fs::file_size(path, ec);
  if (ec) return Error{path + ": " + ec.message(), "check that it can be read"};
  return size;
}

Result<InputFile> InputFile::open(const std::string& path, uint64_t from) {
  if (const Result<uint64_t> size = file_size(path); !size) return size.error();
  InputFile file;
  file.path_ = path;
  errno = 0;
  file.file_ = gzopen(path.c_str(), "rb");
  if (!file.file_)
    return Error{path + ": " + std::strerror(errno ? errno : ENOMEM), "check that it can be read"};
  gzbuffer(file.file_, kBuffer);
  if (from > 0 && gzseek(file.file_, static_cast<z_off_t>(from), SEEK_SET) < 0)
    return Error{path + ": ends before byte " + std::to_string(from), "was it cut or replaced?"};
  return file;
}

InputFile::InputFile(InputFile&& other) noexcept { *this = std::move(other); }

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  return *this;
}

InputFile::~InputFile() {
  if (file_) gzclose_r(file_);
}

Result<size_t> InputFile::read(std::span<char> to) {
  size_t done = 0;
  while (done < to.size()) {
    const auto more = static_cast<unsigned>(std::min<size_t>(to.size() - done, kLargestRead));
    const int got = gzread(file_, to.data() + done, more);
    int code = Z_OK;
    const char* text = gzerror(file_, &code);
    if (got < 0 && code == Z_ERRNO) return Error{path_ + ": " + std::strerror(errno), "check the disk"};
    if (got < 0) return Error{path_ + ": damaged gzip data (" + text + ")", "get the file again"};
    if (code == Z_BUF_ERROR)
      return Error{path_ + ": the gzip data ends in the middle; it was cut", "get the file again"};
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

uint64_t InputFile::file_bytes_read() const {
  return static_cast<uint64_t>(std::max<z_off_t>(0, gzoffset(file_)));
}

}  // namespace braid
