#include "eval/harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/clock.h"
#include "eval/python_random.h"
#include "eval/python_text.h"
#include "io/file.h"
#include "io/json.h"
#include "model/model.h"

namespace braid {
namespace {

constexpr size_t kChunkBytes = size_t{1}
                               << 18;  // of requests that are scored before their documents are done

Result<std::vector<int32_t>> encode(const EvalModel& m, std::string_view text, bool special) {
  return m.tokenizer.encode(text, {.add_special = special});
}

}  // namespace

Result<std::optional<ScoreRequest>> encode_pair(const EvalModel& m, const EvalRequest& request) {
  std::vector<int32_t> tokens;
  size_t from = 0;
  if (request.context.empty()) {
    Result<std::vector<int32_t>> more = encode(m, request.continuation, false);
    if (!more) return more.error();
    tokens = *std::move(more);
    from = 1;
    if (!m.special_tokens || tokens.empty() || tokens[0] != m.prefix) tokens.insert(tokens.begin(), m.prefix);
  } else {
    // White space at the end of a context belongs to the continuation: tokenizers join it with the next word.
    const std::string_view context = strip_right(request.context);
    Result<std::vector<int32_t>> whole = encode(m, request.context + request.continuation, m.special_tokens);
    if (!whole) return whole.error();
    const Result<std::vector<int32_t>> before = encode(m, context, m.special_tokens);
    if (!before) return before.error();
    tokens = *std::move(whole);
    from = std::min(before->size(), tokens.size());
    // A context of white space alone has no tokens.
    if (from == 0) tokens.insert(tokens.begin(), m.prefix), from = 1;
  }
  const size_t scored = tokens.size() - from;
  if (scored == 0) return std::optional<ScoreRequest>();
  if (scored > m.max_length)
    return Error{fmt::format("a continuation has {} tokens, more than an input of {}", scored, m.max_length),
                 "use a larger --max-length"};
  if (tokens.size() > m.max_length + 1)
    tokens.erase(tokens.begin(), tokens.end() - static_cast<ptrdiff_t>(m.max_length + 1));
  from = tokens.size() - scored;
  return std::optional<ScoreRequest>({std::move(tokens), from});
}

Result<std::vector<ScoreRequest>> encode_rolling(const EvalModel& m, const std::string& text) {
  const Result<std::vector<int32_t>> encoded = encode(m, text, m.special_tokens);
  if (!encoded) return encoded.error();
  const std::vector<int32_t>& t = *encoded;
  std::vector<ScoreRequest> out;
  size_t done = std::min(m.max_length, t.size());
  if (done == 0) return out;
  ScoreRequest first{{m.prefix}, 1};
  first.tokens.insert(first.tokens.end(), t.begin(), t.begin() + static_cast<ptrdiff_t>(done));
  out.push_back(std::move(first));
  // Each window has max_length inputs; the last one scores only what is left.
  while (done < t.size()) {
    const size_t n = std::min(t.size() - done, m.max_length), end = done + n;
    out.push_back({{t.begin() + static_cast<ptrdiff_t>(end - m.max_length - 1),
                    t.begin() + static_cast<ptrdiff_t>(end)},
                   m.max_length + 1 - n});
    done = end;
  }
  return out;
}

Result<PromptRequest> encode_prompt(const EvalModel& m, const std::string& context, int64_t max_new_tokens) {
  Result<std::vector<int32_t>> tokens = encode(m, context, m.special_tokens);
  if (!tokens) return tokens.error();
  if (static_cast<size_t>(max_new_tokens) >= m.max_length)
    return Error{
        fmt::format("an answer of {} tokens leaves no room for a prompt in {}", max_new_tokens, m.max_length),
        "use a larger --max-length or a smaller --max-new-tokens"};
  const size_t room = m.max_length - static_cast<size_t>(max_new_tokens);
  if (tokens->size() > room) tokens->erase(tokens->begin(), tokens->end() - static_cast<ptrdiff_t>(room));
  if (tokens->empty()) tokens->push_back(m.prefix);
  return PromptRequest{*std::move(tokens), max_new_tokens};
}

std::string cut_at_stops(std::string text, std::span<const std::string> stops) {
  for (const std::string& s : stops)
    if (!s.empty()) text.resize(std::min(text.size(), text.find(s)));
  return text;
}

Result<size_t> longest_input(const std::string& dir) {
  constexpr size_t kDefault = 2048;
  const auto read = [&](const std::string& file, std::initializer_list<const char*> keys) -> Result<size_t> {
    const std::string path = dir + "/" + file;
    if (!path_exists(path)) return size_t{0};
    const Result<Json> json = load_python_json(path);
    if (!json) return json.error();
    for (const char* key : keys)
      if (json->is_object() && json->contains(key) && json->at(key).is_number()) {
        // transformers writes 1e30 for "no limit"
        const double n = json->at(key).get<double>();
        if (n >= 1 && n < 1e9) return static_cast<size_t>(n);
      }
    return size_t{0};
  };
  Result<size_t> n = read("config.json", {"n_positions", "max_position_embeddings", "n_ctx"});
  if (!n || *n) return n;
  n = read("tokenizer_config.json", {"model_max_length"});
  if (!n || *n) return n;
  return kDefault;
}

namespace {

// Requests of some documents as tokens, and their place among all of the chunk.
struct Encoded {
  std::vector<ScoreRequest> scored;
  std::vector<PromptRequest> prompts;
  std::vector<std::vector<size_t>> of_request;  // what is summed for each request of the document
};

Result<Encoded> encode_document(const Benchmark& task, const EvalModel& m, const EvalDocument& d) {
  Encoded out;
  for (const EvalRequest& r : d.requests) {
    std::vector<size_t>& places = out.of_request.emplace_back();
    if (task.kind == RequestKind::kGenerate) {
      Result<PromptRequest> p = encode_prompt(m, r.context, task.max_new_tokens);
      if (!p) return p.error();
      places.push_back(out.prompts.size());
      out.prompts.push_back(*std::move(p));
    } else if (task.kind == RequestKind::kRolling) {
      Result<std::vector<ScoreRequest>> windows = encode_rolling(m, r.continuation);
      if (!windows) return windows.error();
      for (ScoreRequest& w : *windows) {
        places.push_back(out.scored.size());
        out.scored.push_back(std::move(w));
      }
    } else {
      Result<std::optional<ScoreRequest>> pair = encode_pair(m, r);
      if (!pair) return pair.error();
      if (!*pair) continue;
      places.push_back(out.scored.size());
      out.scored.push_back(**std::move(pair));
    }
  }
  return out;
}

class TaskRun {
 public:
  TaskRun(const Benchmark& task, const TaskSettings& settings, std::span<const EvalDocument> documents,
          const EvalModel& model, const EvalRunOptions& options)
      : task_(task),
        metrics_(metrics_of(task, settings)),
        documents_(documents),
        model_(model),
        options_(options),
        scorer_(model.model, model.pool, model.scorer) {}

