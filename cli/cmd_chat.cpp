// A conversation on a terminal, or one question and its answer.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "base/interrupt.h"
#include "chat/template.h"
#include "cli/cli.h"
#include "cli/line_editor.h"
#include "cli/sampling.h"
#include "cli/template_variables.h"
#include "cli/weight_flags.h"
#include "infer/conversation.h"
#include "io/file.h"
#include "io/folder.h"
#include "io/json.h"
#include "model/model.h"

namespace braid {
namespace {

struct Options {
  std::string model, system, prompt, template_file, tools, history;
  std::vector<std::string> set, stop;
  std::optional<int64_t> max_tokens;
  int64_t threads = 0, draft = 0, cache_mb = 1024, cache_grid = 512;
  bool json = false, verbose = false, cache_bf16 = false;
  SamplingFlags sampling;
  InferenceFlags weights{"auto"};
  template <class V>
  void visit(V& v) {
    v("--model,-m", model, "model folder with a tokenizer and a chat template");
    v("--system", system, "system message");
    v("--prompt,-p", prompt, "one question: print the answer and exit");
    v("--history", history, "conversation to continue: a JSON list of messages, as /save writes");
    v("--tools", tools, "a JSON list of tools that the template tells the model about");
    v("--template", template_file, "a chat template instead of the model's");
    v("--set", set, "a variable of the template, e.g. enable_thinking=false; may be repeated");
    v("--max-tokens,-n", max_tokens, "end an answer after this many tokens (else the model's, else 2048)",
      kMaxTokens);
    v("--stop", stop, "text that ends an answer and is not shown; may be repeated");
    sampling.visit(v);
    weights.visit(v);
    v("--draft", draft,
      "prompt-lookup speculative decoding: up to N draft tokens per pass, 0 to 7; the output is unchanged",
      kDraft);
    v("--cache-mb", cache_mb, "memory of the prefix cache, MB; 0 = no cache",
      Bounds<int64_t>{0, int64_t{1} << 40});
    v("--cache-grid", cache_grid, "tokens between states of the prefix cache; 0 = only at ends of messages",
      kFromZero);
    v("--cache-bf16", cache_bf16, "states of the prefix cache as bf16: half the memory, answers may differ");
    v("--verbose", verbose, "print how much of each prompt came from the prefix cache, and why");
    v("--threads", threads, "threads; 0 = all cores", kThreads);
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
    "A line that ends with \\ continues in the next. Ctrl-C stops an answer, or clears the line. Arrow up: "
    "earlier "
    "lines.\n";

class Chat {
 public:
  Chat(const Options& o, Conversation conversation) : o_(o), c_(std::move(conversation)) {}

  // Of --set, --tools and --history.
  Status begin() {
    Json variables = Json::object();
    for (const std::string& s : o_.set)
      if (Status status = set_variable(variables, s); !status) return status;
    for (const auto& [name, value] : variables.items()) c_.set_variable(name, value.dump());
    if (!o_.tools.empty()) {
      const Result<Json> tools = load_list(o_.tools, "tools");
      if (!tools) return tools.error();
      c_.set_variable("tools", tools->dump());
    }
    return o_.history.empty() ? Status{} : load(o_.history);
  }

  Result<Reply> answer(bool stream) {
    catch_interrupts();
    Result<Reply> r = c_.answer([&](std::string_view s) {
      if (!stream) return;
      put(s);
      flush_output();
    });
    release_interrupts();
    return r;
  }

  void ask(const std::string& text) { c_.ask(text); }

  int talk() {
    if (isatty(STDIN_FILENO)) braid::tell("/help lists the commands, /exit or Ctrl-D leaves.\n");
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

  void tell(const Reply& r) const {
    braid::tell("[prompt: {} cached, {} replayed, {} computed: {}]\n[{} states kept, {:.1f} MB]\n",
                r.recalled.cached, r.recalled.replayed, r.recalled.computed, r.recalled.why,
                c_.memory().size(), static_cast<double>(c_.memory().bytes()) / (1 << 20));
    if (o_.draft) braid::tell("[{}]\n", draft_text(r.generated));
  }

 private:
  bool read(std::string& line) {
    if (!editor_.read("> ", line)) return false;
    for (std::string more; line.ends_with('\\') && editor_.read("  ", more);)
      line.back() = '\n', line += more;
    return true;
  }

  void reply() {
    const Result<Reply> r = answer(true);
    if (!r) {
      c_.undo();  // the question that could not be answered
      fail(r.error());
      return;
    }
    say("\n");
    const Generated& g = r->generated;
    const size_t fed = r->prompt_tokens - r->recalled.cached;
    braid::tell("[{} tokens at {:.1f}/s; prompt: {} read at {:.0f}/s, {} remembered{}]\n", g.tokens.size(),
                static_cast<double>(g.tokens.size()) / g.decode_seconds, fed,
                static_cast<double>(fed) / g.prefill_seconds, r->recalled.cached,
                g.why == "cancelled" ? "; stopped by Ctrl-C"
                : g.why == "length"  ? "; --max-tokens reached"
                                     : "");
    if (o_.verbose) tell(*r);
  }

  Status load(const std::string& file) {
    const Result<std::string> text = read_text(file);
    if (!text) return text.error();
    return c_.set_messages(*text, file);
  }

  Status set(const std::string& name, const std::string& text) {
    const Json value = json_or_text(text);
    SamplerOptions s = c_.options().sampler;
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
        if (!value.is_number()) return Error{fmt::format("/set {}: is {}", name, text), "give a number"};
        *place = value.get<float>();
        return use(std::move(s));
      }
    const std::pair<const char*, int64_t*> counts[] = {{"top_k", &s.top_k}, {"last_n", &s.last_n}};
    for (const auto& [n, place] : counts)
      if (name == n) {
        if (!value.is_number_integer())
          return Error{fmt::format("/set {}: is {}", name, text), "give a whole number"};
        *place = value.get<int64_t>();
        return use(std::move(s));
      }
    if (name == "seed" || name == "max_tokens") {
      const int64_t least = name == "max_tokens" ? 1 : 0;
      if (!value.is_number_integer() || value.get<int64_t>() < least)
        return Error{fmt::format("/set {}: is {}", name, text),
                     fmt::format("give a whole number from {}", least)};
      if (name == "max_tokens")
        c_.options().max_tokens = value.get<int64_t>();
      else
        c_.options().sampler.seed = value.get<uint64_t>();
      return {};
    }
    c_.set_variable(name, text);
    return {};
  }
  Status use(SamplerOptions s) {
    if (const std::vector<Problem> problems = validate(s); !problems.empty()) return wrong_options(problems);
    c_.options().sampler = std::move(s);
    return {};
  }

  void history() const {
    const Result<Json> messages = parse_ordered_json(c_.messages(), "messages");
    for (const Json& m : *messages)
      say("{}: {}\n", m.value("role", ""),
          m.contains("content") && m["content"].is_string() ? m["content"].get<std::string>() : m.dump());
  }

  Status save(const std::string& file) const {
    const Result<Json> messages = parse_ordered_json(c_.messages(), "messages");
    return save_json(file, *messages);
  }

  // False: leave.
  bool command(const std::string& line) {
    const size_t blank = line.find(' ');
    const std::string name = line.substr(0, blank),
                      rest = blank == std::string::npos ? "" : line.substr(blank + 1);
    Status status;
    if (name == "/exit" || name == "/quit" || name == "/bye") return false;
    if (name == "/help") {
      braid::tell("{}", kHelp);
    } else if (name == "/reset" || name == "/clear") {
      c_.reset();
    } else if (name == "/system") {
      c_.set_system(rest);
    } else if (name == "/undo") {
      if (!c_.undo()) status = Error{"/undo: the conversation is empty", "ask something first"};
    } else if (name == "/retry") {
      c_.undo_answer();
      if (c_.answerable())
        ++c_.options().sampler.seed, reply();
      else
        status = Error{"/retry: there is no question", "ask something first"};
    } else if (name == "/history") {
      history();
    } else if (name == "/save" && !rest.empty()) {
      status = check_output({"/save", rest}, {{"--model", o_.model}, {"--template", o_.template_file}});
      if (status) status = save(rest);
    } else if (name == "/load" && !rest.empty()) {
      status = load(rest);
    } else if (const size_t second = rest.find(' '); name == "/set" && second != std::string::npos) {
      status = set(rest.substr(0, second), rest.substr(second + 1));
    } else {
      status = Error{line + ": is not a command", "see /help"};
    }
    if (!status) fail(status.error());
    return true;
  }

  const Options& o_;
  Conversation c_;
  LineEditor editor_;
};

int run(const Options& o) {
  if (o.model.empty())
    return wrong_use({"--model: is missing", "give a model folder with a tokenizer and a chat template"});
  if (o.json && o.prompt.empty())
    return wrong_use({"--json: is given without --prompt", "give a question: --prompt"});
  if (Status s = check_model_folder("--model", o.model); !s) return fail(s.error());
  const std::string template_path = o.template_file.empty() ? o.model : o.template_file;
  if (const Result<ChatTemplate> chat = ChatTemplate::load(template_path); !chat)  // before the weights
    return fail(
        {chat.error().what,
         o.template_file.empty()
             ? "give one with --template FILE, or use `generate`: a model without a template is not for chats"
             : chat.error().fix});
  const Result<std::optional<WeightFormat>> format = o.weights.resolve();
  if (!format) return wrong_use(format.error());
  const Result<Activations> activations = o.weights.resolve_activations();
  if (!activations) return wrong_use(activations.error());
  Result<ThreadPool> started = start_threads(o.threads);
  if (!started) return fail(started.error());
  ThreadPool& pool = *started;
  Context context(pool, *activations);
  Result<TextModel> model =
      TextModel::load(o.model, *format, Par(pool), built_in_mixers(), loading_bar(o.model));
  if (!model) return fail(model.error());
  tell_not_quantised(model->model->params(), *format);
  if (!model->tokenizer)
    return fail({o.model + ": has no tokenizer", "give a model that was trained on text"});
  tell_ignored(model->generation);
  Result<SamplerOptions> sampler = o.sampling.resolve(model->generation);
  if (!sampler) return wrong_use(sampler.error());
  Result<Conversation> conversation =
      Conversation::open(template_path, *model, context,
                         {.system = o.system,
                          .generate = {.sampler = *std::move(sampler),
                                       .max_tokens = most_tokens(o.max_tokens, model->generation, 2048),
                                       .draft = o.draft,
                                       .stop = o.stop,
                                       .cancelled = interrupted},
                          .memory = {.bytes = static_cast<size_t>(o.cache_mb) << 20,
                                     .grid = static_cast<size_t>(o.cache_grid),
                                     .narrow = o.cache_bf16}});
  if (!conversation) return fail(conversation.error());
  Chat c(o, *std::move(conversation));
  if (Status s = c.begin(); !s) return wrong_use(s.error());
  if (o.prompt.empty()) return c.talk();

  c.ask(o.prompt);
  const Result<Reply> r = c.answer(!o.json);
  if (!r) return fail(r.error());
  if (!o.json) {
    say("\n");
    if (o.verbose) c.tell(*r);
    return kOk;
  }
  const Generated& g = r->generated;
  Json j{{"answer", r->text},
         {"tokens", g.tokens},
         {"why", g.why},
         {"prompt_tokens", r->prompt_tokens},
         {"cached_tokens", r->recalled.cached},
         {"replayed_tokens", r->recalled.replayed},
         {"prefill_tokens_per_second", static_cast<double>(r->prompt_tokens) / g.prefill_seconds},
         {"decode_tokens_per_second", static_cast<double>(g.tokens.size()) / g.decode_seconds}};
  if (o.draft) j["draft"] = draft_json(g);
  print_json(j);
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
