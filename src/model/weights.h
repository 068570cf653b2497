// Checks a file against the expected tensors; all problems are reported at once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/safetensors.h"

namespace braid {

// Missing tensors, other shapes, another dtype (F32 accepts any float type), and unexpected tensors of the
// file. `view_of` gives a tensor of the file, or null.
std::vector<Problem> tensor_problems(const std::vector<TensorSpec>& wanted,
                                     const std::vector<std::string>& names_in_file,
                                     const std::function<const View*(const std::string&)>& view_of);

}  // namespace braid
