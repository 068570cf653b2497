// A conversation with a model: messages become a prompt by the model's own chat template, answers are
// streamed, and what was read is remembered from turn to turn, so that a turn costs what is new in it.
//
//   Result<Conversation> chat = Conversation::open("folder", model, context);
//   chat->ask("Hello");
//   Result<Reply> reply = chat->answer([](std::string_view text) { ... });
//
// JSON enters and leaves as text. Model and context must outlive it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "infer/generate.h"
#include "infer/prompt_memory.h"
#include "infer/text_model.h"

namespace braid {

struct ConversationOptions {
  std::string system = {};  // a system message to begin with; empty: none
  // Sampler, limits, stops, draft. Without end tokens: those that chat_end_tokens() finds. What a turn sets
  // (known, before, snapshots and what gets them) is not taken from here.
  GenerateOptions generate = {.max_tokens = 2048};
  PromptMemoryOptions memory = {};
};

struct Reply {
  std::string text;
  Generated generated;
  Recalled recalled;  // of the prompt
  size_t prompt_tokens = 0;
};

class Conversation {
 public:
  // template_path: a model folder, or a file with a chat template. The model must have a tokenizer.
  static Result<Conversation> open(const std::string& template_path, const TextModel& model, Context& context,
                                   const ConversationOptions& options = {});
  Conversation(Conversation&&) noexcept;
  Conversation& operator=(Conversation&&) noexcept;
  ~Conversation();

  void ask(std::string_view text);  // the user's next message
  // The model's answer to the messages so far, which it becomes a part of; `show` gets it piece by piece.
  // After an error the messages are what they were.
  Result<Reply> answer(const std::function<void(std::string_view)>& show);

  void reset();                       // no messages but the system message
  void set_system(std::string text);  // another system message; begins anew
  bool undo();                        // takes back the last question and what followed; false: there is none
  bool undo_answer();                 // the last answer alone; false: a question, or nothing, stands last
  bool answerable() const;            // a message of the user stands last
  std::string messages() const;       // a JSON list of {"role": ..., "content": ...}
  // Such a list instead; `name` stands for it in errors, after which nothing has changed.
  Status set_messages(std::string_view json, const std::string& name = "messages");
  // A variable of the template: a JSON value, or else a string.
  void set_variable(const std::string& name, std::string_view value);

  GenerateOptions& options();  // for the next answers
  const PromptMemory& memory() const;

 private:
  struct Impl;
  explicit Conversation(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// What a chat template makes of its variables: `context` is a JSON object with messages,
// add_generation_prompt, tools and whatever else the template knows.
Result<std::string> render_chat(const std::string& template_path, std::string_view context);

}  // namespace braid
