// A grid of training options times seeds, as one resumable experiment.
#include <array>

#include "base/interrupt.h"
#include "cli/cli.h"
#include "lab/report.h"
#include "lab/runner.h"
#include "lab/sweep.h"

namespace braid {
namespace {

int run(const SweepOptions& o, LabOptions lab, int64_t threads, bool json) {
  const Result<std::unique_ptr<Sweep>> sweep = Sweep::make(o);
  if (!sweep) return wrong_use(sweep.error());
  const Experiment& e = (*sweep)->experiment();
  catch_interrupts();
  Result<ThreadPool> pool = start_threads(threads);
  if (!pool) return fail(pool.error());
  lab.quiet |= json;
  lab.on_note = [](const std::string& text) { tell("braid: {}\n", text); };
  const Result<LabOutcome> r = run_experiment(e, lab, this_program(), *pool);
  if (!r) return fail(r.error());
  if (json)
    print_json(study_json(e, r->study));
  else
    say("{}\nreport: {}/report.html\n", table_text(e, r->study), study_dir(e, lab));
  if (!r->interrupted) return kOk;
  tell("interrupted; the same command continues where it stopped\n");
  return kFailed;
}

// All options of `braid train` but those that each run has for itself.
struct SharedOptions {
  OptionAdder& add;
  template <class T>
  void operator()(const char* name, T& value, const char* help) {
    constexpr std::array<std::string_view, 3> kOwn{"--run", "--resume", "--threads"};
    if (std::ranges::count(kOwn, std::string_view(name)) == 0) add(name, value, help);
  }
};

}  // namespace

std::function<int()> define_sweep(CLI::App& app) {
  struct All {
    SweepOptions sweep;
    LabOptions lab;
    int64_t threads = 0;
    bool json = false;
  };
  auto all = std::make_shared<All>();
  all->lab.dir = "runs/sweeps";
  OptionAdder add(app);
  add("--grid", all->sweep.grid,
      "an option of `braid train` and its values, e.g. lr=1e-3,2e-3; repeated, every combination is run");
  add("--seeds", all->sweep.seeds, "runs of each combination, from --seed on", Bounds<int64_t>{1, 1000});
  add("--name", all->sweep.name, "name of the sweep: its folder in --dir");
  add("--dir", all->lab.dir, "folder of all sweeps");
  SharedOptions shared{add};
  all->sweep.base.visit(shared);
  add("--threads", all->threads, "threads; 0 = all cores. Results do not depend on it", kThreads);
  add("--quiet", all->lab.quiet, "no progress");
  add("--json", all->json, "the table as one JSON line and no progress");
  return [all] { return run(all->sweep, all->lab, all->threads, all->json); };
}

}  // namespace braid
