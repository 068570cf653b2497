// `braid eval --tasks`: benchmarks as lm-evaluation-harness scores them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/number.h"
#include "cli/weight_flags.h"

namespace braid {

struct EvalTaskFlags {
  std::string tasks, data = "data", lengths = "512,1024,2048", out, log_samples, page;
  int64_t fewshot = 0, limit = 0, max_length = 0, recall_context = 1024, needle_samples = 100,
          benchmark_seed = 1234, bootstrap = 100000, pass_tokens = 2048, state_from = 128;
  bool requests = false, bos = false, request_lines = false;

  template <class V>
  void visit(V& v) {
    constexpr Bounds<int64_t> kCount{0, 1'000'000'000}, kFromOne{1, 1'000'000'000};
    v("--tasks", tasks,
      "benchmarks, with commas between: names and groups that `braid --markdown benchmarks` prints, e.g. "
      "arc_easy,piqa or papers");
    v("--data", data, "folder with the benchmarks' files");
    v("--fewshot", fewshot, "examples before each question, drawn as lm-eval draws them",
      Bounds<int64_t>{0, 1000});
    v("--limit", limit, "documents of each benchmark, the first of its file; 0 = all", kCount);
    v("--max-length", max_length,
      "tokens of an input, longer ones lose their beginning; 0 = as the model's files say, else 2048",
      kCount);
    v("--bos", bos,
      "contexts begin with the tokenizer's BOS, as in lm-eval from 0.4.9.2; without it as in earlier "
      "versions");
    v("--recall-context", recall_context, "tokens of a recall task's prompt and answer: 512, 1024, 2048, ..",
      Bounds<int64_t>{64, 1'000'000'000});
    v("--lengths", lengths, "tokens of niah tasks' documents, with commas between");
    v("--needle-samples", needle_samples, "documents of niah tasks for each length", kFromOne);
    v("--benchmark-seed", benchmark_seed, "random seed of few-shot examples and niah documents", kCount);
    v("--bootstrap", bootstrap, "resamplings for the standard error of perplexities; 0 = no such error",
      kCount);
    v("--pass-tokens", pass_tokens, "tokens of a pass in each thread: its memory grows with them",
      Bounds<int64_t>{64, 1'000'000});
    v("--state-from", state_from,
      "tokens of a common prefix from which sequences continue copies of its state; below, they share rows",
      kFromOne);
    v("--requests", requests,
      "only the number of requests and their SHA-256, to compare prompts with another program; needs no "
      "model");
    v("--request-lines", request_lines,
      "instead of --tasks: requests from stdin as lines of JSON, answers to stdout; an empty line ends a "
      "batch "
      "(bench/peers/lm_eval_braid.py)");
    v("--log-samples", log_samples,
      "folder for a file samples_TASK.jsonl per benchmark; documents that it holds are not scored again");
    v("--out", out, "JSON file for the results, in lm-eval's form");
    v("--page", page, "HTML file for the results");
  }
};

// Benchmarks, or requests from stdin.
int run_eval_tasks(const EvalTaskFlags& flags, const std::string& model, const InferenceFlags& weights,
                   int64_t threads, bool json);

}  // namespace braid
