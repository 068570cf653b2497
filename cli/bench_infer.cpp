#include "cli/bench_infer.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>

#include "base/cpu.h"
#include "base/progress.h"
#include "cli/cli.h"
#include "bench/measure.h"
#include "infer/session.h"
#include "kernels/registry.h"
#include "verify/compare.h"
#include "model/model.h"

namespace braid {
namespace {

// Sequences of one model that are read and written together, each with its state.
class Sequences {
 public:
  Sequences(const Model& model, size_t count, Activations activations, Par par)
      : model_(model), activations_(activations), par_(par), states_(count) {
    for (State& s : states_) s = model.new_state();
  }

  // The same number of tokens for each sequence, one after the other; the logits after each one's last.
  Mat<float> feed(std::span<const int32_t> tokens, Profile* profile = nullptr, bool scored = true) {
    const size_t n = states_.size(), each = tokens.size() / n;
    std::vector<State*> states;
    std::vector<uint32_t> offsets{0}, last;
    for (size_t s = 0; s < n; ++s) {
      states.push_back(&states_[s]);
      offsets.push_back(static_cast<uint32_t>((s + 1) * each));
      if (scored) last.push_back(offsets.back() - 1);
    }
    arena_.reset();
    Exec exec({.arena = &arena_,
               .params = &model_.params(),
               .par = par_,
               .profile = profile,
               .activations = activations_});
    const Var h = model_.hidden(exec, {.tokens = tokens, .offsets = offsets, .states = states}, last);
    return model_.logits(exec, h);
  }
  // A prompt for each, in pieces as a session reads it.
  void read(std::span<const int32_t> tokens, Profile* profile = nullptr) {
    for (size_t at = 0; at < tokens.size(); at += kPromptPiece) {
      const std::span<const int32_t> piece = tokens.subspan(at, std::min(kPromptPiece, tokens.size() - at));
      std::vector<int32_t> all;
      for (size_t s = 0; s < states_.size(); ++s) all.insert(all.end(), piece.begin(), piece.end());
      feed(all, profile, at + kPromptPiece >= tokens.size());
    }
  }
  std::vector<State>& states() { return states_; }
  size_t state_bytes() const {
    size_t n = 0;
    for (const State& s : states_) n += s.bytes();
    return n;
  }

 private:
  const Model& model_;
  Activations activations_;
  Par par_;
  std::vector<State> states_;
  Arena arena_;
};

std::vector<int32_t> random_tokens(size_t n, int64_t vocab, uint64_t seed) {
  std::vector<int32_t> ids(n);
  uint64_t x = seed;
  for (int32_t& id : ids) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    id = static_cast<int32_t>((x >> 33) % static_cast<uint64_t>(vocab));
  }
  return ids;
}

// The logits of a few tokens, read as a prompt and then one by one, against those of every op's reference.
CheckRow check_model(const Model& model, Activations activations, Par par) {
  const std::vector<int32_t> ids = random_tokens(4, model.config().vocab_size, 1);
  const auto logits = [&](Par with) {
    Sequences one(model, 1, activations, with);
    one.read(std::span(ids).first(2));
    std::vector<float> all;
    for (size_t i = 2; i < ids.size(); ++i) {
      const Mat<float> y = one.feed(std::span(ids).subspan(i, 1));
      all.insert(all.end(), y.data, y.data + y.count());
    }
    return all;
  };
  KernelChoice references;
  for (const OpEntry& op : all_ops()) references.force(op.name, "ref");
  const std::vector<float> got = logits(par), want = logits(par.with(references));
  // Rounding to 16 bits makes a difference in the last bit of f32 one of 2^-16, in every layer anew.
  bool rounded = false;
  for (size_t i = 0; i < model.params().all().size(); ++i)
    if (const StoredMatrix* m = model.params().stored(i))
      rounded |= weight_matmul_rounds(m->format, activations, par);
  return {"logits = references", compare<float, float>(got, want), rounded ? kTol16 : kTolF32Grad};
}

// Bytes of this process in memory now: after a test, before the benchmark takes memory for its own ends.
size_t resident() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, pages = 0;
  file >> all >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

using Parts = std::vector<std::pair<double, std::string>>;  // seconds and op

struct Bench {
  const InferBench& o;
  const Model& model;
  ThreadPool& pool;
  Activations activations;
  bool json;
  double read = measure_read_bandwidth(pool), peak = measure_fma_peak(pool);
  size_t weight_bytes = 0;
  std::string format = {};
  std::function<void()> before_row = [] {};

  // Bytes of weights that a step of `batch` tokens reads: of experts, the expected number of active ones.
  double step_bytes(double batch) const {
    double n = static_cast<double>(model.params().block_size() * sizeof(float));
    for (size_t i = 0; i < model.params().all().size(); ++i) {
      const Param& p = model.params()[i];
      const StoredMatrix* m = model.params().stored(i);
      const bool looked_up = p.name == "embedding.weight" && !model.config().tie_embeddings;
      if (m && !looked_up) n += static_cast<double>(m->bytes()) * (1 - std::pow(1 - p.share, batch));
    }
    return n;
  }

