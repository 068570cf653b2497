// What a person at a terminal meets: help, completion, messages, line editing.
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "io/json.h"
#include "process.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string l; std::getline(in, l);) all.push_back(l);
  return all;
}

std::vector<std::string> verbs() {
  std::vector<std::string> all;
  for (const std::string& l : lines_of(run_braid({"--markdown"}).out))
    if (l.starts_with("## braid ")) all.push_back(l.substr(9));
  return all;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A run on bytes with sequences of 32, made once.
const std::string& model() {
  static const TempDir dir;
  static const std::string path = [] {
    std::string words;
    for (int i = 0; i < 400; ++i) words += "the cat sat on mat " + std::to_string(i % 10) + "\n";
    spit(dir / "text", words);
    const Finished f = run_braid({"train", "--text", dir / "text", "--length", "32", "--steps", "3",
                                  "--batch", "4", "--arch", "gdn-h1", "--run", dir / "run", "--quiet"});
    EXPECT_EQ(f.code, 0) << f.err;
    return dir / "run";
  }();
  return path;
}

// ---- Help

TEST(Terminal, HelpHasGroupsAndAnExample) {
  for (const std::string& verb : verbs()) {
    const Finished f = run_braid({verb, "--help"});
    EXPECT_EQ(f.code, 0) << verb;
    EXPECT_TRUE(has(f.out, "\nUsage: ")) << verb;
    EXPECT_TRUE(std::regex_search(f.out, std::regex("\nExample: \\S+ " + verb))) << verb;
    EXPECT_TRUE(has(f.out, "\nOutput\n")) << verb << "\n" << f.out;
    for (const std::string& l : lines_of(f.out))
      if (verb != "op" && !has(l, "braid ")) {
        EXPECT_LE(l.size(), 110u) << verb << ": " << l;
      }
  }
  const std::string train = run_braid({"train", "--help"}).out;
  for (const char* group : {"\nModel\n", "\nData\n", "\nOptimiser\n", "\nRun folder\n", "\nComputation\n"})
    EXPECT_TRUE(has(train, group)) << group;
  EXPECT_LT(train.find("\nModel\n"), train.find("\nComputation\n"));
}

TEST(Terminal, VersionNamesCommitCompilerAndInstructionSet) {
  const std::vector<std::string> lines = lines_of(run_braid({"--version"}).out);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_TRUE(lines[0].starts_with("braid 0.")) << lines[0];
  EXPECT_TRUE(std::regex_match(lines[1], std::regex("commit +([0-9a-f]{7,}|unknown)"))) << lines[1];
  EXPECT_TRUE(std::regex_match(lines[2], std::regex("compiler +(g\\+\\+|clang).*"))) << lines[2];
  EXPECT_TRUE(std::regex_match(lines[3], std::regex("ISA +(base|avx2|avx512|avx512dot|amx).*"))) << lines[3];
}

// Commands to copy name the program as it was called.
TEST(Terminal, HintsNameTheProgramAsItWasCalled) {
  EXPECT_TRUE(has(run_braid({"trian"}).err, std::string(BRAID_BINARY) + " --help"));
}

// ---- Completion

// What bash offers for the last word. At most 20 seconds; nothing stays behind.
std::set<std::string> completed(const std::vector<std::string>& words, const std::string& cwd) {
  const TempDir dir;
  spit(dir / "braid.bash", run_braid({"completion", "bash"}).out);
  std::string script = "source " + (dir / "braid.bash") + "; COMP_WORDS=(braid";
  for (const std::string& w : words) script += " '" + w + "'";
  script += "); COMP_CWORD=" + std::to_string(words.size()) + "; _braid; printf '%s\\n' \"${COMPREPLY[@]}\"";
  spit(dir / "ask.bash", script);
  const std::string command = "cd '" + cwd + "' && timeout -k 1 20 bash --norc --noprofile " +
                              (dir / "ask.bash") + " > " + (dir / "out") + " 2> " + (dir / "err") +
                              " < /dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << slurp(dir / "err");
  EXPECT_EQ(slurp(dir / "err"), "");
  std::set<std::string> all;
  for (const std::string& l : lines_of(slurp(dir / "out")))
    if (!l.empty()) all.insert(l);
  return all;
}

using Names = std::set<std::string>;

TEST(Terminal, BashCompletesVerbsOptionsAndValues) {
  const TempDir dir;
  fs::create_directory(dir / "my run");
  spit(dir / "my text.txt", "x");
  const auto ask = [&](const std::vector<std::string>& words) { return completed(words, dir / ""); };
  EXPECT_EQ(ask({"tra"}), Names{"train"});
  EXPECT_EQ(ask({"token"}), (Names{"tokenize", "tokenizer"}));
  EXPECT_EQ(ask({"train", "--min"}), (Names{"--min-lr-ratio", "--minutes"}));
  EXPECT_EQ(ask({"train", "--arch", "gdn-h"}), (Names{"gdn-h1", "gdn-h2"}));
  EXPECT_EQ(ask({"train", "--schedule", ""}), (Names{"constant", "cosine", "wsd"}));
  EXPECT_EQ(ask({"train", "--schedule", "=", "c"}), (Names{"constant", "cosine"}));
  EXPECT_EQ(ask({"train", "--steps", ""}), Names{});
  EXPECT_EQ(ask({"lab", "r"}), (Names{"report", "run"}));
  EXPECT_TRUE(ask({"lab", "run", "hqlt"}).contains("hqlt-table3"));
  EXPECT_EQ(ask({"convert", "--to", ""}), (Names{"braid", "hf"}));
  EXPECT_EQ(ask({"generate", "-m", "my"}), Names{"my run"});
  EXPECT_EQ(ask({"train", "--text", "my"}), (Names{"my run", "my text.txt"}));
  EXPECT_EQ(ask({"train", "--text", "@"}), Names{"@shakespeare"});
  // Every option of every verb, from the list that the parser uses.
  const std::string page = run_braid({"--markdown"}).out;
  for (const std::string& verb : {std::string("chat"), std::string("bench")}) {
    const size_t begin = page.find("\n## braid " + verb + "\n"), end = page.find("\n## ", begin + 1);
    Names options;
    const std::string part = page.substr(begin, end - begin);
    const std::regex row("\\| `(--[a-z0-9-]+)`");
    for (std::sregex_iterator it(part.begin(), part.end(), row), none; it != none; ++it)
      options.insert((*it)[1]);
    Names offered = ask({verb, "--"});
    offered.erase("--help");
    EXPECT_GT(options.size(), 10u);
    EXPECT_EQ(offered, options) << verb;
  }
}

TEST(Terminal, OtherShellsGetScriptsTheyCanRead) {
  const TempDir dir;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Finished f = run_braid({"completion", shell});
    ASSERT_EQ(f.code, 0) << f.err;
    for (const char* word : {"gdn-h1", "hqlt-table3", "cosine", "min-lr-ratio"})
      EXPECT_TRUE(has(f.out, word)) << shell;
    spit(dir / "script", f.out);
    const std::string there = std::string("command -v ") + shell + " > /dev/null";
    if (std::system(there.c_str()) != 0) continue;  // a syntax check needs the shell
    const std::string check = std::string("timeout -k 1 20 ") + shell + " -n " + (dir / "script") + " > " +
                              (dir / "err") + " 2>&1 < /dev/null";
    EXPECT_EQ(std::system(check.c_str()), 0) << shell << ": " << slurp(dir / "err");
    EXPECT_EQ(slurp(dir / "err"), "") << shell;
  }
}

