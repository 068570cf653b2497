// JSON whose keys stay in the order of the text: what a user wrote and a template shows again.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "io/json.h"

namespace braid {

// As parse_json; of a key that appears twice the last value wins, at the place of the first.
Result<Json> parse_ordered_json(std::string_view text, const std::string& name_for_errors);
Result<Json> load_ordered_json(const std::string& path);

}  // namespace braid
