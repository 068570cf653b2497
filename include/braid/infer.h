// Sessions, sampling and generation.
#pragma once

#include "base/cpu.h"
#include "infer/evaluate.h"
#include "infer/generate.h"
#include "infer/generation_config.h"
#include "infer/prompt_memory.h"
#include "infer/sampler.h"
#include "infer/session.h"
#include "infer/text_model.h"
#include "model/model.h"
#include "model/state_file.h"
