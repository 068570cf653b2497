#include "cli/help.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>

#include "cli/cli.h"
#include "lab/experiment.h"
#include "model/families/convert.h"
#include "model/presets.h"
#include "ops/op.h"
#include "tasks/task.h"

namespace braid {
namespace {

// ---- Groups

struct Group {
  std::string_view verb, title;  // verb: empty for all others
  std::vector<std::string_view> options;
};

constexpr std::string_view kOthers = "Options", kArguments = "Arguments";

const std::vector<Group>& groups() {
  static const std::vector<Group> all{
      {"sweep", "Sweep", {"--grid", "--seeds", "--name", "--dir"}},
      {"train", "Model", {"--arch", "--size", "--config", "--set", "--model", "--fixed-embedding"}},
      {"train",
       "Data",
       {"--task", "--task-set", "--text", "--tokenizer", "--data", "--eval-data", "--reset-at-documents",
        "--length", "--eval-length"}},
      {"train",
       "Run folder",
       {"--run", "--resume", "--checkpoint-every", "--keep", "--eval-every", "--eval-size", "--log-every",
        "--sample", "--sample-tokens", "--tensorboard"}},
      {"train",
       "End of training",
       {"--steps", "--tokens", "--minutes", "--stop-at", "--patience", "--bad-steps"}},
      {"train",
       "Optimiser",
       {"--batch", "--accumulate", "--optimizer", "--momentum", "--z-loss", "--lr", "--schedule", "--warmup",
        "--min-lr-ratio", "--weight-decay", "--decay-norms", "--beta1", "--beta2", "--eps", "--clip",
        "--grow-at"}},
      {"bench",
       "train",
       {"--arch", "--size", "--config", "--set", "--d-model", "--layers", "--heads", "--d-ff", "--batch",
        "--tokens", "--length", "--vocab", "--task", "--task-set", "--precision", "--recompute", "--rounds"}},
      {"bench",
       "prefill, decode",
       {"--model", "--dtype", "--quant", "--activations", "--prompt", "--gen", "--sequences", "--depth",
        "--repeat", "--parts"}},
      {"",
       "Sampling",
       {"--temperature", "--top-k", "--top-p", "--min-p", "--typical-p", "--top-n-sigma", "--xtc-probability",
        "--xtc-threshold", "--repetition-penalty", "--presence-penalty", "--frequency-penalty",
        "--repeat-last-n", "--samplers", "--greedy", "--num-samples"}},
      {"generate", "Sampling", {"--seed"}},
      {"chat", "Sampling", {"--seed"}},
      {"chat", "Prefix cache", {"--cache-mb", "--cache-grid", "--cache-bf16"}},
      {"",
       "Computation",
       {"--dtype", "--quant", "--activations", "--draft", "--precision", "--recompute", "--threads"}},
      {"train", "Computation", {"--seed"}},
      {"", "Output", {"--json", "--quiet", "--verbose", "--stats", "--tensors"}},
      {"", "Output", {"--help"}},
  };
  return all;
}

// ---- Values

std::vector<std::string> experiment_names() {
  std::vector<std::string> names;
  for (const Experiment& e : all_experiments()) names.emplace_back(e.name);
  return names;
}
std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const TaskEntry& t : all_tasks()) names.emplace_back(t.name);
  return names;
}
std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const CallableOp* op : all_callable_ops()) names.push_back(op->name);
  return names;
}
std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const RandomShape& s : random_shapes()) names.emplace_back(s.name);
  return names;
}
std::vector<std::string> sizes() { return size_names(); }

struct Values {
  std::string_view verb, option;  // verb: empty for all
  std::vector<std::string> words = {};
  std::vector<std::string> (*names)() = nullptr;
  bool files = false, folders = false;
};