  // Seconds that the matrix products of a pass over so many tokens take by themselves.
  double products_alone(size_t tokens) {
    double seconds = 0;
    for (size_t at = 0; at < tokens; at += kPromptPiece) {
      const size_t n = std::min(kPromptPiece, tokens - at);
      Arena arena;
      const Timing t = measure(
          [&] {
            for (size_t i = 0; i < model.params().all().size(); ++i) {
              const StoredMatrix* m = model.params().stored(i);
              if (!m || model.params()[i].name == "embedding.weight") continue;
              const size_t rows =
                  i == model.head()
                      ? 1
                      : std::max<size_t>(1, static_cast<size_t>(std::lround(static_cast<double>(n) *
                                                                            model.params()[i].share)));
              arena.reset();
              const Mat<float> x = arena.mat(rows, m->cols), y = arena.mat(rows, m->rows);
              std::fill_n(x.data, x.count(), 1.0f);
              const WeightProduct p{x, *m, y};
              const size_t scratch = weight_matmul_scratch({&p, 1}, activations, Par(pool));
              weight_matmul({&p, 1}, Into::kOverwrite, activations, arena.take<float>(scratch), Par(pool));
            }
          },
          1, 0);
      seconds += t.seconds;
      if (n == kPromptPiece && tokens > kPromptPiece) {  // all pieces but the last take the same time
        seconds *= static_cast<double>(tokens / kPromptPiece);
        at = tokens / kPromptPiece * kPromptPiece - kPromptPiece;
      }
    }
    return seconds;
  }

  // One more pass with a clock at each op: their seconds, the longest first, and what is left.
  Parts parts(const std::function<void(Profile*)>& pass) const {
    if (!o.parts) return {};
    Profile profile;
    const double start = seconds_now();
    pass(&profile);
    double left = seconds_now() - start;
    Parts out;
    for (const auto& [op, e] : profile.ops) out.emplace_back(e.forward, op), left -= e.forward;
    out.emplace_back(left, "other");
    std::sort(out.rbegin(), out.rend());
    return out;
  }

  // Weights and states that stay in the caches are read faster than memory is: then there is no share of it.
  static constexpr double kMemoryBound = 1.1;
  static std::string share_of_memory(double share) {
    return share <= 0 ? "" : share <= kMemoryBound ? fmt::format("{:.0f} %", 100 * share) : "cache";
  }

  void print(const std::string& test, double tokens, const Timing& t, double bytes, double products,
             const Parts& where, size_t state_bytes, size_t resident_bytes) const {
    before_row();
    const double rate = tokens / t.seconds;
    double all = 0;
    for (const auto& [seconds, op] : where) all += seconds;
    if (json) {
      Json j{{"model", o.model},
             {"weights", format},
             {"activations", activations_name(activations)},
             {"threads", pool.threads()},
             {"test", test},
             {"tokens_per_second", rate},
             {"seconds", t.seconds},
             {"spread", t.spread},
             {"runs", t.runs},
             {"weight_bytes", weight_bytes},
             {"state_bytes", state_bytes},
             {"resident_bytes", resident_bytes},
             {"read_gbytes_per_s", read * 1e-9},
             {"peak_gflops", peak * 1e-9}};
      if (bytes > 0) j["gbytes_per_s"] = bytes / t.seconds * 1e-9;
      if (const double share = bytes / t.seconds / read; bytes > 0)
        share <= kMemoryBound ? j["share_of_bandwidth"] = share : j["in_cache"] = true;
      if (products > 0) j["products_alone_seconds"] = products, j["share_of_products"] = products / t.seconds;
      for (const auto& [seconds, op] : where)
        j["parts"][op] = {{"seconds", seconds}, {"share", seconds / all}};
      return print_json(j);
    }
    say("| {} | {} | {:.1f} | {} | {:>20} | {:>8.2f} ± {:2.0f} % | {:>6} | {:>5} | {:>5} |\n", o.model,
        format, 1e-6 * static_cast<double>(weight_bytes), pool.threads(), test, rate, 100 * t.spread,
        bytes > 0 ? fmt::format("{:.1f}", bytes / t.seconds * 1e-9) : "",
        share_of_memory(bytes / t.seconds / read),
        products > 0 ? fmt::format("{:.0f} %", 100 * products / t.seconds) : "");
    for (const auto& [seconds, op] : where) say("    {:<24} {:5.1f} %\n", op, 100 * seconds / all);
    flush_output();
  }

  void prefill(size_t length, size_t depth) {
    Sequences one(model, 1, activations, Par(pool));
    const int64_t vocab = model.config().vocab_size;
    one.read(random_tokens(depth, vocab, 2));
    const State before = one.states()[0];
    const std::vector<int32_t> ids = random_tokens(length, vocab, 3);
    const auto read = [&](Profile* p) {
      one.states()[0] = before;
      one.read(ids, p);
    };
    const Timing t = measure([&] { read(nullptr); }, static_cast<int>(o.repeat), 0);
    const size_t memory = resident();
    print(name(fmt::format("pp{}", length), depth, 1), static_cast<double>(length), t, 0,
          products_alone(length), parts(read), one.state_bytes(), memory);
  }

