#include "process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace braid::test {

Finished run_braid(const std::vector<std::string>& args, const RunOptions& options) {
  const TempDir dir;
  const std::string in = dir / "in", out = dir / "out", err = dir / "err";
  spit(in, options.input);
  const pid_t pid = fork();
  if (pid == 0) {
    const int o = open(options.out ? options.out : out.c_str(), O_CREAT | O_WRONLY, 0600),
              e = open(err.c_str(), O_CREAT | O_WRONLY, 0600);
    dup2(open(in.c_str(), O_RDONLY), 0), o < 0 ? close(1) : dup2(o, 1), dup2(e, 2);
    for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(s, SIG_DFL);
    if (options.memory_limit > 0) {
      const rlimit limit{static_cast<rlim_t>(options.memory_limit),
                         static_cast<rlim_t>(options.memory_limit)};
      setrlimit(RLIMIT_AS, &limit);
    }
    for (const std::string& v : options.env) putenv(const_cast<char*>(v.c_str()));
    if (!options.cwd.empty() && chdir(options.cwd.c_str()) != 0) _exit(126);
    if (options.file_limit > 0) {
      const rlimit limit{static_cast<rlim_t>(options.file_limit), static_cast<rlim_t>(options.file_limit)};
      setrlimit(RLIMIT_FSIZE, &limit);
      std::signal(SIGXFSZ, SIG_IGN);  // writes fail with an error instead of ending the program
    }
    std::vector<char*> argv{const_cast<char*>(BRAID_BINARY)};
    for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    execv(BRAID_BINARY, argv.data());
    _exit(127);
  }
  if (options.kill_after > 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options.kill_after));
    kill(pid, options.signal);
  }
  int status = 0;
  bool ended = false;
  while (options.kill_when && !ended) {
    if (options.kill_when()) {
      kill(pid, options.signal);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ended = waitpid(pid, &status, WNOHANG) == pid;
  }
  if (!ended) waitpid(pid, &status, 0);
  Finished f;
  f.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  f.out = slurp(out), f.err = slurp(err);
  return f;
}

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "braid-test-XXXXXX").string();
  path_ = mkdtemp(name.data());
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string slurp(const std::string& path) {
  std::ostringstream s;
  s << std::ifstream(path, std::ios::binary).rdbuf();
  return s.str();
}

void spit(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

}  // namespace braid::test
