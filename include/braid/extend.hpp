// For those who add mixers and ops: the executor with its tape, the ops of the forward, the table of mixers.
#pragma once

#if __cplusplus < 202002L
#error "Braid needs C++20: compile with -std=c++20"
#else

#include "autograd/ops.h"
#include "base/cpu.h"
#include "model/config.h"
#include "model/mixers/attend.h"
#include "model/mixers/fast_weight.h"
#include "model/mixers/heads.h"
#include "model/mixers/registry.h"
#include "model/mixers/remember.h"
#include "model/model.h"
#include "version.hpp"

#endif