const std::vector<Values>& values() {
  static const std::vector<Values> all{
      {.verb = "lab", .option = "action", .words = {"list", "run", "report", "keep"}},
      {.verb = "lab", .option = "names", .names = experiment_names},
      {.verb = "data", .option = "action", .words = {"tokenize", "info", "mix", "sample"}},
      {.verb = "data", .option = "paths", .files = true, .folders = true},
      {.verb = "", .option = "--data", .files = true, .folders = true},
      {.verb = "", .option = "--eval-data", .folders = true},
      {.verb = "", .option = "--optimizer", .words = {"adamw", "muon"}},
      {.verb = "tasks", .option = "action", .words = {"list", "show", "time"}},
      {.verb = "tasks", .option = "name", .names = task_names},
      {.verb = "tasks", .option = "--split", .words = {"train", "test"}},
      {.verb = "tokenizer", .option = "action", .words = {"train"}},
      {.verb = "bench",
       .option = "what",
       .words = {"matmul", "kernels", "train", "prefill", "decode", "prefill,decode"}},
      {.verb = "bench", .option = "--prompt"},
      {.verb = "completion", .option = "shell", .words = {"bash", "zsh", "fish"}},
      {.verb = "op", .option = "name", .names = op_names},
      {.verb = "tokenize", .option = "--text"},
      {.verb = "logits", .option = "--text"},
      {.verb = "tokenize", .option = "--model", .words = {"bytes"}, .files = true, .folders = true},
      {.verb = "chat-template", .option = "--model", .files = true, .folders = true},
      {.verb = "train", .option = "--text", .words = {"@shakespeare"}, .files = true},
      {.verb = "convert", .option = "--model", .files = true, .folders = true},
      {.verb = "convert", .option = "--out", .folders = true},
      {.verb = "", .option = "--arch", .names = preset_names},
      {.verb = "", .option = "--size", .names = sizes},
      {.verb = "", .option = "--task", .names = task_names},
      {.verb = "", .option = "--family", .names = family_names},
      {.verb = "", .option = "--random", .names = shape_names},
      {.verb = "", .option = "--schedule", .words = {"cosine", "constant", "wsd"}},
      {.verb = "", .option = "--precision", .words = {"f32", "bf16"}},
      {.verb = "", .option = "--dtype", .words = {"f32", "bf16"}},
      {.verb = "", .option = "--quant", .words = {"q8", "q4"}},
      {.verb = "", .option = "--activations", .words = {"f32", "bf16", "auto"}},
      {.verb = "", .option = "--to", .words = {"hf", "braid"}},
      {.verb = "", .option = "--from", .words = {"llama2c"}},
      {.verb = "", .option = "--model", .folders = true},
      {.verb = "", .option = "--compare", .folders = true},
      {.verb = "", .option = "--run", .folders = true},
      {.verb = "", .option = "--dir", .folders = true},
      {.verb = "", .option = "--text", .files = true},
      {.verb = "", .option = "--file", .files = true},
      {.verb = "", .option = "--config", .files = true},
      {.verb = "", .option = "--tokenizer", .files = true, .folders = true},
      {.verb = "", .option = "--prompt-file", .files = true},
      {.verb = "", .option = "--load-state", .files = true},
      {.verb = "", .option = "--save-state", .files = true},
      {.verb = "", .option = "--history", .files = true},
      {.verb = "", .option = "--messages", .files = true},
      {.verb = "", .option = "--tools", .files = true},
      {.verb = "", .option = "--template", .files = true, .folders = true},
      {.verb = "", .option = "--in", .files = true},
      {.verb = "", .option = "--out", .files = true},
  };
  return all;
}

// ---- The page

size_t page_width() {
  constexpr size_t kLeast = 60, kMost = 110, kElsewhere = 100;
  winsize size{};
  if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return kElsewhere;
  return std::clamp<size_t>(size.ws_col, kLeast, kMost);
}

