#include "walk/cases.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <thread>

namespace braid::walk {
namespace {

namespace fs = std::filesystem;

using Words = std::vector<std::string>;

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string repeated(const std::string& s, size_t n) {
  std::string all;
  for (size_t i = 0; i < n; ++i) all += s;
  return all;
}

constexpr size_t kLongWord = 120'000;  // the longest that a command line can hold is 131,071

// Values that no option should choke on.
std::vector<std::pair<std::string, std::string>> bad_values() {
  return {{"empty", ""},
          {"word", "zzz"},
          {"number", "7"},
          {"zero", "0"},
          {"negative", "-1"},
          {"fraction", "0.5"},
          {"int64", "9223372036854775807"},
          {"beyond int64", "99999999999999999999999"},
          {"nan", "nan"},
          {"infinite", "1e999"},
          {"list", "1,2,,x"},
          {"missing file", "{dir}/no/such/file"},
          {"folder", "{dir}"},
          {"loop of links", "{dir}/loop"},
          {"empty file", "{dir}/none"},
          {"device", "/dev/null"},
          {"full device", "/dev/full"},
          {"long name", std::string(300, 'a')},
          {"not UTF-8", "\xff\xfe\x01"},
          {"format", "%s%n{}{0}\x1b[2J"},
          {"huge", std::string(kLongWord, 'y')},
          {"nested", "a=" + std::string(kLongWord, '[')},
          {"nested and closed", repeated("[", kLongWord / 2) + repeated("]", kLongWord / 2)}};
}

// A number that small things do not survive, of an option for how much of something: it may take for ever.
bool may_be_long(const std::string& value) {
  return value == "int64" || value == "number" || value == "word" || value == "fraction";
}

}  // namespace

std::vector<VerbOptions> listed_options(const std::string& markdown) {
  std::vector<VerbOptions> verbs;
  std::istringstream lines(markdown);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("## braid ")) verbs.push_back({line.substr(9), {}});
    if (line.starts_with("### ")) verbs.push_back({"", {}});  // the rest of a verb's page has other tables
    if (!line.starts_with("| `") || verbs.empty() || verbs.back().verb.empty()) continue;
    const std::string name = line.substr(3, line.find('`', 3) - 3);
    if (name.find(' ') == name.npos) verbs.back().options.push_back({name});
  }
  std::erase_if(verbs, [](const VerbOptions& v) { return v.verb.empty(); });
  return verbs;
}

std::string Fixtures::make(const std::string& program, const std::string& source, const std::string& dir) {
  dir_ = dir;
  fs::create_directories(dir);
  std::string words;
  for (int i = 0; i < 400; ++i) words += "the cat sat on mat " + std::to_string(i % 10) + "\n";
  spit(dir + "/text", words);
  spit(dir + "/chat.jinja",
       "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
       "{% if add_generation_prompt %}assistant:{% endif %}");
  spit(dir + "/messages.json", R"([{"role": "user", "content": "hi"}])");
  fs::copy(source + "/tests/data/tokenizer", dir + "/tokenizers");
  fs::copy(source + "/tests/data/families/llama", dir + "/llama");
  fs::copy(source + "/tests/data/families/llama-bf16-shards", dir + "/shards");
  fs::copy(source + "/tests/data/families/qwen3_5", dir + "/qwen");
  const std::string t = dir + "/text";
  for (const Words& args : std::vector<Words>{
           {"train", "--text", t, "--length", "16", "--steps", "2", "--batch", "2", "--eval-size", "4",
            "--quiet", "--run", dir + "/model"},
           {"train", "--task", "parity", "--steps", "2", "--batch", "2", "--eval-size", "4", "--quiet",
            "--run", dir + "/parity"},
           {"tokenizer", "train", "--text", t, "--vocab", "260", "--out", dir + "/tokenizer.json"},
           {"logits", "--model", dir + "/model", "--tokens", "1,2,3", "--out", dir + "/logits",
            "--save-state", dir + "/state"}})
    if (const Verdict v = run_case(program, dir, {.group = "fixture", .name = args[0], .args = args});
        !v.wrong.empty() || v.code != 0)
      return args[0] + ": " + v.wrong + ": " + v.err;
  // A GPT-2 tokenizer beside a model of its own size is not at hand; the trained one goes with the byte
  // model.
  fs::copy(dir + "/model", dir + "/worded");
  fs::copy(dir + "/tokenizer.json", dir + "/worded/tokenizer.json");
  return "";
}

