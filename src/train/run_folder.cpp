#include "train/run_folder.h"

#include <filesystem>

#include "io/file.h"
#include "io/json.h"
#include "io/strict_json.h"
#include "train/checkpoint.h"
#include "train/run_record.h"
#include "train/tensorboard.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  std::error_code ec;
  return fs::exists(fs::symlink_status(path, ec));
}

// A run of before folders had a mark: a config of Braid's, and a record or a checkpoint.
bool is_unmarked_run(const std::string& dir) {
  if (!exists(dir + "/config.json")) return false;
  const Result<Json> config = load_object(dir + "/config.json");
  std::string type;
  if (!config || !read_field(*config, "model_type", type, "") || type != "braid") return false;
  if (exists(dir + "/run.json")) {
    const Result<Json> record = load_object(dir + "/run.json");
    return record && record->contains("options") && record->contains("braid");
  }
  const std::optional<uint64_t> step = latest_checkpoint(dir);
  return step.has_value();
}

}  // namespace

Result<RunFolder> RunFolder::take(const std::string& dir, const std::string& option) {
  // Looked at before anything is written to it, and again by claim_folder() when nobody else is at work in
  // it.
  if (Status s = check_folder(option, dir, FolderKind::kRun, is_unmarked_run(dir)); !s) return s.error();
  if (Status s = make_folder(option, dir); !s) return s.error();
  Result<FolderLock> lock = FolderLock::take(option, dir);
  if (!lock) return lock.error();
  if (Status s = claim_folder(option, dir, FolderKind::kRun, is_unmarked_run(dir)); !s) return s.error();
  return RunFolder(dir, *std::move(lock));
}

Result<RunFolder> RunFolder::start(const std::string& dir, bool over, const std::string& option) {
  Result<RunFolder> folder = take(dir, option);
  if (!folder) return folder;
  if (!over && (exists(dir + "/run.json") || exists(dir + "/state")))
    return Error{option + " " + dir + ": there is a run in this folder",
                 "add --resume to continue it, or choose another " + option};
  if (Status s = remove_checkpoints(dir); !s) return s.error();
  for (const char* name : {"run.json", "metrics.jsonl", "samples.txt", "result.json", "report.html",
                           "model.safetensors", "config.json"})
    if (Status s = remove_tree(dir + "/" + name); !s) return s.error();
  for (const std::string& name : names_in(dir))
    if (is_event_file(name))
      if (Status s = remove_tree(dir + "/" + name); !s) return s.error();
  return folder;
}

Result<RunFolder> RunFolder::resume(const std::string& dir, const std::string& option) {
  Result<RunFolder> folder = take(dir, option);
  if (folder) clean_checkpoints(dir);
  return folder;
}

Result<Json> load_run_record(const std::string& dir) {
  const std::string file = dir + "/run.json";
  Result<Json> record = load_object(file);
  if (!record) return record;
  std::string text;
  uint64_t version = 1;
  if (record->contains("version"))
    if (Status s = read_field(*record, "version", version, file); !s) return s.error();
  if (version < 1 || version > kRunVersion)
    return Error{file + ": version " + std::to_string(version) + " is not known here",
                 "go on with the version of Braid that wrote it"};
  for (const char* name : {"command", "started"})
    if (Status s = read_field(*record, name, text, file); !s) return s.error();
  if (const Result<Json> options = object_field(*record, "options", file); !options) return options.error();
  const Result<Json> data = object_field(*record, "data", file);
  if (!data) return data.error();
  for (const char* name : {"source", "fingerprint"})
    if (Status s = read_field(*data, name, text, file, "data."); !s) return s.error();
  if (const auto resumed = record->find("resumed"); resumed != record->end() && !resumed->is_array())
    return field_error(file, "resumed", &*resumed, "a list");
  return record;
}

uint64_t run_version(const Json& record) {
  const auto at = record.find("version");
  return at == record.end() ? 1 : at->get<uint64_t>();
}

}  // namespace braid
