// Reads the fields of a JSON object. The first problem is kept; done() also refuses fields that were
// not read, since an ignored setting would give other ids.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <set>
#include <string>

#include "io/json.h"

namespace braid {

class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) refuse("", "an object");
  }

  const nlohmann::json* find(const char* key) {  // null if it is absent or null
    seen_.insert(key);
    if (!object_.is_object()) return nullptr;
    const auto at = object_.find(key);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }
  bool flag(const char* key, bool otherwise) {
    const nlohmann::json* v = find(key);
    if (v && !v->is_boolean()) refuse(key, "true or false");
    return v && v->is_boolean() ? v->get<bool>() : otherwise;
  }
  std::string text(const char* key, const std::string& otherwise) {
    const nlohmann::json* v = find(key);
    if (v && !v->is_string()) refuse(key, "a string");
    return v && v->is_string() ? v->get<std::string>() : otherwise;
  }
  std::string needed_text(const char* key) {
    if (!find(key)) refuse(key, "a string");
    return text(key, "");
  }
  int64_t integer(const char* key, int64_t otherwise) {
    const nlohmann::json* v = find(key);
    const bool ok =
        v && v->is_number_integer() && (!v->is_number_unsigned() || v->get<uint64_t>() < (uint64_t{1} << 62));
    if (v && !ok) refuse(key, "a whole number");
    return ok ? v->get<int64_t>() : otherwise;
  }

  std::string where(const std::string& key) const {
    return where_ + (where_.ends_with(": ") || key.empty() ? "" : ".") + key;
  }
  void refuse(const std::string& key, const std::string& expected) {
    if (problem_) return;
    const bool here = object_.is_object() && object_.contains(key);
    problem_ = Error{fmt::format("{} is {}", where(key),
                                 here          ? shown(object_[key])
                                 : key.empty() ? shown(object_)
                                               : "missing"),
                     "expected " + expected};
  }
  void keep(Status s) {
    if (!s && !problem_) problem_ = s.error();
  }
  const std::optional<Error>& problem() const { return problem_; }
  Status done() {
    if (!problem_ && object_.is_object())
      for (const auto& [key, value] : object_.items())
        if (!seen_.contains(key)) {
          problem_ =
              Error{fmt::format("{} is {}: a field this version does not know", where(key), shown(value)),
                    "remove it if it changes no ids, or open an issue with the tokenizer's name"};
          break;
        }
    return problem_ ? Status(*problem_) : Status();
  }

 private:
  static std::string shown(const nlohmann::json& v) {
    const std::string text = v.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return text.size() > 60 ? text.substr(0, 60) + "..." : text;
  }

  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string> seen_;
  std::optional<Error> problem_;
};

class Vocab;
Status read_vocab(JsonFields& f, Vocab& vocab);  // the field `vocab`: names and ids

}  // namespace braid
