// The values a template computes with: Python's, as far as templates can see them.
//
// Lists and dicts never change once made: the sandbox that templates run in forbids it. Only namespaces do.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braid::chat {

// What stops parsing or rendering. Thrown inside this room only; ChatTemplate turns it into an Error.
struct Failure {
  std::string what;
  int line = 0;  // 0: the renderer's position
};
[[noreturn]] inline void fail(std::string what) { throw Failure{std::move(what)}; }

// A template and the messages come from strangers: what one rendering may use.
struct Budget {
  size_t steps = 50'000'000;          // tree nodes evaluated and items visited
  size_t bytes = size_t{1} << 30;     // of all strings and lists made on the way
  size_t longest = size_t{64} << 20;  // bytes of one string, the output included

  void step(size_t n = 1) {
    if (n > steps) throw Failure{"the template runs too long: the limit of steps is reached"};
    steps -= n;
  }
  void take(size_t n) {
    if (n > bytes) throw Failure{"the template makes too much text: the limit of memory is reached"};
    bytes -= n;
  }
  void text(size_t n) {  // before a string of n bytes is made
    if (n > longest) throw Failure{"the template makes a string that is too long"};
    take(n);
  }
};

inline constexpr int kMaxValueDepth = 300;  // lists in lists; what walks values recurses
inline constexpr size_t kMaxValueWeight = size_t{1} << 24;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kView,  // dict.keys(), .values(), .items()
  kRange,
  kIterator,  // what map, select, ... give: true, without length, and used up once walked
  kNamespace,
  kLoop,
  kFunction,
};

class Value;
using Values = std::vector<Value>;

struct Object {
  int depth = 0;      // of containers below it
  size_t weight = 1;  // what walking all of it costs, in steps; shared parts count each time they appear
  virtual ~Object() = default;
};

class Value {
 public:
  Value() = default;  // None
  Value(bool b) : kind_(Kind::kBool) { n_.b = b; }
  Value(int64_t i) : kind_(Kind::kInt) { n_.i = i; }
  Value(double f) : kind_(Kind::kFloat) { n_.f = f; }
  Value(std::string text, bool markup = false);
  Value(const char* text) : Value(std::string(text)) {}
  Value(Kind kind, std::shared_ptr<const Object> object) : kind_(kind), object_(std::move(object)) {}

  Kind kind() const { return kind_; }
  bool is(Kind k) const { return kind_ == k; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool is_integer() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }  // as in Python
  bool is_number() const { return is_integer() || kind_ == Kind::kFloat; }

  bool boolean() const { return n_.b; }
  int64_t integer() const { return kind_ == Kind::kBool ? n_.b : n_.i; }
  double number() const { return kind_ == Kind::kFloat ? n_.f : static_cast<double>(integer()); }
  const std::string& text() const;
  bool markup() const;
  const Values& items() const;  // of a list, tuple or view
  template <class T>
  const T& as() const {
    return static_cast<const T&>(*object_);
  }
  const Object* object() const { return object_.get(); }
  const std::shared_ptr<const Object>& shared() const { return object_; }
  int depth() const { return object_ ? object_->depth : 0; }
  size_t weight() const { return object_ ? object_->weight : 1; }

 private:
  Kind kind_ = Kind::kNone;
  union {
    bool b;
    int64_t i;
    double f;
  } n_ = {};
  std::shared_ptr<const Object> object_;
};

struct Text : Object {
  std::string text;
  bool markup = false;  // came from `escape` or `safe`: "+" escapes what is joined to it
};
struct UndefinedInfo : Object {
  std::string message;
};
struct Sequence : Object {
  Values items;
  bool group = false;  // a tuple of `groupby`, with the attributes grouper and list
};
struct View : Object {
  Values items;
  const char* name = "";  // dict_items, ...
};
struct Dict : Object {
  std::vector<std::pair<Value, Value>> items;
  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;
  void set(Value key, Value value);  // while it is being made
};
struct Range : Object {
  int64_t start = 0, stop = 0, step = 1, length = 0;
};
struct Iterator : Object {
  mutable Values items;
  mutable size_t at = 0;
};
struct Namespace : Object {
  mutable std::vector<std::pair<std::string, Value>> items;
  const Value* find(std::string_view name) const;
};

Value undefined(std::string message);
Value make_list(Values items);
Value make_tuple(Values items, bool group = false);
Value make_view(Values items, const char* name);
Value make_iterator(Values items);
Value make_dict(std::shared_ptr<Dict> dict);

const char* type_name(const Value& v);  // Python's
std::string described(const Value& v);  // "dict object", "None"
bool truth(const Value& v);
bool equal(const Value& a, const Value& b);
bool identical(const Value& a, const Value& b);  // Python's `is`
int order(const Value& a, const Value& b,
          const char* op);  // <0, 0, >0; 2 for NaN; fails if they have no order
std::string str(const Value& v);
std::string repr(const Value& v);
void check_hashable(const Value& v);

// json.dumps(v, ensure_ascii=..., indent=..., separators=..., sort_keys=...)
struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false, multiline = false;
  std::string indent, item_separator = ", ", key_separator = ": ";
};
std::string json_text(const Value& v, const JsonStyle& style, Budget& budget);

// Walks a value as `for` does; fails if it cannot be walked.
class Cursor {
 public:
  explicit Cursor(Value v);
  bool next(Value& item);

 private:
  Value v_;
  size_t at_ = 0;
};
bool walkable(const Value& v);
int64_t length(const Value& v);  // len(); -1 if it has none

}  // namespace braid::chat