  Result<TaskResult> run() {
    const double start = seconds_now();
    out_.samples.resize(documents_.size());
    out_.documents = documents_.size();
    std::vector<size_t> left;
    for (size_t i = 0; i < documents_.size(); ++i) {
      const auto known = options_.known.find(documents_[i].id);
      if (known == options_.known.end()) {
        left.push_back(i);
        continue;
      }
      out_.samples[i].responses = known->second;
      score(i);
      ++out_.reused, ++done_;
    }
    // Documents with a common prefix follow each other.
    std::ranges::stable_sort(left, [&](size_t a, size_t b) {
      return documents_[a].requests[0].context < documents_[b].requests[0].context;
    });
    for (size_t at = 0; at < left.size();) {
      size_t end = at;
      for (size_t bytes = 0; end < left.size() && bytes < kChunkBytes; ++end) {
        const std::vector<EvalRequest>& r = documents_[left[end]].requests;
        bytes += r[0].context.size();
        for (const EvalRequest& one : r) bytes += one.continuation.size();
      }
      if (Status s = run_chunk(std::span(left).subspan(at, end - at)); !s) return s.error();
      at = end;
    }
    out_.values = aggregate(metrics_, out_.samples, options_.bootstrap, Par(model_.pool));
    out_.seconds = seconds_now() - start;
    return std::move(out_);
  }

