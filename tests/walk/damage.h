// Files that are not what they should be.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace braid::walk {

using Damaged = std::vector<std::pair<std::string, std::string>>;  // what was done, and what came of it

// Of any format: cut, emptied, flipped, with something behind it.
Damaged damage_bytes(const std::string& good);
// Of JSON, besides: each value replaced by others, nested, repeated, too long, not UTF-8.
Damaged damage_json(const std::string& good);
// Of safetensors, besides: the same done to the header.
Damaged damage_safetensors(const std::string& good);

}  // namespace braid::walk
