#include "cli/setup.h"

#include <fmt/format.h>

#include <ctime>

#include "base/cpu.h"
#include "cli/cli.h"
#include "cli/version.h"
#include "data/text.h"
#include "io/json.h"
#include "model/presets.h"
#include "tasks/task_source.h"

namespace braid {

Status validate(const TrainOptions& o) {
  std::vector<Problem> p = unusable(o);
  if (o.task.empty() == o.text.empty())
    p.push_back(
        {"--task, --text", o.task.empty() ? "neither is given" : "both are given", "give one of them"});
  if (o.task.empty() && !o.task_set.empty())
    p.push_back({"--task-set", "needs --task", "give the task's name"});
  if (!p.empty()) return to_error("these options cannot be used", p);
  return {};
}

Result<std::unique_ptr<Source>> make_source(const TrainOptions& o) {
  const auto seed = static_cast<uint64_t>(o.seed);
  if (!o.text.empty()) {
    auto text = TextSource::from_file(o.text, {.length = static_cast<size_t>(o.length), .seed = seed});
    if (!text) return text.error();
    return std::unique_ptr<Source>(std::move(*text));
  }
  auto task = make_task(o.task, o.task_set);
  if (!task) return task.error();
  return std::unique_ptr<Source>(
      std::make_unique<TaskSource>(std::move(*task), TaskSourceOptions{.seed = seed}));
}

Status check_batch(const TrainOptions& o, const Source& source) {
  const double tokens = static_cast<double>(o.batch) * static_cast<double>(o.accumulate) *
                        static_cast<double>(source.max_length());
  if (tokens < 4e9) return {};
  return Error{fmt::format("a step of {} x {} sequences could have {:.3g} tokens; the limit is 4e9", o.batch,
                           o.accumulate, tokens),
               "use a smaller --batch or shorter sequences"};
}

Result<ModelConfig> make_config(const TrainOptions& o, int64_t vocab_size) {
  const bool own = !o.config.empty();
  Result<Json> json = own ? load_json(o.config) : preset_config(o.arch, o.size, vocab_size);
  if (!json) return json.error();
  for (const std::string& s : o.set)
    if (Status status = apply_override(*json, s); !status) return status.error();
  Result<ModelConfig> config = parse_config(*json, own ? o.config : o.arch);
  if (config && config->vocab_size < vocab_size)
    return Error{fmt::format("vocab_size is {}, but the data has {} tokens", config->vocab_size, vocab_size),
                 "set vocab_size to at least that"};
  return config;
}

Json run_record(TrainOptions o, const Source& source, const Model& model, int threads) {
  OptionRecorder options;
  o.visit(options);
  const std::time_t now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return {{"command", command_line()},
          {"started", date},
          {"options", options.record},
          {"braid", {{"version", kVersion}, {"commit", kCommit}, {"compiler", kCompiler}}},
          {"machine", {{"cpu", cpu_model()}, {"isa", isa_name(active_isa())}, {"threads", threads}}},
          {"data", {{"source", source.describe()}, {"fingerprint", source.fingerprint()}}},
          {"parameters", model.params().count()}};
}

}  // namespace braid
