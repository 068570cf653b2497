// A conversation with a model: its own chat template, its answers streamed, and what it has read remembered
// from turn to turn.
#include <editline/readline.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "base/interrupt.h"
#include "chat/template.h"
#include "cli/cli.h"
#include "cli/sampling.h"
#include "cli/template_variables.h"
#include "cli/weight_flags.h"
#include "infer/generate.h"
#include "infer/prompt_memory.h"
#include "infer/text_model.h"
#include "io/folder.h"

namespace braid {
namespace {

struct Options {
  std::string model, system, prompt, template_file, tools, history;
  std::vector<std::string> set, stop;
  std::optional<int64_t> max_tokens;
  int64_t threads = 0, draft = 0, cache_mb = 1024, cache_grid = 512;
  bool json = false, verbose = false, cache_bf16 = false;
  SamplingFlags sampling;
  InferenceFlags weights;
  template <class V>
  void visit(V& v) {
    v("--model", model, "model folder with a tokenizer and a chat template");
    v("--system", system, "a system message to begin with");
    v("--prompt", prompt, "ask this, print the answer and end");
    v("--history", history, "a conversation to go on with: a JSON list of messages, as /save writes");
    v("--tools", tools, "a JSON list of tools that the template tells the model about");
    v("--template", template_file, "a chat template instead of the model's");
    v("--set", set, "a variable of the template, e.g. enable_thinking=false; may be repeated");
    v("--max-tokens", max_tokens, "end an answer after this many tokens (else the model's, else 2048)");
    v("--stop", stop, "end an answer before this string would appear; may be repeated");
    sampling.visit(v);
    weights.visit(v);
    v("--draft", draft, "guess up to this many tokens per pass, 7 at most; see braid generate");
    v("--cache-mb", cache_mb, "memory for states that spare reading a prompt again");
    v("--cache-grid", cache_grid, "keep one about every so many tokens; 0 = only at ends of messages");
    v("--cache-bf16", cache_bf16, "keep them in half the memory, rounded: answers may then differ");
    v("--verbose", verbose, "tell how much of a prompt was remembered, and why not more");
    v("--threads", threads, "threads; 0 = all cores");
    v("--json", json, "with --prompt: print one JSON object instead of streaming");
  }
};

constexpr const char* kHelp =
    "/retry            answer again, with another seed\n"
    "/undo             take the last question and answer back\n"
    "/reset            begin anew, with the same system message\n"
    "/system TEXT      another system message; begins anew\n"
    "/set NAME VALUE   a sampler's setting (temperature, top_k, ...), max_tokens, or a variable of the "
    "template\n"
    "/history          the conversation so far\n"
    "/save FILE        write it as JSON\n"
    "/load FILE        go on with one that was written\n"
    "/exit             leave (also Ctrl-D)\n"
    "A line that ends with \\ goes on in the next. Ctrl-C stops an answer.\n";

// One line from the user; with editing and its history on a terminal. False at the end.
bool read_line(const char* prompt, std::string& line) {
  if (!isatty(STDIN_FILENO)) return static_cast<bool>(std::getline(std::cin, line));
  char* text = readline(prompt);
  if (!text) return false;
  line = text;
  if (!line.empty()) add_history(text);
  std::free(text);
  return true;
}

class Chat {
 public:
  Chat(const Options& o, TextModel& model, ChatTemplate chat, ThreadPool& pool)
      : o_(o),
        model_(model),
        template_(std::move(chat)),
        session_(*model.model, pool),
        memory_({.bytes = static_cast<size_t>(o.cache_mb) << 20,
                 .grid = static_cast<size_t>(o.cache_grid),
                 .narrow = o.cache_bf16}) {
    generate_.draft = o.draft;
    generate_.max_tokens = most_tokens(o.max_tokens, model.generation, 2048), generate_.stop = o.stop;
    generate_.end_tokens = chat_end_tokens(model_);
  }

  Status begin() {
    Result<SamplerOptions> sampler = o_.sampling.resolve(model_.generation);
    if (!sampler) return sampler.error();
    generate_.sampler = *std::move(sampler);
    for (const std::string& s : o_.set)
      if (Status status = set_variable(variables_, s); !status) return status;
    if (!o_.tools.empty()) {
      Result<Json> tools = load_list(o_.tools, "tools");
      if (!tools) return tools.error();
      variables_["tools"] = *std::move(tools);
    }
    system_ = o_.system;
    reset();
    return o_.history.empty() ? Status{} : load(o_.history);
  }

