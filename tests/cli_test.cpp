// The command line as a user meets it: right use, and every mistake with a clear message and exit code.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "io/json.h"
#include "process.h"
#include "verify/compare.h"

namespace braid::test {
namespace {

void expect_error(const Finished& f, int code, const std::vector<std::string>& parts) {
  EXPECT_EQ(f.code, code) << f.err;
  EXPECT_TRUE(f.err.starts_with("braid: ")) << f.err;
  for (const std::string& p : parts)
    EXPECT_NE(f.err.find(p), std::string::npos) << "'" << p << "' is not in: " << f.err;
}

// A tiny trained model, made once.
const std::string& model() {
  static const TempDir dir;
  static const std::string path = [] {
    const std::string run = dir / "model", text = dir / "text";
    std::string words;
    for (int i = 0; i < 400; ++i) words += "the cat sat on mat " + std::to_string(i % 10) + "\n";
    spit(text, words);
    const Finished f = run_braid(
        {"train", "--text", text, "--length", "32", "--steps", "3", "--batch", "4", "--run", run, "--quiet"});
    EXPECT_EQ(f.code, 0) << f.err;
    return run;
  }();
  return path;
}

TEST(Cli, HelpAndVersionWork) {
  EXPECT_EQ(run_braid({"--help"}).code, 0);
  EXPECT_NE(run_braid({"--version"}).out.find("braid 0."), std::string::npos);
  for (const char* verb :
       {"train", "generate", "logits", "info", "verify", "kernels", "tasks", "archs", "bench", "demo", "op",
        "convert", "chat-template", "chat", "tokenize", "tokenizer"}) {
    const Finished f = run_braid({verb, "--help"});
    EXPECT_EQ(f.code, 0) << verb;
    EXPECT_NE(f.out.find("--"), std::string::npos) << verb;
  }
}

// A folder with one benchmark of four documents.
void put_piqa(const TempDir& dir, const std::string& more = "") {
  std::filesystem::create_directories(dir / "data/piqa");
  std::string rows;
  for (int i = 0; i < 4; ++i)
    rows += R"({"goal": "the cat)" + std::to_string(i) +
            R"(", "sol1": "sat", "sol2": "mat on", "label": 0})" + "\n";
  spit(dir / "data/piqa/piqa_validation.jsonl", rows + more);
}

TEST(Cli, BenchmarksAreScoredKeptAndResumed) {
  const TempDir dir;
  put_piqa(dir);
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"eval", "--model", model(), "--data", dir / "data"});
    return run_braid(more);
  };
  const Finished table = with({"--tasks", "piqa"});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("acc_norm"), std::string::npos) << table.out;

  const Finished first =
      with({"--tasks", "piqa", "--limit", "2", "--json", "--log-samples", dir / "samples"});
  ASSERT_EQ(first.code, 0) << first.err;
  const Result<Json> j = parse_ordered_json(first.out, "stdout");
  ASSERT_TRUE(j);
  EXPECT_TRUE((*j)["results"]["piqa"].contains("acc_norm_stderr,none")) << first.out;
  EXPECT_EQ((*j)["n-samples"]["piqa"]["effective"], 2);
  EXPECT_EQ((*j)["n-samples"]["piqa"]["original"], 4);
  const Finished second = with({"--tasks", "piqa", "--log-samples", dir / "samples", "--out", dir / "r.json",
                                "--page", dir / "r.html"});
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_NE(second.err.find("2 documents of 4 were scored before"), std::string::npos) << second.err;
  EXPECT_NE(slurp(dir / "r.html").find("acc_norm"), std::string::npos);
  const std::string lines = slurp(dir / "samples/samples_piqa.jsonl");
  EXPECT_EQ(std::ranges::count(lines, '\n'), 4);
  // A cut line is scored again; documents beyond --limit stay.
  spit(dir / "samples/samples_piqa.jsonl", lines.substr(0, lines.size() - 9));
  EXPECT_EQ(with({"--tasks", "piqa", "--log-samples", dir / "samples"}).code, 0);
  EXPECT_EQ(slurp(dir / "samples/samples_piqa.jsonl"), lines);
  EXPECT_EQ(with({"--tasks", "piqa", "--limit", "1", "--log-samples", dir / "samples"}).code, 0);
  EXPECT_EQ(slurp(dir / "samples/samples_piqa.jsonl"), lines);
  const Finished whole = with({"--tasks", "piqa", "--json"});
  const Result<Json> a = load_json(dir / "r.json"), b = parse_ordered_json(whole.out, "stdout");
  ASSERT_TRUE(a && b);
  EXPECT_EQ((*a)["results"], (*b)["results"]);

  const Finished sums = run_braid({"eval", "--tasks", "piqa", "--data", dir / "data", "--requests"});
  EXPECT_EQ(sums.code, 0) << sums.err;
  EXPECT_NE(sums.out.find("       4         8"), std::string::npos) << sums.out;

  RunOptions input;
  input.input = R"({"id": 7, "type": "loglikelihood", "context": "the", "continuation": " cat"}
{"id": "r", "type": "loglikelihood_rolling", "text": "the cat"}
{"id": 8, "type": "generate_until", "context": "the cat", "until": ["q"], "max_gen_toks": 3}

)";
  const Finished lines_out = run_braid({"eval", "--model", model(), "--request-lines"}, input);
  EXPECT_EQ(lines_out.code, 0) << lines_out.err;
  EXPECT_NE(lines_out.out.find(R"({"id":7,"log_likelihood":-)"), std::string::npos) << lines_out.out;
  EXPECT_NE(lines_out.out.find(R"({"id":"r","log_likelihood":-)"), std::string::npos) << lines_out.out;
  EXPECT_NE(lines_out.out.find(R"({"id":8,"text":")"), std::string::npos) << lines_out.out;
}

