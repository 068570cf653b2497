#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "io/file.h"
#include "lab/agreement.h"
#include "lab/kept.h"
#include "lab/results_page.h"
#include "support/test_dir.h"
#include "train/run_record.h"

namespace braid {
namespace {

// The folder of a study of which each trial gave this metric's value.
void put_study(const Experiment& e, const LabOptions& o, double value, const std::string& started) {
  const std::string dir = study_dir(e, o);
  for (const Trial& t : e.trials(o.effort)) {
    const std::string run = dir + "/trials/" + t.id();
    ASSERT_TRUE(make_dirs(run));
    TrainOptions options = t.options;
    options.run = "/elsewhere/" + t.id(), options.threads = 3;
    ASSERT_TRUE(
        save_json(run + "/run.json", {{"version", kRunVersion},
                                      {"command", "x"},
                                      {"started", started},
                                      {"options", options_json(options)},
                                      {"braid", {{"version", "9"}, {"commit", "c0ffee"}, {"compiler", "g"}}},
                                      {"machine", {{"cpu", "a cpu"}, {"isa", "avx2"}, {"threads", 3}}},
                                      {"data", {{"source", "s"}, {"fingerprint", "f"}}},
                                      {"parameters", 7}}));
    Json result{
        {"step", 5}, {"seconds", 2.5}, {"stopped", "all steps done"}, {"parameters", 7}, {"tokens", 70}};
    result["metrics"][e.measure.metric] = {{"value", value}, {"chance", 0.5}, {"of", 8}};
    result["metrics"]["accuracy, 33-64 tokens"] = {{"value", 0.25}, {"chance", 0.5}, {"of", 8}};
    result["metrics"]["accuracy, 65-128 tokens"] = {{"value", 0.125}, {"chance", 0.5}, {"of", 8}};
    ASSERT_TRUE(save_json(run + "/result.json", result));
  }
  const Program program{"./braid lab run " + std::string(e.name) + " --quick --dir /a/b --threads 3 --quiet",
                        "9", "c0ffee", "g"};
  ASSERT_TRUE(save_result(dir, {{"experiment", e.name}}, {program, "a cpu", "avx2"}));
}

std::string kept_of(const Result<std::vector<std::string>>& said) { return said ? said->at(0) : what(said); }

TEST(Kept, AStudyIsKeptAndReadBack) {
  const TestDir dir;
  const Experiment& e = *find_experiment("hqlt-table3");
  LabOptions o;
  o.dir = dir / "lab", o.effort = Effort::kQuick;
  put_study(e, o, 0.75, "2026-11-02T00:00:00Z");
  const std::string data = dir / "data", file = data + "/hqlt-table3-quick.json";
  EXPECT_EQ(kept_of(keep_results(o.dir, data)), "kept " + file + ": 7 of 7 runs");
  EXPECT_EQ(kept_of(keep_results(study_dir(e, o) + "/", data)), "unchanged " + file);
  const Result<Kept> k = read_kept(file);
  ASSERT_TRUE(k) << k.error().what;
  EXPECT_EQ(kept_text(*k), get(file));
  EXPECT_EQ(k->made.program.command, "braid lab run hqlt-table3 --quick");
  EXPECT_EQ(k->threads, 3);
  EXPECT_EQ(k->seconds, 7 * 2.5);
  EXPECT_EQ(k->commits, "c0ffee");
  EXPECT_EQ(k->settings.value("steps", 0), 1500);
  EXPECT_EQ(k->runs_text(), "7 of 7 runs");
  EXPECT_FALSE(k->settings.contains("run"));
  EXPECT_EQ(k->study.cell("DeltaNet", "parity", true).best, 50);  // above chance
  EXPECT_EQ(get(file).find("elsewhere"), std::string::npos);
  EXPECT_EQ(get(file).find("/a/b"), std::string::npos);
  // A later run replaces it, an earlier one does not.
  put_study(e, o, 1.0, "2026-11-03T00:00:00Z");
  EXPECT_TRUE(has(kept_of(keep_results(o.dir, data)), "replaced " + file));
  put_study(e, o, 0.5, "2026-11-01T00:00:00Z");
  EXPECT_TRUE(has(kept_of(keep_results(o.dir, data)), "not replaced " + file));
  EXPECT_EQ(read_kept(file)->study.cell("DeltaNet", "parity", true).best, 100);
}

// What was not run is counted, and its rows and columns are left out.
TEST(Kept, AnUnfinishedStudySaysSo) {
  const TestDir dir;
  const Experiment& e = *find_experiment("hqlt-mixing");
  LabOptions o;
  o.dir = dir / "lab", o.effort = Effort::kQuick;
  put_study(e, o, 0.75, "2026-11-02T00:00:00Z");
  for (const Trial& t : e.trials(o.effort))
    if (t.column != "sync" || t.row == "scalar") {
      ASSERT_TRUE(remove_tree(study_dir(e, o) + "/trials/" + t.id())) << t.id();
    }
  EXPECT_TRUE(has(kept_of(keep_results(o.dir, dir / "data")), ": 2 of 6 runs"));
  const Result<std::vector<Kept>> all = read_all_kept(dir / "data");
  ASSERT_TRUE(all) << all.error().what;
  EXPECT_EQ(all->at(0).study.rows, (std::vector<std::string>{"sum", "vector"}));
  EXPECT_EQ(all->at(0).study.columns, std::vector<std::string>{"sync"});
  EXPECT_TRUE(has(results_block(e, *all), "| agrees | no, 0 of 1, unfinished |"));
  EXPECT_TRUE(has(results_index(*all), "no, 0 of 1, 2 of 6 runs"));
}

TEST(Kept, PagesShowFiguresAndWhetherTheyAgree) {
  const TestDir dir;
  const Experiment& e = *find_experiment("hqlt-table3");
  LabOptions o;
  o.dir = dir / "lab", o.effort = Effort::kQuick;
  put_study(e, o, 1.0, "2026-11-02T00:00:00Z");
  ASSERT_TRUE(keep_results(o.dir, dir / "data"));
  const Result<std::vector<Kept>> all = read_all_kept(dir / "data");
  ASSERT_TRUE(all);
  const std::string block = results_block(e, *all), index = results_index(*all);
  EXPECT_TRUE(has(block, "| DeltaNet | 100.0 (99.9) | 100.0 | yes |"));
  EXPECT_TRUE(has(block, "| Transformer | 2.2 (0.3) | 100.0 | no |"));
  EXPECT_TRUE(has(block, "| agrees | partly, 3 of 7 |"));
  EXPECT_TRUE(has(block, "| DeltaNet | -50.0 | -75.0 |"));  // by length
  EXPECT_TRUE(has(block, "    braid lab run hqlt-table3 --quick\n"));
  EXPECT_TRUE(has(block, "commit c0ffee, 2026-11-02"));
  EXPECT_TRUE(has(index,
                  "| Synchronous, parity: 100.0 (99.7) | 100.0 | partly, 3 of 7 | `braid lab run hqlt-table3 "
                  "--quick` | c0ffee |"));
  EXPECT_TRUE(has(index,
                  "[`mqar`](mqar.md) | 32 pairs: Transformer better than Mamba | not kept yet | - | `braid "
                  "lab run mqar --quick` | - |"));
  EXPECT_TRUE(has(results_block(*find_experiment("mqar"), *all), "Not kept yet"));
}

TEST(Kept, DamagedFilesAreNamed) {
  const TestDir dir;
  const Experiment& e = *find_experiment("hqlt-mixing");
  LabOptions o;
  o.dir = dir / "lab", o.effort = Effort::kQuick;
  put_study(e, o, 0.75, "2026-11-02T00:00:00Z");
  ASSERT_TRUE(keep_results(o.dir, dir.path()));
  const std::string file = dir / "hqlt-mixing-quick.json";
  const Json whole = *load_json(file);
  const auto refused = [&](const char* pointer, const Json& value) {
    Json json = whole;
    json[Json::json_pointer(pointer)] = value;
    EXPECT_TRUE(save_json(file, json));
    EXPECT_TRUE(has(what(read_kept(file)), file)) << pointer;
  };
  refused("", nullptr);
  refused("/experiment", "none");
  refused("/effort", "none");
  refused("/date", 1);
  refused("/settings", nullptr);
  refused("/cells", 1);
  refused("/cells/0", 1);
  refused("/cells/0/runs", nullptr);
  refused("/cells/0/runs/0", 1);
  refused("/cells/0/runs/0/seed", "x");
  refused("/cells/0/runs/0/step", nullptr);
  EXPECT_TRUE(has(what(keep_results(dir / "nothing", dir.path())), "there is no result"));
}

TEST(Kept, CommandsCanBeRepeatedElsewhere) {
  EXPECT_EQ(repeatable_command("./braid lab run words --quick --dir /x/y --threads 1 --quiet"),
            "braid lab run words --quick");
  EXPECT_EQ(repeatable_command(
                "/a/build/braid lab run words --only 'DeltaNet, eigenvalues to -1' --dir='a b' --json"),
            "braid lab run words --only 'DeltaNet, eigenvalues to -1'");
}

// ---- The rule of agreement

Study study_of(const std::vector<std::tuple<std::string, std::string, double>>& cells) {
  Study s{.effort = Effort::kQuick, .trials = {}, .rows = {}, .columns = {}};
  for (const auto& [row, column, value] : cells)
    s.trials.push_back(
        {.trial = {row, column, "", {}}, .result = Json::object(), .curve = {}, .value = value});
  return s;
}

TEST(Agreement, OfSharesIsWithinFivePointsOfBestAndMedian) {
  const Experiment e{.name = "t", .title = "t", .paper = "t", .shows = "t", .figures = [] {
                       return std::vector<PaperFigure>{{"a", "x", 50, 40}, {"b", "x", 50}};
                     }};
  const auto of = [&](const Study& s, const char* row) { return agrees(e, s, row, "x"); };
  EXPECT_EQ(of(study_of({{"a", "x", 55.0}}), "a"), Agrees::kYes);
  EXPECT_EQ(of(study_of({{"a", "x", 45.0}}), "a"), Agrees::kYes);
  EXPECT_EQ(of(study_of({{"a", "x", 55.1}}), "a"), Agrees::kNo);
  EXPECT_EQ(of(study_of({{"a", "x", 44.9}}), "a"), Agrees::kNo);
  EXPECT_EQ(of(study_of({{"a", "x", 50}, {"a", "x", 42}, {"a", "x", 10}}), "a"), Agrees::kYes);
  EXPECT_EQ(of(study_of({{"a", "x", 50}, {"a", "x", 30}, {"a", "x", 10}}), "a"), Agrees::kBestOnly);
  EXPECT_EQ(of(study_of({{"b", "x", 50}, {"b", "x", 30}, {"b", "x", 10}}), "b"), Agrees::kYes);
  EXPECT_EQ(of(study_of({{"a", "x", 50}}), "b"), std::nullopt);
  Study unfinished = study_of({{"a", "x", 50}, {"a", "x", 50}});
  unfinished.trials[1].result.reset();
  EXPECT_EQ(of(unfinished, "a"), std::nullopt);
}

TEST(Agreement, OfLossesIsTheSignOfTheDistanceToTheFirstRow) {
  const Experiment e{
      .name = "t",
      .title = "t",
      .paper = "t",
      .shows = "t",
      .measure = {Measure::Kind::kLoss, "", "nats"},
      .figures = [] {
        return std::vector<PaperFigure>{{"full", "x", 3.0}, {"worse", "x", 3.1}, {"same", "x", 3.01}};
      }};
  const auto of = [&](const char* row, double loss) {
    return agrees(e, study_of({{"full", "x", 1.5}, {row, "x", loss}}), row, "x");
  };
  EXPECT_EQ(of("worse", 1.53), Agrees::kYes);
  EXPECT_EQ(of("worse", 1.51), Agrees::kNo);
  EXPECT_EQ(of("worse", 1.40), Agrees::kNo);
  EXPECT_EQ(of("same", 1.49), Agrees::kYes);
  EXPECT_EQ(of("same", 1.53), Agrees::kNo);
  EXPECT_EQ(agrees(e, study_of({{"full", "x", 1.5}}), "full", "x"), std::nullopt);
  const std::optional<Distances> d =
      loss_distances(e, study_of({{"full", "x", 1.5}, {"worse", "x", 1.75}}), "worse", "x");
  ASSERT_TRUE(d);
  EXPECT_NEAR(d->paper, 0.1, 1e-9);
  EXPECT_NEAR(d->ours, 0.25, 1e-9);
}

TEST(Agreement, OfOrdersAndBoundsIsCounted) {
  const Experiment e{
      .name = "t",
      .title = "t",
      .paper = "t",
      .shows = "t",
      .expected =
          [](Effort) { return std::vector<Expectation>{{.row = "a", .column = "x", .at_least = 60}}; },
      .orders =
          [](Effort) {
            using K = PaperOrder::Kind;
            return std::vector<PaperOrder>{{"a", K::kBetter, "b", "x", "9 against 7"},
                                           {"a", K::kEqual, "b", "x"},
                                           {"b", K::kNotWorse, "a", "x"},
                                           {"a", K::kBetter, "missing", "x"}};
          }};
  const auto held = [&](double a, double b) {
    std::string out;
    for (const Claim& c : study_claims(e, study_of({{"a", "x", a}, {"b", "x", b}})))
      out += c.held ? '1' : '0';
    return out;
  };
  EXPECT_EQ(held(70, 60), "1001");
  EXPECT_EQ(held(70, 66), "0111");
  EXPECT_EQ(held(50, 60), "0010");
  const Study s = study_of({{"a", "x", 70.0}, {"b", "x", 60.0}});
  const std::vector<Claim> claims = study_claims(e, s);
  EXPECT_EQ(claims[0].text, "x: a better than b (paper: 9 against 7)");
  EXPECT_EQ(claims[0].found, "70.0 against 60.0");
  EXPECT_EQ(agreement(e, s, claims).text(), "partly, 2 of 4");
  EXPECT_EQ(agreement(e, s, {}).text(), "-");
}

// Orders are about cells that exist, at every effort; so is one figure at least.
TEST(Agreement, OfEveryExperimentIsAboutItsCells) {
  for (const Experiment& e : all_experiments()) {
    EXPECT_FALSE(e.place.empty()) << e.name;
    EXPECT_GT(e.quick_seconds, 0) << e.name;
    if (!e.trials) continue;
    EXPECT_TRUE(e.figures || e.orders || e.expected) << e.name;
    for (const Effort effort : {Effort::kQuick, Effort::kDefault, Effort::kPaper}) {
      const std::vector<Trial> trials = e.trials(effort);
      const auto exists = [&](const std::string& row, const std::string& column) {
        return std::ranges::any_of(trials,
                                   [&](const Trial& t) { return t.row == row && t.column == column; });
      };
      if (e.orders)
        for (const PaperOrder& o : e.orders(effort)) {
          EXPECT_TRUE(exists(o.row, o.column) && exists(o.than, o.column))
              << e.name << " " << o.row << " " << o.than;
        }
      if (e.figures) {
        const std::vector<PaperFigure> figures = e.figures();
        EXPECT_TRUE(exists(figures[0].row, figures[0].column)) << e.name;
      }
    }
  }
}

}  // namespace
}  // namespace braid
