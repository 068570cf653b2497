#include "base/interrupt.h"
#include "cli/cli.h"
#include "cli/sampling.h"
#include "cli/weight_flags.h"
#include "infer/generate.h"
#include "infer/text_model.h"
#include "io/file.h"
#include "io/folder.h"
#include "model/model.h"
#include "model/state_file.h"

namespace braid {
namespace {

struct Options {
  std::string model, prompt, prompt_file, tokens, load_state, save_state;
  std::optional<int64_t> max_tokens;
  int64_t threads = 0, draft = 0, samples = 1;
  std::vector<std::string> stop;
  bool ignore_eos = false, json = false, stats = false, verbose = false;
  SamplingFlags sampling;
  InferenceFlags weights{"auto"};
  template <class V>
  void visit(V& v) {
    v("--model,-m", model, "model folder (a run folder is one)");
    v("--prompt,-p", prompt, "text to continue; \"\": a text from nothing");
    v("--prompt-file", prompt_file, "file with the text to continue");
    v("--tokens", tokens, "token ids instead of text, e.g. 1,2,3");
    v("--max-tokens,-n", max_tokens, "stop after this many tokens (else the model's, else 256)", kMaxTokens);
    v("--num-samples", samples, "number of texts, with the seeds seed, seed + 1, ...",
      Bounds<int64_t>{1, 1'000'000});
    sampling.visit(v);
    weights.visit(v);
    v("--stop", stop, "text that ends the output and is not shown; may be repeated");
    v("--ignore-eos", ignore_eos, "continue behind the model's end token");
    v("--load-state", load_state, "state file of --save-state: the prompt continues what it has read");
    v("--save-state", save_state, "file for the state after the prompt");
    v("--draft", draft,
      "prompt-lookup speculative decoding: up to N draft tokens per pass, 0 to 7; the output is unchanged",
      kDraft);
    v("--threads", threads, "threads; 0 = all cores", kThreads);
    v("--stats", stats, "print speed on stderr at the end");
    v("--verbose", verbose, "print on stderr how states and drafts were used");
    v("--json", json, "print one JSON object at the end instead of streaming");
  }
};

void print_now(std::string_view text) {
  put(text);
  flush_output();
}

Status check_options(const Options& o, bool prompt_given) {
  if (o.model.empty())
    return Error{"--model: is missing", "give a model folder, e.g. one that `train` wrote"};
  const int sources = int{prompt_given} + int{!o.prompt_file.empty()} + int{!o.tokens.empty()};
  if (sources != 1)
    return Error{sources ? "--prompt, --prompt-file, --tokens: exclude each other" : "--prompt: is missing",
                 "give one of --prompt, --prompt-file and --tokens; --prompt \"\" starts from nothing"};
  if (o.samples > 1 && !o.save_state.empty())
    return Error{"--save-state: is given with --num-samples", "leave one of them out"};
  return check_output({"--save-state", o.save_state},
                      {{"--model", o.model}, {"--prompt-file", o.prompt_file}});
}

// Empty if the prompt is given as tokens.
Result<std::string> prompt_text(const Options& o) {
  if (o.prompt_file.empty()) return o.prompt;
  Result<std::string> file = read_text(o.prompt_file);
  if (file && file->empty())
    return Error{o.prompt_file + ": is empty",
                 "write a text into it; for a text from nothing give --prompt \"\""};
  return file;
}

// What a text from nothing follows: the token that begins or ends texts, else a line's end.
std::vector<int32_t> text_start(const Tokenizer& tokenizer) {
  for (const std::optional<int32_t> id : {tokenizer.bos(), tokenizer.eos()})
    if (id) {
      tell("[no prompt: starts behind token {}, {}]\n", *id, tokenizer.name(*id));
      return {*id};
    }
  const Result<std::vector<int32_t>> line = tokenizer.encode("\n");
  if (!line || line->empty()) return {};
  tell("[no prompt: starts behind a line's end]\n");
  return *line;
}

// `ids` are the prompt if there are any, else what the text is encoded to.
Result<std::vector<int32_t>> prompt_tokens(const Options& o, const TextModel& model, std::vector<int32_t> ids,
                                           const std::string& text) {
  if (ids.empty()) {
    if (!model.tokenizer) return Error{o.model + ": has no tokenizer", "give token ids: --tokens 1,2,3"};
    Result<std::vector<int32_t>> encoded = model.tokenizer->encode(text);
    if (!encoded) return encoded;
    ids = *std::move(encoded);
    if (ids.empty() && text.empty()) ids = text_start(*model.tokenizer);
    if (ids.empty()) return Error{"--prompt: gives no token", "give another text"};
  }
  const int64_t vocab = model.model->config().vocab_size;
  for (const int32_t id : ids)
    if (id >= vocab)
      return Error{fmt::format("{}: token {} is outside of the vocabulary",
                               o.tokens.empty() ? o.model : "--tokens", id),
                   fmt::format("give ids from 0 to {}", vocab - 1)};
  return ids;
}

// --load-state into the session, --save-state after the prompt: `g` then refers to all but the session.
Status use_states(const Options& o, Model& model, const std::vector<int32_t>& prompt, Session& session,
                  GenerateOptions& g) {
  if (!o.load_state.empty()) {
    Result<SavedState> saved = load_saved(model, o.load_state);
    if (!saved) return saved.error();
    if (o.verbose)
      tell("[state: {} tokens from {}, {} of the prompt to read]\n", saved->state.position, o.load_state,
           prompt.size());
    g.before = std::move(saved->tokens);
    session.set_state(std::move(saved->state));
  }
  if (!o.save_state.empty())
    g.after_prompt = [&o, &model, &prompt, &g](const State& state) {
      std::vector<int32_t> read = g.before;
      read.insert(read.end(), prompt.begin(), prompt.end());
      return save_state(state, model, o.save_state, read);
    };
  return {};
}

// Prints the new text as it comes unless --json; `text` gets all of it.
Result<Generated> stream(const Options& o, const std::optional<Tokenizer>& tokenizer, Session& session,
                         const std::vector<int32_t>& prompt, const GenerateOptions& g, std::string& text) {
  std::optional<StreamDecoder> decoder;
  if (tokenizer) {
    decoder.emplace(*tokenizer);
    for (const int32_t id : prompt) decoder->add(id);  // the text goes on where the prompt ends
  }
  const auto text_of = [&](std::optional<int32_t> id) {
    if (decoder) return id ? decoder->add(*id) : decoder->finish();
    return id ? " " + std::to_string(*id) : std::string();
  };
  const auto show = [&](std::string_view s) {
    text += s;
    if (!o.json) print_now(s);
  };
  Result<Generated> r = generate(session, prompt, text_of, show, g);
  if (r && decoder)
    if (const Status s = decoder->status(); !s) return s.error();
  return r;
}

void print_result(const Options& o, const std::string& text, size_t prompt_tokens, const Generated& r) {
  const double prefill = static_cast<double>(prompt_tokens) / r.prefill_seconds,
               decode = static_cast<double>(r.tokens.size()) / r.decode_seconds;
  if (o.json) {
    Json j{{"text", text},
           {"tokens", r.tokens},
           {"why", r.why},
           {"prompt_tokens", prompt_tokens},
           {"prefill_tokens_per_second", prefill},
           {"decode_tokens_per_second", decode}};
    if (o.draft) j["draft"] = draft_json(r);
    print_json(j);
  } else {
    say("\n");
  }
  if (o.stats)
    tell("{} prompt tokens at {:.0f}/s, {} new tokens at {:.0f}/s, ended by {}\n", prompt_tokens, prefill,
         r.tokens.size(), decode, r.why);
  if (o.draft && (o.verbose || o.stats)) tell("[{}]\n", draft_text(r));
}

int run(const Options& o, bool prompt_given) {
  if (Status s = check_options(o, prompt_given); !s) return wrong_use(s.error());
  if (Status s = check_model_folder("--model", o.model); !s) return fail(s.error());
  std::vector<int32_t> ids;
  if (!o.tokens.empty()) {
    Result<std::vector<int32_t>> given = parse_ids(o.tokens, "--tokens");
    if (!given) return wrong_use(given.error());
    ids = *std::move(given);
  }
  const Result<std::string> text = prompt_text(o);
  if (!text) return fail(text.error());
  const Result<std::optional<WeightFormat>> format = o.weights.resolve();
  if (!format) return wrong_use(format.error());
  const Result<Activations> activations = o.weights.resolve_activations();
  if (!activations) return wrong_use(activations.error());
  Result<ThreadPool> started = start_threads(o.threads);
  if (!started) return fail(started.error());
  ThreadPool& pool = *started;
  Context context(pool, *activations);
  const Result<TextModel> loaded =
      TextModel::load(o.model, *format, Par(pool), built_in_mixers(), loading_bar(o.model));
  if (!loaded) return fail(loaded.error());
  tell_not_quantised(loaded->model->params(), *format);
  Result<SamplerOptions> sampler = o.sampling.resolve(loaded->generation);
  if (!sampler) return wrong_use(sampler.error());
  GenerateOptions g{.sampler = *std::move(sampler),
                    .max_tokens = most_tokens(o.max_tokens, loaded->generation, 256),
                    .draft = o.draft,
                    .stop = o.stop};
  tell_ignored(loaded->generation);
  if (!o.ignore_eos) g.end_tokens = loaded->generation.eos;
  const Result<std::vector<int32_t>> prompt = prompt_tokens(o, *loaded, std::move(ids), *text);
  if (!prompt) return fail(prompt.error());
  g.cancelled = interrupted;
  catch_interrupts();
  for (int64_t n = 0; n < o.samples && !interrupted(); ++n, ++g.sampler.seed) {
    Session session(*loaded->model, context);
    if (Status s = use_states(o, *loaded->model, *prompt, session, g); !s) return fail(s.error());
    if (o.samples > 1 && !o.json)
      say("{}---- {} of {}, --seed {}\n", n ? "\n" : "", n + 1, o.samples, g.sampler.seed);
    if (!o.json) print_now(*text);
    std::string added;
    const Result<Generated> r = stream(o, loaded->tokenizer, session, *prompt, g, added);
    if (!r) return fail(r.error());
    print_result(o, added, prompt->size(), *r);
  }
  return kOk;
}

}  // namespace

std::function<int()> define_generate(CLI::App& app) {
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  o->visit(add);
  return [o, &app] { return run(*o, given(app, "--prompt")); };
}

}  // namespace braid