TEST(Cli, BenchmarksNameMistakes) {
  const TempDir dir;
  put_piqa(dir, R"({"goal": 3, "sol1": "a", "sol2": "b", "label": 0})"
                "\n");
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"eval", "--model", model(), "--data", dir / "data"});
    return run_braid(more);
  };
  expect_error(with({"--tasks", "pica"}), 2, {"'pica'", "did you mean 'piqa'", "papers"});
  expect_error(with({"--tasks", "boolq"}), 1, {"data/boolq/boolq_validation.jsonl", "super_glue"});
  expect_error(with({"--tasks", "piqa"}), 1, {"piqa_validation.jsonl:5", "'goal' is 3, not a string"});
  expect_error(with({"--tasks", "piqa", "--text", "x"}), 2, {"--tasks: excludes"});
  expect_error(with({"--tasks", "niah_single_1", "--lengths", "70"}), 1, {"at least", "--lengths"});
  expect_error(with({"--tasks", "piqa", "--limit", "2", "--fewshot", "9"}), 1, {":5"});
  put_piqa(dir);
  expect_error(with({"--tasks", "piqa", "--fewshot", "9"}), 1, {"--fewshot is 9", "4 documents"});
  expect_error(run_braid({"eval", "--tasks", "niah", "--requests"}), 2, {"tokens", "--model"});
  expect_error(run_braid({"eval", "--tasks", "piqa"}), 2, {"--model is missing"});
  ASSERT_EQ(with({"--tasks", "piqa", "--log-samples", dir / "samples"}).code, 0);
  expect_error(with({"--tasks", "piqa", "--log-samples", dir / "samples", "--max-length", "99"}), 1,
               {"another model or other settings"});
  expect_error(with({"--tasks", "piqa", "--log-samples", dir / "data"}), 1, {"is not empty"});
  RunOptions input;
  input.input = "{\"type\": \"chat\"}\n\n";
  expect_error(run_braid({"eval", "--model", model(), "--request-lines"}, input), 1, {"line 1", "'chat'"});
}

TEST(Cli, TheLabNamesMistakes) {
  const TempDir dir;
  const std::vector<std::string> paper{"lab", "run", "hqlt-table3", "--paper", "--dir", dir / "lab"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), paper.begin(), paper.end());
    return run_braid(more);
  };
  expect_error(run_braid({"lab", "run", "nope"}), 2, {"'nope'", "hqlt-table3"});
  expect_error(with({"--quick"}), 2, {"--quick, --paper: exclude each other"});
  expect_error(with({"--precision", "f16"}), 2, {"'f16'", "bf16"});
  expect_error(with({"--lr", "7e-3"}), 1, {"a learning rate of 0.007", "0.005; 0.001"});
  expect_error(with({"--only", "Mamba3"}), 1, {"a row with 'Mamba3'", "Delayed-Chunk"});
  EXPECT_FALSE(std::filesystem::exists(dir / "lab"));
  expect_error(run_braid({"lab", "report", "--dir", dir / "lab"}), 1, {"there are no experiments here"});
}

// A tokenizer made from a text, a model trained with it, and text from that model; the run goes on without
// the original file.
TEST(Cli, TrainsWithATokenizerThatGoesAlong) {
  const TempDir dir;
  std::string words;
  for (int i = 0; i < 800; ++i) words += "the cat sat on mat " + std::to_string(i % 10) + "\n";
  spit(dir / "text", words);
  const std::string file = dir / "mine.json";
  ASSERT_EQ(run_braid({"tokenizer", "train", "--text", dir / "text", "--vocab", "270", "--out", file}).code,
            0);
  const Finished f = run_braid({"train", "--text", dir / "text", "--tokenizer", file, "--length", "16",
                                "--steps", "3", "--batch", "4", "--run", dir / "run", "--json"});
  ASSERT_EQ(f.code, 0) << f.err;
  EXPECT_EQ((*load_json(dir / "run/config.json"))["vocab_size"], 270);
  std::filesystem::remove(file);
  const Finished on = run_braid({"train", "--run", dir / "run", "--resume", "--steps", "5", "--quiet"});
  EXPECT_EQ(on.code, 0) << on.err;
  const Finished g =
      run_braid({"generate", "--model", dir / "run", "--prompt", "the cat", "--max-tokens", "4"});
  EXPECT_EQ(g.code, 0) << g.err;
  EXPECT_NE(g.out.find("the cat"), std::string::npos) << g.out;
  expect_error(run_braid({"train", "--text", dir / "text", "--tokenizer", file, "--run", dir / "r"}), 1,
               {"mine.json"});
  expect_error(run_braid({"train", "--task", "parity", "--tokenizer", file, "--run", dir / "r"}), 2,
               {"--tokenizer", "needs --text"});
}

