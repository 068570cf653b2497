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
  FieldReader(const Json& object, std::string where, std::vector<Problem>& problems);

  void operator()(const char* name, int64_t& value, Range range, const char* help);
  void operator()(const char* name, double& value, Range range, const char* help);
  void operator()(const char* name, bool& value, const char* help);
  void operator()(const char* name, std::string& value, const std::vector<std::string>& choices,
                  const char* help);

  void allow(const char* name) { known_.push_back(name); }  // a key that is read elsewhere
  void finish();                                            // reports keys that nobody asked for
  void problem(const std::string& name, const std::string& what, const std::string& fix);

 private:
  const Json* find(const char* name);
  bool in_range(const char* name, double x, Range range, const char* kind);

  const Json& object_;
  std::string where_;
  std::vector<Problem>& problems_;
  std::vector<std::string> known_;
};

// Writes every field.
class FieldWriter {
 public:
  explicit FieldWriter(Json& object) : object_(object) {}
  void operator()(const char* name, int64_t& value, Range range, const char* help);
  void operator()(const char* name, double& value, Range range, const char* help);
  void operator()(const char* name, bool& value, const char* help);
  void operator()(const char* name, std::string& value, const std::vector<std::string>& choices,
                  const char* help);

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
  void operator()(const char* name, int64_t& value, Range range, const char* help);
  void operator()(const char* name, double& value, Range range, const char* help);
  void operator()(const char* name, bool& value, const char* help);
  void operator()(const char* name, std::string& value, const std::vector<std::string>& choices,
                  const char* help);
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
