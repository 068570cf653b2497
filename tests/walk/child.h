// One run of the program under hostile conditions, and whether it ended as a program should.
#pragma once

#include <sys/resource.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace braid::walk {

enum class Stream { kFile, kFull, kClosed, kReaderGone };

struct Case {
  std::string group = {}, name = {};
  std::vector<std::string> args = {};  // after the program's name; "{dir}" is the case's own folder
  Stream out = Stream::kFile, err = Stream::kFile;
  std::string input = {};                                       // stdin
  std::vector<std::pair<int, rlim_t>> limits = {};              // for setrlimit
  std::vector<std::pair<std::string, std::string>> files = {};  // written into the folder: name, content
  std::vector<std::pair<std::string, std::string>> links =
      {};                        // name in the folder, folder whose files it shows
  bool may_be_long = false;      // what was asked for may take for ever; it must end when it is told to
  bool must_fail = false;        // exit code 0 would be a lie
  bool loader_may_fail = false;  // not enough memory to load libraries is not the program's fault
  std::function<void(int pid, const std::string& dir)> meanwhile = {};  // while it runs
  int sent = 0;                                                         // the signal that this sends
  std::vector<std::string> then = {};  // another run in the same folder, which must end with 0
};

struct Verdict {
  std::string wrong;  // "" if all is well
  int code = -1;      // exit code; 128 + signal
  double seconds = 0;
  std::string out, err;
};

// Runs it in a fresh folder below `scratch`, which it removes again.
Verdict run_case(const std::string& program, const std::string& scratch, const Case& c);

// The words of a command line, for a person to repeat.
std::string command_of(const std::string& program, const Case& c);

std::string slurp(const std::string& path);
void spit(const std::string& path, const std::string& text);

}  // namespace braid::walk
