// The list of all ops: `braid kernels`, `braid verify`, `braid bench kernels` and the tests iterate over it.
// What checks and times them is in workbench/verify/ops.h.
#pragma once

#include <span>
#include <string_view>

#include "base/error.h"
#include "kernels/common/impl_table.h"

namespace braid {

struct OpEntry {
  std::string_view name, summary;
  const ImplTable& (*impls)();
};

std::span<const OpEntry> all_ops();

// isa: a level by name; kernels: "op=implementation,..."; either may be empty. Unknown names, and what this
// machine cannot run, are errors; they call the two by these names.
struct KernelChoiceNames {
  std::string_view isa = "isa", kernels = "kernels";
};
Result<KernelChoice> parse_kernel_choice(std::string_view isa, std::string_view kernels,
                                         const KernelChoiceNames& names = {});
// From BRAID_ISA and BRAID_KERNEL. Programs call it once; no kernel reads the environment.
Result<KernelChoice> kernel_choice_from_environment();

}  // namespace braid
