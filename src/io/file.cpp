#include "io/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "io/cut_files.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

std::string reason(int err) { return std::generic_category().message(err); }

std::string fix_for(int err) {
  switch (err) {
    case ENOENT:
      return "check the path";
    case ENOTDIR:
    case EEXIST:
      return "a part of the path is a file: check the path";
    case EISDIR:
      return "name a file in it";
    case EACCES:
    case EPERM:
      return "check the permissions of the file and its folder";
    case EROFS:
      return "choose a folder that can be written";
    case ENOSPC:
    case EDQUOT:
      return "free some space or choose another folder";
    case EFBIG:
      return "raise the limit on file sizes (ulimit -f) or choose another file system";
    case EMFILE:
    case ENFILE:
      return "raise the limit on open files (ulimit -n)";
    case EXDEV:
      return "keep both on one file system";
    default:
      return "check the file system";
  }
}

Error failure(const std::string& done, const std::string& path, int err) {
  return {path + ": cannot be " + done + ": " + reason(err), fix_for(err)};
}

Error write_failure(const std::string& path, int err) {
  Error e = failure("written", path, err);
  e.fix += "; an earlier file of this name is unchanged";
  return e;
}

struct Fd {
  int fd;
  explicit Fd(int f) : fd(f) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() {
    if (fd >= 0) ::close(fd);
  }
};

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string without_trailing_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// A short name of its own, so that a long file name does not get too long. Left behind only by a kill.
std::string temp_beside(const std::string& path) {
  static std::atomic<unsigned> count = 0;
  return parent_of(path) + "/.braid-tmp-" + std::to_string(getpid()) + "-" + std::to_string(count++);
}

// Renaming over a device or a pipe would destroy it, and over a folder fails only after all the work.
Status check_target(const std::string& path) {
  if (path.empty() || path.back() == '/')
    return Error{"'" + path + "': is not the name of a file", "give a file name"};
  struct stat st;
  if (stat(path.c_str(), &st) == 0 && !S_ISREG(st.st_mode))
    return Error{path + ": cannot be written: it exists and is " +
                     (S_ISDIR(st.st_mode) ? "a directory" : "not a regular file"),
                 "choose another name"};
  return {};
}

