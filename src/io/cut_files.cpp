#include "io/cut_files.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

namespace braid {
namespace {

// A signal handler can neither lock nor allocate, so the mappings stand in a table of a fixed size; what does
// not fit is reported without a name. A slot is written before `begin` is, and read after.
struct Slot {
  std::atomic<uintptr_t> begin{0};  // 0: free, 1: being written
  std::atomic<size_t> size{0};
  std::array<char, 512> path{};
};
std::array<Slot, 256> slots;
std::atomic<bool> reporting{false};

void write_text(const char* text) { (void)!write(STDERR_FILENO, text, strlen(text)); }

void on_bus_error(int, siginfo_t* info, void*) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Slot& s : slots) {
    const uintptr_t begin = s.begin.load(std::memory_order_acquire);
    if (begin <= 1 || at < begin || at - begin >= s.size.load(std::memory_order_relaxed)) continue;
    write_text("braid: ");
    write_text(s.path.data());
    write_text(
        ": was cut short by another program while it was read, or its disk failed\n"
        "  -> fetch or write the file again\n");
    _exit(1);
  }
  write_text("braid: memory of a file or of the system could not be read\n");
  _exit(1);
}

}  // namespace

void report_cut_files() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
  reporting = true;
}

void note_mapping(const void* data, size_t size, const std::string& path) {
  if (!reporting) return;
  for (Slot& s : slots) {
    uintptr_t free = 0;
    if (!s.begin.compare_exchange_strong(free, 1)) continue;
    const size_t n = std::min(path.size(), s.path.size() - 1);
    std::copy_n(path.data(), n, s.path.data());
    s.path[n] = '\0';
    s.size.store(size, std::memory_order_relaxed);
    s.begin.store(reinterpret_cast<uintptr_t>(data), std::memory_order_release);
    return;
  }
}

void forget_mapping(const void* data) {
  for (Slot& s : slots) {
    uintptr_t begin = reinterpret_cast<uintptr_t>(data);
    if (begin != 0 && s.begin.compare_exchange_strong(begin, 0)) return;
  }
}

}  // namespace braid