std::vector<Case> good_cases(const Fixtures& f) {
  const std::string model = f / "model";
  std::vector<Case> all;
  const auto add = [&](const std::string& name, const Words& args) {
    all.push_back({.group = "good", .name = name, .args = args});
  };
  add("demo", {"demo", "--run", "{dir}/demo", "--steps", "1"});
  add("train task", {"train", "--task", "parity", "--steps", "2", "--batch", "2", "--eval-size", "2", "--run",
                     "{dir}/run"});
  add("train text", {"train", "--text", f / "text", "--length", "8", "--steps", "2", "--batch", "2",
                     "--eval-size", "2", "--run", "{dir}/run", "--json"});
  add("generate", {"generate", "--model", model, "--prompt", "the cat", "--max-tokens", "3"});
  add("generate json",
      {"generate", "--model", model, "--tokens", "1,2", "--max-tokens", "3", "--json", "--stats"});
  add("chat",
      {"chat", "--model", model, "--template", f / "chat.jinja", "--prompt", "hi", "--max-tokens", "3"});
  add("eval", {"eval", "--model", model, "--text", f / "text", "--context", "8", "--chunks", "2"});
  add("eval task", {"eval", "--model", f / "parity", "--task", "parity", "--count", "2"});
  add("logits", {"logits", "--model", model, "--tokens", "1,2", "--out", "{dir}/l"});
  add("chat-template", {"chat-template", "--model", f / "chat.jinja", "--messages", f / "messages.json"});
  add("info", {"info", "--arch", "gdn-h1"});
  add("info model", {"info", "--model", model, "--verbose"});
  add("convert", {"convert", "--model", f / "llama", "--to", "braid", "--out", "{dir}/c"});
  add("tokenize", {"tokenize", "--model", f / "tokenizer.json", "--text", "the cat"});
  add("tokenizer", {"tokenizer", "train", "--text", f / "text", "--vocab", "260", "--out", "{dir}/t.json"});
  add("verify", {"verify", "--model", f / "parity"});
  add("bench train", {"bench", "train", "--rounds", "1", "--batch", "1", "--length", "8"});
  add("bench decode",
      {"bench", "prefill,decode", "--model", model, "--prompt", "4", "--gen", "2", "--repeat", "1"});
  add("bench kernels", {"bench", "kernels", "--only", "zzz"});
  all.back().must_fail = true;
  add("kernels", {"kernels"});
  add("op", {"op"});
  add("lab", {"lab", "list"});
  add("lab run", {"lab", "run", "hqlt-table3", "--quick", "--only", "zzz", "--dir", "{dir}/lab"});
  all.back().must_fail = true;
  add("tasks", {"tasks"});
  add("tasks show", {"tasks", "show", "parity", "--count", "2"});
  add("archs", {"archs"});
  return all;
}

std::vector<Case> option_cases(const std::vector<VerbOptions>& verbs, const Fixtures& f) {
  std::vector<Case> all;
  for (const Case& good : good_cases(f)) {
    const auto verb =
        std::ranges::find_if(verbs, [&](const VerbOptions& v) { return v.verb == good.args[0]; });
    if (verb == verbs.end()) continue;
    for (const Option& o : verb->options)
      for (const auto& [what, value] : bad_values()) {
        Case c = good;
        c.group = "option", c.name = good.name + " " + o.name + " " + what;
        // A word taken by its place comes first; an option given twice counts as given the last time.
        if (o.name.starts_with("--"))
          c.args = with(c.args, {o.name, value});
        else
          c.args.insert(c.args.begin() + 1, value);
        // An empty prompt is one: a text from nothing.
        c.must_fail = value.empty() && !(good.args[0] == "generate" && o.name == "--prompt");
        c.may_be_long = may_be_long(what) || good.name == "lab run";
        all.push_back(std::move(c));
      }
  }
  return all;
}

