// The benchmarks: one table says which file a task reads, how a row of it becomes requests and how responses
// are scored. Prompts, choices and metrics are those of lm-evaluation-harness 0.4.
//
//   Result<std::vector<const Benchmark*>> tasks = find_eval_tasks({"arc_easy", "blimp"});
//   Result<std::vector<EvalDocument>> docs = load_documents(*(*tasks)[0], {.data = "data"});
//   docs->front().requests[0].context                        // "Question: ..."
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace braid {

class Tokenizer;
struct NeedleKind;

enum class RequestKind {
  kLogLikelihood,  // of a continuation behind a context
  kRolling,        // of a whole text, in windows
  kGenerate        // greedy continuation of a context
};

struct EvalRequest {
  std::string context = {}, continuation = {};  // kRolling: the text is the continuation
};

struct EvalDocument {
  size_t id = 0;         // its place in the task
  std::string row = {};  // JSON, as in the file
  std::vector<EvalRequest> requests = {};
  std::vector<std::string> choices = {};               // without the delimiter before them
  std::vector<std::vector<std::string>> answers = {};  // of a generation: each may have several parts
  std::optional<size_t> gold = {};                     // the right choice
  std::string target = {};                             // the right continuation, for few-shot examples
  std::string query = {};                              // the context without examples
  size_t words = 0, bytes = 0;                         // kRolling: of the text before it was detokenised
  size_t metric = 0;  // of tasks that report lengths apart: the metric that this document counts for
};

// What a model answered to a request.
struct EvalResponse {
  double log_likelihood = 0;
  bool greedy = false;    // every token of the continuation was the likeliest
  std::string text = {};  // kGenerate
};

enum class Aggregate { kMean, kPerplexity, kWeightedPerplexity, kBitsPerByte };
struct TaskMetric {
  std::string name = {};
  Aggregate aggregate = Aggregate::kMean;
  bool higher_is_better = true;
};
struct MetricValue {
  double value = 0, weight = 1;  // weight 0: the document does not count for this metric
};

struct TaskSettings {
  std::string data = "data";                         // folder with the tasks' files
  int64_t fewshot = 0;                               // examples before the question
  size_t limit = SIZE_MAX;                           // documents, the first of the file
  int64_t recall_context = 1024;                     // tokens that recall tasks keep of a passage
  std::vector<int64_t> lengths = {512, 1024, 2048};  // tokens of generated documents
  int64_t needle_samples = 100;                      // documents per length
  uint64_t seed = 1234;  // of generated documents and few-shot examples (lm-eval: 1234)
};

class EvalRow;      // a row of a data file
struct EvalMaker {  // how a task makes its documents; in tasks.cpp
  void (*build)(EvalRow& row, EvalDocument& doc) = nullptr;
  void (*score)(const EvalDocument& doc, std::span<const EvalResponse> got,
                std::span<MetricValue> to) = nullptr;
  const NeedleKind* needle = nullptr;  // generated documents
};

struct Benchmark {
  std::string name = {}, group = {};      // group: "" or a set of tasks that is also scored as one
  std::string summary = {}, source = {};  // split and contents; where the file can be had
  std::vector<std::string> files = {};    // below --data; the first that exists is read. None: generated
  RequestKind kind = RequestKind::kLogLikelihood;
  std::vector<TaskMetric> metrics = {};
  std::string filter = "none";          // lm-eval's name of what is done to responses first
  std::vector<std::string> until = {};  // kGenerate: ends a response
  int64_t max_new_tokens = 256;
  bool cuts_context = false;               // a recall task: passages are cut to --recall-context tokens
  bool several_contexts = false;           // choices are contexts of one continuation (WinoGrande)
  std::string description = {};            // before examples and question
  std::string delimiter = " ";             // before a continuation
  std::string fewshot_delimiter = "\n\n";  // behind each example
  int version = 1;                         // of the prompt, as in lm-eval
  EvalMaker maker = {};

  bool needs_tokenizer() const { return cuts_context || maker.needle; }
};

const std::vector<Benchmark>& all_eval_tasks();
// Names of tasks and groups, each task once, in this order. "-" and "_" are the same.
Result<std::vector<const Benchmark*>> find_eval_tasks(const std::vector<std::string>& names);
struct TaskGroup {
  std::string name = {}, summary = {};
  bool scored = false;  // the mean of its tasks is a result, as in lm-eval
};
const std::vector<TaskGroup>& eval_groups();
bool in_group(const Benchmark& task, const std::string& group);

// The tokenizer is needed by tasks that count tokens. Errors name file, line and field. available: how many
// documents there are without the limit.
Result<std::vector<EvalDocument>> load_documents(const Benchmark& task, const TaskSettings& settings,
                                                 const Tokenizer* tokenizer = nullptr,
                                                 size_t* available = nullptr);
// The names of the task's metrics: of generated documents one for each length.
std::vector<TaskMetric> metrics_of(const Benchmark& task, const TaskSettings& settings);

// Sums over all documents in order, to compare prompts with another implementation without a model:
// sha256 of context 0x1F continuation 0x1E for each request; rolling: of texts with 0x1E between.
std::string requests_sha256(const Benchmark& task, std::span<const EvalDocument> documents);
std::string gold_sha256(std::span<const EvalDocument> documents);  // of the right choices, "0,2,1"

}  // namespace braid
