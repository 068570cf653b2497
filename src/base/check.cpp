#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace braid {

void die(std::string_view message, Where at) {
  std::fprintf(stderr, "braid: internal error: %.*s (%s:%d)\n", static_cast<int>(message.size()),
               message.data(), at.file, at.line);
  std::abort();
}

}  // namespace braid
