#include "train/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "base/cpu.h"
#include "base/nearest.h"
#include "io/file.h"
#include "io/strict_json.h"
#include "model/config_json.h"
#include "model/presets.h"
#include "train/run_folder.h"
#include "train/run_record.h"
#include "train/tensorboard.h"

namespace braid {
namespace {

constexpr const char* kEmbedding = "embedding.weight";

}  // namespace

Status validate(const TrainOptions& o) {
  std::vector<Problem> p = unusable(o);
  const int kinds = int{!o.task.empty()} + int{!o.text.empty()} + int{!o.data.empty()};
  if (kinds != 1)
    p.push_back({"--task, --text, --data", kinds == 0 ? "none of them is given" : "more than one is given",
                 "give one of them"});
  if (o.data.empty() && !o.eval_data.empty())
    p.push_back({"--eval-data", "needs --data", "give folders of tokens to train on"});
  if (o.data.empty() && o.reset_at_documents)
    p.push_back({"--reset-at-documents", "needs --data", "a text file is one document"});
  if (!o.task.empty() && o.tokens > 0)
    p.push_back({"--tokens", "needs --data or --text", "a task's sequences differ in length: use --steps"});
  if (o.task.empty() && !o.task_set.empty())
    p.push_back({"--task-set", "needs --task", "give the task's name"});
  const TrainOptions usual;
  if (!o.model.empty() &&
      (o.arch != usual.arch || o.size != usual.size || !o.config.empty() || !o.set.empty()))
    p.push_back({"--model", "is given with --arch, --size, --config or --set",
                 "a folder's model has its own config"});
  if (!o.model.empty() && o.fixed_embedding)
    p.push_back({"--fixed-embedding", "is given with --model", "leave one of them out"});
  if (o.text.empty() && !o.tokenizer.empty())
    p.push_back({"--tokenizer", "needs --text", "a task has its own tokens, and so has --data"});
  if (o.task.empty() && o.fixed_embedding)
    p.push_back({"--fixed-embedding", "needs --task", "a text has no input vectors"});
  if (o.task.empty() && o.grow_at > 0) p.push_back({"--grow-at", "needs --task", "a text has no curriculum"});
  if (o.task.empty() && o.stop_at > 0)
    p.push_back({"--stop-at", "needs --task", "for a text use --patience, --minutes or --steps"});
  if (!p.empty()) return wrong_options(p);
  return {};
}

Status check_batch(const TrainOptions& o, const Source& source) {
  const double tokens = static_cast<double>(o.batch) * static_cast<double>(o.accumulate) *
                        static_cast<double>(source.max_length());
  if (tokens < 4e9) return {};
  return Error{
      fmt::format(
          "--batch, --accumulate: a step of {} x {} sequences could have {:.3g} tokens, the limit is 4e9",
          o.batch, o.accumulate, tokens),
      "use a smaller --batch or shorter sequences"};
}

Result<ModelConfig> make_config(const TrainOptions& o, int64_t vocab_size) {
  const bool own = !o.config.empty();
  Result<Json> json = own ? load_json(o.config) : preset_config(o.arch, o.size, vocab_size);
  if (!json) return json.error();
  for (const std::string& s : o.set)
    if (Status status = apply_override(*json, s); !status) return status.error();
  Result<ModelConfig> config = parse_config(*json, own ? o.config : "--arch " + o.arch);
  if (config && config->vocab_size < vocab_size)
    return Error{
        fmt::format("--set vocab_size: is {}, but the data has {} tokens", config->vocab_size, vocab_size),
        fmt::format("use {} or more", vocab_size)};
  return config;
}

namespace {

// Every token and answer of the data has a row.
Status fits(const ModelConfig& config, const Source& source) {
  if (config.vocab_size < static_cast<int64_t>(source.vocab_size()))
    return Error{fmt::format("--set vocab_size: is {}, but the data has {} tokens", config.vocab_size,
                             source.vocab_size()),
                 fmt::format("use {} or more", source.vocab_size())};
  if (config.answers() < static_cast<int64_t>(source.answers()))
    return Error{
        fmt::format("--set outputs: is {}, but the data has {} answers", config.outputs, source.answers()),
        fmt::format("use {} or more, or 0", source.answers())};
  return {};
}

}  // namespace

Result<ModelConfig> make_config(const TrainOptions& o, const Source& source) {
  Result<ModelConfig> config = make_config(o, static_cast<int64_t>(source.vocab_size()));
  if (!config) return config;
  if (Status s = fits(*config, source); !s) return s.error();
  config->train_length = o.task.empty() ? o.length : 0;
  if (!o.fixed_embedding) return config;
  const std::optional<Tensor> rows = source.fixed_embedding();
  if (!rows)
    return Error{"--fixed-embedding: the task has no input vectors of its own", "leave the option out"};
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

namespace {

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return date;
}

Json program_json(const Program& p) {
  return {{"version", p.version}, {"commit", p.commit}, {"compiler", p.compiler}};
}
Json machine_json(const ThreadPool& pool) {
  return {{"cpu", cpu_model()}, {"isa", isa_name(pool.kernels().isa())}, {"threads", pool.threads()}};
}

}  // namespace

Json run_record(const Program& program, const TrainOptions& o, const Source& source, const Model& model,
                const ThreadPool& pool) {
  return {{"version", kRunVersion},
          {"command", program.command},
          {"started", now_text()},
          {"options", options_json(with_absolute_paths(o))},
          {"braid", program_json(program)},
          {"machine", machine_json(pool)},
          {"data", {{"source", source.describe()}, {"fingerprint", source.fingerprint()}}},
          {"parameters", model.params().count()}};
}

Json resumed_record(Json record, const Program& program, const TrainOptions& o, const ThreadPool& pool) {
  record["options"] = options_json(with_absolute_paths(o));
  record["resumed"].push_back({{"command", program.command},
                               {"started", now_text()},
                               {"braid", program_json(program)},
                               {"machine", machine_json(pool)}});
  return record;
}

Json options_json(TrainOptions o) {
  Json record = Json::object();
  const auto write = [&](const char* name, const auto& value, const char*) { record[name + 2] = value; };
  o.visit(write);
  return record;
}

Result<TrainOptions> options_from_json(const Json& options, const std::string& file) {
  TrainOptions o;
  std::vector<std::string> known;
  Status status;
  const auto read = [&](const char* name, auto& value, const char*) {
    known.emplace_back(name + 2);
    if (status && options.contains(known.back()))
      status = read_field(options, known.back(), value, file, "options.");
  };
  o.visit(read);
  if (!status) return status.error();
  for (const auto& [name, value] : options.items())
    if (std::ranges::find(known, name) == known.end())
      return Error{file + ": options." + name + " is not an option of this version",
                   "go on with the version of Braid that wrote it"};
  return o;
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

namespace {

// The record of a run that is to go on, if data and options are still what it was started with.
Result<Json> continued(const TrainOptions& o, const Source& source, const Trainer::OnNote& note) {
  Result<Json> record = load_run_record(o.run);
  if (!record) return record;
  const std::string file = o.run + "/run.json";
  const Result<TrainOptions> started = options_from_json((*record)["options"], file);
  if (!started) return started.error();
  if (const std::vector<Problem> p = changed_on_the_way(o, *started); !p.empty()) return wrong_options(p);
  if (run_version(*record) == 1) {  // with another hash
    if (note) note(file + " is of an earlier version: whether the data is unchanged cannot be told");
    (*record)["data"] = {{"source", source.describe()}, {"fingerprint", source.fingerprint()}};
    (*record)["version"] = kRunVersion;
  } else if ((*record)["data"]["fingerprint"] != source.fingerprint()) {
    return Error{fmt::format("--run {}: cannot resume: the data is not what the run was started with", o.run),
                 "restore the text, the task's settings and --seed, or start a new run"};
  }
  return record;
}

// The numbers of a line of metrics.jsonl: train/loss, eval/loss, eval/NAME, eval/SET/loss.
Status add_metrics(EventFile& events, const std::string& line) {
  const Result<Json> json = parse_ordered_json(line, "metrics");
  if (!json) return json.error();
  std::vector<Scalar> scalars;
  const bool evaluation = json->contains("eval_loss");
  for (const auto& [name, value] : json->items()) {
    if (value.is_number() && name != "step")
      scalars.push_back(
          {evaluation ? "eval/" + name.substr(name.starts_with("eval_") ? 5 : 0) : "train/" + name,
           value.get<double>()});
    if (name == "metrics")
      for (const auto& [metric, m] : value.items())
        scalars.push_back({"eval/" + metric, m["value"].get<double>()});
    if (name == "eval_sets")
      for (const auto& [set, part] : value.items())
        for (const char* what : {"loss", "bits_per_byte"})
          if (part.contains(what)) scalars.push_back({"eval/" + set + "/" + what, part[what].get<double>()});
  }
  return events.add((*json)["step"].get<uint64_t>(), scalars);
}

// Which the run starts with; of a resumed run its parameters are read later.
Result<std::unique_ptr<Model>> first_model(const TrainOptions& o, const Source& source) {
  if (!o.resume && !o.model.empty()) {
    Result<std::unique_ptr<Model>> model = Model::load(o.model);
    if (!model) return Error{"--model " + model.error().what, model.error().fix};
    if (Status s = fits((*model)->config(), source); !s)
      return Error{"--model " + o.model + ": " + s.error().what, s.error().fix};
    // Longer sequences than it was trained on lengthen the context that it states.
    ModelConfig config = (*model)->config();
    if (!o.task.empty() || config.train_length == 0 || config.train_length >= o.length) return model;
    config.train_length = o.length;
    std::unique_ptr<Model> longer = Model::create(config);
    longer->params().allocate();
    std::ranges::copy((*model)->params().block(), longer->params().block().begin());
    return longer;
  }
  // A resumed run keeps the config it was written with.
  const Result<ModelConfig> config = o.resume ? load_config(o.run + "/config.json") : make_config(o, source);
  if (!config) return config.error();
  std::unique_ptr<Model> model = Model::create(*config);
  init_model(*model, o, source);
  return model;
}

// The tokenizer, and what else belongs to the model that training starts with: chat template, settings.
Status save_companions(const TrainOptions& o, const Source& source) {
  if (Status s = source.save_companions(o.run); !s) return s;
  if (o.model.empty()) return {};
  for (const std::string_view name : companion_files()) {
    const std::string from = o.model + "/" + std::string(name), to = o.run + "/" + std::string(name);
    if (!path_exists(from) || path_exists(to)) continue;
    const Result<std::string> text = read_text(from);
    if (!text) return text.error();
    if (Status s = write_atomic(to, *text); !s) return s;
  }
  return {};
}

}  // namespace

Result<TrainSummary> run_training(const TrainOptions& asked, Source& source, const Program& program,
                                  ThreadPool& pool, const RunHooks& hooks) {
  TrainOptions o = asked;
  o.steps = total_steps(o);
  const std::string option = hooks.folder_option.empty() ? "--run" : hooks.folder_option;
  Json record;
  if (o.resume) {
    Result<Json> earlier = continued(o, source, hooks.on_note);
    if (!earlier) return earlier.error();
    record = *std::move(earlier);
  }
  const Result<std::unique_ptr<Model>> made = first_model(o, source);
  if (!made) return made.error();
  const std::unique_ptr<Model>& model = *made;
  Result<RunFolder> folder =
      o.resume ? RunFolder::resume(o.run, option) : RunFolder::start(o.run, hooks.start_over, option);
  if (!folder) return folder.error();
  if (!o.resume)
    if (Status s = save_companions(o, source); !s) return s.error();
  record = o.resume ? resumed_record(std::move(record), program, o, pool)
                    : run_record(program, o, source, *model, pool);
  if (Status s = save_json(o.run + "/run.json", record); !s) return s.error();
  if (hooks.on_start)
    hooks.on_start(fmt::format("{} parameters, {}; {} thread{}, {}; run folder {}", model->params().count(),
                               source.describe(), pool.threads(), pool.threads() == 1 ? "" : "s", o.precision,
                               o.run));
  Trainer trainer(*model, source, pool, o);
  std::optional<EventFile> events;
  if (o.tensorboard) {
    Result<EventFile> started = EventFile::start(o.run, o.resume ? latest_checkpoint(o.run).value_or(0) : 0);
    if (!started) return started.error();
    events = *std::move(started);
  }
  trainer.on_metrics([&](const std::string& line) {
    if (hooks.on_metrics) hooks.on_metrics(line);
    if (!events) return;
    if (const Status s = add_metrics(*events, line); !s) {
      if (hooks.on_note) hooks.on_note(s.error().what + "; no more events are written");
      events.reset();
    }
  });
  if (hooks.on_evaluation) trainer.on_evaluation(hooks.on_evaluation);
  if (hooks.on_note) trainer.on_note(hooks.on_note);
  trainer.use(*std::move(folder));
  return trainer.run({.resume = o.resume, .quiet = hooks.quiet});
}

}  // namespace braid
