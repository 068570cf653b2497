// Training: sources of batches, the trainer, and its parts for a loop of one's own.
#pragma once

#include "base/cpu.h"
#include "data/text.h"
#include "io/json.h"
#include "model/config.h"
#include "model/model.h"
#include "model/presets.h"
#include "train/gradient.h"
#include "train/optimizer.h"
#include "train/trainer.h"
