#include "chat/renderer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "chat/text.h"
#include "io/html.h"

namespace braid::chat {
namespace {

constexpr int kMaxDepth = 1000;  // of evaluation, macros that call macros included

[[noreturn]] void fail_undefined(const Value& v) { fail(v.as<UndefinedInfo>().message); }

bool is_dunder(std::string_view name) { return name.starts_with("__") && name.ends_with("__"); }

int64_t step_of(const Value* step) {
  if (!step || step->is(Kind::kNone)) return 1;
  if (step->is_undefined()) fail_undefined(*step);
  if (!step->is_integer()) fail("slice indices must be integers or None");
  return std::max(step->integer(), -INT64_MAX);  // so that it has a negative
}

int64_t clamp_index(const Value* bound, int64_t otherwise, int64_t low, int64_t high, int64_t n) {
  if (!bound || bound->is(Kind::kNone)) return otherwise;
  if (bound->is_undefined()) fail_undefined(*bound);
  if (!bound->is_integer()) fail("slice indices must be integers or None");
  int64_t i = bound->integer();
  if (i < 0) i = i < -n ? low : i + n;
  return std::clamp(i, low, high);
}

}  // namespace

// ---- scopes, functions, loops

void Scope::set(const std::string& name, Value v) {
  for (auto& [k, old] : names)
    if (k == name) return void(old = std::move(v));
  names.emplace_back(name, std::move(v));
}

const Value* Scope::find(std::string_view name) const {
  for (const Scope* s = this; s; s = s->parent.get())
    for (const auto& [k, v] : s->names)
      if (k == name) return &v;
  return nullptr;
}

Value make_function(std::string name, Native native, Value self) {
  auto f = std::make_shared<Function>();
  f->name = std::move(name);
  f->native = native;
  f->depth = self.depth() + 1;
  if (f->depth > kMaxValueDepth) fail("values are nested too deep");
  f->self = std::move(self);
  return {Kind::kFunction, std::move(f)};
}

// Is there, as in Python, but cannot be called.
Value unsupported_function(const std::string& name) {
  return make_function(
      name,
      [](Renderer&, const Value& self, const Arguments&) -> Value {
        fail(self.text() + "() is not supported");
      },
      name);
}

Loop::Loop(const Value& walked, std::function<bool(const Value&)> wanted)
    : cursor_(walked), wanted_(std::move(wanted)), known_length_(wanted_ ? -1 : chat::length(walked)) {
  depth = walked.depth() + 1;
  if (depth > kMaxValueDepth) fail("values are nested too deep");
}

bool Loop::pull(Value& item) const {
  while (cursor_.next(item))
    if (!wanted_ || wanted_(item)) return true;
  return false;
}

const Value* Loop::peek() const {
  if (ahead_at_ == ahead_.size()) {
    ahead_.clear();
    ahead_at_ = 0;
    Value item;
    if (!pull(item)) return nullptr;
    ahead_.push_back(std::move(item));
  }
  return &ahead_[ahead_at_];
}

bool Loop::next(Value& item) {
  if (ahead_at_ < ahead_.size())
    item = std::move(ahead_[ahead_at_++]);
  else if (!pull(item))
    return false;
  ++index0_;
  before_ = std::move(now_);
  now_ = item;
  return true;
}

int64_t Loop::length() const {
  if (known_length_ >= 0) return known_length_;
  for (Value item; pull(item);) ahead_.push_back(std::move(item));
  return index0_ + 1 + static_cast<int64_t>(ahead_.size() - ahead_at_);
}

bool Loop::changed(const Values& now) const {
  if (last_changed_ &&
      std::ranges::equal(*last_changed_, now, [](const Value& a, const Value& b) { return equal(a, b); }))
    return false;
  last_changed_ = now;
  return true;
}

void Loop::finish() {
  wanted_ = nullptr;
  cursor_ = Cursor(make_list({}));
}

Value Loop::attribute(std::string_view name, const Value& self) const {
  if (name == "index") return index0_ + 1;
  if (name == "index0") return index0_;
  if (name == "first") return index0_ == 0;
  if (name == "last") return peek() == nullptr;
  if (name == "length") return length();
  if (name == "revindex") return length() - index0_;
  if (name == "revindex0") return length() - index0_ - 1;
  if (name == "depth") return int64_t{1};  // deeper only in recursive loops
  if (name == "depth0") return int64_t{0};
  if (name == "previtem") return index0_ == 0 ? undefined("there is no previous item") : before_;
  if (name == "nextitem") {
    const Value* next = peek();
    return next ? *next : undefined("there is no next item");
  }
  if (name == "cycle")
    return make_function(
        "cycle",
        [](Renderer&, const Value& loop, const Arguments& a) {
          if (a.list.empty()) fail("no items for cycling given");
          return a.list[static_cast<size_t>(loop.as<Loop>().index0()) % a.list.size()];
        },
        self);
  if (name == "changed")
    return make_function(
        "changed",
        [](Renderer&, const Value& loop, const Arguments& a) {
          return Value(loop.as<Loop>().changed(a.list));
        },
        self);
  return undefined(fmt::format("'loop' has no attribute '{}'", name));
}

// ---- the renderer

struct Renderer::Deeper {
  explicit Deeper(Renderer& r) : renderer(r) {
    if (++renderer.depth_ > kMaxDepth) {
      --renderer.depth_;
      fail("the template goes too deep: a macro calls itself too often");
    }
  }
  ~Deeper() { --renderer.depth_; }
  Renderer& renderer;
};

Renderer::~Renderer() {
  scope_.reset();
  for (const auto& ns : namespaces_) ns->items.clear();
  for (const auto& s : kept_scopes_) s->names.clear();
  for (const auto& s : kept_scopes_) s->parent.reset();
}

std::string Renderer::run(const Block& b, std::shared_ptr<Scope> globals) {
  scope_ = std::make_shared<Scope>();
  scope_->parent = std::move(globals);
  std::string out;
  block(b, out);
  return out;
}

void Renderer::put(std::string& out, std::string_view text) {
  budget.take(text.size());
  if (out.size() + text.size() > budget.longest) fail("the output is too long");
  out += text;
}

Value Renderer::made(std::string s, bool markup) {
  budget.text(s.size());
  return {std::move(s), markup};
}

std::string Renderer::text(const Value& v) {
  if (!v.is_string()) budget.step(v.weight());
  std::string s = v.is_undefined() ? "" : str(v);
  budget.text(s.size());
  return s;
}

Renderer::Flow Renderer::block(const Block& b, std::string& out) {
  for (const auto& s : b)
    if (const Flow flow = statement(*s, out); flow != Flow::kNext) return flow;
  return Flow::kNext;
}

Renderer::Flow Renderer::inner(const Block& b, std::string& out) {
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>();
  scope_->parent = outer;
  const Flow flow = block(b, out);
  scope_ = outer;
  return flow;
}

Renderer::Flow Renderer::statement(const Stmt& s, std::string& out) {
  const Deeper deeper(*this);
  budget.step();
  line = s.line;
  switch (s.kind) {
    case StmtKind::kText:
      put(out, s.text);
      return Flow::kNext;
    case StmtKind::kOutput: {
      const Value v = eval(*s.expr);
      line = s.line;
      if (v.is_string())
        put(out, v.text());
      else
        put(out, text(v));
      return Flow::kNext;
    }
    case StmtKind::kIf:
      for (const auto& [test, body] : s.branches)
        if (truth(eval(*test))) return block(body, out);
      return block(s.otherwise, out);
    case StmtKind::kFor:
      return for_loop(s, out);
    case StmtKind::kSet:
      assign(*s.target, eval(*s.expr));
      return Flow::kNext;
    case StmtKind::kSetBlock: {
      std::string text;
      if (const Flow flow = inner(s.body, text); flow != Flow::kNext) return flow;
      Value v = made(std::move(text));
      assign(*s.target, s.expr ? apply_filters(*s.expr, std::move(v)) : std::move(v));
      return Flow::kNext;
    }
    case StmtKind::kMacro:
      scope_->set(s.macro.name, macro_value(s.macro));
      return Flow::kNext;
    case StmtKind::kCall: {
      const Value callee = eval(*s.expr->target);
      Arguments a = arguments(*s.expr);
      a.named.emplace_back("caller", macro_value(s.macro));
      line = s.line;
      put(out, text(call(callee, a)));
      return Flow::kNext;
    }
    case StmtKind::kFilter: {
      std::string text;
      if (const Flow flow = inner(s.body, text); flow != Flow::kNext) return flow;
      put(out, this->text(apply_filters(*s.expr, made(std::move(text)))));
      return Flow::kNext;
    }
    case StmtKind::kWith: {
      auto scope = std::make_shared<Scope>();
      Values values;
      for (const auto& [target, value] : s.assigned) values.push_back(eval(*value));  // sees what is outside
      scope->parent = scope_;
      scope_ = scope;
      for (size_t i = 0; i < values.size(); ++i) assign(*s.assigned[i].first, std::move(values[i]));
      const Flow flow = block(s.body, out);
      scope_ = scope->parent;
      return flow;
    }
    case StmtKind::kGeneration:
      return inner(s.body, out);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Renderer::Flow Renderer::for_loop(const Stmt& s, std::string& out) {
  const std::shared_ptr<Scope> outer = scope_;
  const Value walked = eval(*s.expr);
  line = s.line;
  std::function<bool(const Value&)> wanted;
  if (s.test)
    wanted = [&](const Value& item) {
      budget.step();
      const std::shared_ptr<Scope> before = scope_;
      scope_ = std::make_shared<Scope>();
      scope_->parent = outer;
      assign(*s.target, item);
      const bool yes = truth(eval(*s.test));
      scope_ = before;
      return yes;
    };
  auto loop = std::make_shared<Loop>(walked, std::move(wanted));
  const Value loop_value(Kind::kLoop, loop);
  bool completed = false;  // as in jinja2, an item left by `continue` or `break` does not count
  for (Value item; loop->next(item);) {
    budget.step();
    scope_ = std::make_shared<Scope>();
    scope_->parent = outer;
    line = s.line;
    scope_->set("loop", loop_value);
    assign(*s.target, item);
    const Flow flow = block(s.body, out);
    scope_ = outer;
    if (flow == Flow::kBreak) break;
    completed |= flow == Flow::kNext;
  }
  loop->finish();  // somebody may have kept it
  return completed ? Flow::kNext : inner(s.otherwise, out);
}

void Renderer::assign(const Expr& target, Value v) {
  if (target.kind == ExprKind::kName) return scope_->set(target.name, std::move(v));
  if (target.kind == ExprKind::kMember) {
    const Value* ns = scope_->find(target.args[0]->name);
    if (!ns || !ns->is(Kind::kNamespace))
      throw Failure{"cannot assign attribute on non-namespace object", target.line};
    return set_member(*ns, target.name, std::move(v));
  }
  const Values items = list(v);
  const size_t wanted = target.args.size();
  if (items.size() > wanted)
    throw Failure{fmt::format("too many values to unpack (expected {})", wanted), target.line};
  if (items.size() < wanted)
    throw Failure{fmt::format("not enough values to unpack (expected {}, got {})", wanted, items.size()),
                  target.line};
  for (size_t i = 0; i < wanted; ++i) assign(*target.args[i], items[i]);
}

void Renderer::set_member(const Value& ns, const std::string& name, Value v) {
  if (name.starts_with("_")) fail("a namespace cannot have the attribute '" + name + "'");
  auto& items = ns.as<Namespace>().items;
  for (auto& [k, old] : items)
    if (k == name) return void(old = std::move(v));
  budget.step(1 + items.size());
  items.emplace_back(name, std::move(v));
}

Value Renderer::make_namespace(std::vector<std::pair<std::string, Value>> items) {
  budget.take(64 + 64 * items.size());
  const auto ns = std::make_shared<Namespace>();
  const Value v(Kind::kNamespace, ns);
  namespaces_.push_back(ns);
  for (auto& [name, value] : items) set_member(v, name, std::move(value));
  return v;
}

Value Renderer::macro_value(const MacroInfo& m) {
  budget.take(128);
  auto f = std::make_shared<Function>();
  f->name = m.name;
  f->macro = &m;
  f->scope = scope_;
  kept_scopes_.push_back(scope_);
  return {Kind::kFunction, std::move(f)};
}

Value Renderer::call_macro(const Function& f, const Arguments& a) {
  const Deeper deeper(*this);
  const MacroInfo& m = *f.macro;
  auto scope = std::make_shared<Scope>();
  scope->parent = f.scope;
  std::vector<std::pair<std::string, Value>> named = a.named;
  const auto take_named = [&](std::string_view name) -> std::optional<Value> {
    const auto at = std::ranges::find(named, name, [](const auto& n) -> std::string_view { return n.first; });
    if (at == named.end()) return {};
    Value v = std::move(at->second);
    named.erase(at);
    return v;
  };
  const std::shared_ptr<Scope> outer = std::exchange(scope_, scope);
  const int line_before = line;
  std::vector<size_t> missing;
  bool has_caller = false;
  for (size_t i = 0; i < m.params.size(); ++i) {
    has_caller |= m.params[i] == "caller";
    if (i < a.list.size()) {
      scope->set(m.params[i], a.list[i]);
    } else if (std::optional<Value> v = take_named(m.params[i])) {
      scope->set(m.params[i], *std::move(v));
    } else {
      scope->set(m.params[i], undefined(fmt::format("parameter '{}' was not provided", m.params[i])));
      missing.push_back(i);
    }
  }
  if (m.uses_caller && !has_caller) {
    std::optional<Value> caller = take_named("caller");
    scope->set("caller", caller ? *std::move(caller) : undefined("No caller defined"));
  }
  if (m.uses_kwargs) {
    auto d = std::make_shared<Dict>();
    for (auto& [k, v] : named) d->set(made(k), std::move(v));
    scope->set("kwargs", make_dict(std::move(d)));
  } else if (!named.empty()) {
    fail(fmt::format("macro '{}' takes no keyword argument '{}'", m.name, named[0].first));
  }
  if (m.uses_varargs) {
    const auto extra = std::min(a.list.size(), m.params.size());
    scope->set("varargs",
               make_tuple(Values(a.list.begin() + static_cast<std::ptrdiff_t>(extra), a.list.end())));
  } else if (a.list.size() > m.params.size()) {
    fail(fmt::format("macro '{}' takes not more than {} argument(s)", m.name, m.params.size()));
  }
  const size_t first_default = m.params.size() - m.defaults.size();
  for (const size_t i : missing)
    if (i >= first_default) scope->set(m.params[i], eval(*m.defaults[i - first_default]));
  std::string out;
  block(m.body, out);
  scope_ = outer;
  line = line_before;
  return made(std::move(out));
}

// ---- expressions

Value Renderer::eval(const Expr& e) {
  const Deeper deeper(*this);
  budget.step();
  line = e.line;
  return eval_at(e);
}

Value Renderer::name(const Expr& e) {
  if (const Value* v = scope_->find(e.name)) return *v;
  if (const Native f = find_function(e.name)) return make_function(e.name, f);
  for (const char* known : {"lipsum", "cycler", "joiner"})
    if (e.name == known) return unsupported_function(e.name);
  return undefined(fmt::format("'{}' is undefined", e.name));
}

Value Renderer::eval_at(const Expr& e) {
  switch (e.kind) {
    case ExprKind::kConstant:
      return e.value;
    case ExprKind::kName:
      return name(e);
    case ExprKind::kList:
    case ExprKind::kTuple: {
      budget.take(sizeof(Value) * e.args.size());
      Values items;
      for (const ExprPtr& a : e.args) items.push_back(eval(*a));
      return e.kind == ExprKind::kList ? make_list(std::move(items)) : make_tuple(std::move(items));
    }
    case ExprKind::kDict: {
      budget.take(sizeof(Value) * e.args.size());
      auto d = std::make_shared<Dict>();
      for (size_t i = 0; i < e.args.size(); i += 2) {
        Value key = eval(*e.args[i]);
        check_hashable(key);
        budget.step(1 + i / 8);
        d->set(std::move(key), eval(*e.args[i + 1]));
      }
      return make_dict(std::move(d));
    }
    case ExprKind::kAttribute: {
      const Value v = eval(*e.target);
      line = e.line;
      return attribute(v, e.name);
    }
    case ExprKind::kItem: {
      const Value v = eval(*e.target), key = eval(*e.args[0]);
      line = e.line;
      return item(v, key);
    }
    case ExprKind::kSlice:
      return slice(e);
    case ExprKind::kCall: {
      const Value f = eval(*e.target);
      const Arguments a = arguments(e);
      line = e.line;
      return call(f, a);
    }
    case ExprKind::kFilter:
      return apply_filters(e, {});
    case ExprKind::kTest: {
      const Value v = eval(*e.target);
      const Arguments a = arguments(e);
      line = e.line;
      return test(e.name, v, a);
    }
    case ExprKind::kNot:
      return !truth(eval(*e.target));
    case ExprKind::kSign: {
      const Value v = eval(*e.target);
      line = e.line;
      if (v.is_undefined()) fail_undefined(v);
      if (!v.is_number()) fail(fmt::format("bad operand type for unary {}: '{}'", e.name, type_name(v)));
      if (v.is(Kind::kFloat)) return e.name == "-" ? -v.number() : v.number();
      if (e.name == "-" && v.integer() == INT64_MIN) fail("a number does not fit into 64 bits");
      return e.name == "-" ? -v.integer() : v.integer();
    }
    case ExprKind::kBinary: {
      const Value a = eval(*e.args[0]), b = eval(*e.args[1]);
      line = e.line;
      return binary(e.name, a, b);
    }
    case ExprKind::kAnd: {
      Value a = eval(*e.args[0]);
      return truth(a) ? eval(*e.args[1]) : a;
    }
    case ExprKind::kOr: {
      Value a = eval(*e.args[0]);
      return truth(a) ? a : eval(*e.args[1]);
    }
    case ExprKind::kCompare: {
      Value left = eval(*e.target);
      for (size_t i = 0; i < e.args.size(); ++i) {
        Value right = eval(*e.args[i]);
        line = e.line;
        if (!compare(e.ops[i], left, right)) return false;
        left = std::move(right);
      }
      return true;
    }
    case ExprKind::kConcatenate: {
      std::string out;
      for (const ExprPtr& a : e.args) put(out, text(eval(*a)));
      return Value(std::move(out));
    }
    case ExprKind::kCondition:
      if (truth(eval(*e.args[0]))) return eval(*e.args[1]);
      if (e.args[2]) return eval(*e.args[2]);
      return undefined("the inline if-expression evaluated to false and no else section was defined.");
    case ExprKind::kMember:
      break;
  }
  fail("this cannot be evaluated");
}

Arguments Renderer::arguments(const Expr& e) {
  Arguments a;
  for (const ExprPtr& x : e.args) a.list.push_back(eval(*x));
  for (const auto& [name, x] : e.named) a.named.emplace_back(name, eval(*x));
  if (e.rest)
    for (Value& v : list(eval(*e.rest))) a.list.push_back(std::move(v));
  if (e.named_rest) {
    const Value more = eval(*e.named_rest);
    if (!more.is(Kind::kDict)) fail("the argument after ** must be a mapping");
    for (const auto& [k, v] : more.as<Dict>().items) {
      if (!k.is_string()) fail("keywords must be strings");
      for (const auto& [other, old] : a.named)
        if (other == k.text()) fail(fmt::format("the argument '{}' is given twice", other));
      a.named.emplace_back(k.text(), v);
    }
  }
  return a;
}

Value Renderer::apply_filters(const Expr& e, Value block_text) {
  Value v = e.target ? (e.target->kind == ExprKind::kFilter ? apply_filters(*e.target, std::move(block_text))
                                                            : eval(*e.target))
                     : std::move(block_text);
  const Arguments a = arguments(e);
  line = e.line;
  return filter(e.name, v, a);
}

Value Renderer::filter(const std::string& name, const Value& v, const Arguments& a) {
  budget.step();
  const Filter f = find_filter(name);
  if (!f) fail(fmt::format("there is no filter '{}'", name));
  return f(*this, v, a);
}

bool Renderer::test(const std::string& name, const Value& v, const Arguments& a) {
  budget.step();
  const Test t = find_test(name);
  if (!t) fail(fmt::format("there is no test '{}'", name));
  return t(*this, v, a);
}

Value Renderer::call(const Value& f, const Arguments& a) {
  if (f.is_undefined()) fail_undefined(f);
  if (f.is(Kind::kLoop)) fail("a recursive loop is not supported");
  if (!f.is(Kind::kFunction)) fail(fmt::format("'{}' object is not callable", type_name(f)));
  const auto& function = f.as<Function>();
  return function.macro ? call_macro(function, a) : function.native(*this, function.self, a);
}

Value Renderer::attribute(const Value& v, const std::string& name) {
  budget.step();
  if (v.is_undefined()) fail_undefined(v);
  if (is_dunder(name))
    return undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(v)));
  if (const Native f = find_method(v, name)) return make_function(name, f, v);
  switch (attribute_use(v, name)) {
    case AttributeUse::kUnsafe:
      return undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(v)));
    case AttributeUse::kUnsupported:
      return unsupported_function(fmt::format("{}.{}", type_name(v), name));
    case AttributeUse::kNone:
      break;
  }
  if (v.is(Kind::kLoop)) return v.as<Loop>().attribute(name, v);
  if (v.is(Kind::kNamespace))
    if (const Value* found = v.as<Namespace>().find(name)) return *found;
  if (v.is(Kind::kTuple) && v.as<Sequence>().group && (name == "grouper" || name == "list"))
    return v.items()[name == "list"];
  if (v.is(Kind::kFunction) && v.as<Function>().macro && name == "name") return made(v.as<Function>().name);
  if (v.is(Kind::kDict)) {
    budget.step(v.as<Dict>().items.size() / 8);
    if (const Value* found = v.as<Dict>().find(std::string_view(name))) return *found;
  }
  return undefined(fmt::format("'{}' has no attribute '{}'", described(v), name));
}

