// Settings described once: parsing, writing, validation and documentation all come from one visit() function.
//
//   struct AttentionConfig {
//     int heads = 4;
//     template <class V> void visit(V& v) { v("heads", heads, {1, 1024}, "query heads"); }
//   };
//   FieldReader r(json, "layers[0].mixer", problems);  config.visit(r);  r.finish();
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "io/json.h"

namespace braid {

struct Range {
  double low, high;
};

// Reads fields from a JSON object and notes every problem: wrong types, values out of range, unknown keys.
class FieldReader {
 public:
  FieldReader(const Json& object, std::string where, std::vector<Problem>& problems)
      : object_(object), where_(std::move(where)), problems_(problems) {
    if (!object_.is_object()) problem("", "is " + text(object_), "give an object { ... }");
  }

  void operator()(const char* name, int64_t& value, Range range, const char* /*help*/) {
    if (const Json* j = find(name)) {
      if (!j->is_number_integer() || (j->is_number_unsigned() && j->get<uint64_t>() > INT64_MAX))
        return problem(name, "is " + text(*j), "give a whole number");
      in_range(
          name, static_cast<double>(j->get<int64_t>()), range, [&] { value = j->get<int64_t>(); },
          "whole number ");
    }
  }
  void operator()(const char* name, double& value, Range range, const char* /*help*/) {
    if (const Json* j = find(name)) {
      if (!j->is_number()) return problem(name, "is " + text(*j), "give a number");
      in_range(
          name, j->get<double>(), range, [&] { value = j->get<double>(); }, "number ");
    }
  }
  void operator()(const char* name, bool& value, const char* /*help*/) {
    if (const Json* j = find(name)) {
      if (!j->is_boolean()) return problem(name, "is " + text(*j), "give true or false");
      value = j->get<bool>();
    }
  }
  void operator()(const char* name, std::string& value, const std::vector<std::string>& choices,
                  const char* /*help*/) {
    if (const Json* j = find(name)) {
      if (!j->is_string()) return problem(name, "is " + text(*j), "give a string");
      const std::string s = j->get<std::string>();
      if (!choices.empty() && std::find(choices.begin(), choices.end(), s) == choices.end())
        return problem(name, "is '" + s + "'", suggest(s, choices));
      value = s;
    }
  }

  // A key that is read elsewhere.
  void allow(const char* name) { known_.push_back(name); }

  void finish() {  // reports keys that nobody asked for
    if (!object_.is_object()) return;
    for (const auto& [key, unused] : object_.items())
      if (std::find(known_.begin(), known_.end(), key) == known_.end())
        problem(key, "is not a setting here", suggest(key, known_));
  }

  void problem(const std::string& name, const std::string& what, const std::string& fix) {
    problems_.push_back({name.empty() ? where_ : where_.empty() ? name : where_ + "." + name, what, fix});
  }

 private:
  static std::string text(const Json& j) {
    const std::string s = j.dump(-1, ' ', false, Json::error_handler_t::replace);
    return s.size() > 60 ? s.substr(0, 57) + "..." : s;
  }
  const Json* find(const char* name) {
    known_.push_back(name);
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(name);
    return it == object_.end() ? nullptr : &*it;
  }
  template <class Set>
  void in_range(const char* name, double x, Range range, const Set& set, const char* kind) {
    if (!(x >= range.low && x <= range.high))
      return problem(name, fmt::format("is {:g}", x),
                     fmt::format("give a {}from {:g} to {:g}", kind, range.low, range.high));
    set();
  }

  const Json& object_;
  std::string where_;
  std::vector<Problem>& problems_;
  std::vector<std::string> known_;
};

// Writes every field.
class FieldWriter {
 public:
  explicit FieldWriter(Json& object) : object_(object) {}
  void operator()(const char* name, int64_t& value, Range, const char*) { object_[name] = value; }
  void operator()(const char* name, double& value, Range, const char*) { object_[name] = value; }
  void operator()(const char* name, bool& value, const char*) { object_[name] = value; }
  void operator()(const char* name, std::string& value, const std::vector<std::string>&, const char*) {
    object_[name] = value;
  }

 private:
  Json& object_;
};

// Lists name, default and meaning: for `braid archs` and the documentation.
struct FieldDoc {
  std::string name, value, help;
};
class FieldLister {
 public:
  std::vector<FieldDoc> fields;
  void operator()(const char* name, int64_t& value, Range, const char* help) {
    fields.push_back({name, std::to_string(value), help});
  }
  void operator()(const char* name, double& value, Range, const char* help) {
    fields.push_back({name, fmt::format("{:g}", value), help});
  }
  void operator()(const char* name, bool& value, const char* help) {
    fields.push_back({name, value ? "true" : "false", help});
  }
  void operator()(const char* name, std::string& value, const std::vector<std::string>& choices,
                  const char* help) {
    std::string all;
    for (const std::string& c : choices) all += (all.empty() ? " (" : " | ") + c;
    fields.push_back({name, value, help + (all.empty() ? "" : all + ")")});
  }
};

// Changes what the object gives; the rest of `c` stays. `also`: a key that is read elsewhere.
template <class Config>
void read_fields(Config& c, const Json& object, const std::string& where, std::vector<Problem>& problems,
                 const char* also = "type") {
  FieldReader r(object, where, problems);
  r.allow(also);
  c.visit(r);
  r.finish();
}

template <class Config>
Config parse_fields(const Json& object, const std::string& where, std::vector<Problem>& problems) {
  Config c;
  read_fields(c, object, where, problems);
  return c;
}

// Every field with its value.
template <class Config>
Json write_fields(Config c) {
  Json object = Json::object();
  FieldWriter w(object);
  c.visit(w);
  return object;
}

template <class Config>
std::vector<FieldDoc> list_fields(Config c) {
  FieldLister l;
  c.visit(l);
  return l.fields;
}

}  // namespace braid
