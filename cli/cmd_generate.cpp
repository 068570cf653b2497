#include <cstdio>

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
  int64_t threads = 0, draft = 0;
  std::vector<std::string> stop;
  bool ignore_eos = false, json = false, stats = false, verbose = false;
  SamplingFlags sampling;
  InferenceFlags weights{"auto"};
  template <class V>
  void visit(V& v) {
    v("--model", model, "model folder (a run folder is one)");
    v("--prompt", prompt, "text to continue");
    v("--prompt-file", prompt_file, "file with the text to continue");
    v("--tokens", tokens, "token ids instead of text, e.g. 1,2,3");
    v("--max-tokens", max_tokens, "stop after this many tokens (else the model's, else 256)");
    sampling.visit(v);
    weights.visit(v);
    v("--stop", stop, "end before this string would appear; may be repeated");
    v("--ignore-eos", ignore_eos, "go on where the model would end its text");
    v("--load-state", load_state,
      "go on from a state that --save-state wrote: the prompt follows what it has read");
    v("--save-state", save_state, "file for what the model remembers after the prompt");
    v("--draft", draft,
      "guess up to this many tokens, 7 at most, from where the same words stood before, and read them in one "
      "pass: the same text, faster where it repeats itself");
    v("--threads", threads, "threads; 0 = all cores");
    v("--stats", stats, "print speed on stderr at the end");
    v("--verbose", verbose, "tell on stderr what of the states was used, and what --draft gained");
    v("--json", json, "print one JSON object at the end instead of streaming");
  }
};

int run(const Options& o) {
  if (o.model.empty())
    return wrong_use(
        {"generate: --model is missing", "give a model folder, e.g. one that braid train wrote"});
  if ((o.prompt.empty() ? 0 : 1) + (o.prompt_file.empty() ? 0 : 1) + (o.tokens.empty() ? 0 : 1) != 1)
    return wrong_use({"generate: give one of --prompt, --prompt-file and --tokens"});
  if (Status s = check_output({"--save-state", o.save_state},
                              {{"--model", o.model}, {"--prompt-file", o.prompt_file}});
      !s)
    return wrong_use(s.error());
  if (Status s = check_max_tokens(o.max_tokens); !s) return wrong_use(s.error());
  if (Status s = check_draft(o.draft); !s) return wrong_use(s.error());
  std::vector<int32_t> prompt;
  std::string text = o.prompt;
  if (!o.tokens.empty()) {
    Result<std::vector<int32_t>> ids = parse_ids(o.tokens, "--tokens");
    if (!ids) return wrong_use(ids.error());
    prompt = *ids;
  } else if (!o.prompt_file.empty()) {
    Result<std::string> file = read_text(o.prompt_file);
    if (!file) return fail(file.error());
    if (file->empty()) return fail({o.prompt_file + " is empty", "a prompt needs at least one byte"});
    text = *file;
  }
  const Result<std::optional<WeightFormat>> format = o.weights.resolve();
  if (!format) return wrong_use(format.error());
  const Result<Activations> activations = o.weights.resolve_activations();
  if (!activations) return wrong_use(activations.error());
  ThreadPool pool(resolve_threads(o.threads), kernel_choice());
  Context context(pool, *activations);
  Result<TextModel> loaded = TextModel::load(o.model, *format, Par(pool));
  if (!loaded) return fail(loaded.error());
  tell_not_quantised(loaded->model->params(), *format);
  const std::shared_ptr<Model>& model = loaded->model;
  const std::optional<Tokenizer>& tokenizer = loaded->tokenizer;
  Result<SamplerOptions> sampler = o.sampling.resolve(loaded->generation);
  if (!sampler) return wrong_use(sampler.error());
  GenerateOptions g{.sampler = *std::move(sampler),
                    .max_tokens = most_tokens(o.max_tokens, loaded->generation, 256),
                    .draft = o.draft,
                    .stop = o.stop};
  tell_ignored(loaded->generation);
  if (!o.ignore_eos) g.end_tokens = loaded->generation.eos;
  if (prompt.empty()) {
    if (!tokenizer) return fail({o.model + ": has no tokenizer, so it does not read text", "give --tokens"});
    prompt = tokenizer->encode(text);
    if (prompt.empty()) return fail({"the prompt gives no token"});
  }
  const int64_t vocab = model->config().vocab_size;
  for (const int32_t id : prompt)
    if (id >= vocab)
      return fail({fmt::format("token {} is outside the model's vocabulary of {}", id, vocab)});

  Session session(*model, context);
  if (!o.load_state.empty()) {
    Result<SavedState> saved = load_saved(*model, o.load_state);
    if (!saved) return fail(saved.error());
    if (o.verbose)
      fmt::print(stderr, "[state: {} tokens from {}, {} of the prompt to read]\n", saved->state.position,
                 o.load_state, prompt.size());
    g.before = std::move(saved->tokens);
    session.set_state(std::move(saved->state));
  }
  if (!o.save_state.empty())
    g.after_prompt = [&](const State& state) {
      std::vector<int32_t> read = g.before;
      read.insert(read.end(), prompt.begin(), prompt.end());
      return save_state(state, *model, o.save_state, read);
    };
  std::optional<StreamDecoder> decoder;
  if (tokenizer) {
    decoder.emplace(*tokenizer);
    for (const int32_t id : prompt) decoder->add(id);  // the text goes on where the prompt ends
  }
  const auto text_of = [&](std::optional<int32_t> id) {
    if (decoder) return id ? decoder->add(*id) : decoder->finish();
    return id ? " " + std::to_string(*id) : std::string();
  };
  std::string all;
  const auto show = [&](std::string_view s) {
    all += s;
    if (o.json) return;
    std::fwrite(s.data(), 1, s.size(), stdout);
    std::fflush(stdout);
  };
  if (!o.json && o.tokens.empty()) show(text);
  all.clear();
  g.cancelled = interrupted;
  catch_interrupts();
  const Result<Generated> r = generate(session, prompt, text_of, show, g);
  if (!r) return fail(r.error());
  const double prefill = static_cast<double>(prompt.size()) / r->prefill_seconds,
               decode = static_cast<double>(r->tokens.size()) / r->decode_seconds;
  if (o.json)
    print_json({{"text", all},
                {"tokens", r->tokens},
                {"why", r->why},
                {"prompt_tokens", prompt.size()},
                {"prefill_tokens_per_second", prefill},
                {"decode_tokens_per_second", decode},
                {"draft", draft_json(*r)}});
  else
    fmt::print("\n");
  if (o.stats)
    fmt::print(stderr, "{} prompt tokens at {:.0f}/s, {} new tokens at {:.0f}/s, ended by {}\n",
               prompt.size(), prefill, r->tokens.size(), decode, r->why);
  if (o.draft && (o.verbose || o.stats)) fmt::print(stderr, "[{}]\n", draft_text(*r));
  return kOk;
}

}  // namespace

std::function<int()> define_generate(CLI::App& app) {
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  o->visit(add);
  return [o] { return run(*o); };
}

}  // namespace braid