 private:
  void score(size_t i) {
    EvalSample& s = out_.samples[i];
    s.metrics.assign(metrics_.size(), MetricValue());
    task_.maker.score(documents_[i], s.responses, s.metrics);
  }

  Status run_chunk(std::span<const size_t> chunk) {
    std::vector<std::optional<Result<Encoded>>> encoded(chunk.size());
    Par(model_.pool).tasks(chunk.size(), [&](size_t i) {
      encoded[i] = encode_document(task_, model_, documents_[chunk[i]]);
    });
    std::vector<ScoreRequest> scored;
    std::vector<PromptRequest> prompts;
    for (size_t i = 0; i < chunk.size(); ++i) {
      Result<Encoded>& e = *encoded[i];
      if (!e)
        return Error{fmt::format("{}, document {}: {}", task_.name, documents_[chunk[i]].id, e.error().what),
                     e.error().fix};
      for (std::vector<size_t>& places : e->of_request)
        for (size_t& p : places) p += task_.kind == RequestKind::kGenerate ? prompts.size() : scored.size();
      std::ranges::move(e->scored, std::back_inserter(scored));
      std::ranges::move(e->prompts, std::back_inserter(prompts));
    }
    const auto tick = [&](size_t tokens) {
      out_.tokens += tokens;
      return !options_.tick || options_.tick(done_, out_.tokens);
    };
    std::vector<SequenceScore> scores(scored.size());
    if (Status s = scorer_.score(scored, scores, tick); !s) return s;
    std::vector<std::string> texts(prompts.size());
    if (Status s = generate(prompts, texts, tick); !s) return s;
    for (size_t i = 0; i < chunk.size(); ++i) {
      EvalSample& sample = out_.samples[chunk[i]];
      for (const std::vector<size_t>& places : (*encoded[i])->of_request) {
        EvalResponse r{.greedy = true};
        for (const size_t p : places) {
          if (task_.kind == RequestKind::kGenerate)
            r.text = cut_at_stops(texts[p], task_.until);
          else
            r.log_likelihood += scores[p].log_likelihood, r.greedy = r.greedy && scores[p].greedy;
        }
        sample.responses.push_back(std::move(r));
      }
      score(chunk[i]);
      ++done_;
      if (options_.done)
        if (Status s = options_.done(documents_[chunk[i]], sample); !s) return s;
    }
    if (options_.tick && !options_.tick(done_, out_.tokens)) return Error{"stopped"};
    return {};
  }

  Status generate(std::span<const PromptRequest> prompts, std::span<std::string> texts,
                  const Scorer::Tick& tick) {
    if (prompts.empty()) return {};
    std::vector<StreamDecoder> decoders;
    for (size_t i = 0; i < prompts.size(); ++i) decoders.emplace_back(model_.tokenizer);
    size_t longest = 1;  // of the stop strings
    for (const std::string& s : task_.until) longest = std::max(longest, s.size());
    std::vector<char> ended(prompts.size());
    const Status s = scorer_.generate(
        prompts,
        [&](size_t i, int32_t token) {
          if (std::ranges::find(model_.end_tokens, token) != model_.end_tokens.end()) return true;
          const size_t before = texts[i].size();
          texts[i] += decoders[i].add(token);
          // Only what is new, and what a stop string may have begun in before.
          const size_t look = before - std::min(before, longest - 1);
          return std::ranges::any_of(task_.until, [&](const std::string& stop) {
            return texts[i].find(stop, look) != std::string::npos;
          });
        },
        tick);
    if (!s) return s;
    for (size_t i = 0; i < prompts.size(); ++i) {
      texts[i] += decoders[i].finish();
      if (Status decoded = decoders[i].status(); !decoded) return decoded;
    }
    return {};
  }

