#include <algorithm>
#include <numeric>

#include "base/cpu.h"
#include "cli/cli.h"
#include "cli/measure.h"
#include "cli/setup.h"
#include "kernels/registry.h"
#include "model/presets.h"
#include "train/gradient.h"
#include "train/optimizer.h"

namespace braid {
namespace {

struct Options {
  std::string what, only, arch = "transformer", size = "tiny", config, precision = "f32", threads = "0";
  std::vector<std::string> set;
  int64_t batch = 32, length = 256, vocab = 256, d_model = 0, layers = 0, heads = 0, d_ff = 0, rounds = 5;
  bool json = false;
};

// A wrong kernel has no speed.
Status check_op(const OpEntry& op) {
  for (const CheckRow& r : op.check())
    if (!r.ok())
      return Error{fmt::format("{}: {} is wrong (rms {:.3g}); not timed", op.name, r.what, r.diff.rms),
                   "run braid verify"};
  return {};
}

// Threads and what they can do at most.
struct Machine {
  ThreadPool pool;
  double peak, read, update;  // flop/s, bytes/s, bytes/s
  explicit Machine(int threads)
      : pool(threads),
        peak(measure_fma_peak(pool)),
        read(measure_read_bandwidth(pool)),
        update(measure_update_bandwidth(pool)) {}
};

// One line: what is bound by arithmetic has flops, what is bound by memory has bytes, some have both.
void print_case(const Options& o, const BenchCase& c, std::string_view impl, const Machine& m,
                const Timing& t, double first) {
  const double flops = c.flops / t.seconds, bytes = c.bytes / t.seconds;
  const double limit = c.traffic == BenchTraffic::kRead ? m.read : m.update;
  if (o.json) {
    Json j{{"case", c.name},       {"form", bench_form(c)}, {"impl", impl},  {"threads", m.pool.threads()},
           {"seconds", t.seconds}, {"spread", t.spread},    {"runs", t.runs}};
    if (c.flops > 0)
      j["gflops"] = flops * 1e-9, j["share_of_peak"] = flops / m.peak, j["peak_gflops"] = m.peak * 1e-9;
    if (c.bytes > 0) {
      j["gbytes_per_s"] = bytes * 1e-9, j["share_of_bandwidth"] = bytes / limit;
      j["peak_gbytes_per_s"] = limit * 1e-9;
      j["bandwidth"] = c.traffic == BenchTraffic::kRead ? "read" : "update";
    }
    return print_json(j);
  }
  const auto pair = [](bool has, double x, double limit_of) {
    return has ? fmt::format("{:>9.1f} {:>5.0f}%", x * 1e-9, 100 * x / limit_of) : fmt::format("{:>16}", "");
  };
  fmt::print("{:<44} {:<17} {:<7} {:>2} {:>10.4g} {:>5.0f}% {} {} {:>7.2f}\n", c.name, bench_form(c), impl,
             m.pool.threads(), t.seconds * 1e3, 100 * t.spread, pair(c.flops > 0, flops, m.peak),
             pair(c.bytes > 0, bytes, limit), first / t.seconds);
}

int bench_ops(const Options& o, std::span<const int> threads, std::string_view prefix) {
  std::vector<std::unique_ptr<Machine>> machines;
  for (const int n : threads) {
    const Machine& m = *machines.emplace_back(std::make_unique<Machine>(n));
    if (!o.json)
      fmt::print(
          "{}, {}, {} threads: FMA peak {:.0f} GFLOP/s, memory read {:.1f} GB/s, read and written {:.1f} "
          "GB/s\n",
          cpu_model(), isa_name(active_isa()), n, m.peak * 1e-9, m.read * 1e-9, m.update * 1e-9);
  }
  if (!o.json)
    fmt::print("{:<44} {:<17} {:<7} {:>2} {:>10} {:>6} {:>9} {:>6} {:>9} {:>6} {:>7}\n", "case", "form",
               "impl", "n", "ms", "spread", "GFLOP/s", "peak", "GB/s", "mem", "speedup");
  // Cases come with their data: if --only begins with the name of an op, the others' is not made.
  const auto fits = [&](const OpEntry& op) { return o.only.starts_with(op.name); };
  const bool named = std::ranges::any_of(all_ops(), fits);
  for (const OpEntry& op : all_ops()) {
    if (!op.name.starts_with(prefix) || (named && !fits(op) && !op.name.starts_with(o.only))) continue;
    std::vector<BenchCase> cases = op.bench();
    std::erase_if(cases, [&](const BenchCase& c) { return c.name.find(o.only) == std::string::npos; });
    if (cases.empty()) continue;
    if (Status s = check_op(op); !s) return fail(s.error());
    const std::string_view impl = op.impls().rows()[op.impls().chosen()].name;
    for (BenchCase& c : cases) {
      double first = 0;
      for (const auto& m : machines) {
        const Timing t = measure([&] { c.run(Par(m->pool)); });
        if (first == 0) first = t.seconds;
        print_case(o, c, impl, *m, t, first);
      }
      c.run = {};  // gives its memory back
    }
  }
  return kOk;
}

int bench_train(const Options& o, int threads) {
  std::vector<Problem> p;
  const auto range = [&](const char* name, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high)
      p.push_back({name, fmt::format("is {}", value), fmt::format("give a number from {} to {}", low, high)});
  };
  range("--batch", o.batch, 1, 1'000'000), range("--length", o.length, 1, 100'000'000),
      range("--vocab", o.vocab, 1, 1 << 24);
  range("--rounds", o.rounds, 1, 100000), range("--d-model", o.d_model, 0, 1 << 20),
      range("--layers", o.layers, 0, 10000), range("--heads", o.heads, 0, 4096),
      range("--d-ff", o.d_ff, 0, 1 << 24);
  if (o.precision != "f32" && o.precision != "bf16")
    p.push_back({"--precision", "is '" + o.precision + "'", "give f32 or bf16"});
  if (!p.empty()) return wrong_use(to_error("these options cannot be used", p));

