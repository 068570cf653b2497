// Settings described once: parsing, writing, validation and documentation all come from one visit() function.
//
//   enum class Norm { kNone, kHead };
//   struct AttentionConfig {
//     int64_t heads = 4;
//     Norm qk_norm = Norm::kNone;
//     template <class V> void visit(V& v) {
//       v("heads", heads, {1, 1024}, "query heads");
//       v("qk_norm", qk_norm, {{"none", Norm::kNone}, {"head", Norm::kHead}}, "RMSNorm of q and k");
//     }
//   };
//   read_fields(config, json, "layers[0].mixer", problems);  // config_json.h
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"

namespace braid {

struct Range {
  double low, high;
};

// The values of an enum and the words for them in JSON.
template <class E>
struct Choice {
  std::string_view word;
  E value;
};
template <class E>
class Choices {
 public:
  Choices(std::initializer_list<Choice<E>> all) : all_(all) {}
  explicit Choices(std::vector<Choice<E>> all) : all_(std::move(all)) {}

  E operator[](size_t i) const { return all_[i].value; }
  std::vector<std::string> words() const {
    std::vector<std::string> words;
    for (const Choice<E>& c : all_) words.emplace_back(c.word);
    return words;
  }
  std::string word(E value) const {
    for (const Choice<E>& c : all_)
      if (c.value == value) return std::string(c.word);
    check(false, "Choices: a value without a word");
    return {};
  }

 private:
  std::vector<Choice<E>> all_;
};

// A share of numbers dropped in training, 0 to 0.99. Elsewhere it has no effect.
struct Dropout {
  double share = 0;
  constexpr Dropout(double s = 0) : share(s) {}        // NOLINT: a number is a Dropout
  constexpr operator double() const { return share; }  // NOLINT: and a Dropout is a number
};

// Reads fields from a JSON object and notes every problem: wrong types, values out of range, unknown keys.
class FieldReader {
 public:
  struct Source;  // the JSON object: config_json.h
  FieldReader(const Source& source, std::string where, std::vector<Problem>& problems);

  void operator()(const char* name, int64_t& value, Range range, const char* help);
  void operator()(const char* name, double& value, Range range, const char* help);
  void operator()(const char* name, bool& value, const char* help);
  void operator()(const char* name, Dropout& value, const char* help);
  template <class E>
  requires std::is_enum_v<E>
  void operator()(const char* name, E& value, const Choices<E>& choices, const char* /*help*/) {
    if (const int i = chosen(name, choices.words()); i >= 0) value = choices[static_cast<size_t>(i)];
  }
  // A setting that changes the defaults of those after it: given(value) runs if the object has it.
  template <class E, class Given>
  requires std::is_enum_v<E>
  void operator()(const char* name, E& value, const Choices<E>& choices, const char* /*help*/,
                  const Given& given) {
    const int i = chosen(name, choices.words());
    if (i < 0) return;
    value = choices[static_cast<size_t>(i)];
    given(value);
  }

  void allow(const char* name) { known_.emplace_back(name); }  // a key that is read elsewhere
  void finish();                                               // reports keys that were not read
  void problem(const std::string& name, const std::string& what, const std::string& fix);

 private:
  bool in_range(const char* name, double x, Range range, const char* kind);
  int chosen(const char* name, const std::vector<std::string>& words);  // -1: none of them

  const Source& source_;
  std::string where_;
  std::vector<Problem>& problems_;
  std::vector<std::string> known_;
};

// Writes every field. A null becomes an object.
class FieldWriter {
 public:
  struct Target;  // the JSON object: config_json.h
  explicit FieldWriter(const Target& target);
  void operator()(const char* name, int64_t& value, Range range, const char* help);
  void operator()(const char* name, double& value, Range range, const char* help);
  void operator()(const char* name, bool& value, const char* help);
  void operator()(const char* name, Dropout& value, const char* help);
  template <class E, class... Given>
  requires std::is_enum_v<E>
  void operator()(const char* name, E& value, const Choices<E>& choices, const char* /*help*/,
                  const Given&...) {
    word(name, choices.word(value));
  }

 private:
  void word(const char* name, const std::string& value);

  const Target& target_;
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
  void operator()(const char* name, Dropout& value, const char* help);
  template <class E, class... Given>
  requires std::is_enum_v<E>
  void operator()(const char* name, E& value, const Choices<E>& choices, const char* help, const Given&...) {
    word(name, choices.word(value), choices.words(), help);
  }

 private:
  void word(const char* name, const std::string& value, const std::vector<std::string>& words,
            const char* help);
};

// Finds the settings that act in training alone, and can set them to zero.
class DropoutFinder {
 public:
  explicit DropoutFinder(bool clear = false) : clear_(clear) {}
  bool found() const { return found_; }  // any above zero

  void operator()(const char*, int64_t&, Range, const char*) {}
  void operator()(const char*, double&, Range, const char*) {}
  void operator()(const char*, bool&, const char*) {}
  void operator()(const char*, Dropout& value, const char*) {
    found_ |= value > 0;
    if (clear_) value = 0;
  }
  template <class E, class... Given>
  requires std::is_enum_v<E>
  void operator()(const char*, E&, const Choices<E>&, const char*, const Given&...) {}

 private:
  bool clear_, found_ = false;
};

template <class Config>
std::vector<FieldDoc> list_fields(Config c) {
  FieldLister l;
  c.visit(l);
  return l.fields;
}

template <class Config>
bool has_dropout_field(Config c) {
  DropoutFinder f;
  c.visit(f);
  return f.found();
}

}  // namespace braid
