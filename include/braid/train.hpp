// Training: models from configs, sources of batches, the trainer, its parts for a loop of one's own, and
// tokenizers.
#pragma once

#if __cplusplus < 202002L
#error "Braid needs C++20: compile with -std=c++20"
#else

#include "base/cpu.h"
#include "data/text.h"
#include "model/config.h"
#include "model/model.h"
#include "tokenizer/train.h"
#include "train/gradient.h"
#include "train/optimizer.h"
#include "train/trainer.h"
#include "version.hpp"

#endif