  TrainOptions t;
  t.arch = o.arch, t.size = o.size, t.config = o.config, t.set = o.set;
  Result<ModelConfig> config = make_config(t, o.vocab);
  if (config && (o.d_model || o.layers || o.heads || o.d_ff) && o.config.empty()) {
    const Size* size = find_size(o.size);
    if (!size)
      return wrong_use({"bench: --d-model, --layers, --heads and --d-ff change one of the general sizes",
                        suggest(o.size, size_names())});
    Dims dims = size->dims;
    if (o.d_model) dims.d_model = o.d_model, dims.d_ff = 0;
    if (o.layers) dims.n_layers = o.layers;
    if (o.heads) dims.heads = o.heads;
    if (o.d_ff) dims.d_ff = o.d_ff;
    Json json = config_of(*find_preset(o.arch), dims, o.vocab);
    for (const std::string& s : o.set)
      if (Status status = apply_override(json, s); !status) return wrong_use(status.error());
    config = parse_config(json, o.arch);
  }
  if (!config) return fail(config.error());
  ThreadPool pool(threads);
  const double peak = measure_fma_peak(pool);
  std::unique_ptr<Model> model = Model::create(*config);
  model->init(0);
  Gradient gradient(*model, pool, {.precision = o.precision == "bf16" ? Precision::kBf16 : Precision::kF32});
  AdamW optimizer(model->params(), {});
  Rng rng(0, "bench");
  Batch batch;
  std::vector<int32_t> tokens(o.length), targets(o.length);
  for (int64_t s = 0; s < o.batch; ++s) {
    for (int64_t i = 0; i < o.length; ++i)
      tokens[i] = static_cast<int32_t>(rng.below(o.vocab)),
      targets[i] = static_cast<int32_t>(rng.below(o.vocab));
    batch.append(tokens, targets);
  }
  // Loss of an untrained model on random targets: log(vocab). Anything else means that what is timed is
  // wrong.
  const double first = gradient.evaluate(batch).loss, expected = std::log(static_cast<double>(o.vocab));
  if (!(std::fabs(first - expected) < 0.25 + 0.05 * expected))
    return fail({fmt::format("the first loss is {:.4g} instead of about {:.4g}; not timed", first, expected),
                 "run braid verify"});
  Profile profile;
  uint64_t step = 0;
  const auto one = [&](Profile* prof) {
    gradient.run(batch, step++, prof);
    const OpTimer timer(prof, "optimiser", false);
    const double norm = optimizer.grad_norm(gradient.grads(), Par(pool));
    optimizer.step(gradient.grads(), norm, 1e-4, Par(pool));
    gradient.params_changed();
  };
  const Timing timing = measure([&] { one(nullptr); }, static_cast<int>(o.rounds), 0);
  one(&profile);
  double total = 0;
  for (const auto& [name, e] : profile.ops) total += e.forward + e.backward;
  const double count = static_cast<double>(o.batch * o.length), rate = count / timing.seconds;
  const double flops = 3 * model->flops_per_token(o.length) * rate;
  if (o.json) {
    Json shares = Json::object();
    for (const auto& [name, e] : profile.ops)
      shares[std::string(name)] = {{"forward", e.forward / total}, {"backward", e.backward / total}};
    print_json({{"case", "train"},
                {"arch", o.config.empty() ? o.arch : o.config},
                {"parameters", model->params().count()},
                {"batch", o.batch},
                {"length", o.length},
                {"precision", o.precision},
                {"threads", pool.threads()},
                {"isa", isa_name(active_isa())},
                {"seconds", timing.seconds},
                {"spread", timing.spread},
                {"tokens_per_second", rate},
                {"gflops", flops * 1e-9},
                {"share_of_peak", flops / peak},
                {"activation_bytes", gradient.arena_bytes()},
                {"share_by_op", shares}});
    return kOk;
  }
  fmt::print(
      "{} parameters, {} x {} tokens, {}, {} threads ({}): {:.1f} ms per step (spread {:.0f} %), {:.0f} "
      "tokens/s, {:.1f} GFLOP/s = {:.0f} % of FMA peak, "
      "activations {:.1f} MB\n",
      model->params().count(), o.batch, o.length, o.precision, pool.threads(), isa_name(active_isa()),
      timing.seconds * 1e3, 100 * timing.spread, rate, flops * 1e-9, 100 * flops / peak,
      static_cast<double>(gradient.arena_bytes()) * 1e-6);
  fmt::print("{:<24} {:>9} {:>9}   share of the time of all threads\n", "op", "forward", "backward");
  std::vector<std::pair<std::string_view, Profile::Entry>> sorted(profile.ops.begin(), profile.ops.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second.forward + a.second.backward > b.second.forward + b.second.backward;
  });
  for (const auto& [name, e] : sorted)
    fmt::print("{:<24} {:>7.1f} % {:>7.1f} %\n", name, 100 * e.forward / total, 100 * e.backward / total);
  return kOk;
}

}  // namespace

