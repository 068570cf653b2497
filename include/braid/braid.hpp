// Loading, sessions, generation, conversations and states. docs/howto/embed.md has a tour.
#pragma once

#if __cplusplus < 202002L
#error "Braid needs C++20: compile with -std=c++20"
#else

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

#endif
