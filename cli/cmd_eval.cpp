// How well a model predicts a text, and how near another one comes to it; or how well it does a task or
// benchmarks.
#include <cmath>

#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/cli.h"
#include "cli/eval_tasks.h"
#include "cli/weight_flags.h"
#include "infer/evaluate.h"
#include "infer/text_model.h"
#include "io/file.h"
#include "model/model.h"
#include "tasks/make_source.h"
#include "train/evaluation_json.h"
#include "train/setup.h"

namespace braid {
namespace {

struct Options {
  std::string model, compare, text, task;
  std::vector<std::string> task_set;
  int64_t context = 512, chunks = 0, count = 1024, seed = 0, threads = 0;
  bool json = false, llama = false, plain = false;
  InferenceFlags weights{"f32"};
  EvalTaskFlags benchmarks;
  template <class V>
  void visit(V& v) {
    v("--model", model, "model folder with a tokenizer (a run folder is one)");
    v("--text", text, "text file");
    v("--task", task, "instead of a text: held-out samples of a task that `braid tasks` prints");
    v("--task-set", task_set, "change one setting of the task, e.g. test_min=65; may be repeated");
    v("--count", count, "samples of the task", Bounds<int64_t>{1, 1'000'000'000});
    v("--seed", seed,
      "of the task's samples; those of a run with the same seed are the ones it was tested on", kFromZero);
    v("--compare", compare,
      "another model folder with the same tokens: how far it is from the first, which stays as stored with "
      "activations of f32; with --dtype, --quant or --activations the same model if it is left out");
    weights.visit(v);
    v("--context", context, "tokens of a chunk in llama-perplexity's way", Bounds<int64_t>{4, 1'000'000'000});
    v("--chunks", chunks, "only so much of the text, in chunks; 0 = all", Bounds<int64_t>{0, 1'000'000'000});
    v("--llama", llama,
      "only llama-perplexity's way: chunks from an empty state, their second halves scored");
    v("--plain", plain, "only the plain way: the text as one sequence, all of it scored");
    v("--threads", threads, "threads; 0 = all cores", kThreads);
    v("--json", json, "print one JSON object");
    benchmarks.visit(v);
  }
};

// One of the models of an evaluation: the folder, and how its weights are kept.
Result<TextModel> load(const std::string& dir, std::optional<WeightFormat> format, Par par) {
  Result<TextModel> m = TextModel::load(dir, format, par);
  if (m && !m->tokenizer)
    return Error{dir + ": has no tokenizer, so it does not read text",
                 "give a model that was trained on text"};
  return m;
}

Json as_json(const TextScore& e) {
  return {{"tokens", e.tokens},
          {"nll", e.nll},
          {"nll_error", e.nll_error},
          {"perplexity", e.perplexity()},
          {"perplexity_error", e.perplexity_error()}};
}

Json as_json(const Comparison& c, bool compared) {
  Json j{{"model", as_json(c.base)}};
  if (compared)
    j.update({{"other", as_json(c.other)},
              {"kl", c.kl},
              {"kl_error", c.kl_error},
              {"kl_median", c.kl_median},
              {"kl_99", c.kl_99},
              {"kl_worst", c.kl_worst},
              {"same_top", c.same_top},
              {"rms_dp", c.rms_dp}});
  return j;
}

void print(const char* way, const Comparison& c, const Options& o, const std::string& other) {
  const auto line = [&](const std::string& name, const TextScore& e) {
    say("{:<6} {:<30} perplexity {:.4f} +- {:.4f}   {:.4f} nats per token, {} tokens\n", way, name,
        e.perplexity(), e.perplexity_error(), e.nll, e.tokens);
  };
  line(o.model, c.base);
  if (other.empty()) return;
  line(other, c.other);
  say("{:<6} KL divergence {:.6f} +- {:.6f} (median {:.6f}, 99 % {:.6f}, worst {:.4f}), same top token "
      "{:.2f} %, rms of dp {:.3f} %\n",
      way, c.kl, c.kl_error, c.kl_median, c.kl_99, c.kl_worst, 100 * c.same_top, 100 * c.rms_dp);
}

int run_task(const Options& o) {
  if (!o.compare.empty() || !o.weights.dtype.empty() || !o.weights.quant.empty() ||
      o.weights.activations != "f32")
    return wrong_use(
        {"eval: --compare, --dtype, --quant and --activations are for texts", "leave them out with --task"});
  TrainOptions t;
  t.task = o.task, t.task_set = o.task_set, t.eval_size = o.count, t.seed = o.seed;
  if (const Status s = validate(t); !s) return wrong_use(s.error());
  const Result<std::unique_ptr<Source>> source = make_source(t);
  if (!source) return wrong_use(source.error());
  Result<ThreadPool> started = start_threads(o.threads);
  if (!started) return fail(started.error());
  ThreadPool& pool = *started;
  Result<std::unique_ptr<Model>> model = Model::load(o.model);
  if (!model) return fail(model.error());
  const ModelConfig& c = (*model)->config();
  // Another number of tokens is another language.
  if (c.vocab_size != static_cast<int64_t>((*source)->vocab_size()) ||
      c.answers() != static_cast<int64_t>((*source)->answers()))
    return fail(
        {fmt::format("{}: has {} tokens and {} answers, but {} with these settings has {} and {}", o.model,
                     c.vocab_size, c.answers(), o.task, (*source)->vocab_size(), (*source)->answers()),
         "give the task that the model was trained on, with its --task-set"});
  Gradient gradient(**model, pool, {});
  const Evaluation e = evaluate(**source, gradient);
  if (!std::isfinite(e.outcome.loss))
    return fail({fmt::format("{}: the loss is {}", o.model, e.outcome.loss),
                 "the weights are damaged or the model overflows; check them with `braid verify --model`"});
  if (o.json) {
    Json j{{"task", o.task}};
    j.update(to_json(e));
    print_json(j);
    return kOk;
  }
  say("{}\n", (*source)->describe());
  say("loss {:.4f} at {} supervised positions\n", e.outcome.loss, e.outcome.supervised);
  for (const Metric& m : e.metrics)
    if (m.total > 0)
      say("{:<28} {:6.2f} %   chance {:.1f} %, of {}\n", m.name, 100 * m.value(), 100 * m.chance, m.total);
  return kOk;
}

int run(const Options& o) {
  if (!o.benchmarks.tasks.empty() || o.benchmarks.request_lines) {
    if (!o.benchmarks.tasks.empty() && o.benchmarks.request_lines)
      return wrong_use({"eval: --tasks and --request-lines exclude each other", "leave one out"});
    if (!o.text.empty() || !o.task.empty() || !o.compare.empty())
      return wrong_use({"eval: --tasks excludes --text, --task and --compare", "run eval once for each"});
    return run_eval_tasks(o.benchmarks, o.model, o.weights, o.threads, o.json);
  }
  if (o.model.empty()) return wrong_use({"eval: --model is missing", "give a model folder"});
  if (o.text.empty() == o.task.empty())
    return wrong_use({o.task.empty() ? "eval: --text, --task and --tasks are missing"
                                     : "eval: --text and --task exclude each other",
                      "give a text file, a task, or benchmarks"});
  if (!o.task.empty()) return run_task(o);
  if (!o.task_set.empty()) return wrong_use({"eval: --task-set needs --task", "give the task's name"});
  if (o.llama && o.plain)
    return wrong_use({"eval: --llama and --plain exclude each other", "leave both out for both"});
  const Result<std::optional<WeightFormat>> format = o.weights.resolve();
  if (!format) return wrong_use(format.error());
  const Result<Activations> activations = o.weights.resolve_activations();
  if (!activations) return wrong_use(activations.error());
  const Result<std::string> text = read_text(o.text, kMaxText);
  if (!text) return fail(text.error());
  Result<ThreadPool> started = start_threads(o.threads);
  if (!started) return fail(started.error());
  ThreadPool& pool = *started;
  Result<TextModel> model = load(o.model, std::nullopt, Par(pool));
  if (!model) return fail(model.error());
  std::optional<TextModel> other;
  const Result<std::vector<int32_t>> encoded = model->tokenizer->encode(*text);
  if (!encoded) return fail(encoded.error());
  const std::vector<int32_t>& tokens = *encoded;
  std::string other_name;  // for people
  if (!o.compare.empty() || *format || *activations != Activations::kF32) {
    const std::string& dir = o.compare.empty() ? o.model : o.compare;
    other_name = *format ? fmt::format("{} as {}", dir, weight_format_name(**format)) : dir;
    if (*activations != Activations::kF32)
      other_name += fmt::format(", activations {}", activations_name(*activations));
    Result<TextModel> loaded = load(dir, *format, Par(pool));
    if (!loaded) return fail(loaded.error());
    tell_not_quantised(loaded->model->params(), *format);
    other.emplace(*std::move(loaded));
    const Result<std::vector<int32_t>> same = other->tokenizer->encode(*text);
    if (!same) return fail(same.error());
    if (other->model->config().answers() != model->model->config().answers() || *same != tokens)
      return fail({dir + " has other tokens than " + o.model,
                   "models can be compared if they read a text as the same tokens"});
  }
  for (const int32_t id : tokens)
    if (id >= model->model->config().vocab_size)
      return fail({fmt::format("{}: token {} is outside the model's vocabulary", o.text, id)});

  Context exact(pool), compared(pool, *activations);
  Session base(*model->model, exact);
  std::optional<Session> second;
  if (other) second.emplace(*other->model, compared);
  // What the tokenizer puts in front of a text also begins each chunk, as llama-perplexity has it.
  const Result<std::vector<int32_t>> front = model->tokenizer->encode("");
  EvaluateOptions options{.context = static_cast<size_t>(o.context), .chunks = static_cast<size_t>(o.chunks)};
  if (front && !front->empty() && (*front)[0] == model->tokenizer->bos()) options.bos = (*front)[0];
  catch_interrupts();
  Json all{{"text", o.text}, {"tokens", tokens.size()}, {"context", o.context}};
  for (const bool plain : {false, true}) {
    if (plain ? o.llama : o.plain) continue;
    const char* way = plain ? "plain" : "llama";
    options.plain = plain;
    Progress bar(way, tokens.size(), 0, o.json);
    const Result<Comparison> c =
        evaluate(base, second ? &*second : nullptr, tokens, options, [&](size_t done, size_t) {
          bar.update(done);
          return !interrupted();
        });
    bar.finish();
    if (!c) return fail(c.error());
    if (o.json)
      all[way] = as_json(*c, other.has_value());
    else
      print(way, *c, o, other_name);
  }
  if (!other_name.empty()) all["compared"] = other_name;
  if (o.json) print_json(all);
  return kOk;
}

}  // namespace

std::function<int()> define_eval(CLI::App& app) {
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  o->visit(add);
  return [o] { return run(*o); };
}

}  // namespace braid
