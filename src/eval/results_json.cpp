#include "eval/results_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "eval/python_text.h"
#include "io/file.h"
#include "io/json.h"
#include "io/sha256.h"

namespace braid {
namespace {

void put_value(Json& to, const ResultValue& v, const std::string& filter) {
  to[v.metric.name + "," + filter] = v.value;
  to[v.metric.name + "_stderr," + filter] = v.error ? Json(*v.error) : Json("N/A");
}

Json generation_arguments(const Benchmark& task) {
  return {{"until", task.until},
          {"do_sample", false},
          {"temperature", 0.0},
          {"max_gen_toks", task.max_new_tokens}};
}

Json arguments_json(const Benchmark& task, const EvalDocument& d) {
  Json all = Json::object();
  for (size_t i = 0; i < d.requests.size(); ++i) {
    const EvalRequest& r = d.requests[i];
    Json& one = all[fmt::format("gen_args_{}", i)];
    one["arg_0"] = task.kind == RequestKind::kRolling ? r.continuation : r.context;
    if (task.kind == RequestKind::kGenerate)
      one["arg_1"] = generation_arguments(task);
    else if (task.kind == RequestKind::kLogLikelihood)
      one["arg_1"] = r.continuation;
  }
  return all;
}

const char* kind_name(RequestKind kind, const Benchmark& task) {
  if (kind == RequestKind::kGenerate) return "generate_until";
  if (kind == RequestKind::kRolling) return "loglikelihood_rolling";
  return task.metrics[0].aggregate == Aggregate::kPerplexity ? "loglikelihood" : "multiple_choice";
}

// As Python prints numbers and truth values: lm-eval writes responses as strings.
std::string number_text(double x) { return fmt::format("{}", x); }
std::string truth_text(bool x) { return x ? "True" : "False"; }

}  // namespace

std::vector<GroupResult> group_results(std::span<const ScoredTask> tasks) {
  std::vector<GroupResult> out;
  for (const TaskGroup& g : eval_groups()) {
    if (!g.scored) continue;
    std::vector<ResultValue> values;
    for (const ScoredTask& t : tasks)
      if (in_group(*t.task, g.name)) values.push_back(t.result.values[0]);
    const auto all =
        std::ranges::count_if(all_eval_tasks(), [&](const Benchmark& t) { return in_group(t, g.name); });
    if (static_cast<size_t>(all) == values.size())
      out.push_back({g.name, {group_value(values[0].metric.name, values)}});
  }
  return out;
}

Json results_json(std::span<const ScoredTask> tasks, const TaskSettings& settings) {
  Json j;
  Json &results = j["results"] = Json::object(), groups = Json::object(), subtasks = Json::object();
  for (const GroupResult& g : group_results(tasks)) {
    Json one{{"alias", g.group}};
    for (const ResultValue& v : g.values) put_value(one, v, "none");
    groups[g.group] = one;
    results[g.group] = one;
    for (const ScoredTask& t : tasks)
      if (in_group(*t.task, g.group)) subtasks[g.group].push_back(t.task->name);
  }
  Json configs = Json::object(), versions = Json::object(), shots = Json::object(), better = Json::object(),
       samples = Json::object();
  for (const ScoredTask& t : tasks) {
    const Benchmark& e = *t.task;
    Json& r = results[e.name];
    r["alias"] = e.name;
    Json metrics = Json::array();
    for (const ResultValue& v : t.result.values) {
      put_value(r, v, e.filter);
      metrics.push_back({{"metric", v.metric.name}, {"higher_is_better", v.metric.higher_is_better}});
      better[e.name][v.metric.name] = v.metric.higher_is_better;
    }
    configs[e.name] = {{"task", e.name},
                       {"output_type", kind_name(e.kind, e)},
                       {"description", e.description},
                       {"target_delimiter", e.delimiter},
                       {"fewshot_delimiter", e.fewshot_delimiter},
                       {"num_fewshot", settings.fewshot},
                       {"metric_list", std::move(metrics)}};
    if (e.kind == RequestKind::kGenerate) configs[e.name]["generation_kwargs"] = generation_arguments(e);
    if (e.cuts_context) configs[e.name]["recall_context"] = settings.recall_context;
    versions[e.name] = e.version;
    shots[e.name] = settings.fewshot;
    samples[e.name] = {{"original", t.available}, {"effective", t.result.documents}};
  }
  if (!groups.empty()) j["groups"] = std::move(groups), j["group_subtasks"] = std::move(subtasks);
  j["configs"] = std::move(configs);
  j["versions"] = std::move(versions);
  j["n-shot"] = std::move(shots);
  j["higher_is_better"] = std::move(better);
  j["n-samples"] = std::move(samples);
  return j;
}

Json sample_json(const Benchmark& task, std::span<const TaskMetric> metrics, const EvalDocument& d,
                 const EvalSample& sample) {
  // The row was written by this program.
  const Result<Json> doc = parse_ordered_json(d.row, task.name);
  check(static_cast<bool>(doc), "sample_json: a document's row is not JSON");
  Json j{{"doc_id", d.id}, {"doc", *doc}};
  j["target"] = d.gold              ? Json(fmt::format("{}", *d.gold))
                : d.answers.empty() ? Json(d.target)
                                    : Json(d.answers);
  j["arguments"] = arguments_json(task, d);
  Json responses = Json::array(), filtered = Json::array();
  for (const EvalResponse& r : sample.responses) {
    Json one, kept;
    if (task.kind == RequestKind::kGenerate)
      one = r.text, kept = task.filter == "none" ? r.text : std::string(strip(r.text));
    else if (task.kind == RequestKind::kRolling)
      one = kept = number_text(r.log_likelihood);
    else
      one = kept = Json::array({number_text(r.log_likelihood), truth_text(r.greedy)});
    responses.push_back(Json::array({one}));
    filtered.push_back(kept);
  }
  j["resps"] = std::move(responses), j["filtered_resps"] = std::move(filtered);
  j["filter"] = task.filter;
  Json names = Json::array(), values = Json::object();
  for (size_t m = 0; m < metrics.size(); ++m) {
    const MetricValue& v = sample.metrics[m];
    if (v.weight == 0) continue;
    names.push_back(metrics[m].name);
    const bool weighted = metrics[m].aggregate == Aggregate::kWeightedPerplexity ||
                          metrics[m].aggregate == Aggregate::kBitsPerByte;
    values[metrics[m].name] = weighted ? Json::array({v.value, v.weight}) : Json(v.value);
  }
  j["metrics"] = std::move(names);
  const auto dump = [](const Json& x, int indent) {
    return x.dump(indent, ' ', false, Json::error_handler_t::replace);
  };
  j["doc_hash"] = Sha256().text(dump(*doc, 2)).hex();
  j["prompt_hash"] =
      Sha256()
          .text(task.kind == RequestKind::kRolling ? d.requests[0].continuation : d.requests[0].context)
          .hex();
  j["target_hash"] =
      Sha256().text(j["target"].is_string() ? j["target"].get<std::string>() : dump(j["target"], -1)).hex();
  j.update(values);
  return j;
}

Result<std::map<size_t, std::vector<EvalResponse>>> read_samples(const std::string& path,
                                                                 const Benchmark& task,
                                                                 std::span<const EvalDocument> documents) {
  std::map<size_t, std::vector<EvalResponse>> out;
  Result<std::string> text = read_text(path, size_t{4} << 30);
  if (!text) return text.error();
  std::map<size_t, const EvalDocument*> by_id;
  for (const EvalDocument& d : documents) by_id[d.id] = &d;
  size_t line = 0;
  const auto wrong = [&](const char* what) {
    return Error{fmt::format("{}:{}: {}", path, line, what),
                 "remove the file: its documents are scored again"};
  };
  // The last line may have been cut by a kill.
  text->resize(text->rfind('\n') + 1);
  for (const std::string& l : split_at(*text, '\n')) {
    ++line;
    if (l.empty()) continue;
    const Result<Json> j = parse_ordered_json(l, path);
    if (!j || !j->is_object() || !j->contains("doc_id") || !(*j)["doc_id"].is_number_unsigned() ||
        !j->contains("arguments") || !j->contains("resps") || !(*j)["resps"].is_array())
      return wrong("the sample is damaged");
    const auto known = by_id.find((*j)["doc_id"].get<size_t>());
    if (known == by_id.end()) continue;
    const EvalDocument& d = *known->second;
    if ((*j)["arguments"] != arguments_json(task, d)) return wrong("the sample is of another document");
    std::vector<EvalResponse> responses;
    for (const Json& wrapped : (*j)["resps"]) {
      if (!wrapped.is_array() || wrapped.size() != 1) return wrong("the sample is damaged");
      const Json& one = wrapped[0];
      EvalResponse r;
      const Json& number = one.is_array() && one.size() == 2 ? one[0] : one;
      if (!number.is_string()) return wrong("the sample is damaged");
      const std::string s = number.get<std::string>();
      if (task.kind == RequestKind::kGenerate)
        r.text = s;
      else if (std::from_chars(s.data(), s.data() + s.size(), r.log_likelihood).ptr != s.data() + s.size())
        return wrong("the sample is damaged");
      r.greedy = one.is_array() && one[1] == "True";
      responses.push_back(std::move(r));
    }
    if (responses.size() != d.requests.size()) return wrong("the sample is of another document");
    out[d.id] = std::move(responses);
  }
  return out;
}

Status tidy_samples(const std::string& path) {
  Result<std::string> text = read_text(path, size_t{4} << 30);
  if (!text) return text.error();
  std::vector<std::pair<size_t, std::string_view>> lines;  // by document
  for (size_t at = 0, end; (end = text->find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string_view line = std::string_view(*text).substr(at, end - at);
    constexpr std::string_view kId = "{\"doc_id\":";  // how sample_json begins
    size_t id = 0;
    if (line.starts_with(kId)) std::from_chars(line.data() + kId.size(), line.data() + line.size(), id);
    lines.emplace_back(id, line);
  }
  std::ranges::stable_sort(lines, {}, &std::pair<size_t, std::string_view>::first);
  Result<AtomicFile> out = AtomicFile::open(path);
  if (!out) return out.error();
  for (const auto& [id, line] : lines)
    if (Status s = out->write(std::string(line) + "\n"); !s) return s;
  return out->commit();
}

}  // namespace braid
