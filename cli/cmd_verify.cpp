#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/clock.h"
#include "base/cpu.h"
#include "base/progress.h"
#include "cli/cli.h"
#include "verify/long_check.h"
#include "kernels/registry.h"
#include "verify/ops.h"
#include "verify/exact_check.h"
#include "model/presets.h"
#include "verify/state_check.h"
#include "model/state_file.h"
#include "train/gradient.h"

namespace braid {
namespace {

class Table {
 public:
  explicit Table(bool json) : json_(json) {}
  void row(const std::string& what, const std::string& how, size_t checks, size_t wrong, double worst,
           const std::string& detail) {
    failed_ += wrong, checks_ += checks;
    if (json_)
      print_json({{"what", what},
                  {"how", how},
                  {"checks", checks},
                  {"wrong", wrong},
                  {"worst_rms", worst},
                  {"detail", detail}});
    else
      fmt::print("{:<18} {:<34} {:>5} checks  {}  {}\n", what, how, checks,
                 wrong ? "WRONG" : fmt::format("ok, worst rms {:.1e}", worst), detail);
  }
  size_t failed() const { return failed_; }
  size_t checks() const { return checks_; }

 private:
  bool json_;
  size_t failed_ = 0, checks_ = 0;
};

void verify_ops(Table& table) {
  for (const OpEntry& op : all_ops()) {
    ImplTable& impls = op.impls();
    for (const ImplTable::Row& row : impls.rows()) {
      if (!impls.force(row.name)) continue;
      const std::vector<CheckRow> rows = op_check(op.name).check();
      size_t wrong = 0;
      double worst = 0;
      std::string detail;
      for (const CheckRow& r : rows) {
        worst = std::max(worst, r.diff.rms);
        if (!r.ok() && wrong++ == 0)
          detail = fmt::format("{}: rms {:.3g}, max {:.3g}", r.what, r.diff.rms, r.diff.max);
      }
      table.row(std::string(op.name), std::string(row.name) + " = reference in double", rows.size(), wrong,
                worst, detail);
    }
    impls.unforce();
  }
}

// Logits and gradient against the references in double. An exact pass takes 16 bytes per parameter and
// about two seconds for ten million of them and 75 tokens.
void verify_exact(Table& table, Model& model, const std::string& name, std::span<const int32_t> tokens) {
  constexpr size_t kMost = 50'000'000, kDirections = 3;
  const size_t count = model.params().count();
  if (count > kMost) {
    table.row(name, "f32 = references in double", 0, 0, 0,
              fmt::format("not run: {} parameters, the limit is {}", count, kMost));
    return;
  }
  const uint32_t offsets[] = {0, 70, 75};  // longer than HQLT's window
  ExactCheck exact(model, {tokens.first(75), offsets, tokens.subspan(1, 75)});
  const auto row = [&](const char* how, const CheckRow& r) {
    table.row(name, how, 1, !r.ok(), r.diff.rms, r.ok() ? "" : fmt::format("max {:.3g}", r.diff.max));
  };
  row("logits = references in double", exact.logits());
  row("gradient = complex step in double", exact.gradient_along(exact.f32_gradient(), kDirections));
}

// The promises of a whole model: any cut of a sequence, any thread count, any restored state give the same.
void verify_model(Table& table, Model& model, const std::string& name) {
  const size_t n = 150;  // more than a page of the key-value memory
  Rng rng(1, "verify");
  std::vector<int32_t> tokens(n);
  for (int32_t& t : tokens) t = static_cast<int32_t>(rng.below(model.config().vocab_size));
  ThreadPool one(1), many(3);
  const auto run = [&](ThreadPool& pool, std::span<const size_t> pieces, bool restore) {
    Session s(model, pool);
    std::vector<float> out;
    size_t at = 0;
    for (size_t i = 0; at < n; ++i) {
      const size_t count = std::min(n - at, pieces[i % pieces.size()]);
      const Mat<const float> part = s.feed_all(std::span(tokens).subspan(at, count));
      out.insert(out.end(), part.data, part.data + part.count());
      at += count;
      if (restore) {  // what happens to the session after the copy must not touch the copy
        const State saved = s.state();
        s.feed(std::span(tokens).first(5));
        s.set_state(saved);
      }
    }
    return out;
  };
  const size_t whole[] = {n}, steps[] = {1}, mixed[] = {7, 1, 64, 3};
  const std::vector<float> want = run(one, whole, false);
  const auto compare_to = [&](const char* how, const std::vector<float>& got) {
    const Diff d = compare<float, float>(got, want);
    table.row(name, how, 1, !within(d, {1e-5, 1e-4}), d.rms, "");
  };
  compare_to("single steps = whole sequence", run(one, steps, false));
  compare_to("pieces = whole sequence", run(one, mixed, false));
  compare_to("copied state = never stopped", run(one, mixed, true));
  const std::vector<float> threaded = run(many, whole, false);
  table.row(name, "3 threads = 1 thread, bit for bit", 1, threaded != want, 0, "");

  // Ragged batches: each sequence as if alone; and the gradient's bits do not depend on the threads.
  Batch batch;
  for (size_t i = 0, at = 0; at + 1 < n; ++i) {
    const size_t count = std::min(n - 1 - at, 3 + 5 * i);
    batch.append(std::span(tokens).subspan(at, count), std::span(tokens).subspan(at + 1, count));
    at += count;
  }
  Gradient g1(model, one, {.slice_tokens = 40}), g3(model, many, {.slice_tokens = 40}),
      inner(model, many, {.slice_tokens = 1000});
  const double loss = g1.run(batch, 0).loss;
  double alone = 0;
  for (size_t s = 0; s < batch.sequences(); ++s) {
    Batch single;
    const BatchView v = batch.slice(s, s + 1);
    single.append(v.tokens, v.targets);
    alone += g1.evaluate(single).loss * static_cast<double>(v.tokens.size());
  }
  alone /= static_cast<double>(batch.tokens.size());
  const double error = std::fabs(alone - loss) / loss;
  table.row(name, "ragged batch = one by one", 1, !(error < 1e-5), error, "");
  g1.run(batch, 0), g3.run(batch, 0);
  table.row(name, "gradient: 3 threads = 1, bit for bit", 1, !std::ranges::equal(g1.grads(), g3.grads()), 0,
            "");
  Gradient inner1(model, one, {.slice_tokens = 1000});
  inner.run(batch, 0), inner1.run(batch, 0);
  table.row(name, "gradient: threads inside ops, bitwise", 1,
            !std::ranges::equal(inner.grads(), inner1.grads()), 0, "");

  for (const StateCheck& c : check_states(model, Par(many)))
    table.row(name, c.what, c.checks, c.wrong.size(), 0, c.wrong.empty() ? "bit for bit" : c.wrong[0]);
  verify_exact(table, model, name, tokens);
}

// A very long sequence; takes minutes.
Status verify_long(Table& table, Model& model, const std::string& name, size_t tokens) {
  ThreadPool pool(resolve_threads(0));
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("braid-verify-{}.state", getpid());
  const Result<std::vector<LongRow>> rows = check_long(model, pool, tokens, file);
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  if (!rows) return rows.error();
  for (const LongRow& r : *rows)
    table.row(name, fmt::format("{} tokens, {}", tokens, r.what), 1, !r.ok(), r.difference,
              fmt::format("{}{}, {:.0f} s", r.finite ? "" : "NOT FINITE, ",
                          r.same_bits ? "bit for bit" : "within the tolerance", r.seconds));
  return {};
}

int run(const std::string& dir, std::string arch, const std::string& size, bool json, int64_t long_tokens) {
  if (long_tokens < 0 || long_tokens > kMaxSavedPosition)
    return wrong_use(
        {fmt::format("verify: --long is {}", long_tokens), "give a number of tokens, e.g. 131072"});
  if (long_tokens && dir.empty() && arch.empty()) arch = "qwen3.5";
  const auto verify = [long_tokens](Table& table, Model& model, const std::string& name) {
    if (long_tokens) return verify_long(table, model, name, static_cast<size_t>(long_tokens));
    verify_model(table, model, name);
    return Status{};
  };
  const double start = seconds_now();
  Table table(json);
  if (!json) fmt::print("{}: {}, using {}\n", cpu_model(), isa_name(detected_isa()), isa_name(active_isa()));
  if (!dir.empty()) {
    Result<std::unique_ptr<Model>> model = Model::load(dir);
    if (!model) return fail(model.error());
    if (Status s = verify(table, **model, dir); !s) return fail(s.error());
  } else {
    if (!arch.empty() && !find_preset(arch))
      return wrong_use({"verify: there is no architecture '" + arch + "'", suggest(arch, preset_names())});
    if (arch.empty() && size != "tiny")
      return wrong_use(
          {"verify: --size needs --arch", "without --arch every kernel and every tiny model is checked"});
    if (arch.empty()) verify_ops(table);
    for (const Preset& p : all_presets()) {
      if (!arch.empty() && p.name != arch) continue;
      const Result<Json> j = preset_config(std::string(p.name), size, 256);
      if (!j) return fail(j.error());
      const Result<ModelConfig> config = parse_config(*j, std::string(p.name));
      if (!config) return fail(config.error());
      std::unique_ptr<Model> model = Model::create(*config);
      model->init(1);
      if (Status s = verify(table, *model, std::string(p.name)); !s) return fail(s.error());
    }
  }
  if (!json)
    fmt::print("{} checks, {} wrong, {}\n", table.checks(), table.failed(),
               human_time(seconds_now() - start));
  return table.failed() ? kFailed : kOk;
}

}  // namespace

std::function<int()> define_verify(CLI::App& app) {
  struct Options {
    std::string model, arch, size = "tiny";
    int64_t long_tokens = 0;
    bool json = false;
  };
  auto o = std::make_shared<Options>();
  OptionAdder add(app);
  add("--model", o->model, "check this model folder only");
  add("--arch", o->arch, "check a model of this architecture only");
  add("--size", o->size, "its size");
  add("--long", o->long_tokens,
      "instead: read this many tokens, e.g. 131072, in one pass, in pieces and through a state file (--arch "
      "or "
      "--model, else qwen3.5); takes minutes");
  add("--json", o->json, "one JSON line per row");
  return [o] { return run(o->model, o->arch, o->size, o->json, o->long_tokens); };
}

}  // namespace braid