// ---- Messages

// "option, file or verb: what is wrong", then a line with the fix; no full stop, no question.
std::string fault_of(const Finished& f, const std::vector<std::string>& names) {
  const std::vector<std::string> lines = lines_of(f.err);
  if (f.code == 0) return "exit code 0";
  const auto first =
      std::ranges::find_if(lines, [](const std::string& l) { return l.starts_with("braid: "); });
  if (first == lines.end()) return "no message";
  const std::string what = first->substr(7);
  const std::string subject = what.substr(0, what.find_first_of(": ,"));
  const bool option = subject.starts_with("--"),
             file = has(what.substr(0, what.find(':')), "/") || has(subject, ".");
  if (!option && !file && std::ranges::find(names, subject) == names.end())
    return "begins with neither an option nor a file nor a verb";
  if (!has(what, ":")) return "has no colon";
  if (what.ends_with('.') || has(what, "?")) return "ends with a full stop or is a question";
  const std::string& fix = lines.back();
  if (!fix.starts_with("  -> ") || fix.size() < 10) return "has no fix";
  if (fix.ends_with('.') || has(fix, "?")) return "has a fix with a full stop, or a question";
  return "";
}

TEST(Terminal, MessagesNameTheirSubjectAndAFix) {
  const TempDir dir;
  const std::string m = model(), text = dir / "text", out = dir / "out";
  spit(text, "a text of a few words\n");
  spit(dir / "no.json", "{");
  fs::create_directory(dir / "empty");
  std::vector<std::string> names = verbs();
  names.insert(names.end(), {"trian", "demo"});
  const std::vector<std::vector<std::string>> bad{
      // words
      {"trian"},
      {"train", "--stepz", "5"},
      {"train", "extra"},
      {"train", "--steps"},
      {"--nonsense"},
      {"generate", "--temp", ""},
      {"completion"},
      {"completion", "tcsh"},
      // train
      {"train"},
      {"train", "--task", "parity", "--text", text},
      {"train", "--task", "paritty", "--run", out},
      {"train", "--task", "parity", "--steps", "0", "--run", out},
      {"train", "--task", "parity", "--steps", "0", "--lr", "-1", "--run", out},
      {"train", "--task", "parity", "--steps", "abc"},
      {"train", "--task", "parity", "--precision", "f8"},
      {"train", "--task", "parity", "--arch", "transformr", "--run", out},
      {"train", "--task", "parity", "--arch", "gdn", "--run", out},
      {"train", "--task", "parity", "--size", "2M", "--run", out},
      {"train", "--task", "parity", "--size", "d10-l2-h3", "--run", out},
      {"train", "--task", "parity", "--set", "nonsense", "--run", out},
      {"train", "--task", "parity", "--set", "patern.0.mixer.window=4", "--run", out},
      {"train", "--task", "parity", "--set", "pattern.0.mixer.windw=4", "--run", out},
      {"train", "--task", "parity", "--set", "d_model.x=4", "--run", out},
      {"train", "--task", "parity", "--task-set", "nonsense", "--run", out},
      {"train", "--task", "parity", "--task-set", "train_mx=4", "--run", out},
      {"train", "--task", "parity", "--config", dir / "no.json", "--run", out},
      {"train", "--task", "parity", "--config", dir / "missing.json", "--run", out},
      {"train", "--task", "parity", "--tokenizer", text, "--run", out},
      {"train", "--task", "parity", "--batch", "1000000", "--accumulate", "1000000"},
      {"train", "--text", dir / "missing", "--run", out},
      {"train", "--text", text, "--run", out},
      {"train", "--text", text, "--length", "8", "--tokenizer", dir / "missing.json", "--run", out},
      {"train", "--task", "parity", "--run", m},
      {"train", "--run", dir / "missing", "--resume"},
      {"train", "--run", m, "--resume", "--set", "d_model=32"},
      {"train", "--run", m, "--resume", "--seed", "5"},
      {"train", "--run", m, "--resume", "--arch", "transformer", "--length", "64"},
      {"train", "--task", "copy", "--fixed-embedding", "--run", out},
      {"train", "--text", text, "--stop-at", "0.5"},
      {"train", "--text", text, "--grow-at", "0.5"},
      {"train", "--task", "parity", "--eval-every", "0", "--patience", "3"},
      {"train", "--task", "parity", "--run", text},
      // generate
      {"generate"},
      {"generate", "--model", m},
      {"generate", "--model", dir / "missing", "--prompt", "x"},
      {"generate", "--model", text, "--prompt", "x"},
      {"generate", "--model", dir / "empty", "--prompt", "x"},
      {"generate", "--model", m, "--prompt", "x", "--tokens", "1"},
      {"generate", "--model", m, "--tokens", "1,x"},
      {"generate", "--model", m, "--tokens", "999"},
      {"generate", "--model", m, "--prompt-file", dir / "missing"},
      {"generate", "--model", m, "--prompt", "x", "--top-p", "2"},
      {"generate", "--model", m, "--prompt", "x", "--samplers", "luck"},
      {"generate", "--model", m, "--prompt", "x", "--quant", "q3"},
      {"generate", "--model", m, "--prompt", "x", "--quant", "q8", "--dtype", "f32"},
      {"generate", "--model", m, "--prompt", "x", "--activations", "f8"},
      {"generate", "--model", m, "--prompt", "x", "--load-state", text},
      {"generate", "--model", m, "--prompt", "x", "--save-state", m + "/config.json"},
      {"generate", "--model", m, "--prompt", "x", "--save-state", dir / "no/s"},
      {"generate", "--model", m, "--prompt", "x", "--num-samples", "2", "--save-state", out},
      // convert
      {"convert"},
      {"convert", "--model", m},
      {"convert", "--model", m, "--to", "gguf", "--out", out},
      {"convert", "--model", m, "--to", "braid", "--out", out},
      {"convert", "--model", m, "--to", "hf"},
      {"convert", "--model", dir / "missing", "--to", "hf", "--out", out},
      {"convert", "--model", m, "--to", "hf", "--out", out, "--check"},
      {"convert", "--model", m, "--to", "hf", "--out", m},
      {"convert", "--model", m, "--to", "hf", "--out", dir / ""},
      {"convert", "--model", m, "--to", "hf", "--out", m, "--force"},
      {"convert", "--model", m, "--to", "hf", "--quant", "q8", "--out", out},
      {"convert", "--model", m, "--to", "hf", "--family", "lama", "--out", out},
      {"convert", "--model", m, "--to", "hf", "--family", "llama", "--out", out},
      {"convert", "--model", m, "--quant", "q8", "--family", "llama", "--out", out},
      {"convert", "--model", m, "--quant", "q8", "--shard-size", "5", "--out", out},
      {"convert", "--model", m, "--from", "gguf", "--out", out},
      {"convert", "--model", text, "--from", "llama2c", "--out", out},
      {"convert", "--model", m, "--from", "llama2c", "--to", "hf", "--out", out},
      {"convert", "--model", m, "--tokenizer", text, "--to", "hf", "--out", out},
      {"convert", "--random", "qwen9", "--out", out},
      {"convert", "--random", "qwen3.5-0.8b", "--model", m, "--out", out},
      // lab
      {"lab", "rn"},
      {"lab", "run"},
      {"lab", "run", "hqlt"},
      {"lab", "run", "nope"},
      {"lab", "run", "hqlt-table3", "--quick", "--paper"},
      {"lab", "run", "hqlt-table3", "--precision", "f8"},
      {"lab", "run", "hqlt-table3", "--model", m},
      {"lab", "run", "hqlt-table3", "--only", "Mamba3", "--dir", out},
      {"lab", "run", "hqlt-table3", "--column", "Mamba3", "--dir", out},
      {"lab", "run", "hqlt-table3", "--lr", "7", "--dir", out},
      {"lab", "run", "hqlt-table3", "--text", text, "--dir", out},
      {"lab", "run", "hqlt-mixing-text", "--text", dir / "missing", "--quick", "--dir", out},
      {"lab", "run", "pcr-construction", "--only", "x"},
      {"lab", "run", "pcr-construction", "--seeds", "2"},
      {"lab", "run", "pcr-construction", "--lr", "1"},
      {"lab", "report", "--dir", out},
      {"lab", "run", "pcr-collision", "--model", dir / "missing", "--dir", out},
      // others
      {"eval"},
      {"eval", "--model", m},
      {"eval", "--model", m, "--text", text, "--context", "2"},
      {"eval", "--model", m, "--text", text},
      {"eval", "--model", m, "--text", text, "--task-set", "x=1"},
      {"eval", "--model", m, "--text", text, "--compare", dir / "missing"},
      {"eval", "--model", m, "--task", "mqar"},
      {"eval", "--model", m, "--task", "parity", "--quant", "q8"},
      {"logits"},
      {"logits", "--model", m},
      {"logits", "--model", m, "--tokens", "1"},
      {"logits", "--model", m, "--tokens", "1,2", "--split", "0", "--out", out},
      {"logits", "--model", m, "--tokens", "1,2", "--split", "9", "--out", out},
      {"chat"},
      {"chat", "--model", m},
      {"chat", "--model", m, "--json"},
      {"chat", "--model", dir / "missing"},
      {"chat-template"},
      {"chat-template", "--model", m, "--messages", text},
      {"chat-template", "--model", m},
      {"info"},
      {"info", "--arch", "gdn"},
      {"info", "--model", dir / "missing"},
      {"info", "--arch", "gla", "--dtype", "f32"},
      {"archs", "--arch", "gdn"},
      {"bench"},
      {"bench", "decod"},
      {"bench", "decode"},
      {"bench", "train", "--only", "x"},
      {"bench", "kernels", "--only", "zzz"},
      {"bench", "kernels", "--threads", "5000"},
      {"bench", "train", "--threads", "1,2"},
      {"bench", "train", "--precision", "f8"},
      {"bench", "train", "--arch", "mambo"},
      {"tokenize"},
      {"tokenize", "--model", dir / "missing", "--text", "x"},
      {"tokenize", "--model", dir / "empty", "--text", "x"},
      {"tokenize", "--model", "bytes", "--text", "x", "--ids", "--json"},
      {"tokenize", "--model", "bytes", "--decode", "999"},
      {"tokenizer"},
      {"tokenizer", "train"},
      {"tokenizer", "train", "--text", text},
      {"tokenizer", "train", "--text", text, "--out", out, "--vocab", "3"},
      {"tasks", "shw"},
      {"tasks", "show"},
      {"tasks", "show", "copi"},
      {"tasks", "show", "parity", "--split", "x"},
      {"verify", "--arch", "gdn"},
      {"verify", "--size", "1M"},
      {"verify", "--model", dir / "missing"},
      {"op", "fast_wight"},
      {"op", "fast_weight"},
      {"op", "fast_weight", "--in", text, "--out", out},
      {"op", "fast_weight", "--in", dir / "missing", "--out", out, "--set", "scle=1"},
  };
  for (const std::vector<std::string>& args : bad) {
    // A mistake that is not noticed must not train for hours.
    const auto start = std::chrono::steady_clock::now();
    const Finished f = run_braid(args, {.kill_when = [&] {
                                   return std::chrono::steady_clock::now() - start > std::chrono::seconds(60);
                                 }});
    std::string line;
    for (const std::string& a : args) line += " " + a;
    EXPECT_EQ(fault_of(f, names), "") << "braid" << line << "\n" << f.err;
  }
  // The check itself can fail.
  const auto fault = [&](const std::string& err) {
    return fault_of({.code = 1, .out = "", .err = err}, names);
  };
  EXPECT_EQ(fault("braid: --steps: is 0\n  -> give at least 1\n"), "");
  EXPECT_NE(fault("braid: there is no such thing: x\n  -> give another\n"), "");
  EXPECT_NE(fault("braid: --steps: is 0\n"), "");
  EXPECT_NE(fault("braid: --steps: is 0.\n  -> give at least 1\n"), "");
  EXPECT_NE(fault("braid: --steps: is 0\n  -> did you mean 1?\n"), "");
}