Value Renderer::item(const Value& v, const Value& key) {
  budget.step();
  if (v.is_undefined()) fail_undefined(v);
  if (v.is(Kind::kDict)) {
    budget.step(v.as<Dict>().items.size() / 8);
    const bool hashable = !key.is(Kind::kList) && !key.is(Kind::kDict);
    if (hashable)
      if (const Value* found = v.as<Dict>().find(key)) return *found;
  } else if (key.is_integer()) {
    const int64_t n = length(v), i = key.integer() < 0 ? key.integer() + n : key.integer();
    if (i >= 0 && i < n) {
      if (v.is_sequence()) return v.items()[static_cast<size_t>(i)];
      if (v.is(Kind::kRange)) return v.as<Range>().start + v.as<Range>().step * i;
      if (v.is_string()) {
        budget.step(v.weight());
        const std::string& s = v.text();
        size_t at = 0, start = 0;
        for (int64_t k = 0; k <= i; ++k) start = at, next_point(s, at);
        return Value(s.substr(start, at - start));
      }
    }
  }
  if (key.is_string()) {
    // What Python does after a failed lookup: look for an attribute.
    const Value found = attribute(v, key.text());
    if (!found.is_undefined()) return found;
    return undefined(found.as<UndefinedInfo>().message);
  }
  if (key.is_undefined()) return undefined(fmt::format("{} has no element Undefined", described(v)));
  budget.step(key.weight());
  return undefined(
      fmt::format("{} has no element {}", described(v),
                  key.depth() > 4 || key.weight() > 100 ? std::string(type_name(key)) : repr(key)));
}