std::function<int()> define_bench(CLI::App& app) {
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  add.required("what", o->what, "matmul, kernels or train");
  add("--only", o->only, "matmul, kernels: only cases whose name contains this");
  add("--arch", o->arch, "train: architecture");
  add("--size", o->size, "train: its size");
  add("--config", o->config, "train: a config.json instead");
  add("--set", o->set, "train: change one value of the config; may be repeated");
  add("--d-model", o->d_model, "train: width instead of the size's; 0 = the size's");
  add("--layers", o->layers, "train: layers instead of the size's");
  add("--heads", o->heads, "train: heads instead of the size's");
  add("--d-ff", o->d_ff, "train: inner width of the MLP; 0 = the size's, or 8/3 of --d-model");
  add("--batch", o->batch, "train: sequences per step");
  add("--length", o->length, "train: tokens per sequence");
  add("--vocab", o->vocab, "train: vocabulary");
  add("--precision", o->precision, "train: f32 or bf16");
  add("--rounds", o->rounds, "train: steps to time");
  add("--threads", o->threads, "threads; 0 = all cores; matmul, kernels: also several, e.g. 1,2");
  add("--json", o->json, "one JSON line per case and number of threads");
  return [o]() -> int {
    const Result<std::vector<int32_t>> asked = parse_ids(o->threads, "--threads");
    if (!asked) return wrong_use(asked.error());
    std::vector<int> threads;
    for (const int32_t n : *asked) {
      if (n > 1024)
        return wrong_use({fmt::format("bench: --threads is {}", n), "give numbers from 0 to 1024"});
      threads.push_back(resolve_threads(n));
    }
    if (o->what == "matmul") return bench_ops(*o, threads, "matmul");
    if (o->what == "kernels") return bench_ops(*o, threads, "");
    if (o->what == "train" && threads.size() > 1)
      return wrong_use({"bench: train takes one number of --threads", "run it once for each"});
    if (o->what == "train") return bench_train(*o, threads.front());
    return wrong_use(
        {"bench: there is no '" + o->what + "'", suggest(o->what, {"matmul", "kernels", "train"})});
  };
}

}  // namespace braid
