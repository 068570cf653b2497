// What the verbs share: options from visit() functions, output, and how errors end the program.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"
#include "base/kernel_choice.h"
#include "base/number.h"
#include "base/parallel.h"
#include "cli/output.h"
#include "io/json.h"
#include "model/fields.h"
#include "train/setup.h"

namespace CLI {
class App;
}

namespace braid {

enum ExitCode { kOk = 0, kFailed = 1, kWrongUse = 2 };

// A verb adds its options to `app` and returns what to run once they are parsed.
struct Verb {
  const char *name, *summary, *example;  // example: a command line without the program's name
  std::function<int()> (*define)(CLI::App& app);
  std::string (*details)() = nullptr;  // more for docs/reference/cli.md
};
std::span<const Verb> all_verbs();

std::function<int()> define_train(CLI::App& app);
std::function<int()> define_generate(CLI::App& app);
std::function<int()> define_chat(CLI::App& app);
std::function<int()> define_eval(CLI::App& app);
std::function<int()> define_logits(CLI::App& app);
std::function<int()> define_info(CLI::App& app);
std::function<int()> define_convert(CLI::App& app);
std::string convert_details();
std::function<int()> define_verify(CLI::App& app);
std::function<int()> define_kernels(CLI::App& app);
std::function<int()> define_tasks(CLI::App& app);
std::function<int()> define_lab(CLI::App& app);
std::function<int()> define_sweep(CLI::App& app);
std::function<int()> define_archs(CLI::App& app);
std::function<int()> define_bench(CLI::App& app);
std::function<int()> define_op(CLI::App& app);
std::string op_details();
std::function<int()> define_tokenize(CLI::App& app);
std::function<int()> define_tokenizer(CLI::App& app);
std::function<int()> define_chat_template(CLI::App& app);
std::function<int()> define_demo(CLI::App& app);
std::function<int()> define_data(CLI::App& app);
std::function<int()> define_completion(CLI::App& app);

// Adds each visited option to a command. A name without dashes is taken by its place. CLI11 is a large
// header: only main.cpp and options.cpp see it.
class OptionAdder {
 public:
  explicit OptionAdder(CLI::App& app) : app_(app) {}
  void operator()(const char* name, bool& value, const char* help);
  void operator()(const char* name, int64_t& value, const char* help, Bounds<int64_t> range = {});
  void operator()(const char* name, double& value, const char* help, Bounds<double> range = {});
  void operator()(const char* name, std::optional<int64_t>& value, const char* help,
                  Bounds<int64_t> range = {});
  void operator()(const char* name, std::optional<double>& value, const char* help,
                  Bounds<double> range = {});
  void operator()(const char* name, std::string& value, const char* help);
  void operator()(const char* name, std::vector<std::string>& value, const char* help);  // may be repeated
  void several(const char* name, std::vector<std::string>& value, const char* help);  // may also take several
  void required(const char* name, std::string& value, const char* help);
  void footer(std::function<std::string()> text);  // below the options in --help

 private:
  CLI::App& app_;
};
bool given(const CLI::App& app, const char* name);  // whether the user gave this option
struct WrongValue {                                 // thrown while options are parsed, caught by main
  Error error;
};

// Prints "braid: what" and the fix to stderr, readable().
int fail(const Error& error, int code = kFailed);
int wrong_use(const Error& error);

// The words this program was started with, and its name as it was typed, for commands to copy.
const std::string& command_line();
const std::string& program_name();

Program this_program();  // for run records

// An error that names the option unless `path` is a folder with a config.json. Before anything is loaded.
Status check_model_folder(const std::string& option, const std::string& path);

// A bar while weights are read or brought to another format, if that takes long.
std::function<void(uint64_t done, uint64_t all)> loading_bar(const std::string& folder);

// One JSON object on a line of stdout.
void print_json(const Json& j);

inline constexpr Bounds<int64_t> kThreads{0, 1024}, kFromZero{.low = 0};
KernelChoice kernel_choice();                     // what BRAID_ISA and BRAID_KERNEL say
Result<ThreadPool> start_threads(int64_t asked);  // of --threads, with it; 0: all cores
Result<std::vector<int32_t>> parse_ids(const std::string& text, const std::string& option);  // "1,2,3"

}  // namespace braid
