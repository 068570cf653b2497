// From options to a source of data, a config and a run record: what train, bench and demo share.
#pragma once

#include <memory>

#include "base/error.h"
#include "data/source.h"
#include "model/model.h"
#include "train/options.h"

namespace braid {

// Problems of single values, all at once.
Status validate(const TrainOptions& o);
Result<std::unique_ptr<Source>> make_source(const TrainOptions& o);
Status check_batch(const TrainOptions& o, const Source& source);  // a step's tokens are counted in 32 bits
Result<ModelConfig> make_config(const TrainOptions& o, int64_t vocab_size);
// Command, options, seed, version, commit, compiler, machine, data: what is needed to repeat the run.
Json run_record(TrainOptions o, const Source& source, const Model& model, int threads);

}  // namespace braid
