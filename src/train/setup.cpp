#include "train/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "base/cpu.h"
#include "base/nearest.h"
#include "io/file.h"
#include "io/json.h"
#include "model/presets.h"

namespace braid {
namespace {

constexpr const char* kEmbedding = "embedding.weight";

}  // namespace

Status validate(const TrainOptions& o) {
  std::vector<Problem> p = unusable(o);
  if (o.task.empty() == o.text.empty())
    p.push_back(
        {"--task, --text", o.task.empty() ? "neither is given" : "both are given", "give one of them"});
  if (o.task.empty() && !o.task_set.empty())
    p.push_back({"--task-set", "needs --task", "give the task's name"});
  if (o.text.empty() && !o.tokenizer.empty())
    p.push_back({"--tokenizer", "needs --text", "a task has its own tokens"});
  if (o.task.empty() && o.fixed_embedding)
    p.push_back({"--fixed-embedding", "needs --task", "a text has no input vectors"});
  if (o.task.empty() && o.grow_at > 0) p.push_back({"--grow-at", "needs --task", "a text has no curriculum"});
  if (o.task.empty() && o.stop_at > 0)
    p.push_back({"--stop-at", "needs --task", "for a text use --patience, --minutes or --steps"});
  if (!p.empty()) return to_error("these options cannot be used", p);
  return {};
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

Result<ModelConfig> make_config(const TrainOptions& o, const Source& source) {
  Result<ModelConfig> config = make_config(o, static_cast<int64_t>(source.vocab_size()));
  if (!config) return config;
  if (config->answers() < static_cast<int64_t>(source.answers()))
    return Error{fmt::format("outputs is {}, but the data has {} answers", config->outputs, source.answers()),
                 "set outputs to at least that, or to 0"};
  if (!o.fixed_embedding) return config;
  const std::optional<Tensor> rows = source.fixed_embedding();
  if (!rows)
    return Error{"--fixed-embedding: this data has no input vectors of its own", "leave the option out"};
  if (rows->shape()[1] > config->d_model)
    return Error{fmt::format("--fixed-embedding: the task's vectors have {} numbers, but d_model is {}",
                             rows->shape()[1], config->d_model),
                 "use a wider model"};
  if (config->tie_embeddings)
    return Error{"--fixed-embedding: the head is tied to the embedding", "add --set tie_embeddings=false"};
  config->params[kEmbedding].train = false;
  return config;
}

void init_model(Model& model, const TrainOptions& o, const Source& source) {
  model.init(static_cast<uint64_t>(o.seed));
  if (!o.fixed_embedding) return;
  const Tensor rows = *source.fixed_embedding();
  for (size_t i = 0; i < model.params().all().size(); ++i)
    if (model.params()[i].name == kEmbedding) {
      const Mat<float> to = model.params().mat(i);
      std::fill_n(to.data, to.count(), 0.0f);
      for (size_t row = 0; row < rows.mat().rows; ++row)
        std::copy_n(rows.mat().row(row), rows.mat().cols, to.row(row));
    }
}

Json run_record(const Program& program, TrainOptions o, const Source& source, const Model& model,
                int threads) {
  const std::time_t now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return {
      {"command", program.command},
      {"started", date},
      {"options", options_json(std::move(o))},
      {"braid", {{"version", program.version}, {"commit", program.commit}, {"compiler", program.compiler}}},
      {"machine", {{"cpu", cpu_model()}, {"isa", isa_name(active_isa())}, {"threads", threads}}},
      {"data", {{"source", source.describe()}, {"fingerprint", source.fingerprint()}}},
      {"parameters", model.params().count()}};
}

Json options_json(TrainOptions o) {
  Json record = Json::object();
  const auto write = [&](const char* name, const auto& value, const char*) { record[name + 2] = value; };
  o.visit(write);
  return record;
}

void restore_options(TrainOptions& o, const Json& stored, const std::function<bool(const char*)>& keep) {
  const auto read = [&]<class T>(const char* name, T& value, const char*) {
    const auto it = stored.find(name + 2);
    if (it == stored.end() || keep(name)) return;
    if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      if (it->is_array() && std::ranges::all_of(*it, [](const Json& j) { return j.is_string(); }))
        it->get_to(value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (it->is_string()) it->get_to(value);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (it->is_boolean()) it->get_to(value);
    } else {
      if (it->is_number()) it->get_to(value);
    }
  };
  o.visit(read);
}

std::string train_command(TrainOptions o) {
  const Json now = options_json(std::move(o)), usual = options_json({});
  std::string out = "braid train";
  const auto word = [&](const std::string& name, const Json& value) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    const bool plain = !text.empty() && text.find_first_not_of(
                                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                            "0123456789._-/=+:,") == std::string::npos;
    out += " --" + name + (plain ? " " + text : " '" + text + "'");
  };
  for (const auto& [name, value] : now.items()) {
    if (value == usual[name]) continue;
    if (value.is_array())
      for (const Json& each : value) word(name, each);
    else if (value.is_boolean())
      out += " --" + name;
    else
      word(name, value);
  }
  return out;
}

Result<TrainSummary> run_training(const TrainOptions& o, Source& source, const Program& program,
                                  ThreadPool& pool, const RunHooks& hooks) {
  namespace fs = std::filesystem;
  if (o.resume) {
    const Result<Json> stored = load_json(o.run + "/run.json");
    if (stored && stored->contains("data") &&
        (*stored)["data"].value("fingerprint", "") != source.fingerprint())
      return Error{"cannot resume: the data is not what the run was started with",
                   "restore the text, the task's settings and --seed, or start a new run"};
  }
  // A resumed run keeps the config it was written with.
  const Result<ModelConfig> config = o.resume ? load_config(o.run + "/config.json") : make_config(o, source);
  if (!config) return config.error();
  std::unique_ptr<Model> model = Model::create(*config);
  init_model(*model, o, source);
  if (!o.resume && (fs::exists(o.run + "/run.json") || fs::exists(o.run + "/state")))
    return Error{o.run + ": there is a run in this folder",
                 "add --resume to go on with it, or choose another --run"};
  if (Status s = make_dirs(o.run); !s) return s.error();
  if (!o.resume)
    if (Status s = source.save_companions(o.run); !s) return s.error();
  if (Status s = save_json(o.run + "/run.json", run_record(program, o, source, *model, pool.threads())); !s)
    return s.error();
  if (hooks.on_start)
    hooks.on_start(fmt::format("{} parameters, {}; {} threads, {}; run folder {}", model->params().count(),
                               source.describe(), pool.threads(), o.precision, o.run));
  Trainer trainer(*model, source, pool, o);
  if (hooks.on_metrics) trainer.on_metrics(hooks.on_metrics);
  return trainer.run(o.resume, hooks.quiet);
}

}  // namespace braid
