#include "infer/conversation.h"

#include <algorithm>
#include <optional>

#include "chat/template.h"
#include "io/json.h"

namespace braid {
namespace {

constexpr EncodeOptions kRendered{.add_special = false, .parse_special = true};  // the template has put them

}  // namespace

struct Conversation::Impl {
  const TextModel& model;
  ChatTemplate chat;
  Session session;
  PromptMemory memory;
  GenerateOptions generate;
  std::string system;
  Json messages = Json::array(), variables = Json::object();

  bool last_is(const char* role) const {
    return !messages.empty() && messages.back().value("role", "") == role;
  }

  Result<std::vector<int32_t>> prompt_of(const Json& so_far, bool add_generation_prompt) const {
    Json context = variables;
    context["messages"] = so_far, context["add_generation_prompt"] = add_generation_prompt;
    const Result<std::string> text = chat.render(context);
    if (!text) return text.error();
    return model.tokenizer->encode(*text, kRendered);
  }

  // About where messages end in the prompt, behind its first `known` tokens: the latest ones. Where a
  // template renders a beginning of the conversation in another way, the place is where the two part.
  std::vector<size_t> message_ends(std::span<const int32_t> prompt, size_t known) const {
    constexpr size_t kMost = 8;
    std::vector<size_t> ends;
    for (Json so_far = messages; !so_far.empty() && ends.size() < kMost; so_far.erase(so_far.size() - 1)) {
      const Result<std::vector<int32_t>> begin = prompt_of(so_far, false);
      if (!begin) break;  // some templates want whole turns
      ends.push_back(static_cast<size_t>(std::ranges::mismatch(*begin, prompt).in1 - begin->begin()));
      if (ends.back() <= known) break;
    }
    return ends;
  }

  Result<Reply> answer(const std::function<void(std::string_view)>& show) {
    const Result<std::vector<int32_t>> rendered = prompt_of(messages, true);
    if (!rendered) return rendered.error();
    const std::vector<int32_t>& prompt = *rendered;
    if (prompt.empty()) return Error{"--template: gives an empty prompt", "give another template"};
    Reply reply{.text = {}, .generated = {}, .recalled = memory.recall(session, prompt)};
    reply.prompt_tokens = prompt.size();
    GenerateOptions g = generate;
    g.before.clear();
    g.known = reply.recalled.cached;
    g.snapshots_at = memory.places(prompt, g.known, message_ends(prompt, g.known));
    g.snapshot = [&](size_t tokens, State state) {
      memory.keep(prompt, tokens, std::move(state), "on the way through a prompt");
    };
    g.after_prompt = [&](const State& state) {
      memory.keep(prompt, prompt.size(), state, "the end of a prompt");
      return Status{};
    };
    StreamDecoder decoder(*model.tokenizer);
    Result<Generated> r = braid::generate(
        session, prompt, [&](std::optional<int32_t> id) { return id ? decoder.add(*id) : decoder.finish(); },
        [&](std::string_view s) {
          reply.text += s;
          show(s);
        },
        g);
    if (!r) return r.error();
    if (Status s = decoder.status(); !s) return s.error();
    reply.generated = *std::move(r);
    std::vector<int32_t> read = prompt;
    read.insert(read.end(), reply.generated.tokens.begin(), reply.generated.tokens.end());
    memory.keep(std::span(read).first(reply.generated.read), reply.generated.read, session.state(),
                "the end of an answer");
    messages.push_back({{"role", "assistant"}, {"content", reply.text}});
    return reply;
  }
};

Conversation::Conversation(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Conversation::Conversation(Conversation&&) noexcept = default;
Conversation& Conversation::operator=(Conversation&&) noexcept = default;
Conversation::~Conversation() = default;

Result<Conversation> Conversation::open(const std::string& template_path, const TextModel& model,
                                        Context& context, const ConversationOptions& o) {
  if (!model.tokenizer) return Error{"--model: has no tokenizer", "give a model that was trained on text"};
  Result<ChatTemplate> chat = ChatTemplate::load(template_path);
  if (!chat) return chat.error();
  Conversation c(std::unique_ptr<Impl>(new Impl{.model = model,
                                                .chat = *std::move(chat),
                                                .session = Session(*model.model, context),
                                                .memory = PromptMemory(o.memory),
                                                .generate = o.generate,
                                                .system = o.system}));
  if (c.impl_->generate.end_tokens.empty()) c.impl_->generate.end_tokens = chat_end_tokens(model);
  c.reset();
  return c;
}

void Conversation::ask(std::string_view text) {
  impl_->messages.push_back({{"role", "user"}, {"content", text}});
}

Result<Reply> Conversation::answer(const std::function<void(std::string_view)>& show) {
  return impl_->answer(show);
}

void Conversation::reset() {
  impl_->messages = Json::array();
  if (!impl_->system.empty()) impl_->messages.push_back({{"role", "system"}, {"content", impl_->system}});
}

void Conversation::set_system(std::string text) {
  impl_->system = std::move(text);
  reset();
}

bool Conversation::undo() {
  Json rest = impl_->messages;
  while (!rest.empty()) {
    const bool question = rest.back().value("role", "") == "user";
    rest.erase(rest.size() - 1);
    if (question) {
      impl_->messages = std::move(rest);
      return true;
    }
  }
  return false;
}

bool Conversation::undo_answer() {
  if (!impl_->last_is("assistant")) return false;
  impl_->messages.erase(impl_->messages.size() - 1);
  return true;
}

bool Conversation::answerable() const { return impl_->last_is("user"); }

std::string Conversation::messages() const {
  return impl_->messages.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Status Conversation::set_messages(std::string_view json, const std::string& name) {
  Result<Json> list = parse_ordered_json(json, name);
  if (!list) return list.error();
  if (!list->is_array())
    return Error{name + ": is not a list of messages", R"(write [{"role": "user", "content": "..."}])"};
  for (const Json& m : *list)
    if (!m.is_object() || !m.contains("role") || !m["role"].is_string())
      return Error{name + ": a message has no role", R"(write {"role": "user", "content": "..."})"};
  impl_->messages = *std::move(list);
  return {};
}

void Conversation::set_variable(const std::string& name, std::string_view value) {
  Result<Json> parsed = parse_ordered_json(value, name);
  impl_->variables[name] = parsed ? *std::move(parsed) : Json(value);
}

GenerateOptions& Conversation::options() { return impl_->generate; }
const PromptMemory& Conversation::memory() const { return impl_->memory; }

Result<std::string> render_chat(const std::string& template_path, std::string_view context) {
  Result<ChatTemplate> chat = ChatTemplate::load(template_path);
  if (!chat) return chat.error();
  const Result<Json> json = parse_ordered_json(context, "context");
  if (!json) return json.error();
  if (!json->is_object()) return Error{"context: not a JSON object", R"(write {"messages": [...]})"};
  return chat->render(*json);
}

}  // namespace braid
