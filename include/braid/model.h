// Models: configs, presets, the one forward, files, and what it takes to add a mixer.
#pragma once

#include "autograd/ops.h"
#include "base/cpu.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "model/config.h"
#include "model/mixers/attend.h"
#include "model/mixers/fast_weight.h"
#include "model/mixers/heads.h"
#include "model/mixers/registry.h"
#include "model/mixers/remember.h"
#include "model/model.h"
#include "model/presets.h"
