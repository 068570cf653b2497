// Template source to tokens, by the rules of jinja2's lexer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/value.h"

namespace braid::chat {

// As transformers sets them; others only to show in tests that they matter.
struct LexerOptions {
  bool trim_blocks = true;    // the newline behind a block tag goes
  bool lstrip_blocks = true;  // white space between the start of a line and a block tag goes
};

enum class TokenType {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenType type;
  std::string text;  // data, name, operator, unescaped string
  Value value;       // of a number
  int line;

  bool is(TokenType t) const { return type == t; }
  bool is_name(std::string_view name) const { return type == TokenType::kName && text == name; }
  bool is_op(std::string_view op) const { return type == TokenType::kOperator && text == op; }
  std::string shown() const;  // for messages
};

std::vector<Token> tokenize(std::string_view source, const LexerOptions& options);

}  // namespace braid::chat