  // Streams the answer to the messages so far and appends it.
  Result<Generated> answer(bool stream) {
    Json context = variables_;
    context["messages"] = messages_, context["add_generation_prompt"] = true;
    const Result<std::string> text = template_.render(context);
    if (!text) return text.error();
    const std::vector<int32_t> prompt =
        model_.tokenizer->encode(*text, {.add_special = false, .parse_special = true});
    if (prompt.empty()) return Error{"the chat template gives an empty prompt"};
    recalled_ = memory_.recall(session_, prompt);
    generate_.known = recalled_.cached;
    generate_.snapshots_at = memory_.places(prompt, recalled_.cached, message_ends(prompt));
    generate_.snapshot = [&](size_t tokens, State state) {
      memory_.keep(prompt, tokens, std::move(state), "on the way through a prompt");
    };
    generate_.after_prompt = [&](const State& state) {
      memory_.keep(prompt, prompt.size(), state, "the end of a prompt");
      return Status{};
    };
    StreamDecoder decoder(*model_.tokenizer);
    const auto text_of = [&](std::optional<int32_t> id) { return id ? decoder.add(*id) : decoder.finish(); };
    answer_.clear();
    const auto show = [&](std::string_view s) {
      answer_ += s;
      if (!stream) return;
      std::fwrite(s.data(), 1, s.size(), stdout);
      std::fflush(stdout);
    };
    catch_interrupts();
    Result<Generated> r = generate(session_, prompt, generate_, text_of, show);
    release_interrupts();
    if (!r) return r;
    std::vector<int32_t> read = prompt;
    read.insert(read.end(), r->tokens.begin(), r->tokens.end());
    memory_.keep(std::span(read).first(r->read), r->read, session_.state(), "the end of an answer");
    messages_.push_back({{"role", "assistant"}, {"content", answer_}});
    prompt_tokens_ = prompt.size();
    return r;
  }

  void ask(const std::string& text) { messages_.push_back({{"role", "user"}, {"content", text}}); }

  int talk() {
    if (isatty(STDIN_FILENO)) fmt::print(stderr, "/help lists the commands, /exit or Ctrl-D leaves.\n");
    for (std::string line; read(line);) {
      if (line.empty()) continue;
      if (line[0] == '/') {
        if (!command(line)) return kOk;
      } else {
        ask(line);
        reply();
      }
    }
    return kOk;
  }

  const std::string& last_answer() const { return answer_; }
  size_t prompt_tokens() const { return prompt_tokens_; }
  const Recalled& recalled() const { return recalled_; }

  void tell(const Generated& r) const {
    fmt::print(stderr, "[prompt: {} cached, {} replayed, {} computed: {}]\n[{} states kept, {:.1f} MB]\n",
               recalled_.cached, recalled_.replayed, recalled_.computed, recalled_.why, memory_.size(),
               static_cast<double>(memory_.bytes()) / (1 << 20));
    if (o_.draft) fmt::print(stderr, "[{}]\n", draft_text(r));
  }

 private:
  // About where messages end in the prompt, as far as it has not been read: the latest ones. Where a template
  // renders a beginning of the conversation in another way, the place is where the two part.
  std::vector<size_t> message_ends(std::span<const int32_t> prompt) const {
    constexpr size_t kMost = 8;
    std::vector<size_t> ends;
    Json context = variables_, messages = messages_;
    context["add_generation_prompt"] = false;
    for (; !messages.empty() && ends.size() < kMost; messages.erase(messages.size() - 1)) {
      context["messages"] = messages;
      const Result<std::string> text = template_.render(context);
      if (!text) break;  // some templates want whole turns
      const std::vector<int32_t> begin =
          model_.tokenizer->encode(*text, {.add_special = false, .parse_special = true});
      ends.push_back(static_cast<size_t>(std::ranges::mismatch(begin, prompt).in1 - begin.begin()));
      if (ends.back() <= recalled_.cached) break;
    }
    return ends;
  }

