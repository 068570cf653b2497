// The folder of a training run: whose it is, who works in it, and its record, run.json.
#pragma once

#include <string>

#include "base/error.h"
#include "io/folder.h"

namespace braid {

// A run's folder, locked for this process as long as the object lives.
class RunFolder {
 public:
  // For a new run: a folder that is empty or Braid's. Of a run that is in it, all that Braid wrote goes if
  // `over`; else it is an error.
  static Result<RunFolder> start(const std::string& dir, bool over, const std::string& option = "--run");
  // To go on with the run that is in it; also one of before folders had a mark.
  static Result<RunFolder> resume(const std::string& dir, const std::string& option = "--run");

  const std::string& dir() const { return dir_; }

 private:
  RunFolder(std::string dir, FolderLock lock) : dir_(std::move(dir)), lock_(std::move(lock)) {}
  static Result<RunFolder> take(const std::string& dir, const std::string& option);
  std::string dir_;
  FolderLock lock_;
};

}  // namespace braid
