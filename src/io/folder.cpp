#include "io/folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "io/file.h"
#include "io/strict_json.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr const char *kMark = ".braid", *kLock = ".braid-lock";
constexpr uint64_t kMarkVersion = 1;

struct KindName {
  FolderKind kind;
  const char *word, *what;
};
constexpr std::array kKinds{KindName{FolderKind::kRun, "run", "a training run"},
                            KindName{FolderKind::kModel, "model", "a converted model"},
                            KindName{FolderKind::kDemo, "demo", "a demo"},
                            KindName{FolderKind::kLab, "lab", "a study of the lab"},
                            KindName{FolderKind::kData, "data", "a folder of token ids"}};
const KindName& name_of(FolderKind kind) { return *std::ranges::find(kKinds, kind, &KindName::kind); }

constexpr std::array<std::string_view, 14> kCompanions{"tokenizer.json",
                                                       "tokenizer_config.json",
                                                       "special_tokens_map.json",
                                                       "added_tokens.json",
                                                       "vocab.json",
                                                       "vocab.txt",
                                                       "merges.txt",
                                                       "tokenizer.model",
                                                       "tekken.json",
                                                       "spiece.model",
                                                       "tokenizer.bin",
                                                       "chat_template.jinja",
                                                       "chat_template.json",
                                                       "generation_config.json"};

