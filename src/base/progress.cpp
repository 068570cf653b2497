#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/clock.h"

namespace braid {
namespace {

constexpr double kBarEvery = 0.1, kLineEvery = 10.0;  // seconds

int columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

}  // namespace

bool is_terminal(int fd) {
  const char* term = std::getenv("TERM");
  return isatty(fd) && !std::getenv("CI") && term && std::string_view(term) != "dumb";
}

std::string human_time(double s) {
  if (s < 1) return fmt::format("{:.0f} ms", s * 1e3);
  const auto whole = static_cast<uint64_t>(std::min(s, 1e15) + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

Progress::Progress(std::string title, uint64_t total, uint64_t first, bool quiet)
    : title_(std::move(title)),
      total_(total),
      first_(first),
      done_(first),
      quiet_(quiet),
      terminal_(is_terminal(STDERR_FILENO)),
      start_(seconds_now()),
      shown_(start_) {}

void Progress::update(uint64_t done, const std::string& note) {
  done_ = done;
  if (!note.empty()) note_ = note;
  if (quiet_) return;
  const double now = seconds_now();
  if (now - shown_ < (terminal_ ? kBarEvery : kLineEvery)) return;
  shown_ = now;
  draw();
}

void Progress::draw() {
  const double elapsed = seconds_now() - start_;
  const double rate = elapsed > 0 ? static_cast<double>(done_ - first_) / elapsed : 0;
  const std::string left =
      rate > 0 && total_ >= done_ ? human_time(static_cast<double>(total_ - done_) / rate) : "?";
  const std::string text =
      fmt::format("{} {}/{}  {:.4g}/s  {} left  {}", title_, done_, total_, rate, left, note_);
  if (!terminal_) {
    std::fputs((text + "\n").c_str(), stderr);
    return;
  }
  const int width = columns() - 1, bar = std::clamp(width - static_cast<int>(text.size()) - 3, 0, 30);
  std::string out = "\r\033[K";
  if (bar >= 5) {
    const int full = total_ ? static_cast<int>(static_cast<double>(bar) * done_ / total_) : bar;
    out += "[" + std::string(full, '#') + std::string(bar - full, '.') + "] ";
  }
  out += text.substr(0, width);
  std::fputs(out.c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::line(const std::string& text) {
  if (quiet_) return;
  if (drawn_) std::fputs("\r\033[K", stderr);
  std::fputs((text + "\n").c_str(), stderr);
  if (drawn_) draw();
}

void Progress::finish() {
  if (finished_ || quiet_) return;
  finished_ = true;
  if (terminal_ && drawn_) {
    draw();
    std::fputc('\n', stderr);
  }
}

}  // namespace braid
