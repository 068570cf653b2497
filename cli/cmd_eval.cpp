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
  int64_t context = 0, chunks = 0, count = 1024, seed = 0, threads = 0;
  bool json = false, llama = false, plain = false;
  InferenceFlags weights{"f32"};
  EvalTaskFlags benchmarks;
  template <class V>
  void visit(V& v) {
    v("--model,-m", model, "model folder with a tokenizer (a run folder is one)");
    v("--text", text, "text file");
    v("--task", task, "instead of a text: held-out samples of a task that `braid tasks` prints");
    v("--task-set", task_set, "change one setting of the task, e.g. test_min=65; may be repeated");
    v("--count", count, "samples of the task", Bounds<int64_t>{1, 1'000'000'000});
    v("--seed", seed,
      "random seed of the task's samples; a run with this seed was tested on the same samples", kFromZero);
    v("--compare", compare,
      "folder of a second model with the same tokens: KL divergence from the first, which keeps its stored "
      "weights and f32 activations; default: the same model if --dtype, --quant or --activations is given");
    weights.visit(v);
    v("--context", context, "tokens per chunk, from 4; 0 = the model's training length, else 512",
      Bounds<int64_t>{0, 1'000'000'000});
    v("--chunks", chunks, "number of chunks to read; 0 = the whole text", Bounds<int64_t>{0, 1'000'000'000});
    v("--llama", llama,
      "as llama-perplexity: each chunk from an empty state, its second half scored (default)");
    v("--plain", plain, "the text as one sequence, all of it scored; with --llama: both");
    v("--threads", threads, "threads; 0 = all cores", kThreads);
    v("--json", json, "print one JSON object");
    benchmarks.visit(v);
  }
};

// One of the models of an evaluation: the folder, and how its weights are kept.
Result<TextModel> load(const std::string& dir, std::optional<WeightFormat> format, Par par) {
  Result<TextModel> m = TextModel::load(dir, format, par, built_in_mixers(), loading_bar(dir));
  if (m && !m->tokenizer) return Error{dir + ": has no tokenizer", "give a model that was trained on text"};
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

// context: tokens per chunk; 0: one sequence.
void print(const char* way, const Comparison& c, const Options& o, const std::string& other, size_t context) {
  const auto line = [&](const std::string& name, const TextScore& e) {
    say("{:<6} {:<{}}  perplexity {:.4f} +- {:.4f}   {:.4f} nats per token, {} tokens{}\n", way, name,
        std::max(o.model.size(), other.size()), e.perplexity(), e.perplexity_error(), e.nll, e.tokens,
        context ? fmt::format(", context {}", context) : "");
  };
  if (other.empty()) return line(o.model, c.base);
  line(o.model, c.base);
  line(other, c.other);
  say("{:<6} KL divergence {:.6f} +- {:.6f} (median {:.6f}, 99 % {:.6f}, worst {:.4f}), same top token "
      "{:.2f} %, rms of dp {:.3f} %\n",
      way, c.kl, c.kl_error, c.kl_median, c.kl_99, c.kl_worst, 100 * c.same_top, 100 * c.rms_dp);
}

int run_task(const Options& o) {
  if (!o.compare.empty() || !o.weights.dtype.empty() || !o.weights.quant.empty() ||
      o.weights.activations != "f32")
    return wrong_use({"--task: excludes --compare, --dtype, --quant and --activations", "leave them out"});
  TrainOptions t;
  t.task = o.task, t.task_set = o.task_set, t.eval_size = o.count, t.seed = o.seed;
  if (const Status s = validate(t); !s) return wrong_use(s.error());
  const Result<std::unique_ptr<Source>> source = make_source(t);
  if (!source) return wrong_use(source.error());
  Result<ThreadPool> started = start_threads(o.threads);
  if (!started) return fail(started.error());
  ThreadPool& pool = *started;
  Result<std::unique_ptr<Model>> model = Model::load(o.model, built_in_mixers(), loading_bar(o.model));
  if (!model) return fail(model.error());
  const ModelConfig& c = (*model)->config();
  // Another number of tokens is another language.
  if (c.vocab_size != static_cast<int64_t>((*source)->vocab_size()) ||
      c.answers() != static_cast<int64_t>((*source)->answers()))
    return fail(
        {fmt::format("--model {}: has {} tokens and {} answers, {} has {} and {}", o.model, c.vocab_size,
                     c.answers(), o.task, (*source)->vocab_size(), (*source)->answers()),
         "give the task of its training, with its --task-set"});
  Gradient gradient(**model, pool, {});
  const Evaluation e = evaluate(**source, gradient);
  if (!std::isfinite(e.outcome.loss))
    return fail({fmt::format("{}: the loss is {}", o.model, e.outcome.loss),
                 fmt::format("check the weights: {} verify --model {}", program_name(), o.model)});
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
      say("{:<28} {:6.2f} %   {}of {}\n", m.name, 100 * m.value(),
          m.chance > 0 ? fmt::format("chance {:.1f} %, ", 100 * m.chance) : "", m.total);
  return kOk;
}

int run(const Options& o) {
  if (!o.benchmarks.tasks.empty() || o.benchmarks.request_lines) {
    if (!o.benchmarks.tasks.empty() && o.benchmarks.request_lines)
      return wrong_use({"--tasks, --request-lines: exclude each other", "leave one out"});
    if (!o.text.empty() || !o.task.empty() || !o.compare.empty())
      return wrong_use({"--tasks: excludes --text, --task and --compare", "run eval once for each"});
    return run_eval_tasks(o.benchmarks, o.model, o.weights, o.threads, o.json);
  }
  if (o.model.empty()) return wrong_use({"--model: is missing", "give a model folder"});
  if (o.text.empty() == o.task.empty())
    return wrong_use({o.task.empty() ? "--text, --task: are missing" : "--text, --task: exclude each other",
                      "give a text file or a task"});
  if (o.context > 0 && o.context < 4)
    return wrong_use({fmt::format("--context: is {}", o.context), "give at least 4"});
  for (const auto& [option, dir] : {std::pair{"--model", &o.model}, {"--compare", &o.compare}})
    if (!dir->empty())
      if (Status s = check_model_folder(option, *dir); !s) return fail(s.error());
  if (!o.task.empty()) return run_task(o);
  if (!o.task_set.empty()) return wrong_use({"--task-set: is given without --task", "give the task's name"});
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
      return fail({fmt::format("--compare {}: has other tokens than {}", dir, o.model),
                   "compare models with the same tokenizer"});
  }
  for (const int32_t id : tokens)
    if (id >= model->model->config().vocab_size)
      return fail({fmt::format("{}: token {} is outside of the vocabulary of {}", o.model, id,
                               model->model->config().vocab_size),
                   "fetch the tokenizer and the weights again: they do not belong together"});

  Context exact(pool), compared(pool, *activations);
  Session base(*model->model, exact);
  std::optional<Session> second;
  if (other) second.emplace(*other->model, compared);
  // What the tokenizer puts in front of a text also begins each chunk, as llama-perplexity has it.
  const Result<std::vector<int32_t>> front = model->tokenizer->encode("");
  constexpr int64_t kUsualContext = 512, kLeastContext = 4;
  const int64_t trained = model->model->config().train_length;
  const int64_t context = o.context > 0 ? o.context
                          : trained > 0 ? std::max(trained, kLeastContext)
                                        : kUsualContext;
  EvaluateOptions options{.context = static_cast<size_t>(context), .chunks = static_cast<size_t>(o.chunks)};
  if (front && !front->empty() && (*front)[0] == model->tokenizer->bos()) options.bos = (*front)[0];
  catch_interrupts();
  Json all{{"text", o.text}, {"tokens", tokens.size()}, {"context", context}};
  for (const bool plain : {false, true}) {
    if (plain ? !o.plain : o.plain && !o.llama) continue;
    const char* way = plain ? "plain" : "llama";
    options.plain = plain;
    Progress bar(way, scored_tokens(tokens.size(), options), 0, o.json);
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
      print(way, *c, o, other_name, plain ? 0 : options.context);
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
