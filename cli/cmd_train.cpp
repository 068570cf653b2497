#include "base/interrupt.h"
#include "cli/cli.h"
#include "io/file.h"
#include "io/json.h"
#include "report/run_page.h"
#include "tasks/make_source.h"
#include "train/setup.h"
#include "train/trainer.h"

namespace braid {
namespace {

int run(TrainOptions o, bool json, bool quiet, const CLI::App& app) {
  if (o.resume) {
    const Result<Json> record = load_json(o.run + "/run.json");
    if (!record)
      return fail(
          {"cannot resume: " + record.error().what, "is --run right? Without --resume a new run is started"});
    // What the run was started with, except for what is given now.
    if (record->is_object() && record->contains("options"))
      restore_options(o, (*record)["options"], [&](const char* name) { return given(app, name); });
  }
  if (Status s = validate(o); !s) return wrong_use(s.error());
  const Result<std::unique_ptr<Source>> source = make_source(o);
  if (!source) return fail(source.error());
  if (Status s = check_batch(o, **source); !s) return wrong_use(s.error());
  catch_interrupts();
  ThreadPool pool(resolve_threads(o.threads));
  RunHooks hooks{.quiet = quiet || json, .on_start = {}, .on_metrics = {}};
  if (json) hooks.on_metrics = [](const Json& line) { print_json(line); };
  if (!hooks.quiet) hooks.on_start = [](const std::string& line) { fmt::print(stderr, "{}\n", line); };
  const Result<TrainSummary> r = run_training(o, **source, this_program(), pool, hooks);
  if (!r) return fail(r.error());
  if (Status s = run_page(o.run).save(o.run + "/report.html"); !s) return fail(s.error());
  if (r->interrupted()) {
    fmt::print(stderr, "interrupted at step {} of {}; saved. Go on with: braid train --run {} --resume\n",
               r->progression.step, o.steps, o.run);
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
  else
    fmt::print(
        "trained {} steps in {} ({}): held-out loss {:.4f}, accuracy {:.2f} %. Model and report.html in {}\n",
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
