#include "cli/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "base/progress.h"

namespace braid {
namespace {

int lost = 0;  // errno of the first write to stdout that failed

void check_written(bool ok) {
  if (!ok && lost == 0) lost = errno ? errno : EIO;
}

bool is_inside_char(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

std::string readable_line(std::string_view line) {
  constexpr size_t kBegin = 400, kEnd = 160;
  std::string out;
  const auto add = [&](std::string_view part) {
    for (const char c : part)
      if (static_cast<unsigned char>(c) < ' ' && c != '\t')
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
      else if (c == '\x7f')
        out += "\\x7f";
      else
        out += c;
  };
  if (line.size() <= kBegin + kEnd) return add(line), out;
  size_t begin = kBegin, end = line.size() - kEnd;  // whole characters
  while (begin > 0 && is_inside_char(line[begin])) --begin;
  while (end < line.size() && is_inside_char(line[end])) ++end;
  add(line.substr(0, begin));
  out += fmt::format(" ... {} bytes ... ", end - begin);
  add(line.substr(end));
  return out;
}

}  // namespace

void open_output() {
  std::signal(SIGXFSZ, SIG_IGN);  // a limit on file sizes is an error of the write, as a full disk is
  // In a way that fails: what is read from or written to a closed stream is an error, as it should be.
  for (const int fd : {0, 1, 2})
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)!::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

void put(std::string_view text) {
  errno = 0;
  check_written(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
}

void flush_output() {
  errno = 0;
  check_written(std::fflush(stdout) == 0);
}

int finish_output(int code) {
  flush_output();
  if (lost == 0) return code;
  note(fmt::format(
      "braid: standard output: cannot be written: {}\n  -> results may be incomplete: free some space, "
      "or write elsewhere\n",
      std::generic_category().message(lost)));
  return code == 0 ? 1 : code;
}

void note(std::string_view text) {
  const std::string s = readable(text);
  (void)std::fwrite(s.data(), 1, s.size(), stderr);
}

std::string red(int fd, std::string_view text) {
  const char* off = std::getenv("NO_COLOR");
  if (!is_terminal(fd) || (off && *off)) return std::string(text);
  return fmt::format("\033[1;31m{}\033[0m", text);
}

std::string human_bytes(double bytes) {
  constexpr std::pair<double, const char*> kUnits[] = {{1e9, "GB"}, {1e6, "MB"}, {1e3, "KB"}};
  for (const auto& [unit, name] : kUnits)
    if (bytes >= unit) return fmt::format("{:.1f} {}", bytes / unit, name);
  return fmt::format("{:.0f} bytes", bytes);
}

std::string counted(size_t n, const char* one) { return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s"); }

std::string readable(std::string_view text) {
  constexpr size_t kLines = 32;
  std::string out;
  for (size_t at = 0, n = 0; at < text.size(); ++n) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (n == kLines) {
      const auto more = std::count(text.begin() + static_cast<std::ptrdiff_t>(at), text.end() - 1, '\n') + 1;
      return out + fmt::format("... {} more lines\n", more);
    }
    out += readable_line(text.substr(at, end - at));
    if (end < text.size()) out += '\n';
    at = end + 1;
  }
  return out;
}

}  // namespace braid
