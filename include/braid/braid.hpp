// Loading, sessions, generation, conversations and states. docs/howto/embed.md has a tour.
#pragma once

#include "base/cpu.h"
#include "infer/context.h"
#include "infer/conversation.h"
#include "infer/evaluate.h"
#include "infer/generate.h"
#include "infer/prompt_memory.h"
#include "infer/sampler.h"
#include "infer/session.h"
#include "infer/text_model.h"
#include "model/state_file.h"
#include "tokenizer/tokenizer.h"
#include "version.hpp"