  void decode(size_t length, size_t depth, size_t batch) {
    Sequences all(model, batch, activations, Par(pool));
    const int64_t vocab = model.config().vocab_size;
    all.read(random_tokens(std::max<size_t>(1, depth), vocab, 2));
    const std::vector<State> before = all.states();
    const auto write = [&](Profile* p) {
      all.states() = before;
      for (size_t i = 0; i < length; ++i) all.feed(random_tokens(batch, vocab, i), p);
    };
    const Timing t = measure([&] { write(nullptr); }, static_cast<int>(o.repeat), 0);
    const size_t memory = resident();
    const double steps = static_cast<double>(length);
    print(name(fmt::format("tg{}", length), depth, batch), static_cast<double>(length * batch), t,
          steps * (step_bytes(static_cast<double>(batch)) + static_cast<double>(all.state_bytes())), 0,
          parts(write), all.state_bytes(), memory);
  }

  static std::string name(std::string test, size_t depth, size_t batch) {
    if (depth > 0) test += fmt::format(" @ d{}", depth);
    if (batch > 1) test += fmt::format(" x {}", batch);
    return test;
  }
};

}  // namespace

int bench_infer(const InferBench& o, InferTests tests, ThreadPool& pool, bool json) {
  if (o.model.empty()) return wrong_use({"--model: is missing", "give a model folder"});
  const Result<std::optional<WeightFormat>> format = o.weights.resolve();
  if (!format) return wrong_use(format.error());
  const Result<Activations> activations = o.weights.resolve_activations();
  if (!activations) return wrong_use(activations.error());
  const Result<std::vector<int32_t>> lengths = parse_ids(o.prompt, "--prompt"),
                                     depths = parse_ids(o.depth, "--depth"),
                                     batches = parse_ids(o.batch, "--sequences");
  for (const auto* list : {&lengths, &depths, &batches})
    if (!*list) return wrong_use(list->error());
  if (std::ranges::min(*lengths) < 1 || std::ranges::min(*batches) < 1)
    return wrong_use({"--prompt, --sequences: one of their numbers is 0", "give numbers from 1"});
  if (Status s = check_model_folder("--model", o.model); !s) return fail(s.error());
  const double start = seconds_now();
  const Result<std::unique_ptr<Model>> model =
      Model::load_stored(o.model, *format, Par(pool), built_in_mixers(), loading_bar(o.model));
  if (!model) return fail(model.error());
  tell_not_quantised((*model)->params(), *format);
  const double loaded = seconds_now() - start;
  Sequences first(**model, 1, *activations, Par(pool));
  first.feed(random_tokens(1, (*model)->config().vocab_size, 5));
  const double token = seconds_now() - start;
  if (const CheckRow r = check_model(**model, *activations, Par(pool)); !r.ok())
    return fail({fmt::format("{}: {} fails (rms {:.3g}, max {:.3g}); not timed", o.model, r.what, r.diff.rms,
                             r.diff.max),
                 "run braid verify"});
  Bench bench{o, **model, pool, *activations, json};
  std::map<WeightFormat, size_t> formats;
  const ParamSet& params = (*model)->params();
  bench.weight_bytes = params.block_size() * sizeof(float);
  for (size_t i = 0; i < params.all().size(); ++i)
    if (const StoredMatrix* m = params.stored(i))
      formats[m->format] += m->bytes(), bench.weight_bytes += m->bytes();
  for (const auto& [f, bytes] : formats)
    bench.format += (bench.format.empty() ? "" : "+") + std::string(weight_format_name(f));
  if (!json)
    say("{}, {}, {}: memory read {:.1f} GB/s, FMA peak {:.0f} GFLOP/s; loaded in {:.2f} s, first "
        "token after "
        "{:.2f} s\n\n| model | weights | MB | threads | test | tokens/s | GB/s | of memory | of products |\n"
        "|---|---|---|---|---|---|---|---|---|\n",
        cpu_model(), isa_name(pool.kernels().isa()), counted(pool.threads(), "thread"), bench.read * 1e-9,
        bench.peak * 1e-9, loaded, token);
  Progress bar(
      "tests",
      depths->size() * ((tests.prefill ? lengths->size() : 0) + (tests.decode ? batches->size() : 0)), 0,
      json);
  uint64_t done = 0;
  bench.before_row = [&bar] { bar.clear(); };
  for (const int32_t d : *depths) {
    if (tests.prefill)
      for (const int32_t n : *lengths) {
        bench.prefill(static_cast<size_t>(n), static_cast<size_t>(d));
        bar.update(++done);
      }
    if (tests.decode)
      for (const int32_t b : *batches) {
        bench.decode(static_cast<size_t>(o.gen), static_cast<size_t>(d), static_cast<size_t>(b));
        bar.update(++done);
      }
  }
  return kOk;
}

}  // namespace braid
