#include "cli/output.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <system_error>

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
      "braid: cannot write to standard output: {}\n  -> results may be incomplete: free some space, "
      "or write elsewhere\n",
      std::generic_category().message(lost)));
  return code == 0 ? 1 : code;
}

void note(std::string_view text) {
  const std::string s = readable(text);
  (void)std::fwrite(s.data(), 1, s.size(), stderr);
}

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
