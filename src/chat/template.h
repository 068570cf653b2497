// Conversations to text, by the chat template that comes with a model.
//
//   auto chat = ChatTemplate::load("models/qwen3");
//   if (!chat) return chat.error();
//   auto text = chat->render({{"messages", {{{"role", "user"}, {"content", "Hello"}}}},
//                             {"add_generation_prompt", true}, {"enable_thinking", false}});
//
// A template is a program in the language of jinja2. docs/reference/chat_templates.md says what of it is
// known here; the rest is an error that names it and its line. Results are those of transformers'
// apply_chat_template.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "io/json_fwd.h"

namespace braid {

struct ChatTemplateOptions {
  // What strftime_now() shows; the local time if not given.
  std::optional<std::tm> now = {};
  // A template is a stranger's program: what one rendering may use before it is stopped with an error.
  size_t max_steps = 50'000'000;         // things evaluated; about 2 s of one core
  size_t max_output = size_t{64} << 20;  // bytes, also of a string on the way
  size_t max_memory = size_t{1} << 30;   // bytes of all strings and lists made on the way
  // As transformers has them.
  bool trim_blocks = true, lstrip_blocks = true;
};

class ChatTemplate {
 public:
  // `name`: prefix of error messages.
  static Result<ChatTemplate> parse(std::string_view source, std::string name = "chat template",
                                    ChatTemplateOptions options = {});

  // From a model's folder: chat_template.jinja, chat_template.json or tokenizer_config.json, in this order,
  // and chat_templates/NAME.jinja; the special tokens from tokenizer_config.json. Or from one file of these
  // kinds.
  static Result<ChatTemplate> load(const std::string& path, ChatTemplateOptions options = {});

  // `context` is an object; each key is a variable of the template: messages, tools, documents,
  // add_generation_prompt, enable_thinking, ... Special tokens are there already unless it has them. Without
  // them tools and documents are none and add_generation_prompt is false. A template named tool_use is taken
  // when there are tools.
  Result<std::string> render(const Json& context) const;

  const Json& special_tokens() const;  // bos_token, eos_token, ...: those that are known

  struct Impl;

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace braid
