#include "cli/cli.h"
#include "tasks/task.h"
#include "tasks/task_source.h"

namespace braid {
namespace {

struct Options {
  std::string action = "list", name;
  std::vector<std::string> set;
  int64_t count = 3, seed = 0;
  bool json = false, test = false;
};

int list(bool json) {
  for (const TaskEntry& e : all_tasks()) {
    const std::unique_ptr<Task> task = e.make();
    Json settings = Json::array();
    if (!json) fmt::print("{} (version {}): {}\n  {}\n", e.name, e.version, e.description, e.paper);
    for (const Setting& s : task->settings()) {
      settings.push_back({{"name", s.name}, {"default", value_text(s)}, {"help", s.help}});
      if (!json) fmt::print("    {:<12} {:<8} {}\n", s.name, value_text(s), s.help);
    }
    if (json)
      print_json({{"task", e.name},
                  {"version", e.version},
                  {"description", e.description},
                  {"paper", e.paper},
                  {"settings", settings}});
  }
  return kOk;
}

int show(const Options& o) {
  Result<std::unique_ptr<Task>> task = make_task(o.name, o.set);
  if (!task) return fail(task.error());
  if (o.count < 1 || o.count > 1'000'000) return wrong_use({"tasks: --count must be from 1 to 1000000"});
  if (o.seed < 0) return wrong_use({"tasks: --seed must not be negative"});
  const TaskSource source(std::move(*task), {.seed = static_cast<uint64_t>(o.seed),
                                             .validation_size = static_cast<size_t>(o.count)});
  for (int64_t i = 0; i < o.count; ++i) {
    const Sample s = o.test ? source.validation_sample(static_cast<size_t>(i))
                            : source.train_sample(static_cast<uint64_t>(i));
    if (o.json)
      print_json({{"tokens", s.tokens}, {"targets", s.targets}, {"text", source.task().show(s)}});
    else
      fmt::print("{}\n", source.task().show(s));
  }
  return kOk;
}

}  // namespace

std::function<int()> define_tasks(CLI::App& app) {
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  add("action", o->action, "list, or show NAME");
  add("name", o->name, "the task to show");
  add("--count", o->count, "samples to show");
  add("--set", o->set, "change one setting of the task, e.g. train_max=80; may be repeated");
  add("--seed", o->seed, "of the samples");
  add("--test", o->test, "held-out samples instead of training samples");
  add("--json", o->json, "one JSON line each");
  return [o]() -> int {
    if (o->action == "list") return list(o->json);
    if (o->action != "show")
      return wrong_use(
          {"tasks: there is no action '" + o->action + "'", suggest(o->action, {"list", "show"})});
    if (o->name.empty()) return wrong_use({"tasks show: which one?", "e.g. braid tasks show parity"});
    return show(*o);
  };
}

}  // namespace braid
