#include <unistd.h>

#include <CLI/CLI.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <new>
#include <stdexcept>

#include "base/cpu.h"
#include "base/interrupt.h"
#include "base/nearest.h"
#include "base/progress.h"
#include "cli/cli.h"
#include "cli/help.h"
#include "cli/markdown.h"
#include "cli/version.h"
#include "io/cut_files.h"
#include "kernels/registry.h"

namespace braid {
namespace {

std::string started_with, called_as = "braid";

}  // namespace

const std::string& command_line() { return started_with; }
const std::string& program_name() { return called_as; }
Program this_program() { return {started_with, kVersion, kCommit, kCompiler, kernel_choice().isa()}; }

std::span<const Verb> all_verbs() {
  static constexpr std::array kVerbs{
      Verb{"demo", "train three small models on a task that needs attention and recurrence (about a minute)",
           "demo", define_demo},
      Verb{"train", "train a model on a task or a text",
           "train --text @shakespeare --arch gdn-h1 --size 1M --steps 300 --run runs/mine", define_train},
      Verb{"generate", "continue a prompt", "generate --model runs/mine --prompt \"ROMEO:\" --max-tokens 200",
           define_generate},
      Verb{"chat", "hold a conversation with a model", "chat --model FOLDER --system \"Answer briefly.\"",
           define_chat},
      Verb{"eval", "perplexity of a text, divergence from another model, or scores on a task",
           "eval --model runs/mine --text share/shakespeare.txt --chunks 20", define_eval},
      Verb{"logits", "write every position's logits, for comparison with other engines",
           "logits --model runs/mine --text \"ROMEO:\" --out logits.safetensors", define_logits},
      Verb{"chat-template", "show the prompt that a model's chat template makes of a conversation",
           "chat-template --model FOLDER --messages conversation.json", define_chat_template},
      Verb{"info", "parameters, flops and state size of a model", "info --model runs/mine", define_info},
      Verb{"convert", "write a model for Hugging Face transformers or fla, or read one of theirs",
           "convert --model runs/mine --to hf --out mine-hf", define_convert, convert_details},
      Verb{"tokenize", "text to token ids and back, as a model's tokenizer does",
           "tokenize --model FOLDER --text \"Hello\" --ids", define_tokenize},
      Verb{"tokenizer", "train a tokenizer",
           "tokenizer train --text book.txt --vocab 4096 --out tokenizer.json", define_tokenizer},
      Verb{"data", "text files to folders of tokens to train on; mixtures of them",
           "data tokenize --text book.txt --tokenizer tokenizer.json --out tokens", define_data},
      Verb{"verify", "check every kernel and the model on this machine against the reference",
           "verify --model runs/mine", define_verify},
      Verb{"bench", "time matrix products, kernels or training steps, after checking their results",
           "bench prefill,decode --model runs/mine", define_bench},
      Verb{"kernels", "implementation of each op on this machine, and why the others are not used", "kernels",
           define_kernels},
      Verb{"op", "run one kernel on tensors from a file and write its results and gradients to another",
           "op fast_weight --in qkv.safetensors --out o.safetensors", define_op, op_details},
      Verb{"lab", "the papers' experiments: list them, run one, make one page of all",
           "lab run hqlt-mixing-text --quick", define_lab},
      Verb{"sweep", "train with every combination of some options, several seeds each; one table",
           "sweep --text @shakespeare --steps 200 --grid lr=1e-3,4e-3 --grid arch=transformer,gdn-h1 --seeds "
           "2",
           define_sweep},
      Verb{"tasks", "list the synthetic tasks, or show samples of one", "tasks show parity --count 2",
           define_tasks},
      Verb{"archs", "list architectures, sizes and mixers with their settings", "archs", define_archs},
      Verb{"completion", "print a script that completes verbs, options and their values in a shell",
           "completion bash > ~/.local/share/bash-completion/completions/braid", define_completion},
  };
  return kVerbs;
}

int fail(const Error& error, int code) {
  flush_output();
  std::fputs(red(STDERR_FILENO, "braid:").c_str(), stderr);
  note(fmt::format(" {}\n", error.what));
  if (!error.fix.empty()) note(fmt::format("  -> {}\n", error.fix));
  return code;
}

int wrong_use(const Error& error) { return fail(error, kWrongUse); }

void print_json(const Json& j) {
  say("{}\n", j.dump(-1, ' ', false, Json::error_handler_t::replace));
  flush_output();
}

KernelChoice kernel_choice() {
  const Result<KernelChoice> choice = kernel_choice_from_environment();
  return choice ? *choice : KernelChoice();  // run() has told what is wrong
}

Result<ThreadPool> start_threads(int64_t asked) {
  Result<ThreadPool> pool =
      ThreadPool::start(asked > 0 ? static_cast<int>(asked) : cpu_count(), kernel_choice());
  if (!pool) return Error{"--threads: " + pool.error().what, pool.error().fix};
  return pool;
}

Status check_model_folder(const std::string& option, const std::string& path) {
  constexpr const char* kFix = "give a model folder: a run of `train`, a converted or a downloaded model";
  std::error_code ec;
  if (!std::filesystem::exists(path, ec))
    return Error{fmt::format("{} {}: {}", option, path, ec ? ec.message() : "does not exist"), kFix};
  if (!std::filesystem::is_directory(path, ec))
    return Error{fmt::format("{} {}: is not a folder", option, path), kFix};
  if (!std::filesystem::exists(path + "/config.json", ec))
    return Error{fmt::format("{} {}: has no config.json", option, path), kFix};
  return {};
}

std::function<void(uint64_t, uint64_t)> loading_bar(const std::string& folder) {
  auto bar = std::make_shared<std::unique_ptr<Progress>>();
  return [bar, folder](uint64_t done, uint64_t all) {
    if (!*bar) *bar = std::make_unique<Progress>("load " + folder, all);
    (*bar)->update(done);
  };
}

Result<std::vector<int32_t>> parse_ids(const std::string& text, const std::string& option) {
  std::vector<int32_t> ids;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const Result<int64_t> id = parse_number<int64_t>(std::string_view(text).substr(at, comma - at), option,
                                                     {0, std::numeric_limits<int32_t>::max()});
    if (!id) return Error{id.error().what, id.error().fix + "; several with commas between, e.g. 1,2,3"};
    ids.push_back(static_cast<int32_t>(*id));
    at = comma + 1;
  }
  return ids;
}

