#include "data/embedded.h"

// The assembler puts the file into the read-only data; BRAID_SHARE is the source tree's share/ folder.
asm(".section .rodata\n"
    ".global braid_shakespeare_begin\n"
    ".global braid_shakespeare_end\n"
    "braid_shakespeare_begin:\n"
    ".incbin \"" BRAID_SHARE
    "/shakespeare.txt\"\n"
    "braid_shakespeare_end:\n"
    ".byte 0\n"
    ".previous\n");

extern const char braid_shakespeare_begin[], braid_shakespeare_end[];

namespace braid {

std::string_view shakespeare() {
  return {braid_shakespeare_begin, static_cast<size_t>(braid_shakespeare_end - braid_shakespeare_begin)};
}

}  // namespace braid