Value Renderer::path(const Value& v, const Value& attribute) {
  if (attribute.is(Kind::kNone)) return v;
  if (!attribute.is_string()) return item(v, attribute);
  Value at = v;
  for (const std::string_view part : split_at(attribute.text(), ".", -1, false)) {
    const bool digits =
        !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == part.npos;
    at = item(at,
              digits ? Value(static_cast<int64_t>(std::stoll(std::string(part)))) : Value(std::string(part)));
  }
  return at;
}

Value Renderer::slice(const Expr& e) {
  const Value v = eval(*e.target);
  std::optional<Value> bounds[3];
  for (int i = 0; i < 3; ++i)
    if (e.args[static_cast<size_t>(i)]) bounds[i] = eval(*e.args[static_cast<size_t>(i)]);
  line = e.line;
  if (v.is_undefined()) fail_undefined(v);
  if (!v.is_string() && !v.is_sequence() && !v.is(Kind::kRange))
    fail(fmt::format("'{}' object cannot be sliced", type_name(v)));
  budget.step(v.weight());
  const auto bound = [&](int i) { return bounds[i] ? &*bounds[i] : nullptr; };
  const int64_t n = length(v);
  const int64_t step = step_of(bound(2));
  if (step == 0) fail("slice step cannot be zero");
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  const int64_t from = clamp_index(bound(0), step > 0 ? low : high, low, high, n);
  const int64_t to = clamp_index(bound(1), step > 0 ? high : low, low, high, n);
  std::vector<size_t> chosen;
  for (int64_t i = from; step > 0 ? i < to : i > to;) {
    chosen.push_back(static_cast<size_t>(i));
    if (step > 0 ? step > to - i : step < to - i) break;  // the next would be behind the end
    i += step;
  }
  if (v.is_string()) {
    const std::vector<std::string_view> points = split_points(v.text());
    std::string out;
    for (const size_t i : chosen) out += points[i];
    return made(std::move(out), v.markup());
  }
  if (v.is(Kind::kRange)) {
    const auto& r = v.as<Range>();
    auto part = std::make_shared<Range>();
    part->start = r.start + r.step * from;
    part->stop = r.start + r.step * to;
    if (__builtin_mul_overflow(r.step, step, &part->step)) fail("a number does not fit into 64 bits");
    part->length = static_cast<int64_t>(chosen.size());
    return {Kind::kRange, std::move(part)};
  }
  budget.take(sizeof(Value) * chosen.size());
  Values items;
  for (const size_t i : chosen) items.push_back(v.items()[i]);
  return v.is(Kind::kTuple) ? make_tuple(std::move(items)) : make_list(std::move(items));
}

