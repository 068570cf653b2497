// run.json, the record of a run. Version 2: fingerprints are of Hash; version 1, without a number, is still
// read.
#pragma once

#include <string>

#include "base/error.h"
#include "io/json_fwd.h"

namespace braid {

inline constexpr uint64_t kRunVersion = 2;
Result<Json> load_run_record(const std::string& dir);
uint64_t run_version(const Json& record);

}  // namespace braid
