#include <algorithm>
#include <ctime>

#include "cli/cli.h"
#include "tasks/task.h"
#include "tasks/task_source.h"

namespace braid {
namespace {

struct Options {
  std::string action = "list", name, split = "train";
  std::vector<std::string> set;
  int64_t count = 0, seed = 0;
  bool json = false;
};

int list(bool json) {
  for (const TaskEntry& e : all_tasks()) {
    const std::unique_ptr<Task> task = *make_task(e.name);
    if (!json) {
      say("{} (version {}): {}\n  {}; {} tokens, chance {:.3g} %\n", e.name, e.version, e.description,
          e.paper, task->vocab_size(), 100 * task->chance());
      for (const Setting& s : task->settings())
        say("    {:<18} {:<8} {} ({})\n", s.name, value_text(s), s.help, range_text(s));
      continue;
    }
    Json settings = Json::array(), metrics = Json::array();
    for (const Setting& s : task->settings())
      settings.push_back(
          {{"name", s.name}, {"default", value_text(s)}, {"range", range_text(s)}, {"help", s.help}});
    for (const Metric& m : task->metrics()) metrics.push_back(m.name);
    print_json({{"task", e.name},
                {"version", e.version},
                {"description", e.description},
                {"paper", e.paper},
                {"vocab_size", task->vocab_size()},
                {"chance", task->chance()},
                {"metrics", metrics},
                {"headline", task->headline()},
                {"settings", settings}});
  }
  return kOk;
}

int show(const Options& o, const TaskSource& source) {
  for (int64_t i = 0; i < o.count; ++i) {
    const Sample s = o.split == "test" ? source.validation_sample(static_cast<size_t>(i))
                                       : source.train_sample(static_cast<uint64_t>(i));
    if (o.json)
      print_json({{"tokens", s.tokens}, {"targets", s.targets}, {"text", source.task().show(s)}});
    else
      say("{}\n", source.task().show(s));
  }
  return kOk;
}

// Of this thread, so that other programs do not count.
double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

int time(const Options& o, const TaskSource& source) {
  const auto count = static_cast<size_t>(o.count);
  const size_t tokens = source.batch(0, count).tokens.size();
  double best = 1e300;
  const double start = cpu_seconds();
  for (int runs = 0; runs < 5 || cpu_seconds() - start < 0.2; ++runs) {
    const double before = cpu_seconds();
    (void)source.batch(0, count);
    best = std::min(best, cpu_seconds() - before);
  }
  if (o.json)
    print_json({{"task", o.name}, {"samples", count}, {"tokens", tokens}, {"cpu_seconds", best}});
  else
    say("{:<20} {} samples, {} tokens: {:.2f} ms of one thread, {:.0f} ns per token\n", o.name, count, tokens,
        1e3 * best, 1e9 * best / static_cast<double>(tokens));
  return kOk;
}

int run(Options o) {
  if (o.action == "list") return list(o.json);
  if (o.action != "show" && o.action != "time")
    return wrong_use(
        {"tasks: there is no action '" + o.action + "'", suggest(o.action, {"list", "show", "time"})});
  if (o.name.empty())
    return wrong_use({fmt::format("tasks {}: the task is missing", o.action),
                      fmt::format("give a name of `{} tasks`, e.g. parity", program_name())});
  if (o.split != "train" && o.split != "test")
    return wrong_use({"--split: is '" + o.split + "'", "use train or test"});
  if (o.count == 0) o.count = o.action == "show" ? 3 : 1024;
  Result<std::unique_ptr<Task>> task = make_task(o.name, o.set);
  if (!task) return fail(task.error());
  const TaskSource source(std::move(*task), {.seed = static_cast<uint64_t>(o.seed),
                                             .validation_size = static_cast<size_t>(o.count)});
  if (o.action == "time" && static_cast<double>(o.count) * static_cast<double>(source.max_length()) >= 4e9)
    return wrong_use(
        {fmt::format("--count: {} samples can have 4e9 tokens or more", o.count), "use a smaller --count"});
  return o.action == "show" ? show(o, source) : time(o, source);
}

}  // namespace

std::function<int()> define_tasks(CLI::App& app) {
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  add("action", o->action, "list; show NAME: samples; time NAME: how long a batch of training samples takes");
  add("name", o->name, "the task");
  add("--count", o->count, "samples to show or to time; 0 = 3 to show, 1024 to time",
      Bounds<int64_t>{0, 1'000'000});
  add("--split", o->split, "which samples to show: train, or test for held-out ones");
  add("--set", o->set, "change one setting of the task, e.g. train_max=80; may be repeated");
  add("--seed", o->seed, "random seed of the samples", kFromZero);
  add("--json", o->json, "one JSON line each");
  return [o] { return run(*o); };
}

}  // namespace braid
