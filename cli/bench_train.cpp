#include "cli/bench_train.h"

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "base/cpu.h"
#include "base/progress.h"
#include "base/split.h"
#include "cli/cli.h"
#include "bench/measure.h"
#include "model/config_json.h"
#include "tasks/make_source.h"
#include "train/setup.h"
#include "model/presets.h"
#include "train/gradient.h"
#include "train/optimizer.h"

namespace braid {
namespace {

// The most memory the process has had since reset(), in bytes; 0 where the system does not say.
class PeakMemory {
 public:
  static void reset() {
    malloc_trim(0);  // what earlier cases have freed goes back to the system
    std::ofstream("/proc/self/clear_refs") << "5";
  }
  static size_t bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string key; status >> key;) {
      size_t kb = 0;
      if (key == "VmHWM:" && status >> kb) return kb * 1024;
    }
    return 0;
  }
};

struct Case {
  std::string arch, precision;
  int64_t length, batch;  // length 0: the task's own
};

Result<ModelConfig> config_for(const TrainBench& o, const std::string& arch, const Source* source) {
  if (!(o.d_model || o.layers || o.heads || o.d_ff) || !o.config.empty()) {
    TrainOptions t;
    t.arch = arch, t.size = o.size, t.config = o.config, t.set = o.set;
    return source ? make_config(t, *source) : make_config(t, o.vocab);
  }
  const Preset* preset = find_preset(arch);
  if (!preset) return Error{"--arch " + arch + ": is not an architecture", suggest(arch, preset_names())};
  const Size* size = find_size(o.size);
  if (!size)
    return Error{"--d-model, --layers, --heads, --d-ff: need a general --size, which is " + o.size,
                 suggest(o.size, size_names())};
  Dims dims = size->dims;
  if (o.d_model) dims.d_model = o.d_model, dims.d_ff = 0;
  if (o.layers) dims.n_layers = o.layers;
  if (o.heads) dims.heads = o.heads;
  if (o.d_ff) dims.d_ff = o.d_ff;
  Json json = config_of(*preset, dims, source ? static_cast<int64_t>(source->vocab_size()) : o.vocab);
  for (const std::string& s : o.set)
    if (Status status = apply_override(json, s); !status) return status.error();
  return parse_config(json, arch);
}

Batch random_batch(const Case& c, int64_t vocab) {
  Rng rng(0, "bench");
  Batch batch;
  std::vector<int32_t> tokens(c.length), targets(c.length);
  for (int64_t s = 0; s < c.batch; ++s) {
    for (int64_t i = 0; i < c.length; ++i)
      tokens[i] = static_cast<int32_t>(rng.below(vocab)), targets[i] = static_cast<int32_t>(rng.below(vocab));
    batch.append(tokens, targets);
  }
  return batch;
}

