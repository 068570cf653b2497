// Runs a parsed template. Inside this room; users see template.h.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "chat/syntax.h"
#include "chat/value.h"

namespace braid::chat {

class Renderer;

// The arguments of a call.
struct Arguments {
  Values list;
  std::vector<std::pair<std::string, Value>> named;
};

// Arguments matched with the names of parameters. A parameter that was not given is null.
class Parameters {
 public:
  Parameters(const char* function, const Arguments& given, std::initializer_list<const char*> names,
             size_t required = 0);
  const Value* operator[](size_t i) const { return found_[i]; }
  const Value& value(size_t i) const { return *found_[i]; }
  bool given(size_t i) const { return found_[i] && !found_[i]->is(Kind::kNone); }
  bool flag(size_t i, bool otherwise) const { return found_[i] ? truth(*found_[i]) : otherwise; }
  int64_t integer(size_t i, int64_t otherwise) const;
  const std::string& text(size_t i) const;

 private:
  const char* function_;
  std::vector<const Value*> found_;
  std::vector<const char*> names_;
};

using Filter = Value (*)(Renderer&, const Value&, const Arguments&);
using Test = bool (*)(Renderer&, const Value&, const Arguments&);
Filter find_filter(std::string_view name);  // null if there is none
Test find_test(std::string_view name);

using Native = Value (*)(Renderer&, const Value& self, const Arguments&);
Native find_function(std::string_view name);                   // global functions
Native find_method(const Value& self, std::string_view name);  // of strings, lists, dicts, ...
enum class AttributeUse { kNone, kUnsafe, kUnsupported };
AttributeUse attribute_use(const Value& self,
                           std::string_view name);  // what Python has and find_method has not

// str.replace(); count < 0: all
std::string replace_all(Renderer& r, const std::string& s, const std::string& from, const std::string& to,
                        int64_t count);
// "%s and %d" % values
std::string format_percent(Renderer& r, const std::string& format, const Value& values);
// "{} and {name:>5}".format(...)
std::string format_braces(Renderer& r, const std::string& format, const Arguments& values);

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> names;
  void set(const std::string& name, Value v);
  const Value* find(std::string_view name) const;  // here or further out
};

// Something that can be called: a function of ours, bound to a value or not, or a macro.
struct Function : Object {
  std::string name;
  Native native = nullptr;
  Value self;
  const MacroInfo* macro = nullptr;
  std::shared_ptr<Scope> scope;  // where the macro was defined
};
Value make_function(std::string name, Native native, Value self = {});
Value unsupported_function(const std::string& name);

// The variable `loop`. Like jinja2's it reads the next item only on demand.
class Loop : public Object {
 public:
  Loop(const Value& walked, std::function<bool(const Value&)> wanted);
  bool next(Value& item);
  Value attribute(std::string_view name, const Value& self) const;
  int64_t index0() const { return index0_; }
  bool changed(const Values& now) const;
  void finish();  // reads no further and forgets the `if`

 private:
  bool pull(Value& item) const;
  const Value* peek() const;
  int64_t length() const;

  mutable Cursor cursor_;
  std::function<bool(const Value&)> wanted_;  // the loop's `if`
  int64_t known_length_;                      // -1: must be counted
  mutable Values ahead_;                      // read, but not yet given
  mutable size_t ahead_at_ = 0;
  Value before_, now_;
  int64_t index0_ = -1;
  mutable std::optional<Values> last_changed_;
};

class Renderer {
 public:
  Renderer(Budget budget, std::optional<std::tm> now) : budget(budget), now_(now) {}
  ~Renderer();
  Renderer(const Renderer&) = delete;

  std::string run(const Block& block, std::shared_ptr<Scope> globals);

  Budget budget;
  int line = 0;  // where it stands

  // What filters, tests and functions use. All of them fail by throwing Failure.
  Value attribute(const Value& v, const std::string& name);
  Value item(const Value& v, const Value& key);
  Value path(const Value& v, const Value& attribute);  // "a.b.0" as the filters take it; None: v itself
  Value filter(const std::string& name, const Value& v, const Arguments& a);
  bool test(const std::string& name, const Value& v, const Arguments& a);
  Value call(const Value& f, const Arguments& a);
  Value binary(const std::string& op, const Value& a, const Value& b);
  bool same(const Value& a, const Value& b);
  bool compare(const std::string& op, const Value& a, const Value& b);
  bool contains(const Value& box, const Value& v);
  std::string text(const Value& v);  // str(v)
  Values list(const Value& v);       // all items
  Value made(std::string s, bool markup = false);
  Value make_namespace(std::vector<std::pair<std::string, Value>> items);
  void set_member(const Value& ns, const std::string& name, Value v);
  std::string time_text(const std::string& format) const;

 private:
  enum class Flow { kNext, kBreak, kContinue };
  struct Deeper;

  Flow block(const Block& b, std::string& out);
  Flow statement(const Stmt& s, std::string& out);
  Flow for_loop(const Stmt& s, std::string& out);
  Flow inner(const Block& b, std::string& out);  // in a scope of its own
  void put(std::string& out, std::string_view text);
  void assign(const Expr& target, Value v);

  Value eval(const Expr& e);
  Value eval_at(const Expr& e);
  Value slice(const Expr& e);
  Value name(const Expr& e);
  Arguments arguments(const Expr& e);
  Value apply_filters(const Expr& e, Value v);
  Value call_macro(const Function& f, const Arguments& a);
  Value macro_value(const MacroInfo& m);
  Value power(const Value& a, const Value& b);

  std::optional<std::tm> now_;
  std::shared_ptr<Scope> scope_;
  int depth_ = 0;
  // Namespaces and the scopes that macros remember may hold each other: they are emptied at the end.
  std::vector<std::shared_ptr<const Namespace>> namespaces_;
  std::vector<std::shared_ptr<Scope>> kept_scopes_;
};

}  // namespace braid::chat
