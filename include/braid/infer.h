// Sessions, sampling and generation.
#pragma once

#include "base/cpu.h"
#include "infer/generate.h"
#include "infer/generation_config.h"
#include "infer/sampler.h"
#include "infer/session.h"
#include "model/model.h"
