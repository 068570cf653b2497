#include "base/clock.h"
#include "base/interrupt.h"
#include "cli/cli.h"
#include "infer/generate.h"
#include "infer/text_model.h"
#include "io/file.h"
#include "io/json.h"
#include "report/run_page.h"
#include "tasks/make_source.h"
#include "train/run_folder.h"
#include "train/run_record.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace braid {
namespace {

// What the run in o.run was started with, except for what is typed now.
Result<TrainOptions> resumed_options(const TrainOptions& o, const CLI::App& app) {
  const std::string file = o.run + "/run.json";
  const Result<Json> record = load_run_record(o.run);
  if (!record) {
    return Error{
        fmt::format("--run {}: cannot resume: {}", o.run, record.error().what),
        path_exists(file) ? record.error().fix : "check --run, or leave out --resume to start a new run"};
  }
  const Result<TrainOptions> started = options_from_json((*record)["options"], file);
  if (!started)
    return Error{fmt::format("--run {}: cannot resume: {}", o.run, started.error().what),
                 started.error().fix};
  Json options = options_json(*started);
  const Json typed = options_json(o);
  for (const auto& [name, value] : typed.items())
    if (name == "run" || name == "resume" || given(app, ("--" + name).c_str())) options[name] = value;
  Result<TrainOptions> all = options_from_json(options, file);
  if (!all) return all;
  if (const std::vector<Problem> p = changed_on_the_way(*all, *started); !p.empty()) return wrong_options(p);
  return all;
}

// A continuation of --sample, also added to samples.txt; or why there is none.
std::string sample_text(const TrainOptions& o, const Model& model, uint64_t step, ThreadPool& pool) {
  const Result<std::optional<Tokenizer>> tokenizer = load_tokenizer(o.run, model.config().vocab_size);
  if (!tokenizer) return "--sample: " + tokenizer.error().what;
  if (!*tokenizer) return "--sample: the data has no tokenizer, so there is no text";
  const Result<std::vector<int32_t>> prompt = (*tokenizer)->encode(o.sample);
  if (!prompt) return "--sample: " + prompt.error().what;
  Context context(pool);
  Session session(model, context);
  StreamDecoder decoder(**tokenizer);
  std::string text = o.sample;
  const auto text_of = [&](std::optional<int32_t> id) { return id ? decoder.add(*id) : decoder.finish(); };
  const auto show = [&](std::string_view more) { text += more; };
  // Each evaluation draws other tokens; the same run always the same.
  GenerateOptions options{.sampler = {.temperature = 0.8f, .top_k = 40, .seed = step},
                          .max_tokens = o.sample_tokens,
                          .cancelled = interrupted};
  if (const std::optional<int32_t> eos = (*tokenizer)->eos()) options.end_tokens = {*eos};
  if (const Result<Generated> r = generate(session, *prompt, text_of, show, options); !r)
    return "--sample: " + r.error().what;
  const std::string line = fmt::format("step {}: {}", step, text);
  if (Status s = append_line(o.run + "/samples.txt", line); !s) return "--sample: " + s.error().what;
  return line;
}

int run(TrainOptions o, bool json, bool quiet, const CLI::App& app) {
  if (o.resume) {
    Result<TrainOptions> all = resumed_options(o, app);
    if (!all) return fail(all.error());
    o = *std::move(all);
  }
  if (Status s = validate(o); !s) return wrong_use(s.error());
  const Result<std::unique_ptr<Source>> source = make_source(o);
  if (!source) return fail(source.error());
  if (Status s = check_batch(o, **source); !s) return wrong_use(s.error());
  catch_interrupts();
  Result<ThreadPool> started = start_threads(o.threads);
  if (!started) return fail(started.error());
  ThreadPool& pool = *started;
  RunHooks hooks{.quiet = quiet || json};
  hooks.on_note = [](const std::string& text) { tell("braid: {}\n", text); };
  if (json) hooks.on_metrics = [](const std::string& line) { say("{}\n", line), flush_output(); };
  double page_made = 0;
  hooks.on_evaluation = [&](const Model& model, uint64_t step) {
    if (seconds_now() - page_made > 10) {
      (void)run_page(o.run, /*live=*/true)
          .save(o.run + "/report.html");  // the one at the end tells of failures
      page_made = seconds_now();
    }
    return o.sample.empty() ? std::string() : sample_text(o, model, step, pool);
  };
  if (!hooks.quiet) hooks.on_start = [](const std::string& line) { tell("{}\n", line); };
  const Result<TrainSummary> r = run_training(o, **source, this_program(), pool, hooks);
  if (!r) return fail(r.error());
  if (Status s = run_page(o.run).save(o.run + "/report.html"); !s) return fail(s.error());
  if (r->interrupted()) {
    tell("interrupted at step {} of {}; saved. Go on with: {} train --run {} --resume\n", r->progression.step,
         total_steps(o), program_name(), o.run);
    return kFailed;
  }
  const Outcome& end = r->evaluation.outcome;
  if (json)
    print_json({{"done", true},
                {"step", r->progression.step},
                {"stopped", stop_text(r->stop)},
                {"eval_loss", end.loss},
                {"eval_accuracy", end.accuracy()},
                {"seconds", r->seconds},
                {"run", o.run}});
  else if (r->first_step == r->progression.step)
    say("{}: all {} steps are done, nothing was trained (more: --steps): held-out loss {:.4f}, accuracy "
        "{:.2f} %\n",
        o.run, r->progression.step, end.loss, 100 * end.accuracy());
  else if (r->first_step > 0)
    say("trained {} more steps, to {}, in {} ({}): held-out loss {:.4f}, accuracy {:.2f} %. Model and "
        "report.html in {}\n",
        r->progression.step - r->first_step, r->progression.step, human_time(r->seconds), stop_text(r->stop),
        end.loss, 100 * end.accuracy(), o.run);
  else
    say("trained {} steps in {} ({}): held-out loss {:.4f}, accuracy {:.2f} %. Model and report.html in {}\n",
        r->progression.step, human_time(r->seconds), stop_text(r->stop), end.loss, 100 * end.accuracy(),
        o.run);
  return kOk;
}

}  // namespace

std::function<int()> define_train(CLI::App& app) {
  struct All {
    TrainOptions o;
    bool json = false, quiet = false;
  };
  auto all = std::make_shared<All>();
  OptionAdder add(app);
  all->o.visit(add);
  add("--json", all->json, "print metrics as JSON lines on stdout");
  add("--quiet", all->quiet, "no progress");
  return [all, &app] { return run(all->o, all->json, all->quiet, app); };
}

}  // namespace braid