// Brings a file or folder itself to the disk. 0 or errno.
int sync_path(const std::string& path) {
  const Fd f(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (f.fd < 0) return errno;
  // Some file systems have nothing to sync for a folder and say so with EINVAL.
  return fsync(f.fd) == 0 || errno == EINVAL || errno == ENOTSUP ? 0 : errno;
}

Status sync_parent(const std::string& path) {
  if (const int err = sync_path(parent_of(path)))
    return Error{"wrote " + path + ", but its folder could not be brought to the disk: " + reason(err),
                 "it is in place, but may not survive a power cut: check the disk"};
  return {};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  const Fd f(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe must not make us wait
  struct stat st;
  if (f.fd < 0 || fstat(f.fd, &st) != 0) return failure("opened", path, errno);
  if (S_ISDIR(st.st_mode)) return Error{path + ": is a directory", "name a file in it"};
  if (!S_ISREG(st.st_mode)) return Error{path + ": is not a regular file", "copy it to a file first"};
  MappedFile m;
  if (st.st_size == 0) return m;
  void* p = mmap(nullptr, static_cast<size_t>(st.st_size), PROT_READ, MAP_PRIVATE, f.fd, 0);
  if (p == MAP_FAILED) return failure("mapped", path, errno);
  // Where the file system can, large files come in as huge pages: weights that are read at the speed of
  // memory lose a quarter of it to the tables of small ones. Only a wish: the answer does not matter.
  (void)madvise(p, static_cast<size_t>(st.st_size), MADV_HUGEPAGE);
  m.data_ = static_cast<const std::byte*>(p);
  m.size_ = static_cast<size_t>(st.st_size);
  note_mapping(p, m.size_, path);
  return m;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!data_) return;
  forget_mapping(data_);
  munmap(const_cast<std::byte*>(data_), size_);
}

Result<std::string> read_text(const std::string& path, size_t max_bytes) {
  const Fd f(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (f.fd < 0) return failure("opened", path, errno);
  std::string text;
  char block[1 << 14];
  for (;;) {
    const ssize_t n = ::read(f.fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failure("read", path, errno);
    if (n == 0) return text;
    if (static_cast<size_t>(n) > max_bytes - text.size())
      return Error{path + ": longer than the limit of " + std::to_string(max_bytes) + " bytes",
                   "check that this is the right file"};
    text.append(block, static_cast<size_t>(n));
  }
}

Result<AtomicFile> AtomicFile::open(const std::string& path) {
  if (Status s = check_target(path); !s) return s.error();
  AtomicFile file;
  file.path_ = path;
  std::string temp;
  do {  // a name may be taken by a leftover of a killed process
    temp = temp_beside(path);
    file.fd_ = ::open(temp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (file.fd_ < 0 && errno == EEXIST);
  if (file.fd_ < 0 && errno == ENOENT)
    return Error{path + ": cannot be written: there is no folder " + parent_of(path), "create it first"};
  if (file.fd_ < 0) return write_failure(path, errno);
  file.temp_ = temp;
  return file;
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept { *this = std::move(other); }

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temp_, other.temp_);
  std::swap(fd_, other.fd_);
  std::swap(status_, other.status_);
  return *this;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (!temp_.empty()) unlink(temp_.c_str());
  temp_.clear();
}

Status AtomicFile::fail(int err) {
  status_ = write_failure(path_, err);
  discard();  // gives the space back at once
  return status_;
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  if (!status_) return status_;
  check(fd_ >= 0, "AtomicFile::write after commit");
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status AtomicFile::write(std::string_view text) { return write(std::as_bytes(std::span(text))); }

Status AtomicFile::commit() {
  if (!status_) return status_;
  check(fd_ >= 0, "AtomicFile::commit twice");
  // Closing may still report a write that failed (NFS), hence before the rename.
  if (fsync(fd_) != 0 || ::close(std::exchange(fd_, -1)) != 0 || rename(temp_.c_str(), path_.c_str()) != 0)
    return fail(errno);
  temp_.clear();
  return sync_parent(path_);
}

Status write_atomic(const std::string& path, std::span<const std::byte> bytes) {
  auto file = AtomicFile::open(path);
  if (!file) return file.error();
  if (Status s = file->write(bytes); !s) return s;
  return file->commit();
}

Status write_atomic(const std::string& path, std::string_view text) {
  return write_atomic(path, std::as_bytes(std::span(text)));
}

Status append_bytes(const std::string& path, std::string_view bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return failure("opened", path, errno);
  // One write, so that a kill leaves whole lines but for the last.
  const ssize_t n = ::write(fd, bytes.data(), bytes.size());
  const int err = n < 0 ? errno : ENOSPC;
  ::close(fd);
  if (n != static_cast<ssize_t>(bytes.size())) return failure("written", path, err);
  return {};
}

Status append_line(const std::string& path, std::string_view line) {
  return append_bytes(path, std::string(line) + "\n");
}

bool path_exists(const std::string& path) {
  std::error_code ec;
  return fs::exists(path, ec);
}

std::vector<std::string> names_in(const std::string& dir) {
  std::vector<std::string> names;
  std::error_code ec;
  for (fs::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec))
    names.push_back(it->path().filename());
  std::ranges::sort(names);
  return names;
}

Status make_dirs(const std::string& path) {
  std::error_code ec;
  fs::create_directories(without_trailing_slash(path), ec);
  if (ec) return failure("created", path, ec.value());
  return {};
}

Status remove_tree(const std::string& path) {
  const fs::path normal = fs::path(without_trailing_slash(path)).lexically_normal();
  if (normal.empty() || normal == normal.root_path() || normal.filename() == "." || normal.filename() == "..")
    return Error{"'" + path + "': is not removed", "name a folder"};
  std::error_code ec;
  fs::remove_all(normal, ec);
  if (ec) return failure("removed", path, ec.value());
  return {};
}

Result<std::string> swap_dir(const std::string& tmp_dir, const std::string& final_dir) {
  const std::string from = without_trailing_slash(tmp_dir), to = without_trailing_slash(final_dir);
  std::error_code ec;
  int err = 0;
  for (fs::recursive_directory_iterator it(from, ec), end; !ec && !err && it != end; it.increment(ec)) {
    std::error_code gone;
    const fs::file_type type = it->symlink_status(gone).type();
    if (type == fs::file_type::regular || type == fs::file_type::directory) err = sync_path(it->path());
  }
  if (ec) err = ec.value();
  if (!err) err = sync_path(from);
  if (err) return failure("synchronised", from, err);

  const auto done = [&](const std::string& old) -> Result<std::string> {
    if (Status s = sync_parent(to); !s) return s.error();
    return old;
  };
  if (rename(from.c_str(), to.c_str()) == 0) return done("");
  if (errno != ENOTEMPTY && errno != EEXIST) return write_failure(to, errno);
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return done(from);
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) return write_failure(to, errno);
  const std::string old = temp_beside(to);
  if (rename(to.c_str(), old.c_str()) != 0) return write_failure(to, errno);
  if (rename(from.c_str(), to.c_str()) == 0) return done(old);
  err = errno;
  if (rename(old.c_str(), to.c_str()) == 0) return write_failure(to, err);
  return Error{to + ": cannot be written: " + reason(err), "restore the earlier files from " + old};
}

Status commit_dir(const std::string& tmp_dir, const std::string& final_dir) {
  const Result<std::string> old = swap_dir(tmp_dir, final_dir);
  if (!old) return old.error();
  std::error_code ec;
  if (!old->empty()) fs::remove_all(*old, ec);  // if it cannot go, the new folder still stands
  return {};
}

Status link_or_copy_atomic(const std::string& from, const std::string& to) {
  if (Status s = check_target(to); !s) return s;
  const std::string temp = temp_beside(to);
  if (linkat(AT_FDCWD, from.c_str(), AT_FDCWD, temp.c_str(), AT_SYMLINK_FOLLOW) == 0) {
    const int err = rename(temp.c_str(), to.c_str()) == 0 ? 0 : errno;
    unlink(temp.c_str());  // renaming a link over another of the same file does nothing and leaves both
    if (err) return write_failure(to, err);
    return sync_parent(to);
  }
  // Whatever hindered the link, the copy either works or says it better.
  const auto file = MappedFile::open(from);
  if (!file) return file.error();
  return write_atomic(to, file->bytes());
}

}  // namespace braid
