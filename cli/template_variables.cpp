#include "cli/template_variables.h"

#include "io/json.h"

namespace braid {

Json json_or_text(const std::string& text) {
  Result<Json> parsed = parse_ordered_json(text, "value");
  return parsed ? *std::move(parsed) : Json(text);
}

Status set_variable(Json& variables, const std::string& setting) {
  const size_t equals = setting.find('=');
  if (equals == setting.npos || equals == 0)
    return Error{"--set " + setting + ": is not name=value", "write e.g. --set enable_thinking=false"};
  variables[setting.substr(0, equals)] = json_or_text(setting.substr(equals + 1));
  return {};
}

Result<Json> load_list(const std::string& path, const std::string& what) {
  Result<Json> list = load_json(path);
  if (list && !list->is_array()) return Error{path + ": is not a list of " + what, "write a JSON list"};
  return list;
}

}  // namespace braid
