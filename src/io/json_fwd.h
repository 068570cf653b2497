// Json, for headers that only name it.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace braid {

// What the project reads and writes as JSON: keys stay in the order they were put in.
using Json = nlohmann::ordered_json;

}  // namespace braid
