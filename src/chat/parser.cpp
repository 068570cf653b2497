#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "chat/renderer.h"
#include "chat/syntax.h"

namespace braid::chat {
namespace {

constexpr int kMaxTreeDepth = 200;  // of expressions and of statements; what walks the tree recurses

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Block run() {
    Block all = statements({});
    if (!unknown_.empty()) throw unknown_.front();
    return all;
  }

 private:
  using Words = std::initializer_list<std::string_view>;

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool skip_name(std::string_view name) { return now().is_name(name) ? (take(), true) : false; }
  bool skip_op(std::string_view op) { return now().is_op(op) ? (take(), true) : false; }
  [[noreturn]] void fail(const std::string& what, int line = 0) const {
    throw Failure{what, line ? line : now().line};
  }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) fail(fmt::format("expected '{}', got '{}'", op, now().shown()));
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) fail(fmt::format("expected '{}', got '{}'", name, now().shown()));
  }
  const Token& expect(TokenType type, const char* what) {
    if (!now().is(type)) fail(fmt::format("expected {}, got '{}'", what, now().shown()));
    return take();
  }
  void expect_block_end() { expect(TokenType::kBlockEnd, "the end of the tag"); }

  // Recursion of this parser and, through it, of all that walk the tree.
  struct Deeper {
    explicit Deeper(Parser& p) : parser(p) {
      if (++parser.depth_ > kMaxTreeDepth) parser.fail("nested too deep");
    }
    ~Deeper() { --parser.depth_; }
    Parser& parser;
  };

  ExprPtr make(ExprKind kind, int line, std::string name = {}) const {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->line = line;
    e->name = std::move(name);
    return e;
  }
  ExprPtr measured(ExprPtr e) const {  // long chains of operators grow deep without recursion here
    int below = 0;
    const auto look = [&](const ExprPtr& child) { below = std::max(below, child ? child->depth : 0); };
    look(e->target), look(e->rest), look(e->named_rest);
    for (const ExprPtr& a : e->args) look(a);
    for (const auto& [name, a] : e->named) look(a);
    e->depth = below + 1;
    if (e->depth > kMaxTreeDepth) fail("an expression is nested too deep", e->line);
    return e;
  }

  // ---- statements

  static bool any_of(const Token& t, Words words) {
    return std::ranges::any_of(words, [&](std::string_view w) { return t.is_name(w); });
  }

  // Up to a tag that starts with one of `ends`, whose name is then the current token. Without: to the end.
  Block statements(Words ends) {
    const Deeper deeper(*this);
    Block block;
    while (true) {
      const Token& t = now();
      if (t.is(TokenType::kEnd)) {
        if (ends.size())
          fail(fmt::format("{{% {} %}} is missing at the end of the template", *(ends.end() - 1)));
        return block;
      }
      auto s = std::make_unique<Stmt>();
      s->line = t.line;
      if (t.is(TokenType::kData)) {
        s->kind = StmtKind::kText;
        s->text = take().text;
      } else if (t.is(TokenType::kVariableBegin)) {
        take();
        s->kind = StmtKind::kOutput;
        s->expr = tuple();
        expect(TokenType::kVariableEnd, "the end of the expression");
      } else {
        take();  // a block begins: the lexer gives nothing else here
        if (any_of(now(), ends)) return block;
        s->line = now().line;
        statement(*s);
        expect_block_end();
      }
      block.push_back(std::move(s));
    }
  }

  // The body of a tag: from the end of the tag to one of `ends`.
  Block body(Words ends) {
    skip_op(":");
    expect_block_end();
    return statements(ends);
  }
  Block whole_body(std::string_view end) {
    Block b = body({end});
    take();
    return b;
  }

  Block body_outside_loops(std::string_view end) {  // a break inside does not reach a loop around
    const int before = std::exchange(loops_, 0);
    Block b = whole_body(end);
    loops_ = before;
    return b;
  }

  void statement(Stmt& s) {
    const std::string tag = expect(TokenType::kName, "the name of a tag").text;
    if (tag == "if") return if_statement(s);
    if (tag == "for") return for_statement(s);
    if (tag == "set") return set_statement(s);
    if (tag == "macro") return macro_statement(s);
    if (tag == "call") return call_statement(s);
    if (tag == "with") return with_statement(s);
    if (tag == "filter") {
      s.kind = StmtKind::kFilter;
      s.expr = filters(nullptr, true);
      s.body = whole_body("endfilter");
      return;
    }
    if (tag == "generation") {
      s.kind = StmtKind::kGeneration;
      s.body = body_outside_loops("endgeneration");
      return;
    }
    if (tag == "print") {
      s.kind = StmtKind::kOutput;
      s.expr = make(ExprKind::kConcatenate, s.line);
      do s.expr->args.push_back(expression());
      while (skip_op(","));
      s.expr = measured(std::move(s.expr));
      return;
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) fail(fmt::format("{{% {} %}} outside of a loop", tag), s.line);
      s.kind = tag == "break" ? StmtKind::kBreak : StmtKind::kContinue;
      return;
    }
    for (const char* known :
         {"include", "import", "from", "extends", "block", "autoescape", "do", "trans", "debug"})
      if (tag == known) fail(fmt::format("the tag {{% {} %}} is not supported", tag), s.line);
    fail(fmt::format("there is no tag {{% {} %}} here", tag), s.line);
  }

  void if_statement(Stmt& s) {
    s.kind = StmtKind::kIf;
    const size_t unknown_before = unknown_.size();
    while (true) {
      ExprPtr test = tuple(false);
      Block block = body({"elif", "else", "endif"});
      s.branches.emplace_back(std::move(test), std::move(block));
      const std::string end = take().text;
      if (end == "elif") continue;
      if (end == "else") s.otherwise = whole_body("endif");
      unknown_.resize(unknown_before);
      return;
    }
  }

  void for_statement(Stmt& s) {
    s.kind = StmtKind::kFor;
    s.target = assign_target(false);
    expect_name("in");
    s.expr = tuple(false, "recursive");
    if (skip_name("if")) s.test = expression();
    if (now().is_name("recursive")) fail("a recursive loop is not supported");
    ++loops_;
    s.body = body({"else", "endfor"});
    --loops_;
    if (take().text == "else") s.otherwise = whole_body("endfor");
  }

  void set_statement(Stmt& s) {
    s.target = assign_target(true);
    if (skip_op("=")) {
      s.kind = StmtKind::kSet;
      s.expr = tuple();
      return;
    }
    s.kind = StmtKind::kSetBlock;
    if (now().is_op("|")) s.expr = filters(nullptr, false);
    s.body = whole_body("endset");
  }

  void signature(MacroInfo& m) {
    expect_op("(");
    while (!now().is_op(")")) {
      if (!m.params.empty()) expect_op(",");
      m.params.push_back(expect(TokenType::kName, "the name of a parameter").text);
      if (skip_op("="))
        m.defaults.push_back(expression());
      else if (!m.defaults.empty())
        fail("a parameter without default follows one with a default");
    }
    expect_op(")");
  }

  void macro_body(MacroInfo& m, std::string_view end) {
    macros_.push_back(&m);
    m.body = body_outside_loops(end);
    macros_.pop_back();
    // A parameter of such a name is a parameter like any other.
    const auto parameter = [&](const char* name) {
      return std::ranges::find(m.params, name) != m.params.end();
    };
    if (m.uses_caller && parameter("caller") && m.defaults.empty())
      fail("a parameter named caller needs a default");
    m.uses_varargs &= !parameter("varargs");
    m.uses_kwargs &= !parameter("kwargs");
  }

  void macro_statement(Stmt& s) {
    s.kind = StmtKind::kMacro;
    s.macro.name = expect(TokenType::kName, "the name of the macro").text;
    signature(s.macro);
    macro_body(s.macro, "endmacro");
  }

  void call_statement(Stmt& s) {
    s.kind = StmtKind::kCall;
    s.macro.name = "caller";
    if (now().is_op("(")) signature(s.macro);
    s.expr = expression();
    if (s.expr->kind != ExprKind::kCall) fail("{% call %} needs a call", s.line);
    macro_body(s.macro, "endcall");
  }

  void with_statement(Stmt& s) {
    s.kind = StmtKind::kWith;
    while (!now().is(TokenType::kBlockEnd)) {
      if (!s.assigned.empty()) expect_op(",");
      ExprPtr target = assign_target(false);
      expect_op("=");
      ExprPtr value = expression();
      s.assigned.emplace_back(std::move(target), std::move(value));
    }
    s.body = whole_body("endwith");
  }

  // ---- what is assigned to

  ExprPtr assign_target(bool with_members) {
    const int line = now().line;
    std::vector<ExprPtr> parts;
    bool is_tuple = false;
    do {
      if (is_tuple && (now().is_name("in") || now().is_op("=") || now().is(TokenType::kBlockEnd))) break;
      parts.push_back(one_target(with_members));
    } while (now().is_op(",") && (take(), is_tuple = true));
    if (!is_tuple) return std::move(parts[0]);
    ExprPtr t = make(ExprKind::kTuple, line);
    t->args = std::move(parts);
    return measured(std::move(t));
  }

  ExprPtr one_target(bool with_members) {
    const Deeper deeper(*this);
    if (skip_op("(")) {
      ExprPtr inner = assign_target(with_members);
      expect_op(")");
      return inner;
    }
    const Token& t = expect(TokenType::kName, "a name to assign to");
    for (const char* word : {"true", "false", "none", "True", "False", "None"})
      if (t.text == word) fail("cannot assign to " + t.text, t.line);
    ExprPtr name = make(ExprKind::kName, t.line, t.text);
    if (!with_members || !now().is_op(".")) return name;
    take();
    ExprPtr member = make(ExprKind::kMember, t.line, expect(TokenType::kName, "a name").text);
    member->args.push_back(std::move(name));
    return measured(std::move(member));
  }

  // ---- expressions, loosest first

  bool tuple_end(std::string_view stop) const {
    return now().is(TokenType::kVariableEnd) || now().is(TokenType::kBlockEnd) || now().is_op(")") ||
           (!stop.empty() && now().is_name(stop));
  }

  ExprPtr tuple(bool with_condition = true, std::string_view stop = {}, bool in_brackets = false) {
    const int line = now().line;
    std::vector<ExprPtr> parts;
    bool is_tuple = false;
    while (true) {
      if (!parts.empty()) expect_op(",");
      if (tuple_end(stop)) break;
      parts.push_back(with_condition ? expression() : or_expression());
      if (!now().is_op(",")) break;
      is_tuple = true;
    }
    if (!is_tuple) {
      if (!parts.empty()) return std::move(parts[0]);
      if (!in_brackets) fail(fmt::format("expected an expression, got '{}'", now().shown()));
    }
    ExprPtr t = make(ExprKind::kTuple, line);
    t->args = std::move(parts);
    return measured(std::move(t));
  }

  ExprPtr expression() {
    const Deeper deeper(*this);
    const int line = now().line;
    const size_t unknown_before = unknown_.size();
    ExprPtr value = or_expression();
    while (skip_name("if")) {
      ExprPtr c = make(ExprKind::kCondition, line);
      c->args.push_back(or_expression());
      c->args.push_back(std::move(value));
      c->args.push_back(skip_name("else") ? expression() : nullptr);
      value = measured(std::move(c));
    }
    if (value->kind == ExprKind::kCondition) unknown_.resize(unknown_before);
    return value;
  }

  ExprPtr two(ExprKind kind, int line, std::string op, ExprPtr a, ExprPtr b) {
    ExprPtr e = make(kind, line, std::move(op));
    e->args.push_back(std::move(a));
    e->args.push_back(std::move(b));
    return measured(std::move(e));
  }

  ExprPtr or_expression() {
    ExprPtr left = and_expression();
    for (int line; line = now().line, skip_name("or");)
      left = two(ExprKind::kOr, line, "", std::move(left), and_expression());
    return left;
  }

  ExprPtr and_expression() {
    ExprPtr left = not_expression();
    for (int line; line = now().line, skip_name("and");)
      left = two(ExprKind::kAnd, line, "", std::move(left), not_expression());
    return left;
  }

  ExprPtr not_expression() {
    const int line = now().line;
    if (!skip_name("not")) return comparison();
    const Deeper deeper(*this);
    ExprPtr e = make(ExprKind::kNot, line);
    e->target = not_expression();
    return measured(std::move(e));
  }

  std::string comparison_op() {
    for (const char* op : {"==", "!=", "<=", ">=", "<", ">"})
      if (skip_op(op)) return op;
    if (skip_name("in")) return "in";
    if (now().is_name("not") && ahead().is_name("in")) return take(), take(), "not in";
    return "";
  }

  ExprPtr comparison() {
    const int line = now().line;
    ExprPtr left = sum();
    std::string op = comparison_op();
    if (op.empty()) return left;
    ExprPtr e = make(ExprKind::kCompare, line);
    e->target = std::move(left);
    for (; !op.empty(); op = comparison_op()) {
      e->ops.push_back(op);
      e->args.push_back(sum());
    }
    return measured(std::move(e));
  }

  ExprPtr chain(std::initializer_list<const char*> ops, ExprPtr (Parser::*operand)()) {
    ExprPtr left = (this->*operand)();
    while (true) {
      const int line = now().line;
      const auto op = std::ranges::find_if(ops, [&](const char* o) { return skip_op(o); });
      if (op == ops.end()) return left;
      left = two(ExprKind::kBinary, line, *op, std::move(left), (this->*operand)());
    }
  }
  ExprPtr sum() { return chain({"+", "-"}, &Parser::concatenation); }
  ExprPtr product() { return chain({"*", "/", "//", "%"}, &Parser::power); }
  ExprPtr power() { return chain({"**"}, &Parser::filtered_unary); }  // jinja2 reads 2**3**2 from the left

  ExprPtr concatenation() {
    const int line = now().line;
    ExprPtr first = product();
    if (!now().is_op("~")) return first;
    ExprPtr e = make(ExprKind::kConcatenate, line);
    e->args.push_back(std::move(first));
    while (skip_op("~")) e->args.push_back(product());
    return measured(std::move(e));
  }

  ExprPtr filtered_unary() { return filtered(unary()); }

  ExprPtr unary() {
    const Token& t = now();
    if (!t.is_op("-") && !t.is_op("+")) return postfix(primary());
    const Deeper deeper(*this);
    take();
    ExprPtr e = make(ExprKind::kSign, t.line, t.text);
    e->target = unary();
    return postfix(measured(std::move(e)));
  }

  ExprPtr constant(Value v, int line) {
    ExprPtr e = make(ExprKind::kConstant, line);
    e->value = std::move(v);
    return e;
  }

  ExprPtr primary() {
    const Token& t = now();
    const int line = t.line;
    switch (t.type) {
      case TokenType::kName: {
        const std::string name = take().text;
        if (name == "true" || name == "True") return constant(true, line);
        if (name == "false" || name == "False") return constant(false, line);
        if (name == "none" || name == "None") return constant({}, line);
        for (MacroInfo* m : macros_) {
          m->uses_caller |= name == "caller";
          m->uses_varargs |= name == "varargs";
          m->uses_kwargs |= name == "kwargs";
        }
        return make(ExprKind::kName, line, name);
      }
      case TokenType::kString: {
        std::string text;
        while (now().is(TokenType::kString)) text += take().text;
        return constant(std::move(text), line);
      }
      case TokenType::kInteger:
      case TokenType::kFloat:
        return constant(take().value, line);
      default:
        break;
    }
    if (skip_op("(")) {
      const Deeper deeper(*this);
      ExprPtr e = tuple(true, {}, true);
      expect_op(")");
      return e;
    }
    if (skip_op("[")) {
      ExprPtr e = make(ExprKind::kList, line);
      while (!now().is_op("]")) {
        e->args.push_back(expression());
        if (!skip_op(",")) break;
      }
      expect_op("]");
      return measured(std::move(e));
    }
    if (skip_op("{")) {
      ExprPtr e = make(ExprKind::kDict, line);
      while (!now().is_op("}")) {
        e->args.push_back(expression());
        expect_op(":");
        e->args.push_back(expression());
        if (!skip_op(",")) break;
      }
      expect_op("}");
      return measured(std::move(e));
    }
    fail(fmt::format("unexpected '{}'", t.shown()));
  }

  ExprPtr postfix(ExprPtr e) {
    while (true) {
      if (now().is_op(".") || now().is_op("["))
        e = subscript(std::move(e));
      else if (now().is_op("("))
        e = call(std::move(e));
      else
        return e;
    }
  }

  ExprPtr filtered(ExprPtr e) {
    while (true) {
      if (now().is_op("|"))
        e = filters(std::move(e), false);
      else if (now().is_name("is"))
        e = test(std::move(e));
      else if (now().is_op("("))
        e = call(std::move(e));
      else
        return e;
    }
  }

  ExprPtr subscript(ExprPtr target) {
    const int line = now().line;
    if (take().text == ".") {
      const Token& t = take();
      ExprPtr e = make(t.is(TokenType::kName) ? ExprKind::kAttribute : ExprKind::kItem, line, t.text);
      if (t.is(TokenType::kInteger))
        e->args.push_back(constant(t.value, t.line));
      else if (!t.is(TokenType::kName))
        fail("expected a name or a number behind '.'", t.line);
      e->target = std::move(target);
      return measured(std::move(e));
    }
    ExprPtr bounds[3];
    bool slice = false;
    const auto ends = [&] { return now().is_op("]") || now().is_op(":"); };
    if (!ends()) bounds[0] = expression();
    for (int i = 1; i < 3 && skip_op(":"); ++i) {
      slice = true;
      if (!ends()) bounds[i] = expression();
    }
    if (now().is_op(",")) fail("more than one index is not supported");
    expect_op("]");
    if (!slice && !bounds[0]) fail("an index is missing", line);
    ExprPtr e = make(slice ? ExprKind::kSlice : ExprKind::kItem, line);
    e->target = std::move(target);
    e->args.push_back(std::move(bounds[0]));
    if (slice) e->args.push_back(std::move(bounds[1])), e->args.push_back(std::move(bounds[2]));
    return measured(std::move(e));
  }

  void call_arguments(Expr& e) {
    const int line = now().line;
    expect_op("(");
    const auto ensure = [&](bool good) {
      if (!good) fail("arguments are in the wrong order", line);
    };
    while (!now().is_op(")")) {
      if (skip_op("*")) {
        ensure(!e.rest && !e.named_rest);
        e.rest = expression();
      } else if (skip_op("**")) {
        ensure(!e.named_rest);
        e.named_rest = expression();
      } else if (now().is(TokenType::kName) && ahead().is_op("=")) {
        ensure(!e.named_rest);
        std::string name = take().text;
        take();
        for (const auto& [other, value] : e.named)
          if (other == name) fail(fmt::format("the argument '{}' is given twice", name));
        e.named.emplace_back(std::move(name), expression());
      } else {
        ensure(!e.rest && !e.named_rest && e.named.empty());
        e.args.push_back(expression());
      }
      if (!skip_op(",")) break;
    }
    expect_op(")");
  }

  ExprPtr call(ExprPtr target) {
    ExprPtr e = make(ExprKind::kCall, now().line);
    e->target = std::move(target);
    call_arguments(*e);
    return measured(std::move(e));
  }

  std::string dotted_name(const char* what) {
    std::string name = expect(TokenType::kName, what).text;
    while (skip_op(".")) name += "." + expect(TokenType::kName, what).text;
    return name;
  }

  ExprPtr filters(ExprPtr target, bool first_without_bar) {
    while (first_without_bar || skip_op("|")) {
      first_without_bar = false;
      const int line = now().line;
      ExprPtr e = make(ExprKind::kFilter, line, dotted_name("the name of a filter"));
      if (!find_filter(e->name)) unknown_.push_back({fmt::format("there is no filter '{}'", e->name), line});
      if (now().is_op("(")) call_arguments(*e);
      e->target = std::move(target);
      target = measured(std::move(e));
    }
    return target;
  }

  ExprPtr test(ExprPtr target) {
    const int line = take().line;
    const bool negated = skip_name("not");
    ExprPtr e = make(ExprKind::kTest, line, dotted_name("the name of a test"));
    if (!find_test(e->name)) unknown_.push_back({fmt::format("there is no test '{}'", e->name), line});
    e->target = std::move(target);
    const Token& t = now();
    if (t.is_op("(")) {
      call_arguments(*e);
    } else if (t.is(TokenType::kString) || t.is(TokenType::kInteger) || t.is(TokenType::kFloat) ||
               t.is_op("[") || t.is_op("{") ||
               (t.is(TokenType::kName) && !any_of(t, {"else", "or", "and"}))) {
      if (t.is_name("is")) fail("tests cannot be chained with 'is'");
      e->args.push_back(postfix(primary()));
    }
    e = measured(std::move(e));
    if (!negated) return e;
    ExprPtr n = make(ExprKind::kNot, line);
    n->target = std::move(e);
    return measured(std::move(n));
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0, loops_ = 0;
  std::vector<MacroInfo*> macros_;  // around the current place
  // Filters and tests that do not exist. As in jinja2, what stands in an `if` only fails when it is run.
  std::vector<Failure> unknown_;
};

}  // namespace

Block parse_template(std::string_view source, const LexerOptions& options) {
  return Parser(tokenize(source, options)).run();
}

}  // namespace braid::chat