TEST(Terminal, SuggestionsPreferNamesThatBeginAlike) {
  EXPECT_TRUE(has(run_braid({"info", "--arch", "gdn"}).err, "gdn-h1"));
  EXPECT_FALSE(has(run_braid({"info", "--arch", "gdn"}).err, "'gla'"));
  const std::string lab = run_braid({"lab", "run", "hqlt"}).err;
  EXPECT_TRUE(has(lab, "hqlt-table3") && has(lab, "hqlt-mixing-text") && !has(lab, "mqar")) << lab;
  EXPECT_TRUE(has(run_braid({"archs", "--arch", "gdn"}).err, "gdn-h1"));
  EXPECT_TRUE(has(run_braid({"generate", "--model", "nofolder", "--prompt", "x"}).err,
                  "--model nofolder: does not exist"));
}

// ---- Options that begin works

TEST(Terminal, AnEmptyPromptStartsATextFromNothing) {
  const Finished f = run_braid({"generate", "-m", model(), "-p", "", "-n", "5", "--json"});
  ASSERT_EQ(f.code, 0) << f.err;
  const Json j = Json::parse(f.out);
  EXPECT_EQ(j["prompt_tokens"], 1);
  EXPECT_EQ(j["tokens"].size(), 5u);
  EXPECT_FALSE(j.contains("draft"));  // without --draft there is nothing to tell
  EXPECT_TRUE(has(f.err, "starts behind a line's end")) << f.err;
  EXPECT_EQ(run_braid({"generate", "-m", model(), "--prompt-file", "/dev/null"}).code, 1);
}

