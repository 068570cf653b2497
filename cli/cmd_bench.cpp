#include <algorithm>

#include "base/cpu.h"
#include "base/progress.h"
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
  explicit Machine(ThreadPool started)
      : pool(std::move(started)),
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
  say("{:<44} {:<17} {:<7} {:>2} {:>10.4g} {:>5.0f}% {} {} {:>7.2f}\n", c.name, bench_form(c), impl,
      m.pool.threads(), t.seconds * 1e3, 100 * t.spread, pair(c.flops > 0, flops, m.peak),
      pair(c.bytes > 0, bytes, limit), first / t.seconds);
}

int bench_ops(const Options& o, std::span<const int32_t> threads, std::string_view prefix) {
  const KernelChoice kernels = kernel_choice();
  const Par par = Par().with(kernels);
  std::vector<std::unique_ptr<Machine>> machines;
  for (const int n : threads) {
    Result<ThreadPool> pool = start_threads(n);
    if (!pool) return fail(pool.error());
    const Machine& m = *machines.emplace_back(std::make_unique<Machine>(*std::move(pool)));
    if (!o.json)
      say("{}, {}, {}: FMA peak {:.0f} GFLOP/s, memory read {:.1f} GB/s, read and written {:.1f} "
          "GB/s\n",
          cpu_model(), isa_name(m.pool.kernels().isa()), counted(m.pool.threads(), "thread"), m.peak * 1e-9,
          m.read * 1e-9, m.update * 1e-9);
  }
  if (!o.json)
    say("{:<44} {:<17} {:<7} {:>2} {:>10} {:>6} {:>9} {:>6} {:>9} {:>6} {:>7}\n", "case", "form", "impl", "n",
        "ms", "spread", "GFLOP/s", "peak", "GB/s", "mem", "speedup");
  // Cases come with their data: if --only begins with the name of an op, the others' is not made.
  const auto fits = [&](const OpEntry& op) { return o.only.starts_with(op.name); };
  const bool named = std::ranges::any_of(all_ops(), fits);
  bool found = false;
  Progress bar("ops", all_ops().size(), 0, o.json);
  uint64_t ops = 0;
  for (const OpEntry& op : all_ops()) {
    if (found) bar.update(ops);
    ++ops;
    if (!op.name.starts_with(prefix) || (named && !fits(op) && !op.name.starts_with(o.only))) continue;
    std::vector<BenchCase> cases = op_check(op.name).bench();
    std::erase_if(cases, [&](const BenchCase& c) { return c.name.find(o.only) == std::string::npos; });
    if (cases.empty()) continue;
    found = true;
    if (Status s = check_op(op, par); !s) return fail(s.error());
    const std::string_view impl = op.impls().rows()[op.impls().chosen(par)].name;
    for (BenchCase& c : cases) {
      double first = 0;
      for (const auto& m : machines) {
        const Timing t = measure([&] { c.run(Par(m->pool)); });
        if (first == 0) first = t.seconds;
        bar.clear();
        print_case(o, c, impl, *m, t, first);
        flush_output();
        bar.update(ops - 1, c.name);
      }
      c.run = {};  // gives its memory back
    }
  }
  if (!found)
    return wrong_use({fmt::format("--only: no case of {} has '{}' in its name", o.what, o.only),
                      "give a part of a name, or leave out --only to list all"});
  return kOk;
}

// The first of some options that the user gave, or "".
class GivenAmong {
 public:
  explicit GivenAmong(const CLI::App& app) : app_(app) {}
  template <class... Rest>
  void operator()(const char* name, const Rest&...) {
    const std::string first = std::string(name).substr(0, std::string_view(name).find(','));
    if (found_.empty() && given(app_, first.c_str())) found_ = first;
  }
  const std::string& found() const { return found_; }

 private:
  const CLI::App& app_;
  std::string found_;
};

Status check_meant(const CLI::App& app, Options& o, bool ops, bool train, bool prefill, bool decode) {
  const auto refuse = [&](const std::string& option, const char* whose) {
    return Error{fmt::format("{}: is an option of {}, not of bench {}", option, whose, o.what),
                 "leave it out"};
  };
  if (!ops && given(app, "--only")) return refuse("--only", "matmul and kernels");
  GivenAmong of_train(app), of_inference(app), of_prefill(app), of_decode(app);
  if (!train) o.train.visit(of_train);
  if (!prefill && !decode) o.infer.visit(of_inference);
  if (decode && !prefill) o.infer.visit_prefill(of_prefill);
  if (prefill && !decode) o.infer.visit_decode(of_decode);
  if (!of_train.found().empty()) return refuse(of_train.found(), "train");
  if (!of_inference.found().empty()) return refuse(of_inference.found(), "prefill and decode");
  if (!of_prefill.found().empty()) return refuse(of_prefill.found(), "prefill");
  if (!of_decode.found().empty()) return refuse(of_decode.found(), "decode");
  return {};
}

}  // namespace

std::function<int()> define_bench(CLI::App& app) {
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  add("what", o->what, "matmul, kernels, train, prefill, decode, or prefill,decode");
  add("--only", o->only, "matmul, kernels: only cases whose name contains this");
  o->train.visit(add);
  o->infer.visit(add);
  add("--threads", o->threads, "threads; 0 = all cores; matmul, kernels: also several, e.g. 1,2");
  add("--json", o->json, "one JSON line per case and number of threads");
  return [o, &app]() -> int {
    const bool train = o->what == "train", both = o->what == "prefill,decode",
               prefill = both || o->what == "prefill", decode = both || o->what == "decode",
               ops = o->what == "matmul" || o->what == "kernels";
    if (!train && !prefill && !decode && !ops)
      return wrong_use(
          {o->what.empty() ? "bench: the test is missing" : "bench: test is '" + o->what + "'",
           suggest(o->what, {"matmul", "kernels", "train", "prefill", "decode", "prefill,decode"})});
    // Options of the others would be ignored.
    if (Status s = check_meant(app, *o, ops, train, prefill, decode); !s) return wrong_use(s.error());
    const Result<std::vector<int32_t>> threads = parse_ids(o->threads, "--threads");
    if (!threads) return wrong_use(threads.error());
    if (std::ranges::max(*threads) > kThreads.high)
      return wrong_use({fmt::format("--threads: is {}", o->threads), "give numbers from 0 to 1024"});
    if (ops) return bench_ops(*o, *threads, o->what == "matmul" ? "matmul" : "");
    if (threads->size() > 1)
      return wrong_use({fmt::format("--threads: is {}, but bench {} takes one number", o->threads, o->what),
                        "run it once for each"});
    Result<ThreadPool> pool = start_threads(threads->front());
    if (!pool) return fail(pool.error());
    return train ? bench_train(o->train, *pool, o->json)
                 : bench_infer(o->infer, {.prefill = prefill, .decode = decode}, *pool, o->json);
  };
}

}  // namespace braid
