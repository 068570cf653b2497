#include <cstdio>

#include "base/interrupt.h"
#include "cli/cli.h"
#include "infer/generate.h"
#include "io/file.h"
#include "model/state_file.h"

namespace braid {
namespace {

struct Options {
  std::string model, prompt, prompt_file, tokens, load_state, save_state;
  int64_t max_tokens = 256, top_k = 0, seed = 0, threads = 0;
  double temperature = 0.8, top_p = 0.95, min_p = 0, repetition_penalty = 1;
  std::vector<std::string> stop;
  bool greedy = false, json = false, stats = false;
  template <class V>
  void visit(V& v) {
    v("--model", model, "model folder (a run folder is one)");
    v("--prompt", prompt, "text to continue");
    v("--prompt-file", prompt_file, "file with the text to continue");
    v("--tokens", tokens, "token ids instead of text, e.g. 1,2,3");
    v("--max-tokens", max_tokens, "stop after this many tokens");
    v("--temperature", temperature, "0 takes the likeliest token; higher is more varied");
    v("--top-k", top_k, "only the k likeliest tokens; 0 = all");
    v("--top-p", top_p, "only the likeliest tokens that together reach p; 1 = all");
    v("--min-p", min_p, "only tokens at least min-p times as likely as the likeliest; 0 = all");
    v("--repetition-penalty", repetition_penalty, "above 1 makes tokens that already occurred less likely");
    v("--greedy", greedy, "always the likeliest token: the same as --temperature 0");
    v("--seed", seed, "of the sampler");
    v("--stop", stop, "end before this string would appear; may be repeated");
    v("--load-state", load_state,
      "go on from a state that --save-state wrote: the prompt follows what it has read");
    v("--save-state", save_state, "file for what the model remembers after the prompt");
    v("--threads", threads, "threads; 0 = all cores");
    v("--stats", stats, "print speed on stderr at the end");
    v("--json", json, "print one JSON object at the end instead of streaming");
  }
};

int run(const Options& o) {
  if (o.model.empty())
    return wrong_use(
        {"generate: --model is missing", "give a model folder, e.g. one that braid train wrote"});
  if ((o.prompt.empty() ? 0 : 1) + (o.prompt_file.empty() ? 0 : 1) + (o.tokens.empty() ? 0 : 1) != 1)
    return wrong_use({"generate: give one of --prompt, --prompt-file and --tokens"});
  if (o.max_tokens < 1 || o.max_tokens > 1'000'000'000)
    return wrong_use({"generate: --max-tokens must be from 1 to 1e9"});
  GenerateOptions g{.sampler = {.temperature = o.greedy ? 0.0f : static_cast<float>(o.temperature),
                                .top_k = o.top_k,
                                .top_p = static_cast<float>(o.top_p),
                                .min_p = static_cast<float>(o.min_p),
                                .repetition_penalty = static_cast<float>(o.repetition_penalty),
                                .seed = static_cast<uint64_t>(o.seed)},
                    .max_tokens = o.max_tokens,
                    .stop = o.stop};
  if (const std::vector<Problem> p = validate(g.sampler); !p.empty())
    return wrong_use(to_error("these options cannot be used", p));
  std::vector<int32_t> prompt;
  if (!o.tokens.empty()) {
    Result<std::vector<int32_t>> ids = parse_ids(o.tokens, "--tokens");
    if (!ids) return wrong_use(ids.error());
    prompt = *ids;
  } else {
    std::string text = o.prompt;
    if (!o.prompt_file.empty()) {
      Result<std::string> file = read_text(o.prompt_file);
      if (!file) return fail(file.error());
      text = *file;
    }
    if (text.empty()) return fail({o.prompt_file + " is empty", "a prompt needs at least one byte"});
    for (const unsigned char c : text) prompt.push_back(c);
  }
  Result<std::unique_ptr<Model>> model = Model::load(o.model);
  if (!model) return fail(model.error());
  const int64_t vocab = (*model)->config().vocab_size;
  for (const int32_t id : prompt)
    if (id >= vocab)
      return fail({fmt::format("token {} is outside the model's vocabulary of {}", id, vocab),
                   vocab == 256 ? "" : "this model does not read text: give --tokens"});

  ThreadPool pool(resolve_threads(o.threads));
  Session session(**model, pool);
  if (!o.load_state.empty()) {
    Result<State> state = load_state(**model, o.load_state);
    if (!state) return fail(state.error());
    session.set_state(*std::move(state));
  }
  if (!o.save_state.empty())
    g.after_prompt = [&](const State& state) { return save_state(state, **model, o.save_state); };
  // Text models have a token per byte; others show their ids.
  const bool bytes = vocab == 256;
  const auto text_of = [&](int32_t id) {
    return bytes ? std::string(1, static_cast<char>(id)) : " " + std::to_string(id);
  };
  std::string all;
  const auto show = [&](std::string_view s) {
    all += s;
    if (o.json) return;
    std::fwrite(s.data(), 1, s.size(), stdout);
    std::fflush(stdout);
  };
  if (!o.json && bytes && o.tokens.empty()) show(std::string(prompt.begin(), prompt.end()));
  all.clear();
  catch_interrupts();
  const Result<Generated> r = generate(session, prompt, g, text_of, show);
  if (!r) return fail(r.error());
  const double prefill = static_cast<double>(prompt.size()) / r->prefill_seconds,
               decode = static_cast<double>(r->tokens.size()) / r->decode_seconds;
  if (o.json)
    print_json({{"text", all},
                {"tokens", r->tokens},
                {"why", r->why},
                {"prompt_tokens", prompt.size()},
                {"prefill_tokens_per_second", prefill},
                {"decode_tokens_per_second", decode}});
  else
    fmt::print("\n");
  if (o.stats)
    fmt::print(stderr, "{} prompt tokens at {:.0f}/s, {} new tokens at {:.0f}/s, ended by {}\n",
               prompt.size(), prefill, r->tokens.size(), decode, r->why);
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
