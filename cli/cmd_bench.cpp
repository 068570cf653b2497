#include <algorithm>

#include "base/cpu.h"
#include "cli/bench_infer.h"
#include "cli/bench_train.h"
#include "cli/cli.h"
#include "bench/measure.h"
#include "kernels/registry.h"
#include "verify/ops.h"

namespace braid {
namespace {

struct Options {
  std::string what, only, threads = "0";
  bool json = false;
  TrainBench train;
  InferBench infer;
};

// A wrong kernel has no speed.
Status check_op(const OpEntry& op, Par par) {
  for (const CheckRow& r : op_check(op.name).check(par))
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
      : pool(threads, kernel_choice()),
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
  const KernelChoice kernels = kernel_choice();
  const Par par = Par().with(kernels);
  std::vector<std::unique_ptr<Machine>> machines;
  for (const int n : threads) {
    const Machine& m = *machines.emplace_back(std::make_unique<Machine>(n));
    if (!o.json)
      fmt::print(
          "{}, {}, {} threads: FMA peak {:.0f} GFLOP/s, memory read {:.1f} GB/s, read and written {:.1f} "
          "GB/s\n",
          cpu_model(), isa_name(m.pool.kernels().isa()), n, m.peak * 1e-9, m.read * 1e-9, m.update * 1e-9);
  }
  if (!o.json)
    fmt::print("{:<44} {:<17} {:<7} {:>2} {:>10} {:>6} {:>9} {:>6} {:>9} {:>6} {:>7}\n", "case", "form",
               "impl", "n", "ms", "spread", "GFLOP/s", "peak", "GB/s", "mem", "speedup");
  // Cases come with their data: if --only begins with the name of an op, the others' is not made.
  const auto fits = [&](const OpEntry& op) { return o.only.starts_with(op.name); };
  const bool named = std::ranges::any_of(all_ops(), fits);
  for (const OpEntry& op : all_ops()) {
    if (!op.name.starts_with(prefix) || (named && !fits(op) && !op.name.starts_with(o.only))) continue;
    std::vector<BenchCase> cases = op_check(op.name).bench();
    std::erase_if(cases, [&](const BenchCase& c) { return c.name.find(o.only) == std::string::npos; });
    if (cases.empty()) continue;
    if (Status s = check_op(op, par); !s) return fail(s.error());
    const std::string_view impl = op.impls().rows()[op.impls().chosen(par)].name;
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

}  // namespace

std::function<int()> define_bench(CLI::App& app) {
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  add.required("what", o->what, "matmul, kernels, train, prefill, decode, or prefill,decode");
  add("--only", o->only, "matmul, kernels: only cases whose name contains this");
  o->train.visit(add);
  o->infer.visit(add);
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
    if (threads.size() > 1)
      return wrong_use({"bench: " + o->what + " takes one number of --threads", "run it once for each"});
    if (o->what == "train") return bench_train(o->train, threads.front(), o->json);
    const bool both = o->what == "prefill,decode";
    if (both || o->what == "prefill" || o->what == "decode")
      return bench_infer(o->infer,
                         {.prefill = both || o->what == "prefill", .decode = both || o->what == "decode"},
                         threads.front(), o->json);
    return wrong_use({"bench: there is no '" + o->what + "'",
                      suggest(o->what, {"matmul", "kernels", "train", "prefill", "decode"})});
  };
}

}  // namespace braid