  const Benchmark& task_;
  std::vector<TaskMetric> metrics_;
  std::span<const EvalDocument> documents_;
  const EvalModel& model_;
  const EvalRunOptions& options_;
  Scorer scorer_;
  TaskResult out_;
  size_t done_ = 0;
};

double mean_of(std::span<const double> x) {
  return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
}

double sample_deviation(std::span<const double> x) {
  const double mean = mean_of(x);
  double squares = 0;
  for (const double v : x) squares += (v - mean) * (v - mean);
  return std::sqrt(squares / static_cast<double>(x.size() - 1));
}

// The deviation of exp(-mean) over resampled documents: in blocks of 1000 with seeds 0, 1, .., as lm-eval.
double bootstrapped_perplexity_error(std::span<const double> x, size_t resamplings, Par par) {
  const size_t block = std::min<size_t>(1000, resamplings), blocks = resamplings / block;
  std::vector<double> values(blocks * block);
  par.tasks(blocks, [&](size_t b) {
    PythonRandom random(b);
    for (size_t i = 0; i < block; ++i) {
      double sum = 0;
      for (size_t k = 0; k < x.size(); ++k) sum += x[random.choice(x.size())];
      values[b * block + i] = std::exp(-sum / static_cast<double>(x.size()));
    }
  });
  return values.size() > 1 ? sample_deviation(values) : 0;
}

}  // namespace

Result<TaskResult> run_task(const Benchmark& task, const TaskSettings& settings,
                            std::span<const EvalDocument> documents, const EvalModel& model,
                            const EvalRunOptions& options) {
  return TaskRun(task, settings, documents, model, options).run();
}

std::vector<ResultValue> aggregate(std::span<const TaskMetric> metrics, std::span<const EvalSample> samples,
                                   size_t bootstrap, Par par) {
  std::vector<ResultValue> out;
  for (size_t m = 0; m < metrics.size(); ++m) {
    ResultValue& r = out.emplace_back(ResultValue{.metric = metrics[m]});
    std::vector<double> values;
    double weights = 0;
    for (const EvalSample& s : samples)
      if (s.metrics[m].weight > 0) values.push_back(s.metrics[m].value), weights += s.metrics[m].weight;
    r.documents = values.size();
    if (values.empty()) continue;
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    switch (metrics[m].aggregate) {
      case Aggregate::kMean:
        r.value = sum / static_cast<double>(values.size());
        if (values.size() > 1) r.error = sample_deviation(values) / std::sqrt(values.size());
        break;
      case Aggregate::kPerplexity:
        r.value = std::exp(-sum / static_cast<double>(values.size()));
        if (values.size() > 1 && bootstrap > 0)
          r.error = bootstrapped_perplexity_error(values, bootstrap, par);
        break;
      case Aggregate::kWeightedPerplexity:
        r.value = std::exp(-sum / weights);
        break;
      case Aggregate::kBitsPerByte:
        r.value = -sum / weights / std::log(2.0);
        break;
    }
  }
  return out;
}

ResultValue group_value(const std::string& metric, std::span<const ResultValue> values) {
  ResultValue out{.metric = {metric}};
  double variance = 0;
  bool errors = !values.empty();
  for (const ResultValue& v : values) {
    out.value += v.value / static_cast<double>(values.size());
    out.documents += v.documents;
    const auto n = static_cast<double>(v.documents);
    errors = errors && v.error;
    if (v.error) variance += (n - 1) * n * *v.error * *v.error;
  }
  if (errors && out.documents > values.size())
    out.error = std::sqrt(variance / static_cast<double>(out.documents - values.size()) /
                          static_cast<double>(out.documents));
  return out;
}

}  // namespace braid
