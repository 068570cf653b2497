#include <algorithm>

#include "cli/cli.h"
#include "cli/weight_flags.h"
#include "infer/session.h"
#include "infer/text_model.h"
#include "io/folder.h"
#include "io/safetensors.h"
#include "model/model.h"
#include "model/state_file.h"

namespace braid {
namespace {

struct Options {
  std::string model, tokens, text, split, out, load_state, save_state;
  int64_t threads = 0;
  bool json = false;
  InferenceFlags weights{"f32"};
  template <class V>
  void visit(V& v) {
    v("--model,-m", model, "model folder (a run folder is one)");
    v("--tokens", tokens, "token ids, e.g. 1,2,3");
    v("--text", text, "text instead of ids, read by the model's tokenizer");
    v("--split", split,
      "feed the sequence in pieces of these lengths, e.g. 5,1,9; the rest follows as one piece");
    v("--out", out, "safetensors file to write: 'logits' [tokens, vocab] and 'tokens'");
    v("--load-state", load_state, "state file of --save-state to continue from");
    v("--save-state", save_state, "file for the state after the last token");
    weights.visit(v);
    v("--threads", threads, "threads; 0 = all cores", kThreads);
    v("--json", json, "print a summary as one JSON line");
  }
};

int run(const Options& o) {
  if (o.model.empty()) return wrong_use({"--model: is missing", "give a model folder"});
  if (o.tokens.empty() == o.text.empty())
    return wrong_use(
        {o.text.empty() ? "--tokens, --text: are missing" : "--tokens, --text: exclude each other",
         "give one of them"});
  if (o.out.empty())
    return wrong_use({"--out: is missing", "give a file name, e.g. --out logits.safetensors"});
  if (Status s = check_model_folder("--model", o.model); !s) return fail(s.error());
  const NamedPath model_folder{"--model", o.model};
  if (Status s = check_output({"--out", o.out}, {model_folder, {"--load-state", o.load_state}}); !s)
    return wrong_use(s.error());
  if (Status s = check_output({"--save-state", o.save_state}, {model_folder, {"--out", o.out}}); !s)
    return wrong_use(s.error());
  std::vector<int32_t> ids;
  if (!o.tokens.empty()) {
    Result<std::vector<int32_t>> parsed = parse_ids(o.tokens, "--tokens");
    if (!parsed) return wrong_use(parsed.error());
    ids = *parsed;
  }
  std::vector<int32_t> pieces;
  if (!o.split.empty()) {
    Result<std::vector<int32_t>> parsed = parse_ids(o.split, "--split");
    if (!parsed) return wrong_use(parsed.error());
    pieces = *parsed;
  }
  const Result<std::optional<WeightFormat>> format = o.weights.resolve();
  if (!format) return wrong_use(format.error());
  const Result<Activations> activations = o.weights.resolve_activations();
  if (!activations) return wrong_use(activations.error());
  Result<ThreadPool> started = start_threads(o.threads);
  if (!started) return fail(started.error());
  ThreadPool& pool = *started;
  Context context(pool, *activations);
  Result<std::unique_ptr<Model>> model =
      Model::load_stored(o.model, *format, Par(pool), built_in_mixers(), loading_bar(o.model));
  if (!model) return fail(model.error());
  tell_not_quantised((*model)->params(), *format);
  const int64_t vocab = (*model)->config().vocab_size;
  if (!o.text.empty()) {
    Result<std::optional<Tokenizer>> tokenizer = load_tokenizer(o.model, vocab);
    if (!tokenizer) return fail(tokenizer.error());
    if (!*tokenizer) return fail({o.model + ": has no tokenizer", "give token ids: --tokens 1,2,3"});
    Result<std::vector<int32_t>> encoded = (*tokenizer)->encode(o.text);
    if (!encoded) return fail(encoded.error());
    ids = *std::move(encoded);
    if (ids.empty()) return fail({"--text: gives no token", "give another text"});
  }
  for (const int32_t id : ids)
    if (id >= vocab)
      return fail({fmt::format("{}: token {} is outside of the vocabulary",
                               o.tokens.empty() ? o.model : "--tokens", id),
                   fmt::format("give ids from 0 to {}", vocab - 1)});
  size_t sum = 0;
  for (const int32_t p : pieces) {
    if (p == 0) return wrong_use({"--split: has a piece of length 0", "give lengths from 1"});
    sum += p;
  }
  if (sum > ids.size())
    return wrong_use({fmt::format("--split: adds up to {}, more than the {} tokens", sum, ids.size()),
                      "give shorter pieces"});
  if (sum < ids.size()) pieces.push_back(static_cast<int32_t>(ids.size() - sum));

  Session session(**model, context);
  std::vector<int32_t> read;  // by the state
  if (!o.load_state.empty()) {
    Result<SavedState> saved = load_saved(**model, o.load_state);
    if (!saved) return fail(saved.error());
    read = std::move(saved->tokens);
    session.set_state(std::move(saved->state));
  }
  read.insert(read.end(), ids.begin(), ids.end());
  const int64_t answers = (*model)->config().answers();
  Tensor logits(DType::kF32, {static_cast<int64_t>(ids.size()), answers}),
      tokens(DType::kI32, {static_cast<int64_t>(ids.size())});
  std::ranges::copy(ids, tokens.as<int32_t>().begin());
  size_t at = 0;
  for (const int32_t p : pieces) {
    const Mat<const float> part = session.feed_all(std::span(ids).subspan(at, p));
    std::copy_n(part.data, part.count(), logits.mat().row(at));
    at += p;
  }
  if (Status s = write_safetensors(o.out, {{"logits", logits.view()}, {"tokens", tokens.view()}}); !s)
    return fail(s.error());
  if (!o.save_state.empty())
    if (Status s = save_state(session.state(), **model, o.save_state, read); !s) return fail(s.error());
  if (o.json)
    print_json({{"tokens", ids.size()}, {"vocab", answers}, {"pieces", pieces.size()}, {"out", o.out}});
  else
    say("{} x {} logits written to {}\n", ids.size(), answers, o.out);
  return kOk;
}

}  // namespace

std::function<int()> define_logits(CLI::App& app) {
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  o->visit(add);
  return [o] { return run(*o); };
}

}  // namespace braid