// ---- operators

Values Renderer::list(const Value& v) {
  Values items;
  Cursor cursor(v);
  for (Value item; cursor.next(item);) {
    budget.step();
    budget.take(sizeof(Value));
    items.push_back(std::move(item));
  }
  return items;
}

bool Renderer::same(const Value& a, const Value& b) {
  budget.step(1 + std::min(a.weight(), b.weight()));
  return equal(a, b);
}

bool Renderer::compare(const std::string& op, const Value& a, const Value& b) {
  if (op == "==") return same(a, b);
  if (op == "!=") return !same(a, b);
  if (op == "in") return contains(b, a);
  if (op == "not in") return !contains(b, a);
  budget.step(1 + std::min(a.weight(), b.weight()));
  const int c = order(a, b, op.c_str());
  if (c == 2) return false;
  return op == "<" ? c < 0 : op == "<=" ? c <= 0 : op == ">" ? c > 0 : c >= 0;
}

bool Renderer::contains(const Value& box, const Value& v) {
  if (box.is_string()) {
    if (v.is_undefined()) fail_undefined(v);
    if (!v.is_string())
      fail(fmt::format("'in <string>' requires string as left operand, not {}", type_name(v)));
    budget.step(box.weight());
    return box.text().find(v.text()) != std::string::npos;
  }
  if (box.is(Kind::kDict)) {
    budget.step(1 + box.as<Dict>().items.size() / 8);
    return box.as<Dict>().find(v) != nullptr;
  }
  if (!walkable(box)) fail(fmt::format("argument of type '{}' is not iterable", type_name(box)));
  Cursor cursor(box);
  for (Value item; cursor.next(item);)
    if (same(item, v)) return true;
  return false;
}

