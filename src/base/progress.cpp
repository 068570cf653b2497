#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/clock.h"

namespace braid {
namespace {

constexpr double kBarFirst = 0.5, kBarEvery = 0.1, kLineEvery = 10.0;  // seconds
constexpr size_t kBar = 24;                                            // characters

// In five characters or fewer.
std::string short_number(double x) {
  constexpr std::pair<double, const char*> kUnits[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "K"}};
  for (const auto& [unit, name] : kUnits)
    if (x >= unit) return fmt::format("{:.3g}{}", x / unit, name);
  return fmt::format("{:.3g}", x);
}

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

std::string progress_line(const std::string& title, uint64_t done, uint64_t total, double rate, bool bar) {
  const double share = total ? std::min(1.0, static_cast<double>(done) / static_cast<double>(total)) : 1;
  const std::string all = std::to_string(total),
                    left = rate > 0 && total >= done ? human_time(static_cast<double>(total - done) / rate)
                                                     : "?";
  std::string drawn;
  if (bar) {
    const auto full = static_cast<size_t>(share * kBar);
    drawn = "[" + std::string(full, '#') + std::string(kBar - full, '.') + "] ";
  }
  return fmt::format("{} {}{:>3.0f} %  {:>{}}/{}  {:>8}  {:>12} left", title, drawn, std::floor(100 * share),
                     done, all.size(), all, short_number(rate) + "/s", left);
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
  if (now - shown_ < (!terminal_ ? kLineEvery : drawn_ ? kBarEvery : kBarFirst)) return;
  shown_ = now;
  draw();
}

void Progress::draw() {
  constexpr int kNarrow = 90;  // columns; below there is no bar
  const double elapsed = seconds_now() - start_;
  const double rate = elapsed > 0 ? static_cast<double>(done_ - first_) / elapsed : 0;
  const int width = columns() - 1;
  const std::string text = progress_line(title_, done_, total_, rate, terminal_ && width >= kNarrow) +
                           (note_.empty() ? "" : "  " + note_);
  if (!terminal_) {
    std::fputs((text + "\n").c_str(), stderr);
    return;
  }
  std::fputs(("\r\033[K" + text.substr(0, static_cast<size_t>(width))).c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::clear() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
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
