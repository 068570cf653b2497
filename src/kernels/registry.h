// The list of all ops: `braid kernels`, `braid verify`, `braid bench kernels` and the tests iterate over it. What checks
// and times them is in workbench/verify/ops.h.
#pragma once

#include <span>
#include <string_view>

#include "kernels/common/impl_table.h"

namespace braid {

struct OpEntry {
  std::string_view name, summary;
  ImplTable& (*impls)();
};

std::span<const OpEntry> all_ops();

}  // namespace braid
