#include "chat/template.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <vector>

#include "io/json.h"
#include "chat/renderer.h"
#include "chat/text.h"
#include "io/file.h"

namespace braid {

using namespace chat;
namespace fs = std::filesystem;

struct ChatTemplate::Impl {
  struct Named {
    std::string place;  // for errors
    Block tree;
  };
  std::map<std::string, Named> templates;
  ChatTemplateOptions options;
  Json tokens = Json::object();  // the special ones
};

namespace {

constexpr const char* kDefault = "default";
constexpr const char* kToolUse = "tool_use";

Error located(const std::string& place, const Failure& f, int line) {
  return {f.line || line ? place + ": line " + std::to_string(f.line ? f.line : line) + ": " + f.what
                         : place + ": " + f.what};
}

Value to_value(const Json& j, int depth = 0) {
  if (depth > static_cast<int>(kMaxJsonDepth)) throw Failure{"the context is nested too deep"};
  const auto text = [](const std::string& s) {
    if (!is_utf8(s)) throw Failure{"the context has a string that is not UTF-8"};
    return Value(s);
  };
  switch (j.type()) {
    case Json::value_t::boolean:
      return j.get<bool>();
    case Json::value_t::number_integer:
      return j.get<int64_t>();
    case Json::value_t::number_unsigned:
      if (j.get<uint64_t>() > INT64_MAX)
        throw Failure{"the context has a number that does not fit into 64 bits"};
      return j.get<int64_t>();
    case Json::value_t::number_float:
      return j.get<double>();
    case Json::value_t::string:
      return text(j.get_ref<const std::string&>());
    case Json::value_t::array: {
      Values items;
      for (const Json& x : j) items.push_back(to_value(x, depth + 1));
      return make_list(std::move(items));
    }
    case Json::value_t::object: {
      auto d = std::make_shared<Dict>();
      for (const auto& [k, x] : j.get_ref<const Json::object_t&>())
        d->items.emplace_back(text(k), to_value(x, depth + 1));
      return make_dict(std::move(d));
    }
    default:
      return {};
  }
}

// A model's reasoning goes by several names; templates read the first or the second. As transformers does it:
// a message that has one has both.
Value with_reasoning_names(const Value& message) {
  if (!message.is(Kind::kDict)) return message;
  const auto& d = message.as<Dict>();
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* reasoning = d.find(std::string_view(name));
    if (!reasoning || reasoning->is(Kind::kNone)) continue;
    auto both = std::make_shared<Dict>();
    both->set("thinking", *reasoning);
    for (const auto& [k, v] : d.items) both->set(k, v);
    both->set("reasoning_content", *reasoning);
    return make_dict(std::move(both));
  }
  return message;
}

Value messages_value(const Json& j) {
  const Value all = to_value(j);
  if (!all.is(Kind::kList)) return all;
  Values messages;
  for (const Value& m : all.items()) messages.push_back(with_reasoning_names(m));
  return make_list(std::move(messages));
}

Status add_template(ChatTemplate::Impl& impl, const std::string& name, std::string_view source,
                    const std::string& place) {
  try {
    Block tree = parse_template(source, {impl.options.trim_blocks, impl.options.lstrip_blocks});
    impl.templates[name] = {place, std::move(tree)};
  } catch (const Failure& f) {
    return located(place, f, 0);
  }
  return {};
}

// The value of "chat_template": one template, or a list or object of named ones.
Status add_from_json(ChatTemplate::Impl& impl, const nlohmann::json& value, const std::string& place) {
  if (value.is_string()) return add_template(impl, kDefault, value.get_ref<const std::string&>(), place);
  if (value.is_object()) {
    for (const auto& [name, source] : value.items()) {
      if (!source.is_string())
        return Error{place + ": the template " + in_quotes(name) + " is not a string",
                     "write it as a string"};
      if (Status s =
              add_template(impl, name, source.get_ref<const std::string&>(), place + " " + in_quotes(name));
          !s)
        return s;
    }
    return {};
  }
  if (!value.is_array())
    return Error{place + ": is neither a string nor a list of templates", "write one template as a string"};
  for (const nlohmann::json& entry : value) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() ||
        !entry.contains("template") || !entry["template"].is_string())
      return Error{place + ": has an entry without \"name\" and \"template\"", "add both"};
    const std::string name = entry["name"];
    if (Status s = add_template(impl, name, entry["template"].get_ref<const std::string&>(),
                                place + " " + in_quotes(name));
        !s)
      return s;
  }
  return {};
}

