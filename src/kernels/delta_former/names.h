// How kernels are called in settings.
#pragma once

#include <string>
#include <vector>

#include "kernels/delta_former/delta_former.h"

namespace braid {

// In the order of DeltaKind.
inline const std::vector<std::string>& delta_kind_names() {
  static const std::vector<std::string> names{"linear", "relu", "exp", "softmax", "round"};
  return names;
}
inline DeltaKind delta_kind(const std::string& name) {
  const std::vector<std::string>& names = delta_kind_names();
  return static_cast<DeltaKind>(std::find(names.begin(), names.end(), name) - names.begin());
}

}  // namespace braid
