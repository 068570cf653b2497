// Nobody's files are replaced by a slip of a path, whichever verb writes.
#include <gtest/gtest.h>

#include <filesystem>

#include "process.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

void expect_refused(const Finished& f, const std::vector<std::string>& parts) {
  EXPECT_NE(f.code, 0);
  EXPECT_TRUE(f.err.starts_with("braid: ")) << f.err;
  for (const std::string& p : parts)
    EXPECT_NE(f.err.find(p), std::string::npos) << "'" << p << "' is not in: " << f.err;
}

std::vector<std::string> train(const std::string& run, const std::vector<std::string>& more = {}) {
  std::vector<std::string> args{"train", "--task",      "parity", "--steps", "2", "--batch",
                                "2",     "--eval-size", "4",      "--run",   run, "--quiet"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(Folders, TrainKeepsAForeignModel) {
  const TempDir dir;
  fs::create_directory(dir / "hf");
  spit(dir / "hf/config.json", R"({"model_type": "llama"})");
  spit(dir / "hf/model.safetensors", "weights");
  expect_refused(run_braid(train(dir / "hf")), {"--run " + (dir / "hf"), "files that Braid did not write"});
  EXPECT_EQ(slurp(dir / "hf/model.safetensors"), "weights");
  spit(dir / "file", "x");
  expect_refused(run_braid(train(dir / "file")), {"--run " + (dir / "file"), "is not a folder"});
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "hf"), {}), 2);
}

TEST(Folders, DemoAndLabKeepAForeignPage) {
  const TempDir dir;
  for (const std::string& d : {dir / "demo", dir / "lab/scaling-quick", dir / "pages"}) {
    fs::create_directories(d);
    spit(d + "/report.html", "a page of mine");
  }
  expect_refused(run_braid({"demo", "--run", dir / "demo", "--steps", "1"}),
                 {"--run " + (dir / "demo"), "files that Braid did not write as a demo"});
  EXPECT_EQ(slurp(dir / "demo/report.html"), "a page of mine");
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "demo"), {}), 1);
  expect_refused(run_braid({"lab", "run", "hqlt-table3", "--quick", "--dir", dir / "demo/report.html"}),
                 {"--dir", "report.html"});
  fs::create_directories(dir / "lab/hqlt-table3-quick");
  spit(dir / "lab/hqlt-table3-quick/report.html", "a page of mine");
  expect_refused(run_braid({"lab", "run", "hqlt-table3", "--quick", "--dir", dir / "lab"}),
                 {"--dir " + (dir / "lab/hqlt-table3-quick"), "files that Braid did not write"});
  expect_refused(run_braid({"lab", "report", "--dir", dir / "lab"}), {"there are no experiments here"});
  EXPECT_EQ(slurp(dir / "lab/hqlt-table3-quick/report.html"), "a page of mine");
}

TEST(Folders, ADemoCanBeRunAgain) {
  const TempDir dir;
  const std::vector<std::string> demo{"demo",  "--run",       dir / "demo", "--steps", "1", "--json",
                                      "--svg", dir / "img/of"};
  for (int i = 0; i < 2; ++i) {
    const Finished f = run_braid(demo);
    EXPECT_NE(f.out.find("\"report\""), std::string::npos) << f.err;
  }
  // A title that says that one step is not enough.
  for (const char* theme : {"light", "dark"}) {
    const std::string picture = slurp(dir / ("img/of/demo-" + std::string(theme) + ".svg"));
    EXPECT_TRUE(picture.starts_with("<svg ")) << theme;
    EXPECT_NE(picture.find("Not the expected result"), std::string::npos) << theme;
  }
}