TEST(Terminal, SamplesHaveTheSeedsThatFollow) {
  const auto tokens = [&](std::vector<std::string> more) {
    std::vector<std::string> args{"generate", "-m",      model(), "-p",      "the", "-n",      "8", "--temp",
                                  "5",        "--top-k", "0",     "--top-p", "1",   "--min-p", "0", "--json"};
    args.insert(args.end(), more.begin(), more.end());
    std::vector<Json> all;
    for (const std::string& l : lines_of(run_braid(args).out)) all.push_back(Json::parse(l)["tokens"]);
    return all;
  };
  const std::vector<Json> three = tokens({"--num-samples", "3", "--seed", "7"});
  ASSERT_EQ(three.size(), 3u);
  EXPECT_NE(three[0], three[1]);
  EXPECT_EQ(three[0], tokens({"--seed", "7"})[0]);
  EXPECT_EQ(three[2], tokens({"--seed", "9"})[0]);
}

TEST(Terminal, EvalReadsChunksAsLongAsInTraining) {
  const TempDir dir;
  std::string words;
  for (int i = 0; i < 40; ++i) words += "the cat sat on mat " + std::to_string(i % 10) + "\n";
  spit(dir / "text", words);
  const Finished f = run_braid({"eval", "--model", model(), "--text", dir / "text", "--json"});
  ASSERT_EQ(f.code, 0) << f.err;
  const Json j = Json::parse(f.out);
  EXPECT_EQ(j["context"], 32);
  EXPECT_TRUE(j.contains("llama") && !j.contains("plain")) << f.out;
  EXPECT_EQ((*load_json(model() + "/config.json"))["train_length"], 32);
}

