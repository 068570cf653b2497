// From options to a config, a run record, and a whole run: what train, lab, bench and demo share.
#pragma once

#include <functional>
#include <memory>

#include "base/error.h"
#include "data/source.h"
#include "io/json_fwd.h"
#include "model/model.h"
#include "train/options.h"
#include "train/trainer.h"

namespace braid {

// Problems of single values, all at once.
Status validate(const TrainOptions& o);
Status check_batch(const TrainOptions& o, const Source& source);  // a step's tokens are counted in 32 bits
Result<ModelConfig> make_config(const TrainOptions& o, int64_t vocab_size);
Result<ModelConfig> make_config(const TrainOptions& o, const Source& source);  // it fits the data
// Initial weights, and the source's own input vectors if o.fixed_embedding.
void init_model(Model& model, const TrainOptions& o, const Source& source);

// What the program says of itself in a run's record.
struct Program {
  std::string command, version, commit, compiler;
  Isa isa = detected_isa();  // which instructions it uses
};
// Command, options, seed, version, commit, compiler, machine, data: what is needed to repeat the run.
Json run_record(const Program& program, const TrainOptions& o, const Source& source, const Model& model,
                const ThreadPool& pool);
// The record of a run that goes on: who goes on and when is added to its list `resumed`.
Json resumed_record(Json record, const Program& program, const TrainOptions& o, const ThreadPool& pool);

// The options as words of a command line, as far as they differ from the defaults.
std::string train_command(TrainOptions o);
// The options as a JSON object, names without dashes; and back: what is not there keeps its default, what is
// of a wrong type or no option is an error. `file` is named in errors.
Json options_json(TrainOptions o);
Result<TrainOptions> options_from_json(const Json& options, const std::string& file);

// A run folder from start, or from its last checkpoint if o.resume, to its end.
struct RunHooks {
  bool quiet = false;
  bool start_over = false;         // a run that is in the folder goes; else it is an error
  std::string folder_option = {};  // as which the folder was typed, if not as --run
  Trainer::OnNote on_note = {};    // what a user should know even if all goes well
  std::function<void(const std::string&)> on_start = {};  // one line about model and data
  Trainer::OnMetrics on_metrics = {};
  Trainer::OnEvaluation on_evaluation = {};
};
Result<TrainSummary> run_training(const TrainOptions& o, Source& source, const Program& program,
                                  ThreadPool& pool, const RunHooks& hooks = {});

}  // namespace braid