  static bool read(std::string& line) {
    if (!read_line("> ", line)) return false;
    for (std::string more; line.ends_with('\\') && read_line("  ", more);) line.back() = '\n', line += more;
    return true;
  }

  void reply() {
    const Result<Generated> r = answer(true);
    if (!r) {
      messages_.erase(messages_.size() - 1);  // the question that could not be answered
      fail(r.error());
      return;
    }
    fmt::print("\n");
    const size_t fed = prompt_tokens_ - recalled_.cached;
    fmt::print(stderr, "[{} tokens at {:.1f}/s; prompt: {} read at {:.0f}/s, {} remembered{}]\n",
               r->tokens.size(), static_cast<double>(r->tokens.size()) / r->decode_seconds, fed,
               static_cast<double>(fed) / r->prefill_seconds, recalled_.cached,
               r->why == "interrupt" ? "; stopped by Ctrl-C"
               : r->why == "length"  ? "; --max-tokens reached"
                                     : "");
    if (o_.verbose) tell(*r);
  }

  void reset() {
    messages_ = Json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }

  bool last_is(const char* role) const {
    return !messages_.empty() && messages_.back().value("role", "") == role;
  }
  // Takes messages from the end until one of the user's has gone.
  bool undo() {
    Json rest = messages_;
    while (!rest.empty()) {
      const bool question = rest.back().value("role", "") == "user";
      rest.erase(rest.size() - 1);
      if (question) {
        messages_ = std::move(rest);
        return true;
      }
    }
    return false;
  }

  Status load(const std::string& file) {
    Result<Json> json = load_list(file, "messages");
    if (!json) return json.error();
    for (const Json& m : *json)
      if (!m.is_object() || !m.contains("role") || !m["role"].is_string())
        return Error{file + ": a message has no role", "/save writes such a file"};
    messages_ = *std::move(json);
    return {};
  }

  Status set(const std::string& name, const std::string& text) {
    const Json value = json_or_text(text);
    SamplerOptions s = generate_.sampler;
    const std::pair<const char*, float*> numbers[] = {{"temperature", &s.temperature},
                                                      {"top_p", &s.top_p},
                                                      {"min_p", &s.min_p},
                                                      {"typical_p", &s.typical_p},
                                                      {"top_n_sigma", &s.top_n_sigma},
                                                      {"xtc_probability", &s.xtc_probability},
                                                      {"xtc_threshold", &s.xtc_threshold},
                                                      {"repetition_penalty", &s.repetition_penalty},
                                                      {"presence_penalty", &s.presence_penalty},
                                                      {"frequency_penalty", &s.frequency_penalty}};
    for (const auto& [n, place] : numbers)
      if (name == n) {
        if (!value.is_number()) return Error{name + " is a number"};
        *place = value.get<float>();
        return use(std::move(s));
      }
    const std::pair<const char*, int64_t*> counts[] = {{"top_k", &s.top_k}, {"last_n", &s.last_n}};
    for (const auto& [n, place] : counts)
      if (name == n) {
        if (!value.is_number_integer()) return Error{name + " is a whole number"};
        *place = value.get<int64_t>();
        return use(std::move(s));
      }
    if (name == "seed" || name == "max_tokens") {
      const int64_t least = name == "max_tokens" ? 1 : 0;
      if (!value.is_number_integer() || value.get<int64_t>() < least)
        return Error{fmt::format("{} is a whole number from {}", name, least)};
      if (name == "max_tokens")
        generate_.max_tokens = value.get<int64_t>();
      else
        generate_.sampler.seed = value.get<uint64_t>();
      return {};
    }
    variables_[name] = value;
    return {};
  }
  Status use(SamplerOptions s) {
    if (const std::vector<Problem> problems = validate(s); !problems.empty())
      return to_error("this cannot be used", problems);
    generate_.sampler = std::move(s);
    return {};
  }

