// Runs benchmarks on a model: requests become tokens, tokens become scores, scores become metrics with
// standard errors, as lm-evaluation-harness computes them.
//
//   EvalModel model{.model = *m, .tokenizer = *t, .pool = pool};
//   Result<TaskResult> r = run_task(*task, settings, documents, model);
//   r->values[0].value, r->values[0].error
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "eval/task.h"
#include "infer/score.h"
#include "tokenizer/tokenizer.h"

namespace braid {

class Model;

struct EvalModel {
  const Model& model;
  const Tokenizer& tokenizer;
  ThreadPool& pool;
  size_t max_length = 2048;     // tokens that an input has at most; longer ones lose their beginning
  bool special_tokens = false;  // contexts begin with the tokenizer's BOS, as in lm-eval since 0.4.9.2
  int32_t prefix = 0;           // the context of a text without one: BOS, else EOS
  std::vector<int32_t> end_tokens = {};  // end a generation
  ScorerOptions scorer = {};
};

// What is scored for a request, as lm-eval tokenises it. None: the continuation has no tokens.
Result<std::optional<ScoreRequest>> encode_pair(const EvalModel& model, const EvalRequest& request);
Result<std::vector<ScoreRequest>> encode_rolling(const EvalModel& model, const std::string& text);
Result<PromptRequest> encode_prompt(const EvalModel& model, const std::string& context,
                                    int64_t max_new_tokens);

struct EvalSample {
  std::vector<EvalResponse> responses = {};  // one for each request
  std::vector<MetricValue> metrics = {};
};
struct ResultValue {
  TaskMetric metric = {};
  double value = 0;
  std::optional<double> error = {};  // standard error, where lm-eval has one
  size_t documents = 0;
};
struct TaskResult {
  std::vector<ResultValue> values = {};
  std::vector<EvalSample> samples = {};  // by document
  size_t documents = 0, reused = 0;      // reused: their responses were known
  size_t tokens = 0;                     // of the requests that were computed, shared prefixes counted once
  double seconds = 0;
};
struct EvalRunOptions {
  // Responses to documents (by id) of an earlier run.
  std::map<size_t, std::vector<EvalResponse>> known = {};
  // Documents as soon as they are done, in the order in which that happens.
  std::function<Status(const EvalDocument&, const EvalSample&)> done = {};
  std::function<bool(size_t documents, size_t tokens)> tick = {};  // so far; false: stop, which is an error
  size_t bootstrap = 100000;  // resamplings for the error of a perplexity; 0: none
};
Result<TaskResult> run_task(const Benchmark& task, const TaskSettings& settings,
                            std::span<const EvalDocument> documents, const EvalModel& model,
                            const EvalRunOptions& options = {});

// The mean of a group's results and its error, as lm-eval pools them.
ResultValue group_value(const std::string& metric, std::span<const ResultValue> values);

// A result for all documents; `pool` for the resamplings.
std::vector<ResultValue> aggregate(std::span<const TaskMetric> metrics, std::span<const EvalSample> samples,
                                   size_t bootstrap, Par par = {});

// A text is cut at each of these, one after the other.
std::string cut_at_stops(std::string text, std::span<const std::string> stops);

// The number of tokens that a model folder's files name as its longest input; 2048 if none does.
Result<size_t> longest_input(const std::string& model_folder);

}  // namespace braid
