// Fields of JSON files that Braid itself wrote: what is missing, null or of another type was damaged, and is
// an error that names file and field, never a default.
//
//   uint64_t step;
//   if (Status s = read_field(*json, "step", step, path); !s) return s;
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "io/json.h"

namespace braid {

// `found`: null if it is missing. `expected`: "a number", ..
Error field_error(const std::string& file, const std::string& field, const Json* found, const char* expected);

Status read_value(const Json& value, bool& to, const std::string& field, const std::string& file);
Status read_value(const Json& value, int64_t& to, const std::string& field, const std::string& file);
Status read_value(const Json& value, uint64_t& to, const std::string& field, const std::string& file);
Status read_value(const Json& value, double& to, const std::string& field, const std::string& file);
Status read_value(const Json& value, std::string& to, const std::string& field, const std::string& file);
Status read_value(const Json& value, std::vector<std::string>& to, const std::string& field,
                  const std::string& file);

// `inside`: where the object stands in the file, for messages, e.g. "options.".
template <class T>
Status read_field(const Json& object, const std::string& name, T& to, const std::string& file,
                  const std::string& inside = "") {
  const auto at = object.find(name);
  if (at == object.end()) return field_error(file, inside + name, nullptr, "");
  return read_value(*at, to, inside + name, file);
}

// A file that holds an object, or one of its fields that does.
Result<Json> load_object(const std::string& path);
Result<Json> object_field(const Json& object, const std::string& name, const std::string& file);

}  // namespace braid