namespace {

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* o : app.get_options())
    for (const std::string& n : o->get_lnames()) names.push_back("--" + n);
  return names;
}

// The fix for an unknown option. Of many options the whole list would hide the message.
std::string suggest_option(const std::string& name, const std::vector<std::string>& names) {
  const std::string near = suggest(name, names);
  return near == suggest("", names) ? "leave it out" : near;
}

// An empty prompt is one: text from nothing.
bool may_be_empty(const CLI::App& app, const CLI::Option& o) {
  return app.get_name() == "generate" && o.check_lname("prompt");
}

// Unknown options, with the nearest that exists, where CLI11 would only say that it was not expected. And
// empty values, which come from variables of the shell that are not set: they must not count as "not given".
Status check_words(const CLI::App& app, int argc, char** argv) {
  const std::vector<std::string> names = option_names(app);
  for (int i = 2; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg.empty()) return Error{app.get_name() + ": an argument is empty", "leave it out, or give a value"};
    if (!arg.starts_with('-') || arg == "-" || arg == "--") continue;
    const bool whole_word = arg.starts_with("--");
    const std::string name = whole_word ? arg.substr(0, arg.find('=')) : arg.substr(0, 2);
    if (whole_word && std::find(names.begin(), names.end(), name) == names.end())
      return Error{
          fmt::format("{}: is not an option of {}", name, app.get_name()),
          fmt::format("{}; see: {} {} --help", suggest_option(name, names), called_as, app.get_name())};
    const CLI::Option* o = app.get_option_no_throw(name);
    if (!o || o->get_expected_min() == 0) continue;
    // The word after an option with a value is that value, whatever it looks like.
    const bool inside = arg.size() > name.size();
    const std::string value = inside       ? arg.substr(name.size() + (whole_word ? 1 : 0))
                              : ++i < argc ? argv[i]
                                           : name;
    if (value.empty() && !may_be_empty(app, *o))
      return Error{name + ": is empty", "give a value, or leave the option out"};
  }
  return {};
}

// docs/reference/cli.md, from the same options that the parser uses.
void print_command_line(CLI::App& app) {
  say("# Command line\n\nGenerated by `make docs`; a test fails if it is stale.\n\n");
  say("`braid VERB [options]`. Exit code 0: done; 1: failed; 2: wrong use. Environment:\n"
      "`BRAID_ISA=base|avx2|avx512|avx512dot|amx` limits the instruction set,\n"
      "`BRAID_KERNEL=op=impl,...` forces implementations by name.\n");
  for (const Verb& v : all_verbs()) {
    const CLI::App* sub = app.get_subcommand(v.name);
    say("\n## braid {}\n\n{}\n\n    braid {}\n\n| option | default | meaning |\n|---|---|---|\n", v.name,
        sub->get_description(), v.example);
    for (const CLI::Option* o : sub->get_options()) {
      if (o->get_lnames().empty() && o->get_snames().empty()) {
        say("| `{}` | {} | {} |\n", o->get_name(true), o->get_default_str(), o->get_description());
      } else if (o->get_lnames().front() != "help") {
        std::string names = "`--" + o->get_lnames().front() + "`";
        for (const std::string& s : o->get_snames()) names += ", `-" + s + "`";
        say("| {} | {} | {} |\n", names, o->get_default_str(), o->get_description());
      }
    }
    if (v.details) say("{}", v.details());
  }
}

