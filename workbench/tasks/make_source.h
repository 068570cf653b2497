// The data that training options name: a task's samples or a text.
#pragma once

#include <memory>

#include "base/error.h"
#include "data/source.h"
#include "train/options.h"

namespace braid {

Result<std::unique_ptr<Source>> make_source(const TrainOptions& o);

}  // namespace braid
