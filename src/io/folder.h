// Which folders and files may be written.
//
// A folder that Braid fills carries a mark, the file `.braid`: its kind, the mark's version and, for a
// converted model, the names of the files that were written. A folder is written to only if it is empty or
// has the mark of its kind, so that a mistyped path replaces no other files.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace braid {

enum class FolderKind { kRun, kModel, kDemo, kLab, kData };

struct FolderMark {
  FolderKind kind = FolderKind::kRun;
  std::vector<std::string> files = {};  // kModel: all that was written beside the mark
};

Result<std::optional<FolderMark>> read_mark(const std::string& dir);  // none: there is no mark
Status write_mark(const std::string& dir, const FolderMark& mark);

// An error unless `dir` is missing, empty or marked as this kind. `known`: accept a folder without a mark,
// because the caller has recognised it otherwise (folders older than marks). `option` names the folder in
// errors, as it was typed: "--run".
Status check_folder(const std::string& option, const std::string& dir, FolderKind kind, bool known = false);
// The same; then the folder is there and marked.
Status claim_folder(const std::string& option, const std::string& dir, FolderKind kind, bool known = false);

Status make_folder(const std::string& option, const std::string& dir);  // make_dirs(), named so
bool is_empty_folder(const std::string& dir);  // missing, or nothing in it but what this header puts there

// One process at a time works in a folder. The system takes a lock back when its process ends, however that
// is.
class FolderLock {
 public:
  static Result<FolderLock> take(const std::string& option, const std::string& dir);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;
  ~FolderLock();

 private:
  FolderLock() = default;
  int fd_ = -1;  // also where a file system has no locks
};

// Puts the finished model folder `tmp`, which has a mark, in the place of `out`, which may exist: the files
// that its mark lists go, all others move over. If that fails before `out` was touched, `tmp` is removed.
Status commit_model_folder(const std::string& tmp, const std::string& out);
// Before the work: may the model folder `out` be replaced? Not if it holds a file that the new one may have,
// too, but that is not in its mark.
Status check_replaceable(const std::string& option, const std::string& out);

// Files of a model besides its weights, for any engine: tokenizer, chat template, generation settings.
std::span<const std::string_view> companion_files();
// Folders of more chat templates, *.jinja: that of transformers, and its older name.
inline constexpr std::string_view kTemplateFolders[] = {"additional_chat_templates", "chat_templates"};

// An output must not replace one of its inputs: the same file by whatever name or link, or a file that
// belongs to a model in an input folder. Empty paths are none.
struct NamedPath {
  std::string option, path;  // "--text", "book.txt"
};
Status check_output(const NamedPath& out, const std::vector<NamedPath>& inputs);

}  // namespace braid
