// Three models of the same size learn a task that needs both memories; only the hybrid has both.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>

#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/cli.h"
#include "io/folder.h"
#include "io/json.h"
#include "report/page.h"
#include "tasks/make_source.h"
#include "train/run_folder.h"
#include "train/run_record.h"

namespace braid {
namespace {

constexpr std::array kParts{"count", "recall", "both"};

struct Contestant {
  const char *name, *folder, *arch;
  std::vector<std::string> set;
  // What must come out of each part, in %.
  struct {
    double at_least = 0, at_most = 100;
  } expected[3];

  bool as_expected(const std::array<double, 3>& scores) const {
    for (size_t i = 0; i < scores.size(); ++i)
      if (!(scores[i] >= expected[i].at_least && scores[i] <= expected[i].at_most)) return false;
    return true;
  }
};

// A small state and no convolution: the fast weights can count, but not hold the table. Inner widths make the
// three models equally large.
std::vector<Contestant> contestants() {
  const std::string mixer = "pattern.0.mixer.";
  const std::vector<std::string> counter{mixer + "negative_eigenvalues=true", mixer + "conv=0",
                                         mixer + "head_dim=8", "pattern.0.mlp.d_ff=184"};
  std::vector<std::string> both = counter;
  both.push_back("pattern.1.mixer.window=0");
  return {{"Transformer", "transformer", "transformer", {}, {{0, 85}, {90, 100}, {0, 85}}},
          {"Gated DeltaNet", "gated-deltanet", "gated-deltanet", counter, {{95, 100}, {0, 60}, {0, 60}}},
          {"hybrid of the two", "hybrid", "gdn-h1", both, {{95, 100}, {95, 100}, {95, 100}}}};
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

struct Trained {
  Contestant model;
  TrainOptions options;
  size_t parameters = 0;
  double seconds = 0;
  std::array<double, 3> scores{};  // %
  std::vector<std::pair<double, std::array<double, 3>>> curve;
};

std::array<double, 3> scores_of(const Json& evaluation) {
  std::array<double, 3> out{};
  for (size_t i = 0; i < out.size(); ++i) out[i] = 100 * evaluation["metrics"][kParts[i]].value("value", 0.0);
  return out;
}

Page report(const std::vector<Trained>& all, bool made) {
  Page page("A task that needs both memories");
  page.paragraph(
      "A table of 48 keys and values is followed by questions: how many ones so far, even or odd (count); "
      "the "
      "value of a key (recall); or the value of a key, moved on by one if the count is odd (both). Trained "
      "on 8 "
      "to 32 questions, tested on 32 to 64.");
  PageTable table{.head = {"model", "parameters", "count", "recall", "both"},
                  .rows = {},
                  .caption = made ? "Right answers in %. Green: as it should be."
                                  : "Right answers in %. Red: not as it should be."};
  for (const Trained& t : all) {
    const auto mark = t.model.as_expected(t.scores) ? PageCell::Mark::kGood : PageCell::Mark::kBad;
    std::vector<PageCell> row{{t.model.name, mark}, {fmt::format("{}", t.parameters)}};
    for (const double s : t.scores) row.push_back({fmt::format("{:.1f}", s)});
    table.rows.push_back(std::move(row));
  }
  page.table(table);
  page.paragraph(
      "Attention keeps every pair, but cannot count for long: each layer looks at all tokens at once. A "
      "recurrent state turns around with each one, so counting is easy, but it is too small for the table. A "
      "layer of each does both.");
  for (size_t part = 0; part < kParts.size(); ++part) {
    Chart chart{.title = fmt::format("While training: {}", kParts[part]),
                .x_label = "step",
                .y_label = "right answers, %",
                .y_range = std::pair(0.0, 100.0)};
    chart.rules.emplace_back(part == 0 ? 50 : 25, "chance");
    for (size_t i = 0; i < all.size(); ++i) {
      Series s{.name = all[i].model.name, .style = static_cast<int>(i)};
      for (const auto& [step, scores] : all[i].curve) s.x.push_back(step), s.y.push_back(scores[part]);
      chart.series.push_back(std::move(s));
    }
    page.chart(chart);
  }
  page.heading("Do it again");
  for (const Trained& t : all) page.code(train_command(t.options));
  return page;
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

int run(const std::string& dir, int64_t steps, int64_t seed, int64_t threads_asked, bool json) {
  if (Status s = claim_folder("--run", dir, FolderKind::kDemo, is_unmarked_demo(dir)); !s)
    return fail(s.error());
  Result<ThreadPool> started = start_threads(threads_asked);
  if (!started) return fail(started.error());
  ThreadPool& pool = *started;
  catch_interrupts();
  if (!json)
    say("48 keys with values to remember, bits to count, and questions about both.\n"
        "Three models of the same size learn it; each takes 10 to 30 seconds on two cores.\n\n");
  std::vector<Trained> all;
  for (const Contestant& c : contestants()) {
    Trained t{.model = c, .options = training(c, dir, steps, seed), .curve = {}};
    const Result<std::unique_ptr<Source>> source = make_source(t.options);
    if (!source) return fail(source.error());
    if (!json) say("{}\n", c.name);
    flush_output();
    const Result<TrainSummary> r =
        run_training(t.options, **source, this_program(), pool,
                     {.quiet = json, .start_over = true, .on_metrics = [&](const std::string& text) {
                        const Result<Json> line = parse_ordered_json(text, "metrics");
                        if (line && line->contains("metrics"))
                          t.curve.emplace_back((*line)["step"].get<double>(), scores_of(*line));
                      }});
    if (!r) return fail(r.error());
    if (r->interrupted())
      return fail({fmt::format("demo: interrupted at step {}", r->progression.step), "run it again"});
    const Result<Json> result = load_json(t.options.run + "/result.json");
    if (!result) return fail(result.error());
    t.scores = scores_of(*result), t.parameters = result->value("parameters", size_t{0});
    t.seconds = r->seconds;
    all.push_back(std::move(t));
  }
  bool made = true;
  for (const Trained& t : all) made &= t.model.as_expected(t.scores);
  const std::string page = dir + "/report.html";
  if (Status s = report(all, made).save(page); !s) return fail(s.error());

  if (json) {
    Json models = Json::array();
    for (const Trained& t : all) {
      models.push_back({{"name", t.model.name}, {"parameters", t.parameters}, {"seconds", t.seconds}});
      for (size_t i = 0; i < kParts.size(); ++i) models.back()[kParts[i]] = t.scores[i] / 100;
    }
    print_json({{"models", models}, {"made", made}, {"seed", seed}, {"steps", steps}, {"report", page}});
    return made ? kOk : kFailed;
  }
  say("\n{:<20}{:>12}{:>10}{:>10}{:>10}\n", "right answers, %", "parameters", "count", "recall", "both");
  for (const Trained& t : all)
    say("{:<20}{:>12}{:>10.1f}{:>10.1f}{:>10.1f}\n", t.model.name, t.parameters, t.scores[0], t.scores[1],
        t.scores[2]);
  say("{:<20}{:>12}{:>10.1f}{:>10.1f}{:>10.1f}\n\n", "(guessing)", "", 50.0, 25.0, 25.0);
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
    std::string run = "runs/demo";
    int64_t steps = 600, seed = 0, threads = 0;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  add("--run", o->run, "folder for models and report");
  add("--steps", o->steps, "training steps of each model", Bounds<int64_t>{1, 1'000'000});
  add("--seed", o->seed, "random seed of weights and data", kFromZero);
  add("--threads", o->threads, "threads; 0 = all cores", kThreads);
  add("--json", o->json, "the scores as one JSON line and no progress");
  return [o] { return run(o->run, o->steps, o->seed, o->threads, o->json); };
}

}  // namespace braid