// Every sampler that has an option acts, also where the model does not say how to sample and where it does.
TEST(Cli, EverySamplerOptionActs) {
  const TempDir dir;
  std::filesystem::copy(model(), dir / "said", std::filesystem::copy_options::recursive);
  spit(dir / "said/generation_config.json",
       R"({"do_sample": true, "temperature": 1.0, "max_new_tokens": 5, "num_beams": 4})");
  for (const std::string& m : {model(), dir / "said"}) {
    const auto text = [&](std::vector<std::string> more) {
      std::vector<std::string> args{"generate", "--model",      m,    "--prompt",
                                    "the cat",  "--max-tokens", "12", "--json"};
      args.insert(args.end(), more.begin(), more.end());
      const Finished f = run_braid(args);
      EXPECT_EQ(f.code, 0) << f.err;
      return f.out.substr(0, f.out.find("\"why\""));
    };
    const std::string greedy = text({"--greedy"});
    EXPECT_EQ(text({"--temp", "0"}), greedy);
    EXPECT_EQ(text({"--top-k", "1"}), greedy);
    EXPECT_EQ(text({"--top-p", "0.000001"}), greedy);
    EXPECT_EQ(text({"--min-p", "1"}), greedy);
    EXPECT_EQ(text({"--top-n-sigma", "0.000001"}), greedy);
    EXPECT_NE(text({"--temp", "100", "--top-k", "0", "--top-p", "1", "--min-p", "0"}), greedy);
    // The less likely of two, always.
    EXPECT_NE(text({"--top-k", "2", "--top-p", "1", "--min-p", "0", "--xtc-probability", "1",
                    "--xtc-threshold", "0"}),
              greedy);
    EXPECT_NE(text({"--greedy", "--repeat-penalty", "1000"}), greedy);
    EXPECT_NE(text({"--greedy", "--presence-penalty", "1000"}), greedy);
    EXPECT_NE(text({"--greedy", "--frequency-penalty", "1000"}), greedy);
    EXPECT_EQ(text({"--greedy", "--frequency-penalty", "1000", "--repeat-last-n", "0"}), greedy);
    EXPECT_NE(text({"--samplers", "temperature", "--temp", "100"}), greedy);
  }
  const Finished said = run_braid({"generate", "--model", dir / "said", "--prompt", "the cat", "--stats"});
  EXPECT_NE(said.err.find(", 5 new tokens"), std::string::npos) << said.err;
  EXPECT_NE(said.err.find("num_beams"), std::string::npos) << said.err;  // told, not silently left out
}

TEST(Cli, ChatAnswersAndRemembers) {
  const TempDir dir;
  spit(dir / "t.jinja",
       "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
       "{% if add_generation_prompt %}assistant:{% endif %}");
  const std::vector<std::string> base{"chat",          "--model",  model(),        "--template",
                                      dir / "t.jinja", "--greedy", "--max-tokens", "8"};
  const auto chat = [&](const std::string& input, std::vector<std::string> more = {}) {
    std::vector<std::string> args = base;
    args.insert(args.end(), more.begin(), more.end());
    return run_braid(args, {.input = input});
  };
  const Finished once = chat("", {"--prompt", "hi", "--json"});
  EXPECT_EQ(once.code, 0) << once.err;
  EXPECT_NE(once.out.find("\"prompt_tokens\":19"), std::string::npos) << once.out;  // one token per byte
  EXPECT_NE(once.out.find("\"why\":\"length\""), std::string::npos) << once.out;
  // The second turn reads only what follows the first; undone, the conversation is as before.
  const Finished two =
      chat("hi\nthe cat\n/undo\n/save " + (dir / "h.json") + "\n/nonsense\n/exit\nnever read\n");
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_NE(two.err.find("prompt: 19 read"), std::string::npos) << two.err;
  EXPECT_EQ(two.err.find(", 0 remembered", two.err.find(", 0 remembered") + 1), std::string::npos) << two.err;
  EXPECT_NE(two.err.find("/nonsense"), std::string::npos) << two.err;
  EXPECT_EQ(two.err.find("never read"), std::string::npos);
  EXPECT_NE(slurp(dir / "h.json").find("\"hi\""), std::string::npos);
  EXPECT_EQ(slurp(dir / "h.json").find("the cat"), std::string::npos);
  // Remembering changes nothing.
  const Finished history = chat("", {"--history", dir / "h.json", "--prompt", "the cat"});
  EXPECT_NE(two.out.find(history.out), std::string::npos) << two.out << "\n---\n" << history.out;
  // Tools reach the template with their keys in the order of the file.
  spit(dir / "tools.json", R"([{"type": "function", "function": {"name": "f", "description": "d"}}])");
  spit(dir / "tools.jinja", "{{ tools | tojson }}{{ messages[0].content }}");
  const std::string shown = R"([{"type": "function", "function": {"name": "f", "description": "d"}}]hi)";
  const Finished tools = run_braid({"chat", "--model", model(), "--template", dir / "tools.jinja", "--tools",
                                    dir / "tools.json", "--prompt", "hi", "--json"});
  const Finished direct =
      run_braid({"generate", "--model", model(), "--prompt", shown, "--json", "--max-tokens", "2048"});
  const auto tokens = [](const Finished& f) {
    const size_t at = f.out.find("\"tokens\":[");
    return f.out.substr(at, f.out.find(']', at) - at);
  };
  EXPECT_EQ(tokens(tools), tokens(direct));
  expect_error(run_braid({"chat", "--model", model()}), 1, {"chat template"});
  expect_error(chat("", {"--json"}), 2, {"--prompt"});
  expect_error(chat("", {"--top-p", "2", "--prompt", "x"}), 2, {"--top-p: is \'2'", "above 0, up to 1"});
  expect_error(chat("", {"--samplers", "top_k,luck", "--prompt", "x"}), 2, {"luck", "top_p"});
  expect_error(chat("", {"--history", dir / "t.jinja", "--prompt", "x"}), 2, {"t.jinja"});
}

