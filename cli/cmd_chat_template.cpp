#include "chat/template.h"
#include "cli/cli.h"
#include "cli/template_variables.h"
#include "io/json.h"

namespace braid {
namespace {

struct Options {
  std::string model, messages, tools, documents;
  std::vector<std::string> set;
  bool no_generation_prompt = false, json = false;
  template <class V>
  void visit(V& v) {
    v("--model", model,
      "model folder with a chat template, or one file: .jinja, chat_template.json, tokenizer_config.json");
    v("--messages", messages,
      "JSON file: the list of messages, or an object with \"messages\" and any other variables");
    v("--tools", tools, "JSON file: the list of tools");
    v("--documents", documents, "JSON file: the list of documents");
    v("--set", set,
      "a variable of the template, e.g. enable_thinking=false; JSON, or else text; may be repeated");
    v("--no-generation-prompt", no_generation_prompt, "end behind the last message");
    v("--json", json, "print one JSON line: prompt and special tokens");
  }
};

int run(const Options& o) {
  if (o.model.empty()) return wrong_use({"--model: is missing", "give a model folder or a .jinja file"});
  if (o.messages.empty()) return wrong_use({"--messages: is missing", "give a JSON file"});
  const Result<ChatTemplate> chat = ChatTemplate::load(o.model);
  if (!chat) return fail(chat.error());
  Result<Json> given = load_json(o.messages);
  if (!given) return fail(given.error());
  Json context = given->is_object() ? *given : Json{{"messages", *given}};
  if (!context.contains("messages") || !context["messages"].is_array())
    return fail(
        {o.messages + ": has no list of messages", "give a JSON list, or an object with \"messages\""});
  for (const Json& m : context["messages"])
    if (!m.is_object())
      return fail(
          {o.messages + ": a message is not an object", "give objects with \"role\" and \"content\""});
  for (const auto& [name, path] :
       {std::pair<const char*, std::string>{"tools", o.tools}, {"documents", o.documents}}) {
    if (path.empty()) continue;
    Result<Json> list = load_list(path, name);
    if (!list) return fail(list.error());
    context[name] = *std::move(list);
  }
  if (o.no_generation_prompt || !context.contains("add_generation_prompt"))
    context["add_generation_prompt"] = !o.no_generation_prompt;
  for (const std::string& setting : o.set)
    if (Status status = set_variable(context, setting); !status) return wrong_use(status.error());
  const Result<std::string> prompt = chat->render(context);
  if (!prompt) return fail(prompt.error());
  if (o.json)
    print_json({{"prompt", *prompt}, {"special_tokens", chat->special_tokens()}});
  else
    say("{}", *prompt);
  return kOk;
}

}  // namespace

std::function<int()> define_chat_template(CLI::App& app) {
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  o->visit(add);
  return [o] { return run(*o); };
}

}  // namespace braid
