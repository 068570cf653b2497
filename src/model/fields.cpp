#include "model/fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/json.h"
#include "model/config_json.h"

namespace braid {
namespace {

constexpr Range kDropoutRange{0, 0.99};

const Json* find(const Json& object, const char* name, std::vector<std::string>& known) {
  known.emplace_back(name);
  if (!object.is_object()) return nullptr;
  const auto it = object.find(name);
  return it == object.end() ? nullptr : &*it;
}

}  // namespace

FieldReader::FieldReader(const Source& source, std::string where, std::vector<Problem>& problems)
    : source_(source), where_(std::move(where)), problems_(problems) {
  if (!source_.json.is_object()) problem("", "is " + json_excerpt(source_.json), "give an object { ... }");
}

void FieldReader::operator()(const char* name, int64_t& value, Range range, const char* /*help*/) {
  const Json* j = find(source_.json, name, known_);
  if (!j) return;
  if (!j->is_number_integer() || (j->is_number_unsigned() && j->get<uint64_t>() > INT64_MAX))
    return problem(name, "is " + json_excerpt(*j), "give a whole number");
  const int64_t x = j->get<int64_t>();
  if (in_range(name, static_cast<double>(x), range, "whole number")) value = x;
}

void FieldReader::operator()(const char* name, double& value, Range range, const char* /*help*/) {
  const Json* j = find(source_.json, name, known_);
  if (!j) return;
  if (!j->is_number()) return problem(name, "is " + json_excerpt(*j), "give a number");
  const double x = j->get<double>();
  if (in_range(name, x, range, "number")) value = x;
}

void FieldReader::operator()(const char* name, bool& value, const char* /*help*/) {
  const Json* j = find(source_.json, name, known_);
  if (!j) return;
  if (!j->is_boolean()) return problem(name, "is " + json_excerpt(*j), "give true or false");
  value = j->get<bool>();
}

void FieldReader::operator()(const char* name, Dropout& value, const char* help) {
  (*this)(name, value.share, kDropoutRange, help);
}

int FieldReader::chosen(const char* name, const std::vector<std::string>& words) {
  const Json* j = find(source_.json, name, known_);
  if (!j) return -1;
  if (!j->is_string()) {
    problem(name, "is " + json_excerpt(*j), "give a string");
    return -1;
  }
  const std::string s = j->get<std::string>();
  const auto at = std::find(words.begin(), words.end(), s);
  if (at != words.end()) return static_cast<int>(at - words.begin());
  problem(name, "is '" + s + "'", suggest(s, words));
  return -1;
}

void FieldReader::finish() {
  if (!source_.json.is_object()) return;
  for (const auto& [key, unused] : source_.json.items())
    if (std::find(known_.begin(), known_.end(), key) == known_.end())
      problem(key, "is not a setting here", suggest(key, known_));
}

void FieldReader::problem(const std::string& name, const std::string& what, const std::string& fix) {
  problems_.push_back({name.empty() ? where_ : where_.empty() ? name : where_ + "." + name, what, fix});
}

bool FieldReader::in_range(const char* name, double x, Range range, const char* kind) {
  if (x >= range.low && x <= range.high) return true;
  problem(name, fmt::format("is {:g}", x),
          fmt::format("give a {} from {:g} to {:g}", kind, range.low, range.high));
  return false;
}

FieldWriter::FieldWriter(const Target& target) : target_(target) {
  if (target_.json.is_null()) target_.json = Json::object();
}
void FieldWriter::operator()(const char* name, int64_t& value, Range, const char*) {
  target_.json[name] = value;
}
void FieldWriter::operator()(const char* name, double& value, Range, const char*) {
  target_.json[name] = value;
}
void FieldWriter::operator()(const char* name, bool& value, const char*) { target_.json[name] = value; }
void FieldWriter::operator()(const char* name, Dropout& value, const char*) {
  target_.json[name] = value.share;
}
void FieldWriter::word(const char* name, const std::string& value) { target_.json[name] = value; }

void FieldLister::operator()(const char* name, int64_t& value, Range, const char* help) {
  fields.push_back({name, std::to_string(value), help});
}
void FieldLister::operator()(const char* name, double& value, Range, const char* help) {
  fields.push_back({name, fmt::format("{:g}", value), help});
}
void FieldLister::operator()(const char* name, bool& value, const char* help) {
  fields.push_back({name, value ? "true" : "false", help});
}
void FieldLister::operator()(const char* name, Dropout& value, const char* help) {
  (*this)(name, value.share, kDropoutRange, help);
}
void FieldLister::word(const char* name, const std::string& value, const std::vector<std::string>& words,
                       const char* help) {
  std::string all;
  for (const std::string& w : words) all += (all.empty() ? " (" : " | ") + w;
  fields.push_back({name, value, help + all + ")"});
}

}  // namespace braid
