// Seconds since an arbitrary start, monotonic.
#pragma once

#include <chrono>

namespace braid {

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace braid
