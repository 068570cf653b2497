// Input and surroundings that mean no good, one by one; tests/walk takes them all together.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <regex>
#include <sstream>

#include "io/json.h"
#include "process.h"

namespace braid::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // a sanitizer's memory does not fit into a limit
#else
constexpr bool kSanitized = false;
#endif

using Words = std::vector<std::string>;

void expect_error(const Finished& f, int code, const Words& parts) {
  EXPECT_EQ(f.code, code) << f.err;
  EXPECT_TRUE(f.err.starts_with("braid: ")) << f.err;
  EXPECT_LT(f.err.size(), 4000u);
  for (const std::string& p : parts)
    EXPECT_NE(f.err.find(p), std::string::npos) << "'" << p << "' is not in: " << f.err;
  for (const char* never : {"terminate", "json.exception", "internal error", "what()"})
    EXPECT_EQ(f.err.find(never), std::string::npos) << f.err;
}

// A tiny model of bytes, made once.
const std::string& model() {
  static const TempDir dir;
  static const std::string path = [] {
    std::string words;
    for (int i = 0; i < 400; ++i) words += "the cat sat on mat " + std::to_string(i % 10) + "\n";
    spit(dir / "text", words);
    const Finished f = run_braid({"train", "--text", dir / "text", "--length", "32", "--steps", "2",
                                  "--batch", "2", "--eval-size", "4", "--run", dir / "model", "--quiet"});
    EXPECT_EQ(f.code, 0) << f.err;
    return dir / "model";
  }();
  return path;
}

