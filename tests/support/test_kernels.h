// The kernels that tests of whole models run with: those of BRAID_ISA, for the *_base_isa entries of ctest.
#pragma once

#include <cstdlib>

#include "base/parallel.h"

namespace braid {

inline KernelChoice test_kernels() {
  KernelChoice kernels;
  if (const char* name = std::getenv("BRAID_ISA"))
    if (const std::optional<Isa> isa = isa_from_name(name)) kernels.cap(*isa);
  return kernels;
}

// The same as a Par without threads.
inline Par test_par() {
  static const KernelChoice kernels = test_kernels();
  return Par().with(kernels);
}

}  // namespace braid
