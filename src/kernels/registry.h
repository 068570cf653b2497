// The list of all ops: `braid kernels`, `braid verify`, `braid bench kernels` and the tests iterate over it.
#pragma once

#include <span>
#include <string_view>

#include "kernels/common/compare.h"
#include "kernels/common/impl_table.h"

namespace braid {

struct OpEntry {
  std::string_view name, summary;
  ImplTable& (*impls)();
  std::vector<CheckRow> (*check)();  // with the implementation now selected, against the reference in double
  std::vector<BenchCase> (*bench)();
};

std::span<const OpEntry> all_ops();

}  // namespace braid
