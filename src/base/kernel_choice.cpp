#include "base/kernel_choice.h"

#include <algorithm>

namespace braid {

KernelChoice& KernelChoice::cap(Isa isa) {
  isa_ = std::min(isa, detected_isa());
  return *this;
}

KernelChoice& KernelChoice::force(std::string_view op, std::string_view implementation) {
  std::erase_if(forced_, [&](const auto& f) { return f.first == op; });
  forced_.emplace_back(op, implementation);
  return *this;
}

std::string_view KernelChoice::forced(std::string_view op) const {
  for (const auto& [name, implementation] : forced_)
    if (name == op) return implementation;
  return {};
}

}  // namespace braid
