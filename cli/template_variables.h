// Variables of a chat template from the command line. Keys keep their order: a template shows them again.
#pragma once

#include <string>

#include "base/error.h"
#include "io/json.h"

namespace braid {

Json json_or_text(const std::string& text);
Status set_variable(Json& variables, const std::string& setting);  // "name=value"
Result<Json> load_list(const std::string& path, const std::string& what);

}  // namespace braid
