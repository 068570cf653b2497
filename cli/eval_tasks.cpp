#include "cli/eval_tasks.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>

#include "base/interrupt.h"
#include "base/progress.h"
#include "cli/cli.h"
#include "cli/version.h"
#include "eval/harness.h"
#include "eval/python_text.h"
#include "eval/results_json.h"
#include "infer/text_model.h"
#include "io/file.h"
#include "io/folder.h"
#include "io/hash.h"
#include "io/strict_json.h"
#include "model/model.h"
#include "report/page.h"

namespace braid {
namespace {

Result<TaskSettings> settings_of(const EvalTaskFlags& f) {
  TaskSettings s{.data = f.data,
                 .fewshot = f.fewshot,
                 .recall_context = f.recall_context,
                 .needle_samples = f.needle_samples,
                 .seed = static_cast<uint64_t>(f.benchmark_seed)};
  if (f.limit > 0) s.limit = static_cast<size_t>(f.limit);
  s.lengths.clear();
  for (const std::string& word : split_at(f.lengths, ',')) {
    const Result<int64_t> n = parse_number<int64_t>(word, "--lengths", {64, 1'000'000'000});
    if (!n) return n.error();
    s.lengths.push_back(*n);
  }
  return s;
}

std::string n_text(size_t n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

// The sums of --requests.
int print_requests(const std::vector<const Benchmark*>& tasks, const TaskSettings& settings,
                   const Tokenizer* tokenizer, bool json) {
  if (!json)
    say("{:<20} {:>8} {:>9}  {:<64}  {}\n", "task", "docs", "requests", "sha256 of requests", "of labels");
  for (const Benchmark* t : tasks) {
    if (t->needs_tokenizer() && !tokenizer)
      return wrong_use({t->name + ": its prompts are counted in tokens", "give --model for its tokenizer"});
    const Result<std::vector<EvalDocument>> docs = load_documents(*t, settings, tokenizer);
    if (!docs) return fail(docs.error());
    size_t requests = 0;
    for (const EvalDocument& d : *docs) requests += d.requests.size();
    const bool labels = std::ranges::any_of(*docs, [](const EvalDocument& d) { return d.gold.has_value(); });
    const std::string sum = requests_sha256(*t, *docs), gold = labels ? gold_sha256(*docs) : "";
    if (json)
      print_json({{"task", t->name},
                  {"docs", docs->size()},
                  {"requests", requests},
                  {"sha256", sum},
                  {"gold_sha256", labels ? Json(gold) : Json()}});
    else
      say("{:<20} {:>8} {:>9}  {}  {}\n", t->name, docs->size(), requests, sum, labels ? gold : "-");
  }
  return kOk;
}

// What makes two runs give the same responses: part of a folder of samples.
Result<Json> fingerprint(const std::string& dir, const InferenceFlags& weights, const EvalModel& m,
                         const TaskSettings& s) {
  Hash hash;
  for (const std::string& name : names_in(dir)) {
    if (!name.ends_with(".safetensors") && name != "config.json" && !name.starts_with("tokenizer")) continue;
    if (std::filesystem::is_directory(dir + "/" + name)) continue;
    const Result<std::string> one = file_hash(dir + "/" + name);
    if (!one) return one.error();
    hash.text(name).text(*one);
  }
  return Json{{"model", hash.hex()},        {"dtype", weights.dtype},
              {"quant", weights.quant},     {"activations", weights.activations},
              {"max_length", m.max_length}, {"bos", m.special_tokens},
              {"fewshot", s.fewshot},       {"seed", s.seed}};
}

// The folder of samples: new, or of the same model and settings.
Status claim_samples(const std::string& dir, const Json& mark) {
  const std::string path = dir + "/evaluation.json";
  if (path_exists(path)) {
    const Result<Json> found = load_json(path);
    if (!found) return found.error();
    if (*found == mark) return {};
    return Error{fmt::format("--log-samples: {} has samples of another model or other settings", dir),
                 "give another folder, or remove this one"};
  }
  if (!is_empty_folder(dir))
    return Error{fmt::format("--log-samples: {} is not empty and has no samples", dir), "give a new folder"};
  if (Status s = make_folder("--log-samples", dir); !s) return s;
  return save_json(path, mark);
}

std::string samples_file(const std::string& dir, const Benchmark& t) {
  return fmt::format("{}/samples_{}.jsonl", dir, t.name);
}

// ---- Requests from another program

// Responses are returned as they are.
void keep_response(const EvalDocument&, std::span<const EvalResponse>, std::span<MetricValue>) {}

struct RequestLine {
  Json id = {};
  Benchmark task = {};  // kind, stops and length
  EvalDocument document = {};
};

Result<RequestLine> parse_request(const std::string& line, size_t number) {
  const std::string where = fmt::format("stdin, line {}", number);
  Result<Json> j = parse_ordered_json(line, where);
  if (!j) return j.error();
  RequestLine r{.id = j->is_object() && j->contains("id") ? (*j)["id"] : Json(), .task = {}, .document = {}};
  r.task.name = "request", r.task.maker.score = keep_response;
  const auto text = [&](const char* name) -> Result<std::string> {
    if (j->is_object() && j->contains(name) && (*j)[name].is_string()) return (*j)[name].get<std::string>();
    return Error{fmt::format("{}: the field '{}' is missing or no string", where, name),
                 "a request has type, and context with continuation, text, or context with until"};
  };
  const Result<std::string> type = text("type");
  if (!type) return type.error();
  EvalRequest request;
  if (*type == "loglikelihood") {
    const Result<std::string> context = text("context"), continuation = text("continuation");
    if (!context) return context.error();
    if (!continuation) return continuation.error();
    request = {*context, *continuation};
  } else if (*type == "loglikelihood_rolling") {
    const Result<std::string> whole = text("text");
    if (!whole) return whole.error();
    request.continuation = *whole, r.task.kind = RequestKind::kRolling;
  } else if (*type == "generate_until") {
    const Result<std::string> context = text("context");
    if (!context) return context.error();
    request.context = *context, r.task.kind = RequestKind::kGenerate;
    if (j->contains("until"))
      if (Status s = read_value((*j)["until"], r.task.until, "until", where); !s) return s.error();
    if (j->contains("max_gen_toks"))
      if (Status s = read_value((*j)["max_gen_toks"], r.task.max_new_tokens, "max_gen_toks", where); !s)
        return s.error();
    if (r.task.max_new_tokens < 1)
      return Error{fmt::format("{}: max_gen_toks is {}", where, r.task.max_new_tokens), "use 1 or more"};
  } else {
    return Error{fmt::format("{}: there is no request type '{}'", where, *type),
                 "use loglikelihood, loglikelihood_rolling or generate_until"};
  }
  r.document.requests = {std::move(request)};
  return r;
}

Status answer_batch(std::vector<RequestLine>& batch, const EvalModel& m) {
  std::vector<Json> answers(batch.size());
  std::vector<char> done(batch.size());
  for (size_t i = 0; i < batch.size(); ++i) {
    if (done[i]) continue;
    // Requests of one kind are a task.
    const Benchmark& task = batch[i].task;
    std::vector<EvalDocument> documents;
    std::vector<size_t> places;
    for (size_t k = i; k < batch.size(); ++k) {
      const Benchmark& other = batch[k].task;
      if (done[k] || other.kind != task.kind || other.until != task.until ||
          other.max_new_tokens != task.max_new_tokens)
        continue;
      done[k] = true, places.push_back(k);
      documents.push_back(batch[k].document);
      documents.back().id = documents.size() - 1;
    }
    const Result<TaskResult> result =
        run_task(task, {}, documents, m, {.tick = [](size_t, size_t) { return !interrupted(); }});
    if (!result) return result.error();
    for (size_t k = 0; k < places.size(); ++k) {
      const EvalResponse& r = result->samples[k].responses[0];
      Json& a = answers[places[k]] = {{"id", batch[places[k]].id}};
      if (task.kind == RequestKind::kGenerate) {
        a["text"] = r.text;
      } else {
        a["log_likelihood"] = r.log_likelihood;
        if (task.kind == RequestKind::kLogLikelihood) a["greedy"] = r.greedy;
      }
    }
  }
  for (const Json& a : answers) say("{}\n", a.dump(-1, ' ', false, Json::error_handler_t::replace));
  say("\n");
  flush_output();
  return {};
}

int answer_request_lines(const EvalModel& m) {
  std::vector<RequestLine> batch;
  size_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    if (!line.empty()) {
      Result<RequestLine> r = parse_request(line, number);
      if (!r) return fail(r.error());
      batch.push_back(*std::move(r));
      continue;
    }
    if (const Status s = answer_batch(batch, m); !s) return fail(s.error());
    batch.clear();
  }
  if (batch.empty()) return kOk;
  const Status s = answer_batch(batch, m);
  return s ? kOk : fail(s.error());
}

// ---- Results

std::string value_text(const ResultValue& v) { return fmt::format("{:.4f}", v.value); }
std::string error_text(const ResultValue& v) { return v.error ? fmt::format("{:.4f}", *v.error) : "-"; }

struct TableRow {
  std::string task = {};
  const ResultValue* value;
};

void print_table(const std::vector<TableRow>& rows, size_t width) {
  say("{:<{}}  {:<16} {:>12} {:>10} {:>8}\n", "task", width, "metric", "value", "stderr", "n");
  std::string last;
  for (const TableRow& r : rows) {
    say("{:<{}}  {:<16} {:>12} {:>10} {:>8}\n", r.task == last ? "" : r.task, width, r.value->metric.name,
        value_text(*r.value), error_text(*r.value), r.value->documents);
    last = r.task;
  }
}

Status save_page(const std::string& path, const std::string& model, const std::vector<TableRow>& rows,
                 const std::vector<ScoredTask>& tasks) {
  Page page("Benchmarks: " + model);
  PageTable table{.head = {"task", "metric", "value", "standard error", "documents"}, .rows = {}};
  for (const TableRow& r : rows)
    table.rows.push_back({{r.task},
                          {r.value->metric.name +
                           (r.value->metric.higher_is_better ? " (higher is better)" : " (lower is better)")},
                          {value_text(*r.value)},
                          {error_text(*r.value)},
                          {fmt::format("{}", r.value->documents)}});
  page.table(table);
  PageTable about{.head = {"task", "contents", "seconds", "tokens computed"}, .rows = {}, .words = true};
  for (const ScoredTask& t : tasks)
    about.rows.push_back({{t.task->name},
                          {t.task->summary},
                          {fmt::format("{:.1f}", t.result.seconds)},
                          {fmt::format("{}", t.result.tokens)}});
  page.heading("Tasks");
  page.table(about);
  page.code(command_line());
  page.paragraph(fmt::format("Braid {}, commit {}.", kVersion, kCommit));
  return page.save(path);
}

}  // namespace

int run_eval_tasks(const EvalTaskFlags& f, const std::string& dir, const InferenceFlags& weights,
                   int64_t threads, bool json) {
  const Result<std::vector<const Benchmark*>> found =
      f.request_lines ? std::vector<const Benchmark*>() : find_eval_tasks(split_at(f.tasks, ','));
  if (!found) return wrong_use({"--tasks: " + found.error().what, found.error().fix});
  const std::vector<const Benchmark*>& tasks = *found;
  const Result<TaskSettings> read = settings_of(f);
  if (!read) return wrong_use(read.error());
  const TaskSettings& settings = *read;
  if (f.requests && dir.empty()) return print_requests(tasks, settings, nullptr, json);
  if (dir.empty()) return wrong_use({"eval: --model is missing", "give a model folder"});
  const Result<std::optional<WeightFormat>> format = weights.resolve();
  if (!format) return wrong_use(format.error());
  const Result<Activations> activations = weights.resolve_activations();
  if (!activations) return wrong_use(activations.error());

  Result<ThreadPool> started = start_threads(threads);
  if (!started) return fail(started.error());
  ThreadPool& pool = *started;
  Result<TextModel> model = TextModel::load(dir, *format, Par(pool));
  if (!model) return fail(model.error());
  if (!model->tokenizer)
    return fail({dir + ": has no tokenizer, so it does not read text",
                 "put its tokenizer.json there, or give a model that was trained on text"});
  const Tokenizer& tokenizer = *model->tokenizer;
  if (f.requests) return print_requests(tasks, settings, &tokenizer, json);
  tell_not_quantised(model->model->params(), *format);

  Result<size_t> longest = static_cast<size_t>(f.max_length);
  if (f.max_length == 0) longest = longest_input(dir);
  if (!longest) return fail(longest.error());
  const std::optional<int32_t> prefix = tokenizer.bos() ? tokenizer.bos() : tokenizer.eos();
  EvalModel m{.model = *model->model,
              .tokenizer = tokenizer,
              .pool = pool,
              .max_length = *longest,
              .special_tokens = f.bos,
              .prefix = prefix.value_or(0),
              .end_tokens = model->generation.eos,
              .scorer = {.activations = *activations,
                         .pass_tokens = static_cast<size_t>(f.pass_tokens),
                         .state_from = static_cast<size_t>(f.state_from)}};

  catch_interrupts();
  if (f.request_lines) return answer_request_lines(m);

  // Every file is read before the first benchmark is scored: a mistake in the last one costs no hours.
  std::vector<std::vector<EvalDocument>> documents;
  std::vector<size_t> available;
  for (const Benchmark* t : tasks) {
    Result<std::vector<EvalDocument>> docs =
        load_documents(*t, settings, &tokenizer, &available.emplace_back());
    if (!docs) return fail(docs.error());
    documents.push_back(*std::move(docs));
  }
  if (!f.log_samples.empty()) {
    const Result<Json> mark = fingerprint(dir, weights, m, settings);
    if (!mark) return fail(mark.error());
    if (const Status s = claim_samples(f.log_samples, *mark); !s) return fail(s.error());
  }

  const auto without_context = [](const EvalDocument& d) {
    return std::ranges::any_of(d.requests, [](const EvalRequest& r) { return r.context.empty(); });
  };
  if (!prefix && std::ranges::any_of(documents, [&](const std::vector<EvalDocument>& docs) {
        return std::ranges::any_of(docs, without_context);
      }))
    tell("[the tokenizer has neither BOS nor EOS: token 0 precedes texts without a context]\n");
  std::vector<ScoredTask> scored;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Benchmark& t = *tasks[i];
    const std::string samples = f.log_samples.empty() ? "" : samples_file(f.log_samples, t);
    EvalRunOptions run{.bootstrap = static_cast<size_t>(f.bootstrap)};
    if (!samples.empty() && path_exists(samples)) {
      Result<std::map<size_t, std::vector<EvalResponse>>> known = read_samples(samples, t, documents[i]);
      if (!known) return fail(known.error());
      run.known = *std::move(known);
      if (const Status s = tidy_samples(samples); !s) return fail(s.error());
    }
    const std::vector<TaskMetric> metrics = metrics_of(t, settings);
    if (!samples.empty())
      run.done = [&](const EvalDocument& d, const EvalSample& s) {
        return append_line(
            samples, sample_json(t, metrics, d, s).dump(-1, ' ', false, Json::error_handler_t::replace));
      };
    Progress bar(t.name, documents[i].size(), run.known.size(), json);
    run.tick = [&](size_t done, size_t tokens) {
      bar.update(done, fmt::format("{} tokens", tokens));
      return !interrupted();
    };
    Result<TaskResult> result = run_task(t, settings, documents[i], m, run);
    bar.finish();
    if (!result) return fail({t.name + ": " + result.error().what, result.error().fix});
    if (result->reused && !json)
      tell("[{}: {} of {} were scored before]\n", t.name, n_text(result->reused, "document"),
           result->documents);
    if (!samples.empty())
      if (const Status s = tidy_samples(samples); !s) return fail(s.error());
    scored.push_back({&t, *std::move(result), available[i]});
  }

  std::vector<TableRow> rows;
  const std::vector<GroupResult> groups = group_results(scored);
  size_t width = 4;
  for (const ScoredTask& t : scored)
    for (const ResultValue& v : t.result.values)
      rows.push_back({t.task->name, &v}), width = std::max(width, t.task->name.size());
  for (const GroupResult& g : groups)
    for (const ResultValue& v : g.values) rows.push_back({g.group, &v});
  if (!json) print_table(rows, width);
  if (!json && f.out.empty() && f.page.empty()) return kOk;

  Json j = results_json(scored, settings);
  double seconds = 0;
  size_t tokens = 0;
  for (const ScoredTask& t : scored) seconds += t.result.seconds, tokens += t.result.tokens;
  j["config"] = {{"model", "braid"},
                 {"model_args", fmt::format("pretrained={}", dir)},
                 {"max_length", m.max_length},
                 {"add_bos_token", m.special_tokens},
                 {"dtype", weights.dtype.empty() ? weights.quant : weights.dtype},
                 {"activations", weights.activations},
                 {"limit", f.limit ? Json(f.limit) : Json()},
                 {"bootstrap_iters", f.bootstrap},
                 {"fewshot_seed", f.benchmark_seed},
                 {"threads", pool.threads()}};
  j["braid"] = {{"version", kVersion}, {"commit", kCommit}, {"command", command_line()}};
  j["tokens_computed"] = tokens;
  j["total_evaluation_time_seconds"] = seconds;
  if (json) print_json(j);
  if (!f.out.empty())
    if (const Status s = save_json(f.out, j); !s) return fail(s.error());
  if (!f.page.empty())
    if (const Status s = save_page(f.page, dir, rows, scored); !s) return fail(s.error());
  return kOk;
}

}  // namespace braid
