// Files: mapped for reading, replaced as a whole for writing. A reader never sees half a file, and a write
// that fails or is killed leaves what was there before.
//
//   auto out = AtomicFile::open("model.safetensors");
//   if (!out) return out.error();
//   if (Status s = out->write(bytes); !s) return s;
//   return out->commit();                     // without it the destructor throws the new bytes away
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace braid {

// A regular file in memory, read-only. The file must not shrink while it is mapped; files written by this
// header never do, because they are replaced and not changed. For those of others see cut_files.h.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;  // null for an empty file
  size_t size_ = 0;
};

inline constexpr size_t kMaxText = size_t{4} << 30;  // of a text to train on or to score

// The whole of a file or pipe; an error if it is longer than max_bytes.
Result<std::string> read_text(const std::string& path, size_t max_bytes = size_t{64} << 20);

// Collects the new contents of `path` in a temporary file beside it.
class AtomicFile {
 public:
  static Result<AtomicFile> open(const std::string& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();  // removes the temporary file unless committed

  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  // Brings the bytes to the disk, then puts them in the place of `path`. After a failed write: that failure.
  Status commit();

 private:
  AtomicFile() = default;
  Status fail(int err);
  void discard();
  std::string path_, temp_;  // temp_ is empty once there is nothing to remove
  int fd_ = -1;
  Status status_;  // the first failure
};

Status write_atomic(const std::string& path, std::span<const std::byte> bytes);
Status write_atomic(const std::string& path, std::string_view text);

// Adds bytes, or a line, to the end of a log; the file is made if it is not there.
Status append_bytes(const std::string& path, std::string_view bytes);
Status append_line(const std::string& path, std::string_view line);

// Neither throws: what cannot be looked at (a name too long, a loop of links) is not there.
bool path_exists(const std::string& path);
std::vector<std::string> names_in(const std::string& dir);  // sorted; nothing if it is not a folder

Status make_dirs(const std::string& path);    // with parents; fine if it exists
Status remove_tree(const std::string& path);  // does not follow links; fine if there is nothing

// Puts the finished folder tmp_dir in the place of final_dir, which may exist and is then removed. Both must
// be on one file system. Where that file system cannot swap two folders, final_dir is missing for a moment:
// use a new name each time if a kill in that moment matters.
Status commit_dir(const std::string& tmp_dir, const std::string& final_dir);
// The same, but what was there before stays: under the name that is returned, empty if there was nothing.
Result<std::string> swap_dir(const std::string& tmp_dir, const std::string& final_dir);

// Makes `to` the same file as `from` without copying, or a copy where hard links are not possible.
Status link_or_copy_atomic(const std::string& from, const std::string& to);

}  // namespace braid
