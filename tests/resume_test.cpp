// Same command, same seed, same bits: for any thread count, and however often the run was killed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "process.h"

namespace braid::test {
namespace {

std::vector<std::string> command(const std::string& run, const std::vector<std::string>& more = {}) {
  std::vector<std::string> c{"train",       "--task",       "parity", "--arch",
                             "transformer", "--size",       "tiny",   "--steps",
                             "200",         "--batch",      "16",     "--checkpoint-every",
                             "7",           "--eval-every", "60",     "--warmup",
                             "10",          "--quiet",      "--run",  run};
  c.insert(c.end(), more.begin(), more.end());
  return c;
}

const std::string& uninterrupted(const TempDir& dir) {
  static const std::string bytes = [&] {
    const Finished f = run_braid(command(dir / "whole", {"--threads", "1"}));
    EXPECT_EQ(f.code, 0) << f.err;
    return slurp(dir / "whole/model.safetensors");
  }();
  return bytes;
}

TEST(Resume, ThreadsDoNotChangeABitOfTheModel) {
  const TempDir dir;
  ASSERT_EQ(run_braid(command(dir / "two", {"--threads", "2"})).code, 0);
  EXPECT_GT(uninterrupted(dir).size(), 10000u);
  EXPECT_EQ(slurp(dir / "two/model.safetensors"), uninterrupted(dir));
}

// The last step in a run's log.
int64_t logged_steps(const std::string& run) {
  const std::string metrics = slurp(run + "/metrics.jsonl"), key = "{\"step\":";
  const size_t at = metrics.rfind(key, metrics.rfind('\n') - 1);
  return metrics.find('\n') == std::string::npos ? 0 : std::stoll(metrics.substr(at + key.size()));
}

// Other families: killed once it has made 15 steps, long before its end, then resumed on another number of
// threads to ten steps later.
TEST(Resume, HybridsResumeBitForBit) {
  for (const char* arch : {"gdn-h2", "hqlt-delayed-stream", "mamba"}) {
    const TempDir dir;
    const std::string run = dir / "killed";
    const auto train = [&](const std::string& to, const std::string& steps, const std::string& threads) {
      return command(to, {"--arch", arch, "--steps", steps, "--threads", threads, "--schedule", "constant",
                          "--log-every", "1"});
    };
    const Finished f =
        run_braid(train(run, "1000000", "2"), {.kill_when = [&] { return logged_steps(run) >= 15; }});
    ASSERT_EQ(f.code, 128 + 9) << arch << f.err;
    const int64_t made = logged_steps(run);
    ASSERT_GE(made, 15) << arch;
    ASSERT_TRUE(std::filesystem::exists(run + "/state/step-00000014") || made > 20) << arch;
    const std::string steps = std::to_string(made + 10);
    const Finished on =
        run_braid({"train", "--run", run, "--resume", "--steps", steps, "--threads", "1", "--quiet"});
    ASSERT_EQ(on.code, 0) << arch << on.err;
    ASSERT_EQ(run_braid(train(dir / "whole", steps, "1")).code, 0) << arch;
    EXPECT_EQ(slurp(run + "/model.safetensors"), slurp(dir / "whole/model.safetensors")) << arch;
  }
}

// Dropout draws from the step's own stream, recomputing keeps nothing between steps.
TEST(Resume, DropoutAndRecomputingResumeBitForBit) {
  const TempDir dir;
  const std::vector<std::string> more{"--arch", "hqlt-sync",
                                      "--set",  "dropout=0.1",
                                      "--set",  "embedding_dropout=0.1",
                                      "--set",  "pattern.*.mixer.qkv_dropout=0.1"};
  const auto steps = [&](const std::string& name, const std::string& n, std::vector<std::string> extra) {
    std::vector<std::string> c = more;
    c.insert(c.end(), extra.begin(), extra.end());
    c.insert(c.end(), {"--steps", n, "--schedule", "constant"});
    return run_braid(command(dir / name, c)).code;
  };
  ASSERT_EQ(steps("whole", "28", {"--threads", "1"}), 0);
  ASSERT_EQ(steps("parts", "14", {"--threads", "2", "--recompute"}), 0);
  ASSERT_EQ(run_braid({"train", "--run", dir / "parts", "--resume", "--steps", "28", "--quiet"}).code, 0);
  EXPECT_EQ(slurp(dir / "parts/model.safetensors"), slurp(dir / "whole/model.safetensors"));
}

// A mixture of folders of tokens, begun anew at documents, with Muon and accumulated batches.
TEST(Resume, MixturesOfTokensWithMuonResumeBitForBit) {
  const TempDir dir;
  for (const char letter : {'a', 'b'}) {
    std::string lines;
    for (int i = 0; i < 200; ++i)
      lines += "{\"text\": \"" + std::string(10 + i % 50, letter) + " and " + std::to_string(i) + "\"}\n";
    const std::string name = dir / std::string(1, letter);
    std::ofstream(name + ".jsonl") << lines;
    ASSERT_EQ(run_braid({"data", "tokenize", "--tokenizer", "bytes", "--text", name + ".jsonl", "--out", name,
                         "--shard-tokens", "3000"})
                  .code,
              0);
  }
  const auto train = [&](const std::string& to, const std::string& steps, const std::string& threads) {
    return std::vector<std::string>{"train",
                                    "--data",
                                    dir / "a:3",
                                    "--data",
                                    dir / "b",
                                    "--reset-at-documents",
                                    "--length",
                                    "32",
                                    "--optimizer",
                                    "muon",
                                    "--arch",
                                    "gated-deltanet",
                                    "--steps",
                                    steps,
                                    "--batch",
                                    "4",
                                    "--accumulate",
                                    "2",
                                    "--threads",
                                    threads,
                                    "--schedule",
                                    "constant",
                                    "--log-every",
                                    "1",
                                    "--checkpoint-every",
                                    "7",
                                    "--eval-every",
                                    "10",
                                    "--quiet",
                                    "--run",
                                    to};
  };
  const std::string run = dir / "killed";
  const Finished f =
      run_braid(train(run, "1000000", "2"), {.kill_when = [&] { return logged_steps(run) >= 15; }});
  ASSERT_EQ(f.code, 128 + 9) << f.err;
  const std::string steps = std::to_string(logged_steps(run) + 10);
  const Finished on =
      run_braid({"train", "--run", run, "--resume", "--steps", steps, "--threads", "1", "--quiet"});
  ASSERT_EQ(on.code, 0) << on.err;
  ASSERT_EQ(run_braid(train(dir / "whole", steps, "1")).code, 0);
  EXPECT_EQ(slurp(run + "/model.safetensors"), slurp(dir / "whole/model.safetensors"));
  EXPECT_NE(slurp(run + "/result.json").find("\"eval_sets\""), std::string::npos);
}

TEST(Resume, KilledAtRandomMomentsEqualsUninterrupted) {
  const TempDir dir;
  const std::string run = dir / "killed";
  std::mt19937 random(20240607);  // fixed: a failure can be repeated
  int kills = 0, finished = 0;
  for (int attempt = 0; attempt < 60 && !finished; ++attempt) {
    const bool begun = std::filesystem::exists(run + "/run.json");
    const std::vector<std::string> args =
        begun ? std::vector<std::string>{"train", "--run", run, "--resume", "--quiet"} : command(run);
    // Checkpoints are written every 7 steps, so many of these moments fall into one.
    const double after = kills < 8 ? std::uniform_real_distribution<double>(0.05, 0.6)(random) : 0;
    const Finished f = run_braid(args, {.kill_after = after});
    if (f.code == 128 + 9)
      ++kills;
    else
      ASSERT_EQ(f.code, 0) << f.err;
    finished = f.code == 0;
  }
  EXPECT_TRUE(finished);
  EXPECT_GE(kills, 3);
  EXPECT_EQ(slurp(run + "/model.safetensors"), uninterrupted(dir));
  EXPECT_FALSE(std::filesystem::exists(run + "/state/unfinished"));
  // Every logged step is there once.
  const std::string metrics = slurp(run + "/metrics.jsonl");
  for (int step = 10; step <= 200; step += 10) {
    const std::string key = "{\"step\":" + std::to_string(step) + ",\"loss\"";
    const size_t at = metrics.find(key);
    ASSERT_NE(at, std::string::npos) << step;
    EXPECT_EQ(metrics.find(key, at + 1), std::string::npos) << step;
  }
}

TEST(Resume, CtrlCSavesAndSaysHowToGoOn) {
  const TempDir dir;
  const std::string run = dir / "stopped";
  const Finished f =
      run_braid(command(run), {.kill_when = [&] { return logged_steps(run) >= 10; }, .signal = 2});
  EXPECT_EQ(f.code, 1) << "the run was over before it could be interrupted";
  EXPECT_NE(f.err.find("--resume"), std::string::npos) << f.err;
  ASSERT_EQ(run_braid({"train", "--run", run, "--resume", "--quiet"}).code, 0);
  EXPECT_EQ(slurp(run + "/model.safetensors"), uninterrupted(dir));
}

TEST(Resume, AFullDiskLeavesTheOldCheckpoint) {
  const TempDir dir;
  const std::string run = dir / "full";
  ASSERT_EQ(run_braid(command(run, {"--steps", "14"})).code, 0);
  const std::string before = slurp(run + "/model.safetensors");
  // A file-size limit stands for a full disk: the next checkpoint cannot be written.
  const Finished f =
      run_braid({"train", "--run", run, "--resume", "--steps", "28", "--quiet"}, {.file_limit = 100000});
  EXPECT_EQ(f.code, 1);
  EXPECT_NE(f.err.find("unfinished"), std::string::npos) << f.err;
  EXPECT_EQ(slurp(run + "/model.safetensors"), before);
  ASSERT_EQ(run_braid({"train", "--run", run, "--resume", "--steps", "28", "--quiet"}).code, 0);
}

// Two processes in one folder destroyed its newest checkpoint.
TEST(Resume, ASecondProcessIsRefused) {
  const TempDir dir;
  const std::string run = dir / "run";
  Finished second, third;
  const Finished first =
      run_braid(command(run, {"--steps", "1000000", "--log-every", "1"}), {.kill_when = [&] {
                  if (logged_steps(run) < 15) return false;
                  second = run_braid({"train", "--run", run, "--resume", "--quiet"});
                  third = run_braid(command(run));
                  return true;
                }});
  EXPECT_EQ(first.code, 128 + 9) << first.err;
  for (const Finished& f : {second, third}) {
    EXPECT_EQ(f.code, 1);
    EXPECT_NE(f.err.find("--run " + run + ": another process is at work"), std::string::npos) << f.err;
  }
  // The lock of a killed process is gone with it.
  const std::string steps = std::to_string(logged_steps(run) + 1);
  const Finished on = run_braid({"train", "--run", run, "--resume", "--steps", steps, "--quiet"});
  EXPECT_EQ(on.code, 0) << on.err;
}

TEST(Resume, ADamagedCheckpointIsLeftForOneThatIsWhole) {
  const TempDir dir;
  const std::string run = dir / "run", damaged = run + "/state/step-00000028/optimizer.safetensors";
  ASSERT_EQ(run_braid(command(run, {"--steps", "28", "--schedule", "constant"})).code, 0);
  std::string bytes = slurp(damaged);
  ASSERT_GT(bytes.size(), 5000u);
  bytes[5000] = static_cast<char>(bytes[5000] ^ 1);
  spit(damaged, bytes);
  const std::vector<std::string> resume{"train", "--run", run, "--resume", "--steps", "35", "--quiet"};
  const Finished f = run_braid(resume);
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_NE(f.err.find(damaged + ": was changed after it was saved"), std::string::npos) << f.err;
  EXPECT_NE(f.err.find("going on from step 21"), std::string::npos) << f.err;
  ASSERT_EQ(run_braid(command(dir / "whole", {"--steps", "35", "--schedule", "constant"})).code, 0);
  EXPECT_EQ(slurp(run + "/model.safetensors"), slurp(dir / "whole/model.safetensors"));
  for (const char* step : {"28", "35"}) spit(run + "/state/step-000000" + step + "/trainer.json", "null");
  const Finished none = run_braid(resume);
  EXPECT_EQ(none.code, 1);
  EXPECT_NE(none.err.find("no checkpoint is whole"), std::string::npos) << none.err;
}

TEST(Resume, WhatIsTrainedCannotChange) {
  const TempDir dir;
  const std::string run = dir / "run";
  ASSERT_EQ(run_braid(command(run, {"--steps", "2"})).code, 0);
  const auto resume = [&](std::vector<std::string> more) {
    std::vector<std::string> args{"train", "--run", run, "--resume", "--steps", "3", "--quiet"};
    args.insert(args.end(), more.begin(), more.end());
    return run_braid(args);
  };
  for (const auto& more : std::vector<std::vector<std::string>>{{"--arch", "mamba2"},
                                                                {"--size", "1M"},
                                                                {"--set", "dropout=0.1"},
                                                                {"--task", "copy"},
                                                                {"--seed", "1"},
                                                                {"--config", "x.json"}}) {
    const Finished f = resume(more);
    EXPECT_EQ(f.code, 1) << more[0];
    EXPECT_NE(f.err.find("but the run was started"), std::string::npos) << f.err;
    EXPECT_NE(f.err.find(more[0] + ": is "), std::string::npos) << f.err;
  }
  EXPECT_EQ(resume({"--arch", "transformer", "--size", "tiny", "--task", "parity", "--seed", "0"}).code, 0);
}

TEST(Resume, RecordsAreReadStrictly) {
  const TempDir dir;
  const std::string run = dir / "run";
  ASSERT_EQ(run_braid(command(run, {"--steps", "2"})).code, 0);
  const std::string record = slurp(run + "/run.json");
  for (const auto& [from, to, part] :
       {std::tuple{"\"batch\": 16", "\"batch\": null", "options.batch is null"},
        {"\"data\": {", "\"data\": null, \"x\": {", "data is null"},
        {"\"command\": \"", "\"command\": 5, \"x\": \"", "command is 5"}}) {
    std::string changed = record;
    ASSERT_NE(changed.find(from), std::string::npos) << from;
    spit(run + "/run.json", changed.replace(changed.find(from), std::string(from).size(), to));
    const Finished f = run_braid({"train", "--run", run, "--resume", "--steps", "3", "--quiet"});
    EXPECT_EQ(f.code, 1) << part;
    EXPECT_NE(f.err.find("run.json: " + std::string(part)), std::string::npos) << f.err;
  }
}

TEST(Resume, FromAnotherFolderWithItsFirstCommandKept) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 300; ++i) text += "line " + std::to_string(i * i) + "\n";
  std::filesystem::create_directory(dir / "a");
  std::filesystem::create_directory(dir / "b");
  spit(dir / "a/book", text);
  ASSERT_EQ(run_braid({"train", "--text", "book", "--length", "16", "--steps", "2", "--batch", "2", "--run",
                       "r", "--quiet"},
                      {.cwd = dir / "a"})
                .code,
            0);
  const Finished f =
      run_braid({"train", "--run", "../a/r", "--resume", "--steps", "3", "--quiet"}, {.cwd = dir / "b"});
  EXPECT_EQ(f.code, 0) << f.err;
  const std::string record = slurp(dir / "a/r/run.json"), page = slurp(dir / "a/r/report.html");
  const size_t first = record.find("braid train --text book"), resumed = record.find("\"resumed\""),
               again = record.find("braid train --run ../a/r --resume");
  EXPECT_LT(first, resumed);
  EXPECT_LT(resumed, again);
  EXPECT_NE(again, std::string::npos) << record;
  const std::string shown = page.substr(page.find("Do it again"), 200);
  EXPECT_NE(shown.find("braid train --text book"), std::string::npos) << shown;
  // A text of other content is refused, wherever it lies.
  spit(dir / "b/other", text + "!");
  const Finished other = run_braid(
      {"train", "--run", dir / "a/r", "--resume", "--text", dir / "b/other", "--steps", "4", "--quiet"});
  EXPECT_EQ(other.code, 1);
  EXPECT_NE(other.err.find("the data is not what the run was started with"), std::string::npos) << other.err;
}

}  // namespace
}  // namespace braid::test
