// Benchmarks, scored as lm-evaluation-harness does. docs/howto/eval.md
#pragma once

#include "eval/harness.h"
#include "eval/task.h"
#include "infer/score.h"
