#include <filesystem>

#include "base/interrupt.h"
#include "cli/cli.h"
#include "cli/setup.h"
#include "io/file.h"
#include "io/json.h"
#include "train/trainer.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

// Takes what the run was started with, except for what is given now.
class OptionRestorer {
 public:
  OptionRestorer(const Json& stored, const CLI::App& app) : stored_(stored), app_(app) {}
  template <class T>
  void operator()(const char* name, T& value, const char*) {
    const auto it = stored_.find(name + 2);
    if (it == stored_.end() || given(app_, name) || std::string_view(name) == "--resume") return;
    if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      if (it->is_array() && std::ranges::all_of(*it, [](const Json& j) { return j.is_string(); }))
        it->get_to(value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (it->is_string()) it->get_to(value);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (it->is_boolean()) it->get_to(value);
    } else {
      if (it->is_number()) it->get_to(value);
    }
  }

 private:
  const Json& stored_;
  const CLI::App& app_;
};

int run(TrainOptions o, bool json, bool quiet, const CLI::App& app) {
  Json stored;
  if (o.resume) {
    Result<Json> record = load_json(o.run + "/run.json");
    if (!record)
      return fail(
          {"cannot resume: " + record.error().what, "is --run right? Without --resume a new run is started"});
    stored = *record;
    if (stored.is_object() && stored.contains("options")) {
      OptionRestorer restore(stored["options"], app);
      o.visit(restore);
    }
  }
  if (Status s = validate(o); !s) return wrong_use(s.error());
  Result<std::unique_ptr<Source>> source = make_source(o);
  if (!source) return fail(source.error());
  if (Status s = check_batch(o, **source); !s) return wrong_use(s.error());
  if (o.resume && stored.contains("data") &&
      stored["data"].value("fingerprint", "") != (*source)->fingerprint())
    return fail({"cannot resume: the data is not what the run was started with",
                 "restore the text, the task's settings and --seed, or start a new run"});
  // A resumed run keeps the config it was written with.
  const Result<ModelConfig> config = o.resume ? load_config(o.run + "/config.json")
                                              : make_config(o, static_cast<int64_t>((*source)->vocab_size()));
  if (!config) return fail(config.error());

  const int threads = resolve_threads(o.threads);
  ThreadPool pool(threads);
  std::unique_ptr<Model> model = Model::create(*config);
  model->init(static_cast<uint64_t>(o.seed));
  if (!o.resume && (fs::exists(o.run + "/run.json") || fs::exists(o.run + "/state")))
    return fail({o.run + ": there is a run in this folder",
                 "add --resume to go on with it, or choose another --run"});
  if (Status s = make_dirs(o.run); !s) return fail(s.error());
  if (Status s = save_json(o.run + "/config.json", to_json(*config)); !s) return fail(s.error());
  if (Status s = save_json(o.run + "/run.json", run_record(o, **source, *model, threads)); !s)
    return fail(s.error());
  if (!quiet && !json)
    fmt::print(stderr, "{} parameters, {}; {} threads, {}; run folder {}\n", model->params().count(),
               (*source)->describe(), threads, o.precision, o.run);

  catch_interrupts();
  Trainer trainer(*model, **source, pool, o);
  if (json) trainer.on_metrics([](const Json& line) { print_json(line); });
  const Result<TrainSummary> r = trainer.run(o.resume, quiet || json);
  if (!r) return fail(r.error());
  if (r->interrupted) {
    fmt::print(stderr, "interrupted at step {} of {}; saved. Go on with: braid train --run {} --resume\n",
               r->progression.step, o.steps, o.run);
    return kFailed;
  }
  if (json)
    print_json({{"done", true},
                {"step", r->progression.step},
                {"eval_loss", r->evaluation.loss},
                {"eval_accuracy", r->evaluation.accuracy()},
                {"seconds", r->seconds},
                {"run", o.run}});
  else
    fmt::print("trained {} steps in {}: held-out loss {:.4f}, accuracy {:.2f} %. Model in {}\n",
               r->progression.step, human_time(r->seconds), r->evaluation.loss,
               100 * r->evaluation.accuracy(), o.run);
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