// The lab's pages keep the command that made them, and a root with a page of its own stays.
TEST(Folders, LabReportKeepsCommandsAndAForeignPage) {
  const TempDir dir;
  const std::string lab = dir / "lab", study = lab + "/hqlt-table3-quick";
  const auto training = [&] {
    if (!fs::exists(study + "/trials")) return false;
    for (const auto& e : fs::directory_iterator(study + "/trials"))
      if (fs::exists(e.path() / "metrics.jsonl")) return true;
    return false;
  };
  const Finished f = run_braid({"lab", "run", "hqlt-table3", "--quick", "--quiet", "--dir", lab},
                               {.kill_when = training, .signal = 2});
  ASSERT_NE(f.err.find("interrupted"), std::string::npos) << f.err;
  const auto command_in = [](const std::string& page) {
    const size_t at = page.find("How to do it again");
    return at == std::string::npos ? page : page.substr(at, 300);
  };
  const std::string before = command_in(slurp(study + "/report.html"));
  EXPECT_NE(before.find("braid lab run hqlt-table3 --quick"), std::string::npos) << before;
  for (int i = 0; i < 2; ++i) {
    const Finished r = run_braid({"lab", "report", "--dir", lab});
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(command_in(slurp(study + "/report.html")), before);
  }
  // The same study in a folder that is not the lab's.
  const std::string own = dir / "own";
  fs::create_directory(own);
  fs::copy(study, own + "/hqlt-table3-quick", fs::copy_options::recursive);
  spit(own + "/report.html", "a page of mine");
  expect_refused(run_braid({"lab", "report", "--dir", own}), {"--dir " + own});
  EXPECT_EQ(slurp(own + "/report.html"), "a page of mine");
  fs::remove(own + "/report.html");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(run_braid({"lab", "report", "--dir", own}).code, 0);
}

TEST(Folders, OutputsDoNotReplaceInputs) {
  const TempDir dir;
  const std::string run = dir / "run", text = dir / "text", state = dir / "state";
  std::string words;
  for (int i = 0; i < 200; ++i) words += "the cat sat on mat " + std::to_string(i % 10) + "\n";
  spit(text, words);
  ASSERT_EQ(run_braid({"train", "--text", text, "--length", "16", "--steps", "2", "--batch", "2", "--run",
                       run, "--quiet"})
                .code,
            0);
  const std::string model = slurp(run + "/model.safetensors");
  expect_refused(run_braid({"tokenizer", "train", "--text", text, "--vocab", "260", "--out", text}),
                 {"--out " + text, "--text " + text});
  fs::create_symlink(text, dir / "link");
  expect_refused(run_braid({"tokenizer", "train", "--text", text, "--vocab", "260", "--out", dir / "link"}),
                 {"--out " + (dir / "link"), "--text " + text});
  EXPECT_EQ(slurp(text), words);
  const std::vector<std::string> logits{"logits", "--model", run, "--text", "the cat"};
  const auto with = [](std::vector<std::string> args, const std::vector<std::string>& more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  ASSERT_EQ(run_braid(with(logits, {"--out", dir / "x", "--save-state", state})).code, 0);
  const std::string saved = slurp(state);
  for (const std::string& out :
       {run + "/model.safetensors", run + "/config.json", run + "/state/step-00000002/model.safetensors"}) {
    expect_refused(run_braid(with(logits, {"--out", out})), {"--out " + out, "--model " + run});
    expect_refused(run_braid({"generate", "--model", run, "--prompt", "the", "--save-state", out}),
                   {"--save-state " + out, "--model " + run});
  }
  expect_refused(run_braid(with(logits, {"--load-state", state, "--out", state})),
                 {"--out " + state, "--load-state " + state});
  expect_refused(run_braid(with(logits, {"--out", dir / "y", "--save-state", dir / "y"})), {"--save-state"});
  expect_refused(run_braid({"generate", "--model", run, "--prompt-file", text, "--save-state", text}),
                 {"--save-state " + text, "--prompt-file " + text});
  EXPECT_EQ(slurp(state), saved);
  EXPECT_EQ(slurp(run + "/model.safetensors"), model);
  EXPECT_EQ(run_braid(with(logits, {"--out", run + "/logits.safetensors"})).code, 0);
}

}  // namespace
}  // namespace braid::test
