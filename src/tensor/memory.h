// Aligned memory from the system: large blocks on huge pages, untouched, so that only what is used counts.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace braid {

struct FreeMemory {
  void operator()(void* p) const { std::free(p); }
};
using RawMemory = std::unique_ptr<void, FreeMemory>;

void* aligned_memory(size_t bytes);  // throws std::bad_alloc; for std::free

}  // namespace braid