// The same with other numbers in its weights.
std::string model_of(const TempDir& dir, uint32_t bits) {
  const std::string to = dir / "changed";
  std::filesystem::create_directory(to);
  std::string bytes = slurp(model() + "/model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  for (size_t at = 8 + header; at + 4 <= bytes.size(); at += 4) std::memcpy(bytes.data() + at, &bits, 4);
  spit(to + "/model.safetensors", bytes), spit(to + "/config.json", slurp(model() + "/config.json"));
  return to;
}

Words train_parity(const std::string& run, const Words& more = {}) {
  Words w{"train", "--task",      "parity", "--steps", "2",     "--batch",
          "2",     "--eval-size", "2",      "--quiet", "--run", run};
  w.insert(w.end(), more.begin(), more.end());
  return w;
}

TEST(Hostile, AConfigWithPythonsWordsAndDeepNestsIsRefused) {
  const TempDir dir;
  const std::string nest = std::string(400'000, '[') + std::string(400'000, ']');
  for (const char* head : {"{\"a\": NaN, \"b\": ", "{\"a\\\\\": NaN, \"b\": "}) {
    spit(dir / "config.json", head + nest + "}");
    expect_error(run_braid({"info", "--config", dir / "config.json"}), 1, {"nested more than 200 levels"});
  }
}

TEST(Hostile, NamesThatTheFileSystemRefuses) {
  const TempDir dir;
  expect_error(run_braid(train_parity(dir / std::string(300, 'r'))), 1, {"File name too long"});
  std::filesystem::create_symlink("loop", dir / "loop");
  expect_error(run_braid(train_parity(dir / "loop")), 1, {"loop"});
  expect_error(run_braid({"generate", "--model", dir / "loop", "--prompt", "x"}), 1, {"loop"});
  expect_error(run_braid({"info", "--model", dir / std::string(300, 'm')}), 1, {"File name too long"});
  // The log of a run as a loop of links.
  std::filesystem::copy(model(), dir / "run", std::filesystem::copy_options::recursive);
  std::filesystem::remove(dir / "run/metrics.jsonl");
  std::filesystem::create_symlink("metrics.jsonl", dir / "run/metrics.jsonl");
  expect_error(run_braid({"train", "--run", dir / "run", "--resume", "--steps", "3", "--quiet"}), 1,
               {"metrics.jsonl"});
  // Folders that look like checkpoints.
  std::filesystem::remove(dir / "run/metrics.jsonl");
  for (const char* name : {"step-", "step-99999999999999999999999999", "step-x", "other"})
    std::filesystem::create_directory(dir / (std::string("run/state/") + name));
  const Finished f = run_braid({"train", "--run", dir / "run", "--resume", "--steps", "3", "--quiet"});
  EXPECT_EQ(f.code, 0) << f.err;
}

TEST(Hostile, NumbersAreReadByOneFunctionThatNamesTheOption) {
  const auto generate = [&](const Words& more) {
    Words w{"generate", "--model", model(), "--prompt", "x"};
    w.insert(w.end(), more.begin(), more.end());
    return run_braid(w);
  };
  expect_error(generate({"--top-k", "3.5"}), 2, {"--top-k: is \'3.5'", "whole number"});
  expect_error(generate({"--top-k", "99999999999999999999"}), 2, {"--top-k: is \'99999999999999999999'"});
  expect_error(generate({"--top-p", "nan"}), 2, {"--top-p: is \'nan'"});
  expect_error(generate({"--temp", "1e999"}), 2, {"--temp"});
  expect_error(generate({"--max-tokens", "0"}), 2, {"--max-tokens: is \'0'", "from 1 to 1000000000"});
  expect_error(generate({"--threads", "-1"}), 2, {"--threads: is \'-1'", "from 0 to 1024"});
  expect_error(generate({"--threads", "100000"}), 2, {"--threads: is \'100000'"});
  expect_error(run_braid(train_parity("/nonexistent", {"--threads", "-3"})), 2, {"--threads"});
  expect_error(run_braid({"info", "--arch", "transformer", "--vocab", "0"}), 2, {"--vocab: is \'0'"});
  expect_error(run_braid({"info", "--arch", "transformer", "--vocab", "99999999999"}), 2, {"--vocab"});
  expect_error(run_braid({"tasks", "show", "parity", "--seed", "-1"}), 2, {"--seed"});
  expect_error(run_braid({"bench", "train", "--batch", "x"}), 2, {"--batch: is \'x'"});
}

TEST(Hostile, AnEmptyValueIsNotAMissingOne) {
  expect_error(run_braid({"verify", "--model", ""}), 2, {"--model: is empty"});
  expect_error(run_braid({"verify", "--model="}), 2, {"--model: is empty"});
  expect_error(run_braid({"bench", "decode", "-n", ""}), 2, {"-n: is empty"});
  expect_error(run_braid({"tasks", "show", ""}), 2, {"an argument is empty"});
}

TEST(Hostile, WhatHasNoMeaningIsNotIgnored) {
  expect_error(run_braid({"bench", "kernels", "--only", "zzz"}), 2, {"'zzz'"});
  expect_error(run_braid({"bench", "train", "--quant", "foo"}), 2, {"--quant", "prefill and decode"});
  expect_error(run_braid({"bench", "train", "--only", "x"}), 2, {"--only", "matmul and kernels"});
  expect_error(run_braid({"bench", "decode", "--model", model(), "--prompt", "4"}), 2,
               {"--prompt", "an option of prefill"});
  expect_error(run_braid({"bench", "matmul", "--rounds", "3"}), 2, {"--rounds", "an option of train"});
  const TempDir dir;
  spit(dir / "empty", "");
  expect_error(run_braid({"tokenizer", "train", "--text", dir / "empty", "--out", dir / "t.json"}), 1,
               {"empty", "the text is empty"});
  EXPECT_FALSE(std::filesystem::exists(dir / "t.json"));
}

TEST(Hostile, LongValuesAndControlCharactersAreNotEchoed) {
  const std::string longest(120'000, 'y');
  for (const Words& args : std::vector<Words>{{longest},
                                              {"train", "--" + longest},
                                              {"train", "--task", longest, "--run", "/nonexistent"},
                                              {"generate", "--model", longest, "--prompt", "x"},
                                              {"generate", "--model", model(), "--top-k", longest},
                                              {"info", "--arch", longest},
                                              {"tasks", longest},
                                              {"op", longest},
                                              {"lab", "run", longest}}) {
    const Finished f = run_braid(args);
    EXPECT_NE(f.code, 0);
    EXPECT_LT(f.err.size(), 2000u) << args[0];
    EXPECT_NE(f.err.find("bytes ..."), std::string::npos) << f.err;
  }
  const Finished f = run_braid({"tasks", "show", "a\x1b[2Jb"});
  EXPECT_EQ(f.err.find('\x1b'), std::string::npos);
  EXPECT_NE(f.err.find("a\\x1b[2Jb"), std::string::npos) << f.err;
}

TEST(Hostile, OfManyMissingTensorsThreeAreNamed) {
  const TempDir dir;
  std::filesystem::create_directory(dir / "m");
  const std::string header = R"({"embedding.weight":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  std::string bytes(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(bytes.data(), &size, 8);
  spit(dir / "m/model.safetensors", bytes + header + std::string(4, '\0'));
  spit(dir / "m/config.json", slurp(model() + "/config.json"));
  const Finished f = run_braid({"generate", "--model", dir / "m", "--prompt", "x"});
  expect_error(f, 1, {"is missing", " more: is missing"});
  size_t lines = 0;
  for (size_t at = 0; (at = f.err.find("is missing", at)) != std::string::npos; ++at) ++lines;
  EXPECT_EQ(lines, 4u) << f.err;
}

TEST(Hostile, TextThatIsNotUtf8InARecord) {
  const TempDir dir;
  expect_error(run_braid(train_parity(dir / "run\xff\xfe")), 1, {"not UTF-8"});
}

TEST(Hostile, WeightsThatAreNotFinite) {
  const TempDir dir;
  const std::string changed = model_of(dir, 0x7fc00000);
  spit(dir / "text", std::string(2000, 'a'));
  const Finished eval =
      run_braid({"eval", "--model", changed, "--text", dir / "text", "--context", "16", "--chunks", "2"});
  expect_error(eval, 1, {"not finite"});
  EXPECT_EQ(eval.out.find("nan"), std::string::npos) << eval.out;
  const Finished verify = run_braid({"verify", "--model", changed});
  EXPECT_EQ(verify.code, 1);
  EXPECT_NE(verify.err.find("braid: verify: "), std::string::npos) << verify.err;
}

TEST(Hostile, ATextAbove64MiBIsReadToItsEnd) {
  const TempDir dir;
  std::string text;
  text.reserve(size_t{66} << 20);
  while (text.size() < (size_t{65} << 20)) text += "a text that goes on for long. ";
  spit(dir / "text", text);
  const Finished f = run_braid({"eval", "--model", model(), "--text", dir / "text", "--context", "16",
                                "--chunks", "1", "--llama", "--json"});
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_EQ(Json::parse(f.out)["tokens"], text.size());
}

TEST(Hostile, OutputThatCannotBeWrittenIsAFailure) {
  const TempDir dir;
  const std::vector<Words> verbs{{"archs"},
                                 {"archs", "--json"},
                                 {"kernels"},
                                 {"tasks"},
                                 {"tasks", "show", "parity"},
                                 {"lab", "list"},
                                 {"op"},
                                 {"--help"},
                                 {"--version"},
                                 {"--markdown"},
                                 {"train", "--help"},
                                 {"info", "--arch", "transformer"},
                                 {"tokenize", "--model", "bytes", "--text", "x"},
                                 {"generate", "--model", model(), "--prompt", "x", "--max-tokens", "2"},
                                 {"logits", "--model", model(), "--tokens", "1", "--out", dir / "l"},
                                 train_parity(dir / "run")};
  for (const Words& args : verbs)
    for (const char* out : {"/dev/full", ""}) {
      std::filesystem::remove_all(dir / "run");
      const Finished f = run_braid(args, {.out = out});
      EXPECT_EQ(f.code, 1) << args[0] << " to '" << out << "': " << f.err;
      EXPECT_NE(f.err.find("braid: standard output: cannot be written: "), std::string::npos)
          << args[0] << f.err;
    }
  // What was to be done beside printing has been done.
  EXPECT_TRUE(std::filesystem::exists(dir / "run/model.safetensors"));
}

TEST(Hostile, LittleMemoryIsSaid) {
  if (kSanitized) GTEST_SKIP();
  for (const long mb : {60, 70, 80, 90, 100, 120, 150}) {
    const Finished f = run_braid({"bench", "train", "--rounds", "1", "--batch", "1", "--length", "65536"},
                                 {.memory_limit = mb << 20});
    EXPECT_TRUE(f.code == 1 || f.code == 127) << mb << " MB: " << f.code << f.err;  // 127: not even loaded
    EXPECT_EQ(f.err.find("terminate"), std::string::npos) << f.err;
  }
  expect_error(run_braid({"bench", "train", "--rounds", "1", "--batch", "1", "--length", "1000000"},
                         {.memory_limit = long{1} << 30}),
               1, {"out of memory"});
  expect_error(
      run_braid({"logits", "--model", model(), "--tokens", "1", "--out", "/dev/null", "--threads", "1024"},
                {.memory_limit = long{1} << 30}),
      1, {"--threads: cannot start 1024 threads"});
}

// SIGHUP and SIGTERM save as Ctrl-C does, and the run goes on.
TEST(Hostile, SignalsSave) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const TempDir dir;
    const std::string run = dir / "run";
    const Finished f = run_braid(
        {"train", "--task", "parity", "--batch", "2", "--eval-size", "2", "--steps", "1000000",
         "--checkpoint-every", "1000000", "--quiet", "--run", run},
        {.kill_when = [&] { return std::filesystem::exists(run + "/metrics.jsonl"); }, .signal = signal});
    EXPECT_EQ(f.code, 1) << signal << f.err;
    EXPECT_NE(f.err.find("saved"), std::string::npos) << f.err;
    const Finished on = run_braid({"train", "--run", run, "--resume", "--minutes", "0.001", "--quiet"});
    EXPECT_EQ(on.code, 0) << on.err;
  }
}

// In the library nothing throws for a path that the system refuses, and all JSON goes through one parser.
TEST(Hostile, TheLibraryLooksAtPathsAndJsonInOneWay) {
  namespace fs = std::filesystem;
  const std::regex throwing(
      "(fs|filesystem)::(exists|is_[a-z_]+|file_size|remove|remove_all|rename|copy|copy_file|create_[a-z_]+|"
      "canonical|"
      "weakly_canonical|absolute|relative|status|symlink_status|equivalent|temp_directory_path|current_path|"
      "(recursive_)?directory_iterator)( [a-z]+)?\\(");
  size_t files = 0;
  for (const char* tree : {"/src", "/workbench"})
    for (const auto& f : fs::recursive_directory_iterator(std::string(BRAID_SOURCE) + tree)) {
      const std::string name = f.path().filename();
      if (!f.is_regular_file() || name.ends_with("_test.cpp")) continue;
      ++files;
      std::istringstream text(slurp(f.path()));
      for (std::string line; std::getline(text, line);) {
        const bool safe = line.find(", ec") != line.npos || line.find(", ignored") != line.npos;
        EXPECT_TRUE(safe || !std::regex_search(line, throwing)) << f.path() << ": " << line;
        const bool own = line.find("shape.config") != line.npos;  // written in the program
        EXPECT_TRUE(own || line.find("son::parse(") == line.npos) << f.path() << ": " << line;
      }
    }
  EXPECT_GT(files, 150u);
}

TEST(Hostile, ATokenizerWhoseExpressionDoesNotEnd) {
  const TempDir dir;
  spit(
      dir / "t.json",
      R"({"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a+)+$"},)"
      R"("behavior":"Isolated","invert":false},"post_processor":null,"decoder":null,)"
      R"("model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})");
  expect_error(run_braid({"tokenize", "--model", dir / "t.json", "--text", std::string(5000, 'a') + "b"}), 1,
               {"regular expression", "(a+)+$"});
}

}  // namespace
}  // namespace braid::test
