#include "io/strict_json.h"

namespace braid {

Error field_error(const std::string& file, const std::string& field, const Json* found,
                  const char* expected) {
  constexpr size_t kLongest = 40;
  const char* fix = "the file was changed after it was written: restore it";
  if (!found) return {file + ": " + field + " is missing", fix};
  std::string value = found->dump(-1, ' ', false, Json::error_handler_t::replace);
  if (value.size() > kLongest) value = value.substr(0, kLongest) + "...";
  return {file + ": " + field + " is " + value + ", not " + expected, fix};
}

Status read_value(const Json& value, bool& to, const std::string& field, const std::string& file) {
  if (!value.is_boolean()) return field_error(file, field, &value, "true or false");
  to = value.get<bool>();
  return {};
}

Status read_value(const Json& value, int64_t& to, const std::string& field, const std::string& file) {
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX))
    return field_error(file, field, &value, "a whole number");
  to = value.get<int64_t>();
  return {};
}

Status read_value(const Json& value, uint64_t& to, const std::string& field, const std::string& file) {
  if (!value.is_number_unsigned() && !(value.is_number_integer() && value.get<int64_t>() >= 0))
    return field_error(file, field, &value, "a whole number from 0");
  to = value.get<uint64_t>();
  return {};
}

Status read_value(const Json& value, double& to, const std::string& field, const std::string& file) {
  if (!value.is_number()) return field_error(file, field, &value, "a number");
  to = value.get<double>();
  return {};
}

Status read_value(const Json& value, std::string& to, const std::string& field, const std::string& file) {
  if (!value.is_string()) return field_error(file, field, &value, "a text");
  to = value.get<std::string>();
  return {};
}

Status read_value(const Json& value, std::vector<std::string>& to, const std::string& field,
                  const std::string& file) {
  if (!value.is_array()) return field_error(file, field, &value, "a list of texts");
  to.clear();
  for (const Json& each : value) {
    if (!each.is_string()) return field_error(file, field, &value, "a list of texts");
    to.push_back(each.get<std::string>());
  }
  return {};
}

Result<Json> load_object(const std::string& path) {
  Result<Json> json = load_json(path);
  if (json && !json->is_object()) return Error{path + ": is not a JSON object", "restore the file"};
  return json;
}

Result<Json> object_field(const Json& object, const std::string& name, const std::string& file) {
  const auto at = object.find(name);
  if (at == object.end()) return field_error(file, name, nullptr, "");
  if (!at->is_object()) return field_error(file, name, &*at, "an object");
  return *at;
}

}  // namespace braid
