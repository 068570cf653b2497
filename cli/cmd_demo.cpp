// Three models of the same size learn a task that needs both memories; only the hybrid has both.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>

#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/cli.h"
#include "io/file.h"
#include "io/folder.h"
#include "io/json.h"
#include "report/demo_page.h"
#include "tasks/make_source.h"
#include "train/run_folder.h"
#include "train/run_record.h"

namespace braid {
namespace {

struct Contestant {
  const char *name, *folder, *arch;
  std::vector<std::string> set;
  std::array<DemoBounds, kDemoParts.size()> expected;  // what must come out of each part, in %
};

// A small state and no convolution: the fast weights can count, but not hold the table. Inner widths make the
// three models equally large.
std::vector<Contestant> contestants() {
  const std::string mixer = "pattern.0.mixer.";
  const std::vector<std::string> counter{mixer + "negative_eigenvalues=true", mixer + "conv=0",
                                         mixer + "head_dim=8", "pattern.0.mlp.d_ff=184"};
  std::vector<std::string> both = counter;
  both.push_back("pattern.1.mixer.window=0");
  return {{"Transformer", "transformer", "transformer", {}, {{{0, 85}, {90, 100}, {0, 85}}}},
          {"Gated DeltaNet", "gated-deltanet", "gated-deltanet", counter, {{{95, 100}, {0, 60}, {0, 60}}}},
          {"hybrid of the two", "hybrid", "gdn-h1", both, {{{95, 100}, {95, 100}, {95, 100}}}}};
}

TrainOptions training(const Contestant& c, const std::string& dir, int64_t steps, int64_t seed) {
  TrainOptions o;
  o.arch = c.arch, o.size = "d64-l2-h2-f128", o.set = c.set, o.set.push_back("init_std=0.1");
  o.task = "counted-recall";
  o.batch = 64, o.steps = steps, o.warmup = std::min<int64_t>(50, steps / 10), o.lr = 4e-3;
  o.weight_decay = 0.01, o.seed = seed, o.eval_every = std::max<int64_t>(1, steps / 6), o.eval_size = 256;
  o.checkpoint_every = steps, o.keep = 1, o.run = dir + "/" + c.folder;
  return o;
}

DemoModel::Scores scores_of(const Json& evaluation) {
  DemoModel::Scores out{};
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = 100 * evaluation["metrics"][kDemoParts[i]].value("value", 0.0);
  return out;
}

// The figure of the page as two files.
Status save_pictures(const std::string& dir, const std::vector<DemoModel>& models) {
  for (const auto& [theme, name] : {std::pair{Theme::kLight, "light"}, {Theme::kDark, "dark"}}) {
    const std::string text = demo_picture(models, theme);
    if (Status s = write_atomic(fmt::format("{}/demo-{}.svg", dir, name), std::as_bytes(std::span(text))); !s)
      return s;
  }
  return {};
}

// One of before folders had a mark: nothing but the demo's own runs and its page.
bool is_unmarked_demo(const std::string& dir) {
  size_t runs = 0, others = 0;
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(dir, ec)) {
    const std::string name = entry.path().filename();
    const bool contestant =
        std::ranges::any_of(contestants(), [&](const Contestant& c) { return name == c.folder; });
    runs += contestant && load_run_record(entry.path());
    others += !contestant && name != "report.html";
  }
  return runs == contestants().size() && others == 0;
}

int run(const std::string& dir, const std::string& svg_dir, int64_t steps, int64_t seed,
        int64_t threads_asked, bool json) {
  if (Status s = claim_folder("--run", dir, FolderKind::kDemo, is_unmarked_demo(dir)); !s)
    return fail(s.error());
  if (!svg_dir.empty())
    if (Status s = make_folder("--svg", svg_dir); !s) return fail(s.error());
  Result<ThreadPool> started = start_threads(threads_asked);
  if (!started) return fail(started.error());
  ThreadPool& pool = *started;
  catch_interrupts();
  if (!json)
    say("48 keys with values to remember, bits to count, and questions about both.\n"
        "Three models of the same size learn it; each takes 10 to 30 seconds on two cores.\n\n");
  std::vector<DemoModel> all;
  std::vector<double> seconds;
  for (const Contestant& c : contestants()) {
    const TrainOptions options = training(c, dir, steps, seed);
    DemoModel t{.name = c.name, .command = train_command(options), .expected = c.expected};
    const Result<std::unique_ptr<Source>> source = make_source(options);
    if (!source) return fail(source.error());
    if (!json) say("{}\n", c.name);
    flush_output();
    const Result<TrainSummary> r =
        run_training(options, **source, this_program(), pool,
                     {.quiet = json, .start_over = true, .on_metrics = [&](const std::string& text) {
                        const Result<Json> line = parse_ordered_json(text, "metrics");
                        if (line && line->contains("metrics"))
                          t.curve.emplace_back((*line)["step"].get<double>(), scores_of(*line));
                      }});
    if (!r) return fail(r.error());
    if (r->interrupted())
      return fail({fmt::format("demo: interrupted at step {}", r->progression.step), "run it again"});
    const Result<Json> result = load_json(options.run + "/result.json");
    if (!result) return fail(result.error());
    t.scores = scores_of(*result), t.parameters = result->value("parameters", size_t{0});
    seconds.push_back(r->seconds);
    all.push_back(std::move(t));
  }
  const bool made = std::ranges::all_of(all, &DemoModel::as_expected);
  const std::string page = dir + "/report.html";
  if (Status s = demo_page(all).save(page); !s) return fail(s.error());
  if (!svg_dir.empty())
    if (Status s = save_pictures(svg_dir, all); !s) return fail(s.error());

  if (json) {
    Json models = Json::array();
    for (size_t m = 0; m < all.size(); ++m) {
      models.push_back({{"name", all[m].name}, {"parameters", all[m].parameters}, {"seconds", seconds[m]}});
      for (size_t i = 0; i < kDemoParts.size(); ++i) models.back()[kDemoParts[i]] = all[m].scores[i] / 100;
    }
    print_json({{"models", models}, {"made", made}, {"seed", seed}, {"steps", steps}, {"report", page}});
    return made ? kOk : kFailed;
  }
  say("\n{:<20}{:>12}{:>10}{:>10}{:>10}\n", "right answers, %", "parameters", "count", "recall", "both");
  for (const DemoModel& t : all)
    say("{:<20}{:>12}{:>10.1f}{:>10.1f}{:>10.1f}\n", t.name, t.parameters, t.scores[0], t.scores[1],
        t.scores[2]);
  say("{:<20}{:>12}{:>10.1f}{:>10.1f}{:>10.1f}\n\n", "(guessing)", "", kDemoChance[0], kDemoChance[1],
      kDemoChance[2]);
  say("{0}\n\nreport: {1}\n\nTry next:\n"
      "  {2} tasks show counted-recall --count 3     # the task\n"
      "  {2} lab list                                # the experiments of five papers\n"
      "  {2} train --text @shakespeare --arch gdn-h1 --size 1M --steps 300 --run runs/bard  # 1 to 3 "
      "minutes\n"
      "  {2} generate --model runs/bard --prompt \"ROMEO:\"\n",
      made
          ? "The Transformer remembers but cannot count; the recurrent model counts but cannot remember; the "
            "hybrid does both."
          : "This time the models did not come out as they should; more --steps may help.",
      page, program_name());
  return made
             ? kOk
             : fail({"demo: scores are outside of the expected ranges", "increase --steps or change --seed"});
}

}  // namespace

std::function<int()> define_demo(CLI::App& app) {
  struct Options {
    std::string run = "runs/demo", svg;
    int64_t steps = 600, seed = 0, threads = 0;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  add("--run", o->run, "folder for models and report");
  add("--svg", o->svg, "folder for the figure of the page as demo-light.svg and demo-dark.svg; default none");
  add("--steps", o->steps, "training steps of each model", Bounds<int64_t>{1, 1'000'000});
  add("--seed", o->seed, "random seed of weights and data", kFromZero);
  add("--threads", o->threads, "threads; 0 = all cores", kThreads);
  add("--json", o->json, "the scores as one JSON line and no progress");
  return [o] { return run(o->run, o->svg, o->steps, o->seed, o->threads, o->json); };
}

}  // namespace braid