Value Renderer::power(const Value& a, const Value& b) {
  if (!a.is_integer() || !b.is_integer() || b.integer() < 0) {
    const double x = a.number(), y = b.number();
    if (x == 0 && y < 0) fail("0.0 cannot be raised to a negative power");
    if (x < 0 && y != std::floor(y)) fail("complex numbers are not supported");
    const double z = std::pow(x, y);
    if (std::isinf(z) && !std::isinf(x) && !std::isinf(y)) fail("a power is too large");
    return z;
  }
  int64_t base = a.integer(), result = 1;
  for (int64_t n = b.integer(); n > 0; n >>= 1) {
    if ((n & 1) && __builtin_mul_overflow(result, base, &result)) fail("a number does not fit into 64 bits");
    if (n > 1 && __builtin_mul_overflow(base, base, &base)) fail("a number does not fit into 64 bits");
  }
  return result;
}

Value Renderer::binary(const std::string& op, const Value& a, const Value& b) {
  const char c = op == "//" ? 'f' : op == "**" ? '^' : op[0];
  for (const Value* v : {&a, &b})
    if (v->is_undefined() && !(c == '%' && a.is_string())) fail_undefined(*v);
  if (a.is_number() && b.is_number()) {
    if (c == '^') return power(a, b);
    if (c == '/' || c == 'f' || c == '%')
      if (b.number() == 0) fail("division by zero");
    if (a.is_integer() && b.is_integer() && c != '/') {
      const int64_t x = a.integer(), y = b.integer();
      int64_t z = 0;
      bool overflow = false;
      switch (c) {
        case '+':
          overflow = __builtin_add_overflow(x, y, &z);
          break;
        case '-':
          overflow = __builtin_sub_overflow(x, y, &z);
          break;
        case '*':
          overflow = __builtin_mul_overflow(x, y, &z);
          break;
        case 'f':
          overflow = x == INT64_MIN && y == -1;
          if (!overflow) z = x / y - (x % y != 0 && (x < 0) != (y < 0));
          break;
        default:
          if (y != -1) z = x % y + (x % y != 0 && (x < 0) != (y < 0) ? y : 0);
      }
      if (overflow) fail("a number does not fit into 64 bits");
      return z;
    }
    const double x = a.number(), y = b.number();
    switch (c) {
      case '+':
        return x + y;
      case '-':
        return x - y;
      case '*':
        return x * y;
      case '/':
        return x / y;
      default: {  // as CPython: floor of the exact quotient, and a remainder with the sign of y
        double rest = std::fmod(x, y);
        double quotient = (x - rest) / y;
        if (rest != 0) {
          if ((y < 0) != (rest < 0)) rest += y, quotient -= 1;
        } else {
          rest = std::copysign(0.0, y);
        }
        if (c == '%') return rest;
        if (quotient == 0) return std::copysign(0.0, x / y);
        const double floored = std::floor(quotient);
        return quotient - floored > 0.5 ? floored + 1 : floored;
      }
    }
  }
  if (c == '%' && a.is_string()) return made(format_percent(*this, a.text(), b), a.markup());
  if (c == '+' && a.is_string() && b.is_string()) {
    const bool markup = a.markup() || b.markup();
    const auto part = [&](const Value& v) {
      return markup && !v.markup() ? escape_html(v.text()) : v.text();
    };
    budget.text(a.text().size() + b.text().size());
    return {part(a) + part(b), markup};
  }
  if (c == '+' && a.is_sequence() && a.kind() == b.kind()) {
    budget.take(sizeof(Value) * (a.items().size() + b.items().size()));
    budget.step(a.items().size() + b.items().size());
    Values items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is(Kind::kList) ? make_list(std::move(items)) : make_tuple(std::move(items));
  }
  const bool left = a.is_string() || a.is_sequence();
  if (c == '*' && (left ? b : a).is_integer() && (left || b.is_string() || b.is_sequence())) {
    const Value& v = left ? a : b;
    const auto n = static_cast<size_t>(std::max<int64_t>(0, (left ? b : a).integer()));
    const size_t one = v.is_string() ? v.text().size() : v.items().size();
    if (one != 0 && n > budget.longest / one) fail("the template makes a value that is too long");
    if (v.is_string()) {
      budget.text(one * n);
      std::string out;
      out.reserve(one * n);
      for (size_t i = 0; i < n && one != 0; ++i) out += v.text();
      return {std::move(out), v.markup()};
    }
    budget.take(sizeof(Value) * one * n);
    budget.step(one * n);
    Values items;
    for (size_t i = 0; i < n && one != 0; ++i) items.insert(items.end(), v.items().begin(), v.items().end());
    return v.is(Kind::kList) ? make_list(std::move(items)) : make_tuple(std::move(items));
  }
  if (c == '+' && a.is_string())
    fail(fmt::format("can only concatenate str (not \"{}\") to str", type_name(b)));
  fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op, type_name(a), type_name(b)));
}

std::string Renderer::time_text(const std::string& format) const {
  std::tm t = {};
  if (now_) {
    t = *now_;
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &t);
  }
  if (format.empty()) return "";
  if (format.size() > 1000) fail("a time format is too long");
  std::string out(64 * 1024, '\0');
  // A width such as %1000000Y does not fit; then nothing is written.
  const std::string marked = format + "|";  // so that an empty result differs from a failure
  const size_t n = std::strftime(out.data(), out.size(), marked.c_str(), &t);
  if (n == 0) fail("a time format is too long");
  out.resize(n - 1);
  if (!is_utf8(out)) fail("a time format gives no UTF-8");
  return out;
}

}  // namespace braid::chat