// Does a file of this name in a model's folder belong to the model?
bool is_model_file(const std::string& name) {
  constexpr std::array<std::string_view, 5> kRun{"config.json", "run.json", "result.json", "metrics.jsonl",
                                                 "report.html"};
  return std::ranges::count(kRun, name) || std::ranges::count(kCompanions, name) ||
         std::ranges::count(kTemplateFolders, name) || name.starts_with(kMark) ||
         (name.starts_with("model") &&
          (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")));
}

std::vector<std::string> names_in(const std::string& dir, std::error_code& ec) {
  std::vector<std::string> names;
  for (fs::directory_iterator it(dir, ec), end; !ec && it != end; it.increment(ec))
    names.push_back(it->path().filename().string());
  std::ranges::sort(names);
  return names;
}

std::string place(const std::string& option, const std::string& dir) { return option + " " + dir; }

Error foreign(const std::string& option, const std::string& dir, const std::string& why) {
  return {place(option, dir) + ": " + why, "give another folder, or one that is empty or not there yet"};
}

}  // namespace

std::span<const std::string_view> companion_files() { return kCompanions; }

Result<std::optional<FolderMark>> read_mark(const std::string& dir) {
  const std::string file = dir + "/" + kMark;
  std::error_code ec;
  if (!fs::exists(fs::symlink_status(file, ec))) return std::optional<FolderMark>();
  const Result<Json> json = load_object(file);
  if (!json) return json.error();
  std::string kind;
  uint64_t version = 0;
  FolderMark mark;
  if (Status s = read_field(*json, "version", version, file); !s) return s.error();
  if (version != kMarkVersion)
    return Error{file + ": version " + std::to_string(version) + " is not known here",
                 "use the version of Braid that wrote this folder"};
  if (Status s = read_field(*json, "kind", kind, file); !s) return s.error();
  const auto known = std::ranges::find(kKinds, kind, &KindName::word);
  if (known == kKinds.end()) {
    const Json value = kind;
    return field_error(file, "kind", &value, "one of run, model, demo, lab and data");
  }
  mark.kind = known->kind;
  if (mark.kind == FolderKind::kModel)
    if (Status s = read_field(*json, "files", mark.files, file); !s) return s.error();
  return std::optional(std::move(mark));
}

Status write_mark(const std::string& dir, const FolderMark& mark) {
  Json json{{"kind", name_of(mark.kind).word}, {"version", kMarkVersion}};
  if (mark.kind == FolderKind::kModel) json["files"] = mark.files;
  return save_json(dir + "/" + kMark, json);
}

bool is_empty_folder(const std::string& dir) {
  std::error_code ec;
  if (!fs::exists(fs::symlink_status(dir, ec))) return true;
  const std::vector<std::string> names = names_in(dir, ec);
  return !ec && std::ranges::all_of(names, [](const std::string& n) { return n.starts_with(kMark); });
}

Status check_folder(const std::string& option, const std::string& dir, FolderKind kind, bool known) {
  std::error_code ec;
  const fs::file_status status = fs::status(dir, ec);
  if (status.type() == fs::file_type::not_found) return {};
  if (ec) return Error{place(option, dir) + ": " + ec.message(), "check the path"};
  if (status.type() != fs::file_type::directory) return foreign(option, dir, "is not a folder");
  const Result<std::optional<FolderMark>> mark = read_mark(dir);
  if (!mark) return Error{place(option, dir) + ": " + mark.error().what, mark.error().fix};
  if (*mark) {
    if ((*mark)->kind == kind) return {};
    return foreign(option, dir, std::string("holds ") + name_of((*mark)->kind).what);
  }
  const std::vector<std::string> names = names_in(dir, ec);
  if (ec) return Error{place(option, dir) + ": " + ec.message(), "check the permissions of the folder"};
  if (known || is_empty_folder(dir)) return {};
  return foreign(option, dir,
                 std::string("has files that Braid did not write as ") + name_of(kind).what + ", e.g. " +
                     in_quotes(names.front()));
}

Status claim_folder(const std::string& option, const std::string& dir, FolderKind kind, bool known) {
  if (Status s = check_folder(option, dir, kind, known); !s) return s;
  if (Status s = make_folder(option, dir); !s) return s;
  const Result<std::optional<FolderMark>> mark = read_mark(dir);
  if (!mark) return mark.error();
  return *mark ? Status() : write_mark(dir, {.kind = kind});
}

Status make_folder(const std::string& option, const std::string& dir) {
  const Status s = make_dirs(dir);
  return s ? s : Error{option + ": " + s.error().what, s.error().fix};
}

Result<FolderLock> FolderLock::take(const std::string& option, const std::string& dir) {
  const std::string file = dir + "/" + kLock;
  FolderLock lock;
  lock.fd_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (lock.fd_ < 0)
    return Error{file + ": cannot be written: " + std::generic_category().message(errno),
                 "check the permissions of the folder"};
  if (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return lock;  // this file system has no locks
    char pid[24] = {};
    const ssize_t n = pread(lock.fd_, pid, sizeof pid - 1, 0);
    return Error{place(option, dir) + ": another process is at work in this folder" +
                     (n > 0 ? ", number " + std::string(pid, static_cast<size_t>(n)) : std::string()),
                 "wait until it has ended, or give another folder"};
  }
  const std::string pid = std::to_string(getpid());  // for the message above, nothing else
  if (ftruncate(lock.fd_, 0) == 0) (void)!pwrite(lock.fd_, pid.data(), pid.size(), 0);
  return lock;
}

FolderLock::FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
FolderLock& FolderLock::operator=(FolderLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

Status check_replaceable(const std::string& option, const std::string& out) {
  if (Status s = check_folder(option, out, FolderKind::kModel); !s) return s;
  const Result<std::optional<FolderMark>> mark = read_mark(out);
  if (!mark) return mark.error();
  std::error_code ec;
  if (*mark)
    for (const std::string& name : names_in(out, ec))
      if (is_model_file(name) && !name.starts_with(kMark) && !std::ranges::count((*mark)->files, name))
        return Error{place(option, out) + ": " + in_quotes(name) + " was not written by Braid",
                     "move it elsewhere, or give another folder"};
  return {};
}

Status commit_model_folder(const std::string& tmp, const std::string& out) {
  struct stat before, after;
  const bool there = stat(tmp.c_str(), &before) == 0;
  const Result<std::string> swapped = swap_dir(tmp, out);
  if (!swapped) {
    // If the swap was made and only its sync failed, `tmp` is what stood at `out`: that stays.
    if (there && stat(tmp.c_str(), &after) == 0 && before.st_ino == after.st_ino) (void)remove_tree(tmp);
    return swapped.error();
  }
  const std::string& old = *swapped;
  if (old.empty()) return {};
  const auto kept = [&](const std::string& why) {
    return Error{
        out + ": is complete, but not all other files of the folder could be moved back to it: " + why,
        "move them from " + old};
  };
  const Result<std::optional<FolderMark>> mark = read_mark(old);
  if (!mark) return kept(mark.error().what);
  std::error_code ec;
  for (const std::string& name : names_in(old, ec)) {
    if (name.starts_with(kMark) || (*mark && std::ranges::count((*mark)->files, name))) continue;
    if (renameat2(AT_FDCWD, (old + "/" + name).c_str(), AT_FDCWD, (out + "/" + name).c_str(),
                  RENAME_NOREPLACE) != 0) {
      const int err = errno;
      // Not every file system can refuse to replace.
      if ((err != EINVAL && err != ENOSYS) || fs::exists(fs::symlink_status(out + "/" + name, ec)) ||
          rename((old + "/" + name).c_str(), (out + "/" + name).c_str()) != 0)
        return kept(in_quotes(name) + ": " + std::generic_category().message(err));
    }
  }
  if (ec) return kept(ec.message());
  return remove_tree(old);
}

Status check_output(const NamedPath& out, const std::vector<NamedPath>& inputs) {
  if (out.path.empty()) return {};
  const auto refuse = [&](const NamedPath& in, const std::string& what) {
    return Error{place(out.option, out.path) + ": " + what + " " + place(in.option, in.path),
                 "give another " + out.option};
  };
  std::error_code ec;
  const fs::path target = fs::weakly_canonical(out.path, ec);
  for (const NamedPath& in : inputs) {
    if (in.path.empty()) continue;
    const fs::path source = fs::weakly_canonical(in.path, ec);
    if ((!target.empty() && target == source) || fs::equivalent(out.path, in.path, ec))
      return refuse(in, "is the same file as");
    if (!fs::is_directory(source, ec)) continue;
    // By whatever link: a run's newest model is also in its checkpoint.
    for (const std::string& name : names_in(in.path, ec))
      if (is_model_file(name) && fs::equivalent(out.path, in.path + "/" + name, ec))
        return refuse(in, "is a file of");
    const fs::path inside = target.lexically_relative(source);
    if (inside.empty() || *inside.begin() == "..") continue;
    if (is_model_file(inside.begin()->string()) || *inside.begin() == "state")
      return refuse(in, "would be a file of");
  }
  return {};
}

}  // namespace braid