std::vector<Case> limit_cases(const Fixtures& f) {
  std::vector<Case> all;
  for (const Case& good : good_cases(f)) {
    const auto add = [&](const std::string& name, int what, rlim_t value) {
      Case c = good;
      c.group = "limit", c.name = good.name + " " + name + " " + std::to_string(value);
      c.limits = {{what, value}};
      c.loader_may_fail = what == RLIMIT_AS || what == RLIMIT_NOFILE;
      all.push_back(std::move(c));
    };
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    for (const rlim_t mb : {48, 64, 80, 96, 112, 128, 144, 160, 192, 256, 384, 512})
      add("memory MB", RLIMIT_AS, mb << 20),
          all.back().name = good.name + " memory " + std::to_string(mb) + " MB";
#endif
    for (const rlim_t n : {0, 1, 2, 4}) add("processes", RLIMIT_NPROC, n);
    for (const rlim_t n : {3, 4, 5, 6, 8, 12}) add("open files", RLIMIT_NOFILE, n);
    for (const rlim_t n : {0, 1, 1000, 100'000}) add("file size", RLIMIT_FSIZE, n);
    for (const char* threads : {"-1", "1025", "100000", "2147483648", "1024"}) {
      Case c = good;
      c.group = "limit", c.name = good.name + " threads " + threads;
      c.args = with(c.args, {"--threads", threads});
      c.limits = {{RLIMIT_NPROC, 64}};
      c.may_be_long = true;
      all.push_back(std::move(c));
    }
  }
  return all;
}

std::vector<Case> output_cases(const Fixtures& f) {
  std::vector<Case> all;
  std::vector<Case> good = good_cases(f);
  good.push_back({.group = "good", .name = "help", .args = {"--help"}});
  good.push_back({.group = "good", .name = "version", .args = {"--version"}});
  good.push_back({.group = "good", .name = "markdown", .args = {"--markdown"}});
  good.push_back({.group = "good", .name = "verb help", .args = {"train", "--help"}});
  using enum Stream;
  for (const Case& g : good)
    for (const auto& [name, out, err] :
         std::vector<std::tuple<std::string, Stream, Stream>>{{"stdout full", kFull, kFile},
                                                              {"stdout closed", kClosed, kFile},
                                                              {"reader gone", kReaderGone, kFile},
                                                              {"stderr full", kFile, kFull},
                                                              {"stderr closed", kFile, kClosed},
                                                              {"stderr's reader gone", kFile, kReaderGone},
                                                              {"both closed", kClosed, kClosed},
                                                              {"both full", kFull, kFull}}) {
      Case c = g;
      c.group = "output", c.name = g.name + ", " + name;
      c.out = out, c.err = err;
      c.must_fail |= out != kFile;  // each of these prints something
      all.push_back(std::move(c));
    }
  return all;
}

std::vector<Case> kill_cases(const Fixtures& f) {
  std::vector<Case> all;
  const Words train{"train",     "--task",       "parity", "--batch",
                    "4",         "--eval-size",  "4",      "--checkpoint-every",
                    "3",         "--eval-every", "5",      "--run",
                    "{dir}/run", "--quiet",      "--steps"};
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGKILL})
    for (int i = 0; i < 8; ++i) {
      Case c{.group = "kill",
             .name = "train, signal " + std::to_string(signal) + ", " + std::to_string(i),
             .args = with(train, {"1000000"})};
      c.sent = signal;
      c.meanwhile = [signal, i](int pid, const std::string& dir) {
        // After a checkpoint is there, so that there is something to go on with.
        for (int n = 0; n < 3000 && !fs::exists(dir + "/run/state/step-00000003"); ++n)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        std::this_thread::sleep_for(std::chrono::milliseconds(7 * i));
        kill(pid, signal);
      };
      // It goes on from where it was, or from its last checkpoint.
      c.then = {"train", "--run", "{dir}/run", "--resume", "--minutes", "0.001", "--quiet"};
      all.push_back(std::move(c));
    }
  for (const char* file : {"model.safetensors"})
    for (const int at : {0, 1, 4096, 100'000}) {
      Case c{.group = "kill",
             .name = std::string(file) + " cut to " + std::to_string(at) + " while it is read",
             .args = {"generate", "--model", "{dir}/m", "--prompt", "the cat", "--max-tokens", "100000",
                      "--ignore-eos"}};
      c.links = {{"m", f / "model"}};
      c.files = {{std::string("m/") + file, slurp(f / "model/model.safetensors")}};
      c.may_be_long = true;
      c.meanwhile = [at, file](int, const std::string& dir) {
        std::error_code ec;
        for (int n = 0; n < 3000 && fs::file_size(dir + "/.out", ec) < 20; ++n)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        (void)!truncate((dir + "/m/" + file).c_str(), at);
      };
      all.push_back(std::move(c));
    }
  return all;
}

}  // namespace braid::walk