// A token is a string, or an object with its text as "content".
const nlohmann::json* token_text(const nlohmann::json& token) {
  if (token.is_string()) return &token;
  if (token.is_object() && token.contains("content") && token["content"].is_string())
    return &token["content"];
  return nullptr;
}

void add_tokens(Json& tokens, const nlohmann::json& config) {
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (config.contains(name))
      if (const nlohmann::json* text = token_text(config[name])) tokens[name] = text->get<std::string>();
  // Names of a model's own, such as image_token.
  if (config.contains("extra_special_tokens") && config["extra_special_tokens"].is_object())
    for (const auto& [name, token] : config["extra_special_tokens"].items())
      if (const nlohmann::json* text = token_text(token)) tokens[name] = text->get<std::string>();
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::string name,
                                         ChatTemplateOptions options) {
  auto impl = std::make_shared<Impl>();
  impl->options = options;
  if (Status s = add_template(*impl, kDefault, source, name); !s) return s.error();
  ChatTemplate t;
  t.impl_ = std::move(impl);
  return t;
}

Result<ChatTemplate> ChatTemplate::load(const std::string& path, ChatTemplateOptions options) {
  auto impl = std::make_shared<Impl>();
  impl->options = options;
  ChatTemplate result;
  const auto add_source = [&](const std::string& name, const std::string& file) -> Status {
    const Result<std::string> source = read_text(file);
    if (!source) return source.error();
    return add_template(*impl, name, *source, file);
  };
  // Both kinds of JSON file: a tokenizer's config, and a file with the template alone.
  const auto add_json = [&](const std::string& file, bool with_template) -> Status {
    const Result<nlohmann::json> config = load_sorted_json(file);
    if (!config) return config.error();
    if (!config->is_object()) return Error{file + ": is not a JSON object", "fetch the file again"};
    add_tokens(impl->tokens, *config);
    if (!with_template || !config->contains("chat_template") || (*config)["chat_template"].is_null())
      return {};
    return add_from_json(*impl, (*config)["chat_template"], file + ": chat_template");
  };

  std::error_code ec;
  if (!fs::is_directory(path, ec)) {
    const Status s = path.ends_with(".json") ? add_json(path, true) : add_source(kDefault, path);
    if (!s) return s.error();
  } else {
    const std::string jinja = path + "/chat_template.jinja", json = path + "/chat_template.json",
                      config = path + "/tokenizer_config.json", more = path + "/chat_templates";
    if (fs::exists(jinja, ec))
      if (Status s = add_source(kDefault, jinja); !s) return s.error();
    for (const std::string& name : names_in(more))
      if (const fs::path f = more + "/" + name; f.extension() == ".jinja")
        if (Status s = add_source(f.stem(), f); !s) return s.error();
    if (impl->templates.empty() && fs::exists(json, ec))
      if (Status s = add_json(json, true); !s) return s.error();
    if (fs::exists(config, ec))
      if (Status s = add_json(config, impl->templates.empty()); !s) return s.error();
  }
  if (impl->templates.empty())
    return Error{path + ": has no chat template",
                 "give a model's folder with chat_template.jinja, or with one in tokenizer_config.json"};
  result.impl_ = std::move(impl);
  return result;
}

const Json& ChatTemplate::special_tokens() const { return impl_->tokens; }

Result<std::string> ChatTemplate::render(const Json& context) const {
  if (!context.is_object()) return Error{"the context of a chat template must be an object"};
  const auto tools = context.find("tools");
  const bool with_tools = tools != context.end() && !tools->is_null();
  const auto& all = impl_->templates;
  auto chosen = with_tools ? all.find(kToolUse) : all.end();
  if (chosen == all.end()) chosen = all.find(kDefault);
  if (chosen == all.end())
    return Error{all.begin()->second.place + ": has no template named default",
                 "name one of its templates so"};

  Budget budget;
  budget.steps = impl_->options.max_steps;
  budget.bytes = impl_->options.max_memory;
  budget.longest = impl_->options.max_output;
  Renderer renderer(budget, impl_->options.now);
  try {
    auto globals = std::make_shared<Scope>();
    globals->set("tools", {});
    globals->set("documents", {});
    globals->set("add_generation_prompt", false);
    for (const Json* part : {&impl_->tokens, &context})
      for (const auto& [k, v] : part->get_ref<const Json::object_t&>())
        globals->set(k, k == "messages" ? messages_value(v) : to_value(v));
    return renderer.run(chosen->second.tree, std::move(globals));
  } catch (const Failure& f) {
    return located(chosen->second.place, f, renderer.line);
  } catch (const std::bad_alloc&) {
    return Error{chosen->second.place + ": out of memory"};
  }
}

}  // namespace braid
