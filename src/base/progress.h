// Progress of work: a bar with rate and time left on a terminal, from half a second on; elsewhere a line
// every ten seconds.
//
//   Progress bar("train", steps, start);
//   for (...) { ...; bar.update(step, "loss 1.23"); }
//   bar.finish();
#pragma once

#include <cstdint>
#include <string>

namespace braid {

class Progress {
 public:
  // `first` is where a resumed job starts: the rate counts from there. Writes to stderr; `quiet` shows
  // nothing.
  Progress(std::string title, uint64_t total, uint64_t first = 0, bool quiet = false);
  ~Progress() { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(uint64_t done, const std::string& note = "");
  void line(const std::string& text);  // prints a whole line above the bar
  void clear();                        // before a line on stdout; the next update() draws again
  void finish();

 private:
  void draw();

  std::string title_, note_;
  uint64_t total_, first_, done_;
  bool quiet_, terminal_, drawn_ = false, finished_ = false;
  double start_, shown_ = 0;
};

// The text of a bar, as wide for every value of `done`; `rate`: per second.
std::string progress_line(const std::string& title, uint64_t done, uint64_t total, double rate, bool bar);

std::string human_time(double seconds);  // "1 h 03 min", "4 min 10 s", "12 s"
bool is_terminal(int fd);                // a terminal a person looks at: false when CI is set

}  // namespace braid
