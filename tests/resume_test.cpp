// Same command, same seed, same bits: for any thread count, and however often the run was killed.
#include <gtest/gtest.h>

#include <filesystem>
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

// Other families: killed once, on another number of threads.
TEST(Resume, HybridsResumeBitForBit) {
  for (const char* arch : {"gdn-h2", "hqlt-delayed-stream", "mamba"}) {
    const TempDir dir;
    const std::vector<std::string> more{"--arch", arch, "--steps", "30", "--threads", "1"};
    ASSERT_EQ(run_braid(command(dir / "whole", more)).code, 0) << arch;
    const std::string run = dir / "killed";
    const Finished f =
        run_braid(command(run, {"--arch", arch, "--steps", "30", "--threads", "2"}), {.kill_after = 0.25});
    if (f.code != 0 && std::filesystem::exists(run + "/run.json")) {
      ASSERT_EQ(run_braid({"train", "--run", run, "--resume", "--quiet"}).code, 0) << arch;
    } else if (f.code != 0) {  // killed before anything was written
      ASSERT_EQ(run_braid(command(run, more)).code, 0) << arch;
    }
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
  const Finished f = run_braid(command(run), {.kill_after = 0.5, .signal = 2});
  if (f.code == 0) FAIL() << "the run was over before it could be interrupted";
  EXPECT_EQ(f.code, 1);
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

}  // namespace
}  // namespace braid::test
