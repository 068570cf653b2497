// Runs the braid program as a user would.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace braid::test {

struct Finished {
  int code = -1;  // exit code; 128 + signal if it was killed
  std::string out, err;
};

struct RunOptions {
  std::vector<std::string> env = {};     // "NAME=value"
  double kill_after = 0;                 // seconds; 0: not at all
  std::function<bool()> kill_when = {};  // asked every millisecond, or none
  int signal = 9;
  std::string input = {};     // what it reads from stdin
  std::string cwd = {};       // the folder it runs in; empty: this process's
  const char* out = nullptr;  // stdout instead of a file to read back: a device, or "" for a closed one
  long memory_limit = 0;      // bytes of address space; 0: no limit
  long file_limit = 0;        // no file may grow beyond this many bytes, as on a full disk; 0: no limit
};

// `args` after the program name.
Finished run_braid(const std::vector<std::string>& args, const RunOptions& options = {});

// A fresh folder, removed at the end of its scope.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string slurp(const std::string& path);
void spit(const std::string& path, const std::string& text);

}  // namespace braid::test