TEST(Cli, TheReferenceInDocsIsCurrent) {
  EXPECT_EQ(run_braid({"--markdown"}).out, slurp(BRAID_SOURCE "/docs/reference/cli.md")) << "run: make docs";
}

// Every "$ braid tasks ..." of docs/reference/tasks.md prints what stands below it.
TEST(Cli, TheSamplesInDocsAreCurrent) {
  std::istringstream lines(slurp(BRAID_SOURCE "/docs/reference/tasks.md"));
  const std::string indent = "    ", prompt = indent + "$ braid ";
  int commands = 0;
  std::string line;
  bool more = static_cast<bool>(std::getline(lines, line));
  while (more) {
    if (!line.starts_with(prompt)) {
      more = static_cast<bool>(std::getline(lines, line));
      continue;
    }
    std::istringstream words(line.substr(prompt.size()));
    const std::vector<std::string> args{std::istream_iterator<std::string>(words), {}};
    std::string shown;
    while ((more = static_cast<bool>(std::getline(lines, line))) && line.starts_with(indent) &&
           !line.starts_with(prompt))
      shown += line.substr(indent.size()) + "\n";
    EXPECT_EQ(run_braid(args).out, shown) << args[2];
    ++commands;
  }
  EXPECT_GE(commands, 13);
}

TEST(Cli, ChatTemplateShowsThePromptOrWhatIsWrong) {
  const TempDir dir;
  const std::string jinja = dir / "t.jinja", chat = dir / "chat.json", tools = dir / "tools.json";
  spit(jinja,
       "{% for m in messages %}\n[{{ m.role }}] {{ m.content }}\n{% endfor %}\n{% if tools %}\n{{ "
       "tools|tojson }}\n"
       "{% endif %}\n{% if add_generation_prompt %}\n[{{ name|upper }}]{{ think }}\n{% endif %}\n");
  spit(chat, R"([{"role": "user", "content": "Grüße"}])");
  spit(tools, R"([{"z": 1, "a": 2}])");
  const std::vector<std::string> base{"chat-template", "--model", jinja, "--messages", chat};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return run_braid(more);
  };
  EXPECT_EQ(with({"--no-generation-prompt"}).out, "[user] Grüße\n");
  EXPECT_EQ(with({"--tools", tools, "--set", "name=bot", "--set", "think=false"}).out,
            "[user] Grüße\n[{\"z\": 1, \"a\": 2}]\n[BOT]False\n");
  EXPECT_EQ(with({"--no-generation-prompt", "--json"}).out,
            "{\"prompt\":\"[user] Grüße\\n\",\"special_tokens\":{}}\n");
  spit(chat,
       R"({"messages": [{"role": "user", "content": "x"}], "name": "b", "add_generation_prompt": true})");
  EXPECT_EQ(with({}).out, "[user] x\n[B]\n");

  expect_error(run_braid({"chat-template", "--messages", chat}), 2, {"--model: is missing"});
  expect_error(run_braid({"chat-template", "--model", jinja}), 2, {"--messages: is missing"});
  expect_error(with({"--set", "x"}), 2, {"--set x", "name=value"});
  expect_error(with({"--tools", chat}), 1, {chat, "not a list of tools"});
  spit(chat, "[1]");
  expect_error(with({}), 1, {chat, "a message is not an object"});
  spit(chat, "[\n{]");
  expect_error(with({}), 1, {chat, "line 2"});
  spit(chat, "[{}]");
  spit(jinja, "\n{{ raise_exception('no: ' ~ messages|length) }}");
  expect_error(with({}), 1, {jinja + ": line 2: no: 1"});
  spit(jinja, "\n\n{% include 'x' %}");
  expect_error(with({}), 1, {jinja + ": line 3", "{% include %} is not supported"});
}