  // False: leave.
  bool command(const std::string& line) {
    const size_t blank = line.find(' ');
    const std::string name = line.substr(0, blank),
                      rest = blank == std::string::npos ? "" : line.substr(blank + 1);
    Status status;
    if (name == "/exit" || name == "/quit" || name == "/bye") return false;
    if (name == "/help") {
      fmt::print(stderr, "{}", kHelp);
    } else if (name == "/reset" || name == "/clear") {
      reset();
    } else if (name == "/system") {
      system_ = rest;
      reset();
    } else if (name == "/undo") {
      if (!undo()) status = Error{"there is nothing to take back"};
    } else if (name == "/retry") {
      if (last_is("assistant")) messages_.erase(messages_.size() - 1);
      if (last_is("user"))
        ++generate_.sampler.seed, reply();
      else
        status = Error{"there is no question to answer again"};
    } else if (name == "/history") {
      for (const Json& m : messages_)
        fmt::print(
            "{}: {}\n", m.value("role", ""),
            m.contains("content") && m["content"].is_string() ? m["content"].get<std::string>() : m.dump());
    } else if (name == "/save" && !rest.empty()) {
      status = check_output({"/save", rest}, {{"--model", o_.model}, {"--template", o_.template_file}});
      if (status) status = save_json(rest, messages_);
    } else if (name == "/load" && !rest.empty()) {
      status = load(rest);
    } else if (const size_t second = rest.find(' '); name == "/set" && second != std::string::npos) {
      status = set(rest.substr(0, second), rest.substr(second + 1));
    } else {
      status = Error{"no such command: " + line, "/help lists them"};
    }
    if (!status) fail(status.error());
    return true;
  }

  const Options& o_;
  TextModel& model_;
  ChatTemplate template_;
  Session session_;
  PromptMemory memory_;
  Recalled recalled_;
  GenerateOptions generate_;
  Json messages_ = Json::array(), variables_ = Json::object();
  std::string system_, answer_;
  size_t prompt_tokens_ = 0;
};

int run(const Options& o) {
  if (o.model.empty())
    return wrong_use(
        {"chat: --model is missing", "give a model folder with a tokenizer and a chat template"});
  if (Status s = check_max_tokens(o.max_tokens); !s) return wrong_use(s.error());
  if (o.json && o.prompt.empty()) return wrong_use({"chat: --json needs --prompt"});
  if (Status s = check_draft(o.draft); !s) return wrong_use(s.error());
  if (o.cache_mb < 0 || o.cache_mb > (int64_t{1} << 40))
    return wrong_use({fmt::format("--cache-mb is {}", o.cache_mb), "give the megabytes to use at most"});
  if (o.cache_grid < 0) return wrong_use({fmt::format("--cache-grid is {}", o.cache_grid), "give 0 or more"});
  Result<ChatTemplate> chat = ChatTemplate::load(o.template_file.empty() ? o.model : o.template_file);
  if (!chat) return fail(chat.error());
  const Result<std::optional<WeightFormat>> format = o.weights.resolve();
  if (!format) return wrong_use(format.error());
  ThreadPool pool(resolve_threads(o.threads));
  Result<TextModel> model = TextModel::load(o.model, *format, Par(pool));
  if (!model) return fail(model.error());
  tell_not_quantised(model->model->params(), *format);
  if (!model->tokenizer)
    return fail({o.model + ": has no tokenizer", "a model that was trained on a task cannot talk"});
  tell_ignored(model->generation);
  Chat c(o, *model, *std::move(chat), pool);
  if (Status s = c.begin(); !s) return wrong_use(s.error());
  if (o.prompt.empty()) return c.talk();

  c.ask(o.prompt);
  const Result<Generated> r = c.answer(!o.json);
  if (!r) return fail(r.error());
  if (!o.json) {
    fmt::print("\n");
    if (o.verbose) c.tell(*r);
    return kOk;
  }
  print_json({{"answer", c.last_answer()},
              {"tokens", r->tokens},
              {"why", r->why},
              {"prompt_tokens", c.prompt_tokens()},
              {"cached_tokens", c.recalled().cached},
              {"replayed_tokens", c.recalled().replayed},
              {"draft", draft_json(*r)},
              {"prefill_tokens_per_second", static_cast<double>(c.prompt_tokens()) / r->prefill_seconds},
              {"decode_tokens_per_second", static_cast<double>(r->tokens.size()) / r->decode_seconds}});
  return kOk;
}

}  // namespace

std::function<int()> define_chat(CLI::App& app) {
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  o->visit(add);
  return [o] { return run(*o); };
}

}  // namespace braid