Status run_case(const TrainBench& o, const Case& c, const ModelConfig& config, const Source* source,
                ThreadPool& pool, double peak, bool json, Progress& bar) {
  PeakMemory::reset();
  std::unique_ptr<Model> model = Model::create(config);
  model->init(0);
  Gradient gradient(
      *model, pool,
      {.precision = c.precision == "bf16" ? Precision::kBf16 : Precision::kF32, .recompute = o.recompute});
  Optimizer optimizer(model->params(), {});
  const Batch batch = source ? source->batch(0, static_cast<size_t>(c.batch)) : random_batch(c, o.vocab);
  // Loss of an untrained model: log(outputs). Anything else means that what is timed is wrong.
  const double first = gradient.evaluate(batch).loss,
               expected = std::log(static_cast<double>(config.answers()));
  if (!(std::fabs(first - expected) < 0.25 + 0.05 * expected))
    return Error{fmt::format("{}: the first loss is {:.4g} instead of about {:.4g}; not timed", c.arch, first,
                             expected),
                 "run braid verify"};
  Profile profile;
  uint64_t step = 0;
  const auto one = [&] {
    Profile* prof = step > 0 ? &profile : nullptr;  // the first warms up
    gradient.run(batch, step++, prof);
    const OpTimer timer(prof, "optimiser", false);
    const double norm = optimizer.grad_norm(gradient.grads(), Par(pool));
    optimizer.step(gradient.grads(), norm, 1e-4, Par(pool));
    gradient.params_changed();
  };
  const Timing timing = measure(one, static_cast<int>(o.rounds), 0);
  const size_t memory = PeakMemory::bytes();
  double total = 0;
  for (const auto& [name, e] : profile.ops) total += e.forward + e.backward;
  const double count = static_cast<double>(batch.tokens.size()), rate = count / timing.seconds;
  const int64_t length = static_cast<int64_t>(std::lround(count / static_cast<double>(c.batch)));
  const double flops = 3 * model->flops_per_token(length) * rate;
  bar.clear();
  if (json) {
    Json shares = Json::object();
    for (const auto& [name, e] : profile.ops)
      shares[std::string(name)] = {{"forward", e.forward / total}, {"backward", e.backward / total}};
    print_json({{"case", "train"},
                {"arch", o.config.empty() ? c.arch : o.config},
                {"size", o.size},
                {"parameters", model->params().count()},
                {"batch", c.batch},
                {"task", o.task},
                {"length", length},
                {"precision", c.precision},
                {"recompute", o.recompute},
                {"threads", pool.threads()},
                {"isa", isa_name(pool.kernels().isa())},
                {"cpu", cpu_model()},
                {"seconds", timing.seconds},
                {"spread", timing.spread},
                {"runs", timing.runs},
                {"tokens_per_second", rate},
                {"gflops", flops * 1e-9},
                {"share_of_peak", flops / peak},
                {"peak_gflops", peak * 1e-9},
                {"activation_bytes", gradient.arena_bytes()},
                {"peak_memory_bytes", memory},
                {"share_by_op", shares}});
    return {};
  }
  say("{}: {} parameters, {} x {} tokens, {}{}, {} ({}): {:.1f} ms per step (spread {:.0f} %), "
      "{:.0f} "
      "tokens/s, {:.1f} GFLOP/s = {:.0f} % of FMA peak{}, activations {:.1f} MB, process {:.1f} MB\n",
      o.config.empty() ? c.arch : o.config, model->params().count(), c.batch, length, c.precision,
      o.recompute ? " recomputed" : "", counted(pool.threads(), "thread"), isa_name(pool.kernels().isa()),
      timing.seconds * 1e3, 100 * timing.spread, rate, flops * 1e-9, 100 * flops / peak,
      source ? " if no tokens shared rows" : "", static_cast<double>(gradient.arena_bytes()) * 1e-6,
      static_cast<double>(memory) * 1e-6);
  say("{:<24} {:>9} {:>9}   share of the time of all threads\n", "op", "forward", "backward");
  std::vector<std::pair<std::string_view, Profile::Entry>> sorted(profile.ops.begin(), profile.ops.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.forward + a.second.backward > b.second.forward + b.second.backward;
  });
  for (const auto& [name, e] : sorted)
    say("{:<24} {:>7.1f} % {:>7.1f} %\n", name, 100 * e.forward / total, 100 * e.backward / total);
  return {};
}

}  // namespace

int bench_train(const TrainBench& o, ThreadPool& pool, bool json) {
  std::vector<Problem> p;
  const std::vector<std::string> precisions = split_at_commas(o.precision);
  for (const std::string& s : precisions)
    if (s != "f32" && s != "bf16")
      p.push_back({"--precision", "is '" + s + "'", "give f32, bf16 or f32,bf16"});
  if (o.task.empty() && !o.task_set.empty())
    p.push_back({"--task-set", "is given without a task", "give --task, too"});
  if (!o.task.empty() && o.tokens)
    p.push_back({"--tokens", "is given with a task", "give --batch: a task has its own lengths"});
  const Result<std::vector<int32_t>> lengths = parse_ids(o.task.empty() ? o.length : "0", "--length");
  if (!lengths) return wrong_use(lengths.error());
  for (const int32_t n : *lengths)
    if (o.task.empty() && (n < 1 || n > 100'000'000))
      p.push_back({"--length", fmt::format("is {}", n), "give numbers from 1 to 100000000"});
  if (!p.empty()) return wrong_use(wrong_options(p));

  // Everything is read before anything is timed: a wrong name should not end an hour of measurements.
  std::unique_ptr<Source> source;
  if (!o.task.empty()) {
    TrainOptions t;
    t.task = o.task, t.task_set = o.task_set;
    Result<std::unique_ptr<Source>> made = make_source(t);
    if (!made) return wrong_use(made.error());
    source = *std::move(made);
  }
  const std::vector<std::string> archs = o.arch == "all" ? preset_names() : split_at_commas(o.arch);
  std::vector<ModelConfig> configs;
  for (const std::string& arch : archs) {
    const Result<ModelConfig> config = config_for(o, arch, source.get());
    if (!config) return wrong_use(config.error());
    configs.push_back(*config);
  }
  double peak = 0;
  Progress bar("cases", archs.size() * precisions.size() * lengths->size(), 0, json);
  uint64_t done = 0;
  for (size_t a = 0; a < archs.size(); ++a)
    for (const std::string& precision : precisions)
      for (const int32_t length : *lengths) {
        peak = std::max(peak, measure_fma_peak(pool));  // the machine may have been busy before
        const int64_t batch = o.tokens ? std::max<int64_t>(1, o.tokens / length) : o.batch;
        if (Status s = run_case(o, {archs[a], precision, length, batch}, configs[a], source.get(), pool, peak,
                                json, bar);
            !s)
          return fail(s.error());
        bar.update(++done, archs[a]);
      }
  return kOk;
}

}  // namespace braid