// CLI11's messages name the option first; positionals it could not place come as a list.
std::string parse_problem(const CLI::ParseError& e) {
  std::string text = e.what();
  if (const size_t line = text.find('\n'); line != std::string::npos) text.resize(line);
  while (!text.empty() && (text.back() == '.' || text.back() == ' ')) text.pop_back();
  return text;
}

int run(int argc, char** argv) {
  for (int i = 0; i < argc; ++i) started_with += (i ? " " : "") + std::string(argv[i]);
  if (argc > 0 && argv[0][0]) called_as = argv[0];
  CLI::App app("Braid: train and run hybrid sequence models on CPUs.");
  app.name("braid");
  app.require_subcommand(0, 1);
  app.set_version_flag(
      "--version", fmt::format("braid {}\ncommit   {}\ncompiler {}\nISA      {} (of this machine)", kVersion,
                               kCommit, kCompiler, isa_name(detected_isa())));
  bool markdown = false;
  app.add_flag("--markdown", markdown, "[TOPIC]: a block of the reference pages")->group("");
  std::function<int()> chosen;
  std::vector<std::string> verbs;
  for (const Verb& v : all_verbs()) {
    CLI::App* sub = app.add_subcommand(v.name, v.summary);
    std::function<int()> action = v.define(*sub);
    sub->callback([&chosen, action] { chosen = action; });
    verbs.emplace_back(v.name);
  }
  if (argc > 1 && argv[1][0] != '-') {
    if (std::find(verbs.begin(), verbs.end(), argv[1]) == verbs.end())
      return wrong_use({fmt::format("{}: is not a verb", argv[1]),
                        fmt::format("{}; see: {} --help", suggest(argv[1], verbs), called_as)});
    if (Status s = check_words(*app.get_subcommand(argv[1]), argc, argv); !s) return wrong_use(s.error());
  } else if (argc > 1 && std::string(argv[1]).starts_with("--")) {
    if (const auto known = option_names(app); std::find(known.begin(), known.end(), argv[1]) == known.end())
      return wrong_use({fmt::format("{}: is not an option", argv[1]),
                        fmt::format("{}; see: {} --help", suggest(argv[1], known), called_as)});
  }
  if ((argc == 2 || argc == 3) && std::string(argv[1]) == "--markdown")
    return print_markdown(argc == 3 ? argv[2] : "cli", [&app] { print_command_line(app); });
  const std::string verb = argc > 1 && argv[1][0] != '-' ? argv[1] : "";
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    for (const CLI::App* sub : app.get_subcommands()) return print_help(*sub), kOk;
    return print_help(), kOk;
  } catch (const CLI::CallForVersion& v) {
    return say("{}\n", v.what()), kOk;
  } catch (const WrongValue& wrong) {
    return wrong_use(wrong.error);
  } catch (const CLI::ParseError& e) {
    return wrong_use({fmt::format("{}: {}", verb.empty() ? "braid" : verb, parse_problem(e)),
                      fmt::format("see: {} {}{}--help", called_as, verb, verb.empty() ? "" : " ")});
  }
  if (!chosen) return print_help(), kOk;
  // A misspelt BRAID_ISA or BRAID_KERNEL must not be ignored.
  if (const Result<KernelChoice> c = kernel_choice_from_environment(); !c) return wrong_use(c.error());
  return chosen();
}

// Says so without memory.
int out_of_memory() {
  std::fputs(
      "braid: out of memory\n  -> use a smaller model, batch or length, or raise the limit (ulimit -v)\n",
      stderr);
  return kFailed;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  braid::open_output();
  braid::report_cut_files();
  int code = braid::kFailed;
  try {
    code = braid::run(argc, argv);
  } catch (const std::bad_alloc&) {
    code = braid::out_of_memory();
  } catch (const std::length_error&) {  // more elements than any memory has
    code = braid::out_of_memory();
  } catch (const std::exception& e) {
    braid::fail({fmt::format("internal error: {}", e.what()), "this should not happen: please report it"});
  }
  return braid::finish_output(code);
}