TEST(Cli, TasksListShowAndTime) {
  const Finished list = run_braid({"tasks", "--json"});
  EXPECT_EQ(std::ranges::count(list.out, '\n'), 14) << list.err;
  EXPECT_NE(list.out.find("\"headline\":\"first 500\""), std::string::npos);
  const auto show = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"tasks", "show", "parity", "--json", "--count", "2"});
    return run_braid(more).out;
  };
  EXPECT_EQ(show({}), show({"--split", "train", "--seed", "0"}));
  EXPECT_NE(show({}), show({"--split", "test"}));
  EXPECT_NE(show({}), show({"--seed", "1"}));
  EXPECT_NE(run_braid({"tasks", "time", "copy", "--count", "8"}).out.find("8 samples"), std::string::npos);
  expect_error(run_braid({"tasks", "shw"}), 2, {"'shw'", "'show'"});
  expect_error(run_braid({"tasks", "show"}), 2, {"the task is missing", "parity"});
  expect_error(run_braid({"tasks", "show", "parity", "--split", "tset"}), 2, {"tset", "train or test"});
  expect_error(run_braid({"tasks", "show", "parity", "--count", "-1"}), 2, {"--count"});
  expect_error(run_braid({"tasks", "show", "word-problem", "--set", "group=S6"}), 1,
               {"S3, S4, A5, S5 or Z60"});
}

TEST(Cli, UnknownWordsNameTheNearest) {
  expect_error(run_braid({"trian"}), 2, {"trian: is not a verb", "'train'"});
  expect_error(run_braid({"train", "--step", "5"}), 2, {"--step", "'--steps'"});
  expect_error(run_braid({"train", "--task", "partiy", "--run", "/nonexistent/x"}), 1, {"partiy", "parity"});
  expect_error(run_braid({"train", "--task", "parity", "--arch", "transfomer"}), 1,
               {"transfomer", "transformer"});
  expect_error(run_braid({"train", "--task", "parity", "--size", "2M"}), 1, {"2M", "1M"});
  expect_error(run_braid({"tasks", "show", "copi"}), 1, {"copi", "copy"});
  expect_error(run_braid({"kernels"}, {.env = {"BRAID_ISA=avx3"}}), 2, {"avx3", "avx512"});
  expect_error(run_braid({"kernels"}, {.env = {"BRAID_KERNEL=rmsnorm=fast"}}), 2, {"rmsnorm", "fast"});
}

TEST(Cli, EveryBadValueIsReported) {
  expect_error(run_braid({"train", "--steps", "abc"}), 2, {"--steps"});
  expect_error(run_braid({"train", "--task", "parity", "--steps", "0", "--lr", "-1", "--precision", "fp8",
                          "--schedule", "cosin"}),
               2, {"--steps", "--lr", "--precision", "'cosine'"});
  expect_error(run_braid({"train"}), 2, {"--task, --text"});
  expect_error(run_braid({"train", "--task", "parity", "--batch", "99999999999999999999999"}), 2,
               {"--batch"});
  expect_error(run_braid({"train", "--task", "parity", "--batch", "1000000", "--accumulate", "1000000"}), 2,
               {"tokens", "--batch"});
}

TEST(Cli, AConfigWithThreeMistakesGetsThreeMessages) {
  const TempDir dir;
  spit(dir / "config.json", R"({"model_type": "braid", "d_model": "wide", "vocab_size": 3, "n_layer": 2,
    "pattern": [{"mixer": {"type": "attention", "heads": -3}, "mlp": {"type": "swiglu", "d_ff": 64}}]})");
  expect_error(
      run_braid({"train", "--task", "parity", "--config", dir / "config.json", "--run", dir / "run"}), 1,
      {"3 problems", "d_model: is \"wide\"", "n_layer: is not a setting here", "'n_layers'",
       "pattern[0].mixer.heads: is -3"});
}

TEST(Cli, BenchTellsFormThreadsAndShare) {
  const Finished f =
      run_braid({"bench", "kernels", "--only", "rope fwd in place", "--threads", "1,2", "--json"});
  EXPECT_EQ(f.code, 0) << f.err;
  for (const char* part : {"\"case\":\"rope fwd in place 4096x8x128\",\"form\":\"forward\"",
                           "\"impl\":", "\"threads\":1,", "\"threads\":2,", "\"seconds\":", "\"spread\":",
                           "\"gbytes_per_s\":", "\"share_of_bandwidth\":", "\"bandwidth\":\"update\""})
    EXPECT_NE(f.out.find(part), std::string::npos) << part << " is not in: " << f.out;
  EXPECT_EQ(f.out.find("gflops"), std::string::npos) << f.out;
  expect_error(run_braid({"bench", "kernels", "--threads", "1,x"}), 2, {"--threads", "'x'"});
  expect_error(run_braid({"bench", "kernels", "--threads", "5000"}), 2, {"--threads", "1024"});
  expect_error(run_braid({"bench", "train", "--threads", "1,2"}), 2, {"one number"});
  expect_error(run_braid({"bench", "train", "--arch", "transformer,mambo"}), 2, {"mambo", "mamba"});
  expect_error(run_braid({"bench", "train", "--precision", "f32,f8"}), 2, {"--precision", "f8"});
  expect_error(run_braid({"bench", "train", "--length", "512,x"}), 2, {"--length", "'x'"});
  const Finished train = run_braid({"bench", "train", "--arch", "transformer,gdn-h1", "--length", "16,32",
                                    "--tokens", "64", "--rounds", "1", "--recompute", "--json"});
  ASSERT_EQ(train.code, 0) << train.err;
  EXPECT_EQ(std::ranges::count(train.out, '\n'), 4);
  EXPECT_NE(train.out.find("\"peak_memory_bytes\":"), std::string::npos);
}