TEST(Terminal, AnExportOfABytesModelIsComplete) {
  const TempDir dir;
  const std::string out = dir / "hf";
  const Finished f = run_braid({"convert", "--model", model(), "--to", "hf", "--out", out, "--json"});
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_TRUE(has(f.out, "flash-linear-attention")) << f.out;  // gdn-h1 is a model of fla
  EXPECT_EQ((*load_json(out + "/config.json"))["max_position_embeddings"], 32);
  const Json generation = *load_json(out + "/generation_config.json");
  EXPECT_EQ(generation["do_sample"], true);
  EXPECT_TRUE(generation["eos_token_id"].is_null());
  EXPECT_EQ((*load_json(out + "/tokenizer_config.json"))["model_max_length"], 32);
  const auto ids = [](const std::string& folder) {
    return run_braid({"tokenize", "--model", folder, "--text", "Grüße, 東京!\n", "--ids"}).out;
  };
  EXPECT_EQ(ids(out), ids("bytes"));
  EXPECT_EQ(ids(model()), ids("bytes"));  // a model of bytes has a tokenizer, though no file
  const auto text = [](const std::string& folder) {
    return run_braid({"generate", "-m", folder, "-p", "the cat", "-n", "12", "--greedy"}).out;
  };
  EXPECT_EQ(text(out), text(model()));
  // Another format of a Braid model needs no --to.
  const Finished q8 = run_braid({"convert", "--model", model(), "--quant", "q8", "--out", dir / "q8"});
  EXPECT_EQ(q8.code, 0) << q8.err;
}

