#include "walk/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string_view>
#include <thread>

namespace braid::walk {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
// Seconds: of what must end by itself, of what may go on, and from the signal to the end.
constexpr double kSlow = kSanitized ? 10 : 1;
constexpr double kLimit = 60 * kSlow, kLong = 3 * kSlow, kToStop = 30 * kSlow;
constexpr size_t kMostStderr = 12'000;
constexpr rlim_t kMemory = rlim_t{3} << 30;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string with_dir(std::string text, const std::string& dir) {
  for (size_t at = 0; (at = text.find("{dir}", at)) != text.npos; at += dir.size()) text.replace(at, 5, dir);
  return text;
}

void redirect(Stream kind, int fd, const std::string& file) {
  int to = -1;
  if (kind == Stream::kFile) {
    to = open(file.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  } else if (kind == Stream::kFull) {
    to = open("/dev/full", O_WRONLY);
  } else if (kind == Stream::kReaderGone) {
    int ends[2];
    if (pipe(ends) == 0) close(ends[0]), to = ends[1];
  }
  if (to < 0)
    close(fd);
  else if (to != fd)
    dup2(to, fd), close(to);
}

[[noreturn]] void become(const std::string& program, const Case& c, const std::vector<std::string>& args,
                         const std::string& dir) {
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGXFSZ}) std::signal(s, SIG_DFL);
  if (chdir(dir.c_str()) != 0) _exit(126);
  const int in = open((dir + "/.in").c_str(), O_RDONLY);
  dup2(in, 0), close(in);
  redirect(c.out, 1, dir + "/.out"), redirect(c.err, 2, dir + "/.err");
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  if (!kSanitized) {  // a sanitizer's own memory does not fit into any limit
    const rlimit memory{kMemory, kMemory};
    setrlimit(RLIMIT_AS, &memory);
  }
  for (const auto& [what, value] : c.limits) {
    const rlimit limit{value, value};
    setrlimit(static_cast<__rlimit_resource>(what), &limit);
  }
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  _exit(125);
}

struct Ended {
  int status = 0;
  bool stopped = false;  // by us
  bool hung = false;
};

Ended wait_for(pid_t pid, bool may_be_long) {
  Ended e;
  const auto start = Clock::now();
  const auto done = [&](double limit) {
    for (auto pause = std::chrono::microseconds(500);;
         pause = std::min(2 * pause, std::chrono::microseconds(20'000))) {
      if (waitpid(pid, &e.status, WNOHANG) == pid) return true;
      if (since(start) > limit) return false;
      std::this_thread::sleep_for(pause);
    }
  };
  const double first = may_be_long ? kLong : kLimit;
  if (done(first)) return e;
  e.stopped = may_be_long;
  kill(pid, SIGTERM);
  if (may_be_long && done(first + kToStop)) return e;
  e.hung = true;
  kill(pid, SIGKILL);
  waitpid(pid, &e.status, 0);
  return e;
}

std::string part_of(const std::string& text, std::initializer_list<std::string_view> parts) {
  for (const std::string_view p : parts)
    if (text.find(p) != text.npos) return std::string(p);
  return "";
}

std::string judge(const Case& c, const Ended& e, const Verdict& v) {
  if (e.hung) return "does not end";
  const std::string both = v.err + v.out;
  if (const std::string p =
          part_of(both, {"terminate called", "what():", "json.exception", "internal error", "Sanitizer",
                         "runtime error:", "stack smashing", "#0 0x", "std::bad_alloc"});
      !p.empty()) {
    const bool memory = kSanitized && !part_of(both, {"out-of-memory", "allocation-size-too-big"}).empty();
    if (!memory) return "says '" + p + "'";
  }
  if (WIFSIGNALED(e.status)) {
    const int s = WTERMSIG(e.status);
    const bool ours = (e.stopped && s == SIGTERM) || (c.sent && s == c.sent) ||
                      (s == SIGPIPE && (c.out == Stream::kReaderGone || c.err == Stream::kReaderGone));
    if (!ours) return "ended by signal " + std::to_string(s);
    return "";
  }
  if (v.code == 127 && c.loader_may_fail && !part_of(v.err, {"loading shared libraries"}).empty()) return "";
  if (v.code < 0 || v.code > 2) return "exit code " + std::to_string(v.code);
  if (c.must_fail && v.code == 0) return "exit code 0";
  // stderr is a file, so a message fits only into a file of some size.
  const bool room = std::ranges::none_of(
      c.limits, [](const auto& limit) { return limit.first == RLIMIT_FSIZE && limit.second < 1000; });
  if (v.code != 0 && c.err == Stream::kFile && room && v.err.find("braid: ") == v.err.npos && !e.stopped &&
      !c.sent && v.err.find("interrupted") == v.err.npos && v.err.find("libgomp: ") == v.err.npos)
    return "fails without a message";
  if (v.err.size() > kMostStderr) return std::to_string(v.err.size()) + " bytes on stderr";
  return "";
}

}  // namespace

std::string slurp(const std::string& path) {
  std::ostringstream s;
  s << std::ifstream(path, std::ios::binary).rdbuf();
  return s.str();
}

void spit(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

Verdict run_case(const std::string& program, const std::string& scratch, const Case& c) {
  static std::atomic<unsigned> count = 0;
  const std::string dir = scratch + "/case-" + std::to_string(count++);
  fs::create_directories(dir);
  fs::create_symlink("loop", dir + "/loop");
  spit(dir + "/none", "");
  for (const auto& [name, from] : c.links) {
    fs::create_directories(dir + "/" + name);
    for (const auto& f : fs::recursive_directory_iterator(from)) {
      const fs::path to = fs::path(dir) / name / fs::relative(f.path(), from);
      if (f.is_directory())
        fs::create_directories(to);
      else
        fs::create_symlink(f.path(), to);
    }
  }
  for (const auto& [name, content] : c.files) {
    fs::remove(dir + "/" + name);
    spit(dir + "/" + name, content);
  }
  spit(dir + "/.in", c.input);
  Verdict v;
  const auto run = [&](const std::vector<std::string>& words, bool first) {
    std::vector<std::string> args;
    for (const std::string& a : words) args.push_back(with_dir(a, dir));
    const auto start = Clock::now();
    const pid_t pid = fork();
    if (pid == 0) become(program, first ? c : Case{}, args, dir);
    if (first && c.meanwhile) c.meanwhile(pid, dir);
    const Ended e = wait_for(pid, c.may_be_long && first);
    v.seconds += since(start);
    v.code = WIFEXITED(e.status) ? WEXITSTATUS(e.status) : 128 + WTERMSIG(e.status);
    v.out = slurp(dir + "/.out"), v.err = slurp(dir + "/.err");
    return judge(first ? c : Case{}, e, v);
  };
  v.wrong = run(c.args, true);
  if (v.wrong.empty() && !c.then.empty()) {
    v.wrong = run(c.then, false);
    if (v.wrong.empty() && v.code != 0) v.wrong = "what follows ends with " + std::to_string(v.code);
  }
  std::error_code ignored;
  fs::remove_all(dir, ignored);
  return v;
}

std::string command_of(const std::string& program, const Case& c) {
  std::string text = program;
  for (const std::string& a : c.args) {
    std::string shown;
    for (const char ch : a.substr(0, 80)) shown += ch < ' ' || ch > '~' ? '?' : ch;
    text += " '" + shown + (a.size() > 80 ? "...' (" + std::to_string(a.size()) + " bytes)" : "'");
  }
  return text;
}

}  // namespace braid::walk
