#include "cli/embedded.h"

// The assembler puts the file into the read-only data; BRAID_SHARE is the source tree's share/ folder.
asm(".section .rodata\n"
    ".global braid_demo_text_begin\n"
    ".global braid_demo_text_end\n"
    "braid_demo_text_begin:\n"
    ".incbin \"" BRAID_SHARE
    "/shakespeare.txt\"\n"
    "braid_demo_text_end:\n"
    ".byte 0\n"
    ".previous\n");

extern const char braid_demo_text_begin[], braid_demo_text_end[];

namespace braid {

std::string_view demo_text() {
  return {braid_demo_text_begin, static_cast<size_t>(braid_demo_text_end - braid_demo_text_begin)};
}

}  // namespace braid