TEST(Terminal, AFinishedRunHasNothingLeft) {
  const TempDir dir;
  fs::copy(model(), dir / "run", fs::copy_options::recursive);
  const Finished f = run_braid({"train", "--run", dir / "run", "--resume", "--quiet"});
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_TRUE(has(f.out, "all 3 steps are done, nothing was trained")) << f.out;
  const Finished more = run_braid({"train", "--run", dir / "run", "--resume", "--steps", "5", "--quiet"});
  EXPECT_TRUE(has(more.out, "trained 2 more steps, to 5")) << more.out;
  EXPECT_TRUE(has(run_braid({"train", "--run", dir / "run", "--resume", "--set", "d_model=32"}).err,
                  "is 'd_model=32', but the run was started without it"));
}

// ---- A conversation typed at a terminal

class Typed {
 public:
  explicit Typed(const std::vector<std::string>& args, const char* no_color = nullptr) {
    pid_ = forkpty(&fd_, nullptr, nullptr, nullptr);
    if (pid_ != 0) return;
    setenv("TERM", "xterm", 1), unsetenv("CI"), unsetenv("NO_COLOR");
    if (no_color) setenv("NO_COLOR", no_color, 1);
    std::vector<char*> argv{const_cast<char*>(BRAID_BINARY)};
    for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    execv(BRAID_BINARY, argv.data());
    _exit(127);
  }
  ~Typed() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    close(fd_);
  }
  void type(const std::string& text) {
    EXPECT_EQ(write(fd_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // Whether the program prints this within a minute; what was printed before it is forgotten.
  bool prints(const std::string& text) {
    constexpr int kWait = 60'000, kTurn = 100;  // milliseconds
    for (int waited = 0; waited < kWait; waited += kTurn) {
      if (const size_t at = seen_.find(text); at != std::string::npos)
        return seen_.erase(0, at + text.size()), true;
      pollfd p{fd_, POLLIN, 0};
      if (poll(&p, 1, kTurn) <= 0) continue;
      char buffer[4096];
      const ssize_t n = read(fd_, buffer, sizeof buffer);
      if (n <= 0) return has(seen_, text);
      seen_.append(buffer, static_cast<size_t>(n));
    }
    return false;
  }
  // The exit code within 20 seconds, else -1.
  int ends() {
    for (int i = 0; i < 200; ++i) {
      int status = 0;
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return -1;
  }
  const std::string& seen() const { return seen_; }

 private:
  pid_t pid_ = -1;
  int fd_ = -1;
  std::string seen_;
};

TEST(Terminal, ColoursAreForTerminalsAlone) {
  EXPECT_FALSE(has(run_braid({"trian"}).err, "\x1b"));
  Typed plain({"trian"}, "1");
  EXPECT_TRUE(plain.prints("braid: trian: is not a verb"));
  Typed colours({"trian"});
  EXPECT_TRUE(colours.prints("\x1b[1;31mbraid:\x1b[0m trian: is not a verb"));
}

TEST(Terminal, CtrlCAtThePromptClearsTheLineAndKeepsTheConversation) {
  const TempDir dir;
  spit(dir / "t.jinja", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:");
  Typed t({"chat", "--model", model(), "--template", dir / "t.jinja", "--greedy", "--max-tokens", "4"});
  ASSERT_TRUE(t.prints("> ")) << t.seen();
  t.type("first question\n");
  ASSERT_TRUE(t.prints("tokens at")) << t.seen();
  ASSERT_TRUE(t.prints("> ")) << t.seen();
  t.type("never asked\x03");
  t.type("/history\n");
  ASSERT_TRUE(t.prints("user: first question")) << t.seen();
  ASSERT_TRUE(t.prints("> ")) << t.seen();
  t.type("\x1b[A\x1b[A\n");  // arrow up twice: the question again
  ASSERT_TRUE(t.prints("tokens at")) << t.seen();
  t.type("/history\n");
  ASSERT_TRUE(t.prints("user: first question")) << t.seen();
  ASSERT_TRUE(t.prints("user: first question")) << t.seen();
  t.type("/exit\n");
  EXPECT_EQ(t.ends(), 0);
}

}  // namespace
}  // namespace braid::test
