// Does a file hold the tensors that are wanted? Everything that is wrong is told at once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/safetensors.h"

namespace braid {

// Missing tensors, other shapes, another dtype (where F32 is wanted, any floats will do); and what is in the
// file, but not wanted. `view_of` gives a tensor of the file, or null.
std::vector<Problem> tensor_problems(const std::vector<TensorSpec>& wanted,
                                     const std::vector<std::string>& names_in_file,
                                     const std::function<const View*(const std::string&)>& view_of);

}  // namespace braid