// Two columns: a name, and text that is wrapped beside it.
void print_entry(const std::string& name, const std::string& text, size_t column, size_t width) {
  std::string line = "  " + name;
  if (line.size() + 2 > column) {
    say("{}\n", line);
    line.clear();
  }
  line.resize(column, ' ');
  bool begun = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (begun && line.size() + 1 + word.size() > width) {
      say("{}\n", line);
      line.assign(column, ' ');
      begun = false;
    }
    line += (begun ? " " : "") + word;
    begun = true;
    at = end + 1;
  }
  say("{}\n", line);
}

std::string shown_name(const CLI::Option& o) {
  std::string name;
  for (const std::string& s : o.get_snames()) name += "-" + s + ", ";
  if (o.get_lnames().empty()) return o.get_name(true);
  name += "--" + o.get_lnames().front();
  return o.get_expected_max() == 0 || o.get_type_size_max() == 0 ? name : name + " " + o.get_type_name();
}

std::string full_name(const CLI::Option& o) {
  return o.get_lnames().empty() ? o.get_name(true) : "--" + o.get_lnames().front();
}

// A sweep has the options of a training run.
bool is_of(std::string_view owner, std::string_view verb) {
  return owner == verb || (verb == "sweep" && owner == "train");
}

}  // namespace

std::string_view option_group(std::string_view verb, std::string_view option) {
  if (!option.starts_with('-')) return kArguments;
  for (const bool own : {true, false})
    for (const Group& g : groups())
      if ((own ? is_of(g.verb, verb) : g.verb.empty()) &&
          std::ranges::find(g.options, option) != g.options.end())
        return g.title;
  return kOthers;
}

ValueHint value_hint(std::string_view verb, std::string_view option) {
  for (const bool own : {true, false})
    for (const Values& v : values())
      if ((own ? is_of(v.verb, verb) : v.verb.empty()) && v.option == option)
        return {v.names ? v.names() : v.words, v.files, v.folders};
  return {};
}

void print_help() {
  const size_t width = page_width();
  say("Braid: train and run hybrid sequence models on CPUs.\n\nUsage: {} VERB [OPTIONS]\n\nVerbs\n",
      program_name());
  for (const Verb& v : all_verbs()) print_entry(v.name, v.summary, 18, width);
  say("\nOptions\n");
  print_entry("--help", "this page; with a verb: its options", 18, width);
  print_entry("--version", "version, commit, compiler and instruction set", 18, width);
  say("\nExample: {} {}\n", program_name(), all_verbs()[1].example);
}

void print_help(const CLI::App& verb) {
  const size_t width = page_width();
  std::string example, arguments;
  for (const Verb& v : all_verbs())
    if (v.name == verb.get_name()) example = v.example;
  std::vector<std::pair<std::string_view, std::vector<const CLI::Option*>>> shown;
  for (const std::string_view first : {kArguments, kOthers}) shown.push_back({first, {}});
  for (const CLI::Option* o : verb.get_options()) {
    if (o->get_lnames().empty() && o->get_snames().empty())
      arguments += fmt::format(" [{}]", o->get_name(true));
    const std::string_view title = option_group(verb.get_name(), full_name(*o));
    auto at = std::ranges::find(shown, title, [](const auto& g) { return g.first; });
    if (at == shown.end()) at = shown.insert(shown.end(), {title, {}});
    at->second.push_back(o);
  }
  // What few think of comes last.
  for (const std::string_view last : {"Computation", "Output"})
    std::ranges::stable_partition(shown, [&](const auto& g) { return g.first != last; });
  say("braid {}: {}\n\nUsage: {} {}{} [OPTIONS]\nExample: {} {}\n", verb.get_name(), verb.get_description(),
      program_name(), verb.get_name(), arguments, program_name(), example);
  for (const auto& [title, options] : shown) {
    if (options.empty()) continue;
    say("\n{}\n", title);
    for (const CLI::Option* o : options) {
      const std::string standard = o->get_default_str();
      print_entry(shown_name(*o),
                  o->get_description() + (standard.empty() ? "" : fmt::format(" (default {})", standard)), 26,
                  width);
    }
  }
  if (const std::string more = verb.get_footer(); !more.empty()) say("{}", more);
}

}  // namespace braid
