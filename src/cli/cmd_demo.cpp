#include <cstdio>

#include "base/interrupt.h"
#include "cli/cli.h"
#include "data/embedded.h"
#include "data/text.h"
#include "infer/generate.h"
#include "io/file.h"
#include "io/json.h"

namespace braid {
namespace {

int run(const std::string& dir, int64_t steps, int64_t threads_asked) {
  if (steps < 1) return wrong_use({"demo: --steps must be at least 1"});
  TrainOptions o;
  o.arch = "transformer", o.size = "1M", o.length = 256, o.batch = 16, o.steps = steps,
  o.warmup = std::min<int64_t>(50, steps / 10);
  o.lr = 3e-3, o.eval_every = std::max<int64_t>(1, steps / 4), o.checkpoint_every = steps, o.run = dir,
  o.threads = threads_asked;
  auto source =
      TextSource::from_text(shakespeare(), "embedded Shakespeare", {.length = static_cast<size_t>(o.length)});
  if (!source) return fail(source.error());
  ThreadPool pool(resolve_threads(o.threads));
  // The demo's own folder starts afresh each time.
  for (const char* part : {"/state", "/run.json", "/metrics.jsonl", "/model.safetensors"})
    if (Status status = remove_tree(dir + part); !status) return fail(status.error());
  fmt::print("Training a byte-level Transformer on {}, {} steps of {} x {} bytes.\n", (*source)->describe(),
             steps, o.batch, o.length);
  std::fflush(stdout);
  catch_interrupts();
  const Result<TrainSummary> r = run_training(o, **source, this_program(), pool);
  if (!r) return fail(r.error());
  if (r->interrupted())
    return fail({fmt::format("interrupted at step {}", r->progression.step), "run braid demo again"});
  const Result<std::unique_ptr<Model>> model = Model::load(dir);
  if (!model) return fail(model.error());
  const Outcome& end = r->evaluation.outcome;
  fmt::print(
      "\n{} bytes read in {}: held-out loss {:.3f} nats per byte ({:.2f} bits), next byte right {:.1f} % of "
      "the time.\n\nA sample after \"ROMEO:\"\n\n",
      r->progression.tokens, human_time(r->seconds), end.loss, end.loss / std::log(2.0),
      100 * end.accuracy());
  Session session(**model, pool);
  const std::string prompt = "ROMEO:";  // the sample stays within the length the model was trained on
  const std::vector<int32_t> ids(prompt.begin(), prompt.end());
  fmt::print("{}", prompt);
  const Result<Generated> g = generate(
      session, ids, {.sampler = {.temperature = 0.8f, .top_p = 0.95f}, .max_tokens = 250},
      [](int32_t id) { return std::string(1, static_cast<char>(id)); },
      [](std::string_view s) {
        std::fwrite(s.data(), 1, s.size(), stdout);
        std::fflush(stdout);
      });
  if (!g) return fail(g.error());
  fmt::print(
      "\n\nThe model is in {0}. Go on with:\n  braid generate --model {0} --prompt \"JULIET:\"\n  braid info "
      "--model {0}\n",
      dir);
  return kOk;
}

}  // namespace

std::function<int()> define_demo(CLI::App& app) {
  struct Options {
    std::string run = "runs/demo";
    int64_t steps = 300, threads = 0;
  };
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  add("--run", o->run, "folder for the run");
  add("--steps", o->steps, "training steps");
  add("--threads", o->threads, "threads; 0 = all cores");
  return [o] { return run(o->run, o->steps, o->threads); };
}

}  // namespace braid
