// A parsed template: a tree of statements and expressions.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "chat/lexer.h"
#include "chat/value.h"

namespace braid::chat {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind {
  kConstant,   // value
  kName,       // name
  kList,       // args
  kTuple,      // args
  kDict,       // args: key, value, key, value, ...
  kAttribute,  // target.name
  kItem,       // target[args[0]]
  kSlice,      // target[args[0] : args[1] : args[2]], each may be missing
  kCall,       // target(args, named, *rest, **named_rest)
  kFilter,     // target | name(...); without target: of a block
  kTest,       // target is name(...)
  kNot,        // not target
  kSign,       // name target, "+" or "-"
  kBinary,     // args[0] name args[1]
  kAnd,        // args[0] and args[1]
  kOr,
  kCompare,      // target ops[0] args[0] ops[1] args[1] ...
  kConcatenate,  // args[0] ~ args[1] ~ ...
  kCondition,    // args[1] if args[0] else args[2], which may be missing
  kMember,       // assigned to only: attribute `name` of the namespace named by args[0]
};

struct Expr {
  ExprKind kind;
  int line;
  std::string name = {};
  Value value = {};
  ExprPtr target = {};
  std::vector<ExprPtr> args = {};
  std::vector<std::pair<std::string, ExprPtr>> named = {};
  ExprPtr rest = {}, named_rest = {};
  std::vector<std::string> ops = {};
  int depth = 1;  // of the tree below
};

struct Stmt;
using Block = std::vector<std::unique_ptr<Stmt>>;

enum class StmtKind {
  kText,
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCall,
  kFilter,
  kWith,
  kGeneration,
  kBreak,
  kContinue
};

// The function that a macro or the body of a call block is.
struct MacroInfo {
  std::string name;
  std::vector<std::string> params;
  std::vector<ExprPtr> defaults;  // of the last params
  Block body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct Stmt {
  StmtKind kind;
  int line;
  std::string text = {};  // kText
  ExprPtr expr = {};      // kOutput, kSet: value; kFor: what is walked; kCall; kFilter, kSetBlock: filters
  ExprPtr target = {};    // kSet, kSetBlock, kFor
  ExprPtr test = {};      // kFor: the `if`
  std::vector<std::pair<ExprPtr, Block>> branches = {};    // kIf
  std::vector<std::pair<ExprPtr, ExprPtr>> assigned = {};  // kWith: target and value
  Block body = {}, otherwise = {};
  MacroInfo macro = {};  // kMacro, kCall
};

// Throws Failure.
Block parse_template(std::string_view source, const LexerOptions& options);

}  // namespace braid::chat
