// Stops the program at once on a programmer's mistake, with file and line. A user can never trigger one.
#pragma once

#include <string_view>

namespace braid {

struct Where {
  const char* file;
  int line;
  static constexpr Where here(const char* f = __builtin_FILE(), int l = __builtin_LINE()) { return {f, l}; }
};

[[noreturn]] void die(std::string_view message, Where at);

inline void check(bool ok, std::string_view message, Where at = Where::here()) {
  if (!ok) [[unlikely]]
    die(message, at);
}

}  // namespace braid
