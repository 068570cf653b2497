// The text of generation_config.h's two files, read.
#pragma once

#include "infer/generation_config.h"
#include "io/json_fwd.h"

namespace braid {

// Null where there is no such file.
Result<GenerationConfig> read_generation_config(const Json& generation, const Json& config,
                                                const std::string& dir);

}  // namespace braid