TEST(Cli, OverridesReachTheConfig) {
  EXPECT_NE(run_braid({"info", "--arch", "transformer", "--set", "pattern.*.mixer.window=64", "--json"})
                .out.find("\"window\":64"),
            std::string::npos);
  expect_error(run_braid({"info", "--arch", "transformer", "--set", "patern.0.mixer.window=64"}), 1,
               {"patern", "pattern"});
  expect_error(run_braid({"info", "--arch", "transformer", "--set", "pattern.7.mixer.window=64"}), 1,
               {"'7'", "0"});
  expect_error(run_braid({"info", "--arch", "transformer", "--set", "pattern.0.mixer.windw=64"}), 1,
               {"windw", "window"});
}

TEST(Cli, TextsThatCannotBeUsed) {
  const TempDir dir;
  spit(dir / "short", "too short");
  expect_error(run_braid({"train", "--text", dir / "short", "--length", "64", "--run", dir / "r"}), 1,
               {"short", "9", "64"});
  expect_error(run_braid({"train", "--text", dir / "missing", "--run", dir / "r"}), 1, {"missing"});
  expect_error(run_braid({"train", "--text", dir / "", "--run", dir / "r"}), 1, {"director"});
}

TEST(Cli, ARunIsNotOverwritten) {
  expect_error(run_braid({"train", "--task", "parity", "--run", model()}), 1, {"--resume"});
  expect_error(run_braid({"train", "--run", "/nonexistent/run", "--resume"}), 1,
               {"cannot resume", "run.json"});
}

TEST(Cli, DamagedCheckpointsAreNamed) {
  const TempDir dir;
  const std::string good = slurp(model() + "/model.safetensors"), config = slurp(model() + "/config.json");
  ASSERT_GT(good.size(), 1000u);
  int n = 0;
  const auto with = [&](const std::string& weights) {
    const std::string d = dir / ("m" + std::to_string(n++));
    std::filesystem::create_directory(d);
    spit(d + "/config.json", config);
    spit(d + "/model.safetensors", weights);
    return run_braid({"generate", "--model", d, "--prompt", "x", "--max-tokens", "1"});
  };
  EXPECT_EQ(with(good).code, 0);
  expect_error(with(good.substr(0, good.size() - 1000)), 1, {"model.safetensors"});
  expect_error(with(good.substr(0, 5)), 1, {"model.safetensors"});
  expect_error(with(""), 1, {"model.safetensors"});
  std::string huge = good;
  const uint64_t claim = uint64_t{1} << 60;
  std::memcpy(huge.data(), &claim, 8);
  expect_error(with(huge), 1, {"model.safetensors"});
  const auto header = [](const std::string& json, size_t data) {
    std::string s(8, '\0');
    const uint64_t size = json.size();
    std::memcpy(s.data(), &size, 8);
    return s + json + std::string(data, '\0');
  };
  expect_error(
      with(header(
          R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
          12)),
      1, {"tensor \"b\"", "inside tensor \"a\""});
  expect_error(
      with(header(R"({"embedding.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})", 16)), 1,
      {"embedding.weight: has shape [2, 2]; expected [256, 64]", "and 17 more: is missing"});
  expect_error(run_braid({"generate", "--model", "/nonexistent", "--prompt", "x"}), 1,
               {"--model /nonexistent: does not exist"});
}

TEST(Cli, GenerateIsRepeatableAndStops) {
  const std::vector<std::string> base{"generate",     "--model", model(),  "--prompt", "the cat",
                                      "--max-tokens", "40",      "--seed", "3",        "--json"};
  const Finished a = run_braid(base), b = run_braid(base);
  EXPECT_EQ(a.code, 0) << a.err;
  const auto text = [](const std::string& json) { return json.substr(0, json.find("\"why\"")); };
  EXPECT_EQ(text(a.out), text(b.out));
  expect_error(run_braid({"generate", "--model", model(), "--prompt", "x", "--top-p", "2"}), 2,
               {"--top-p: is \'2'"});
  expect_error(run_braid({"generate", "--model", model(), "--tokens", "1,two"}), 2, {"two"});
  expect_error(run_braid({"generate", "--model", model(), "--tokens", "1,999"}), 1, {"999", "255"});
}

