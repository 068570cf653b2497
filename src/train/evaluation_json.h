// An evaluation as metrics.jsonl and result.json have it.
#pragma once

#include "io/json_fwd.h"
#include "train/trainer.h"

namespace braid {

Json to_json(const Evaluation& e);

}  // namespace braid
