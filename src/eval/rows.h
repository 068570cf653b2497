// Rows of a task's data file.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "io/json.h"

namespace braid {

// One row and the first thing found wrong with it: fields are read without a check after each.
class EvalRow {
 public:
  EvalRow(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  bool has(const char* name) const { return json_.contains(name); }
  std::string text(const char* name);
  std::vector<std::string> texts(const char* name);           // a list of strings
  std::string text_in(const char* name, const char* inside);  // a string in an object
  std::vector<std::string> texts_in(const char* name, const char* inside);
  // A number, or a string of digits; below `end`.
  size_t index(const char* name, size_t end, size_t first = 0);
  std::vector<std::vector<std::string>> answers(const char* name);  // strings, or lists of strings
  bool is_object(const char* name) const { return has(name) && json_.at(name).is_object(); }
  bool is_list(const char* name) const { return has(name) && json_.at(name).is_array(); }
  void wrong(const std::string& what, const std::string& fix);  // the first is kept
  const Status& status() const { return status_; }

 private:
  const Json* field(const char* name);
  std::string as_text(const Json& value, const std::string& name);
  std::vector<std::string> as_texts(const Json& value, const std::string& name);

  const Json& json_;
  std::string where_;  // "piqa.jsonl:12"
  Status status_;
};

struct EvalRows {
  std::string path = {};
  std::vector<Json> rows = {};
  std::vector<size_t> lines = {};  // from 1
};
// The file's format follows from its name: .jsonl, .raw (WikiText pages), else a text per line.
Result<EvalRows> read_eval_rows(const std::string& path);

}  // namespace braid