TEST(Cli, LogitsAreTheSameForEveryCut) {
  const TempDir dir;
  std::string ids = "0";
  for (int i = 1; i < 40; ++i) ids += "," + std::to_string(i * 7 % 256);
  const auto logits = [&](const std::string& split) {
    std::vector<std::string> args{"logits", "--model", model(), "--tokens", ids, "--out", dir / "l"};
    if (!split.empty()) args.insert(args.end(), {"--split", split});
    const Finished f = run_braid(args);
    EXPECT_EQ(f.code, 0) << f.err;
    const std::string bytes = slurp(dir / "l");
    std::vector<float> x(40 * 256);
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), 8);
    std::memcpy(x.data(), bytes.data() + 8 + header, x.size() * 4);  // f32 "logits" comes before i32 "tokens"
    return x;
  };
  const std::vector<float> want = logits("");
  double square = 0;
  for (const float w : want) square += w * w;
  const double rms = std::sqrt(square / want.size());
  ASSERT_GT(rms, 0.01);
  for (const char* split : {"1,1,1", "5,1,9", "39", "20,20", "3,3,3,3,3,3,3,3,3,3"}) {
    const std::vector<float> got = logits(split);
    double worst = 0;
    for (size_t i = 0; i < want.size(); ++i)
      worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - want[i]));
    EXPECT_LT(worst / rms, kTolF32.rms) << split;
  }
  expect_error(
      run_braid({"logits", "--model", model(), "--tokens", "1,2", "--split", "3", "--out", dir / "l"}), 2,
      {"3", "2"});
  expect_error(run_braid({"logits", "--model", model(), "--tokens", "1,2", "--out", "/nonexistent/x"}), 1,
               {"/nonexistent"});
}

TEST(Cli, ListsAndTablesPrint) {
  EXPECT_NE(run_braid({"tasks"}).out.find("parity"), std::string::npos);
  EXPECT_NE(run_braid({"tasks", "show", "parity", "--count", "2"}).out.find("->"), std::string::npos);
  EXPECT_NE(run_braid({"archs"}).out.find("transformer"), std::string::npos);
  EXPECT_NE(run_braid({"kernels"}).out.find("rmsnorm"), std::string::npos);
  EXPECT_NE(run_braid({"info", "--model", model()}).out.find("parameters"), std::string::npos);
}

TEST(Cli, ASavedStateGoesOn) {
  const TempDir dir;
  const auto logits = [&](const std::string& ids, const std::vector<std::string>& more) {
    std::vector<std::string> args{"logits", "--model", model(), "--tokens", ids, "--out", dir / "l"};
    args.insert(args.end(), more.begin(), more.end());
    const Finished f = run_braid(args);
    EXPECT_EQ(f.code, 0) << f.err;
    return slurp(dir / "l");
  };
  logits("1,0,1,1,0", {"--save-state", dir / "s"});
  const std::string next = logits("1,1", {"--load-state", dir / "s", "--save-state", dir / "s7"});
  logits("1,0,1,1,0,1,1", {"--split", "5,2", "--save-state", dir / "whole"});
  EXPECT_EQ(slurp(dir / "s7"), slurp(dir / "whole"));
  EXPECT_NE(next, logits("1,1", {}));
  const auto generate = [&](const std::string& ids, const std::vector<std::string>& more) {
    std::vector<std::string> args{"generate", "--model",  model(),        "--tokens",
                                  ids,        "--greedy", "--max-tokens", "5"};
    args.insert(args.end(), more.begin(), more.end());
    const Finished f = run_braid(args);
    EXPECT_EQ(f.code, 0) << f.err;
    return f.out;
  };
  const std::string all = generate("1,0,1,1,0,1,1", {});
  generate("1,0,1,1,0", {"--save-state", dir / "prompt"});
  EXPECT_EQ(slurp(dir / "prompt"), slurp(dir / "s"));
  EXPECT_EQ(generate("1,1", {"--load-state", dir / "prompt"}), all);
  expect_error(run_braid({"generate", "--model", model(), "--tokens", "1", "--load-state", dir / "l"}), 1,
               {"not a saved state"});
  // Sampled, too: the draws go on where they were. And with guesses.
  const std::vector<std::string> sampled{"--temperature", "1", "--seed", "3", "--max-tokens", "20"};
  const auto sample = [&](const std::string& ids, std::vector<std::string> more) {
    more.insert(more.end(), {"generate", "--model", model(), "--tokens", ids});
    std::rotate(more.begin(), more.end() - 5, more.end());
    more.insert(more.end(), sampled.begin(), sampled.end());
    const Finished f = run_braid(more);
    EXPECT_EQ(f.code, 0) << f.err;
    return f;
  };
  const std::string text = sample("1,0,1,1,0,1,1", {}).out;
  EXPECT_EQ(sample("1,1", {"--load-state", dir / "prompt"}).out, text);
  const Finished guessed = sample("1,0,1,1,0,1,1", {"--draft", "7", "--verbose"});
  EXPECT_EQ(guessed.out, text);
  EXPECT_NE(guessed.err.find("guesses right"), std::string::npos) << guessed.err;
  const Finished told = sample("1,1", {"--load-state", dir / "prompt", "--verbose", "--draft", "3"});
  EXPECT_EQ(told.out, text);
  EXPECT_NE(told.err.find("5 tokens from"), std::string::npos) << told.err;
  expect_error(run_braid({"generate", "--model", model(), "--tokens", "1", "--draft", "8"}), 2,
               {"--draft: is \'8'", "from 0 to 7"});
  // A byte that changed on the disk.
  std::string bytes = slurp(dir / "prompt");
  bytes[bytes.size() - 3] ^= 4;
  spit(dir / "flipped", bytes);
  expect_error(run_braid({"generate", "--model", model(), "--tokens", "1", "--load-state", dir / "flipped"}),
               1, {"flipped: was changed after it was saved", "save the state again"});
}

