// Results and samples in the form of lm-evaluation-harness's files.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "eval/harness.h"
#include "io/json_fwd.h"

namespace braid {

struct ScoredTask {
  const Benchmark* task;
  TaskResult result = {};
  size_t available = 0;  // documents without --limit
};

// {"results": {task: {"acc,none": .., "acc_stderr,none": ..}}, "groups": .., "versions": .., "n-samples": ..}
Json results_json(std::span<const ScoredTask> tasks, const TaskSettings& settings);
// Groups whose mean is a result, for each metric that all of their tasks have. Only groups that are complete.
struct GroupResult {
  std::string group = {};
  std::vector<ResultValue> values = {};
};
std::vector<GroupResult> group_results(std::span<const ScoredTask> tasks);

// A line of samples_TASK.jsonl.
Json sample_json(const Benchmark& task, std::span<const TaskMetric> metrics, const EvalDocument& document,
                 const EvalSample& sample);
// Responses of the lines that belong to these documents, by document id. An error names a line whose
// arguments are not those of its document.
Result<std::map<size_t, std::vector<EvalResponse>>> read_samples(const std::string& path,
                                                                 const Benchmark& task,
                                                                 std::span<const EvalDocument> documents);

// Puts the lines in the order of their documents and drops a last one that a kill has cut.
Status tidy_samples(const std::string& path);

}  // namespace braid