TEST(Cli, WhatCannotBeQuantisedIsTold) {
  const Finished f = run_braid({"generate", "--model", BRAID_SOURCE "/tests/data/families/olmo_hybrid",
                                "--tokens", "1,2", "--max-tokens", "1", "--quant", "q8"});
  EXPECT_EQ(f.code, 0) << f.err;
  EXPECT_NE(f.err.find("matrices stay as they are"), std::string::npos) << f.err;
}

TEST(Cli, EvalScoresATextAndComparesModels) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "a text that says " + std::to_string(i * i) + " and goes on. ";
  spit(dir / "text", text);
  for (const char* seed : {"1", "2"}) {
    const Finished f =
        run_braid({"train", "--text", dir / "text", "--length", "32", "--steps", "3", "--batch", "4",
                   "--seed", seed, "--quiet", "--run", dir / ("run" + std::string(seed))});
    ASSERT_EQ(f.code, 0) << f.err;
  }
  const Finished one =
      run_braid({"eval", "--model", dir / "run1", "--text", dir / "text", "--context", "64"});
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_NE(one.out.find("perplexity"), std::string::npos) << one.out;
  EXPECT_EQ(one.out.find("KL"), std::string::npos) << one.out;
  const Finished two =
      run_braid({"eval", "--model", dir / "run1", "--compare", dir / "run2", "--text", dir / "text",
                 "--context", "64", "--chunks", "4", "--llama", "--plain", "--json"});
  ASSERT_EQ(two.code, 0) << two.err;
  const Json j = Json::parse(two.out);
  EXPECT_EQ(j["llama"]["model"]["tokens"], 4 * 31);
  EXPECT_EQ(j["plain"]["model"]["tokens"], 4 * 64 - 1);
  EXPECT_GT(j["llama"]["kl"], 0);
  // The same model with fewer bits: the fewer, the further away.
  double kl[2];
  for (const int bits : {8, 4}) {
    const Finished fewer = run_braid({"eval", "--model", dir / "run1", "--quant", "q" + std::to_string(bits),
                                      "--text", dir / "text", "--context", "64", "--llama", "--json"});
    ASSERT_EQ(fewer.code, 0) << fewer.err;
    kl[bits == 4] = Json::parse(fewer.out)["llama"]["kl"];
  }
  EXPECT_GT(kl[0], 0);
  EXPECT_GT(kl[1], 4 * kl[0]);
  expect_error(run_braid({"eval", "--model", dir / "run1", "--quant", "q3", "--text", dir / "text"}), 2,
               {"q3"});
  expect_error(run_braid({"eval", "--model", dir / "run1", "--text", dir / "nothing"}), 1, {"nothing"});
  expect_error(run_braid({"eval", "--model", dir / "run1"}), 2, {"--text"});
}

TEST(Cli, EvalOnATaskGivesTheScoresOfTheRun) {
  const TempDir dir;
  const Finished f = run_braid({"train", "--task", "parity", "--steps", "3", "--batch", "4", "--eval-size",
                                "64", "--seed", "5", "--quiet", "--run", dir / "run"});
  ASSERT_EQ(f.code, 0) << f.err;
  const Finished e = run_braid(
      {"eval", "--model", dir / "run", "--task", "parity", "--count", "64", "--seed", "5", "--json"});
  ASSERT_EQ(e.code, 0) << e.err;
  const Json then = Json::parse(slurp(dir / "run/result.json")), now = Json::parse(e.out);
  EXPECT_EQ(now["metrics"], then["metrics"]);
  const Finished one_length = run_braid({"eval", "--model", dir / "run", "--task", "parity", "--task-set",
                                         "test_min=100", "--task-set", "test_max=100", "--count", "20"});
  EXPECT_EQ(one_length.code, 0) << one_length.err;
  EXPECT_NE(one_length.out.find("of 20"), std::string::npos) << one_length.out;
  EXPECT_EQ(one_length.out.find("129-256"), std::string::npos) << one_length.out;
  expect_error(run_braid({"eval", "--model", dir / "run", "--task", "mqar"}), 1, {"mqar", "tokens"});
  expect_error(run_braid({"eval", "--model", dir / "run", "--task", "paritty"}), 2, {"parity"});
  expect_error(run_braid({"eval", "--model", dir / "run", "--task", "parity", "--quant", "q8"}), 2,
               {"--quant"});
}

// verify itself forces every implementation of every op; what is left is the choice a plain machine makes.
TEST(Cli, VerifyPassesWithAndWithoutWideInstructions) {
  for (const RunOptions& options : {RunOptions{}, RunOptions{.env = {"BRAID_ISA=base"}}}) {
    const Finished f = run_braid({"verify"}, options);
    EXPECT_EQ(f.code, 0) << f.out << f.err;
  }
}

TEST(Cli, ALossThatIsNotFiniteStopsWithAdvice) {
  const TempDir dir;
  expect_error(run_braid({"train",  "--task",  "parity", "--lr",        "1000",    "--warmup", "0",
                          "--clip", "0",       "--set",  "init_std=50", "--steps", "400",      "--bad-steps",
                          "3",      "--batch", "8",      "--quiet",     "--run",   dir / "run"}),
               1, {"not finite", "--lr"});
}

}  // namespace
}  // namespace braid::test
