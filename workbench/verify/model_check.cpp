#include "verify/model_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "infer/session.h"
#include "train/gradient.h"
#include "verify/exact_check.h"
#include "verify/state_check.h"

namespace braid {
namespace {

constexpr size_t kTokens = 150;  // more than a page of the key-value memory

class Checker {
 public:
  Checker(Model& model, const KernelChoice& kernels) : model_(model), one_(1, kernels), many_(3, kernels) {
    Rng rng(1, "verify");
    for (size_t i = 0; i < kTokens; ++i)
      tokens_.push_back(static_cast<int32_t>(rng.below(static_cast<size_t>(model.config().vocab_size))));
    // What follows each token; only the first `outputs` tokens can be answers.
    for (size_t i = 0; i < kTokens; ++i)
      targets_.push_back(tokens_[(i + 1) % kTokens] % static_cast<int32_t>(model.config().answers()));
  }

  std::vector<ModelCheckRow> run() {
    cuts();
    gradients();
    for (const StateCheck& c : check_states(model_, Par(many_)))
      row(c.what, c.checks, c.wrong.size(), 0, c.wrong.empty() ? "bit for bit" : c.wrong[0]);
    references();
    return std::move(rows_);
  }

 private:
  void row(std::string what, size_t checks, size_t wrong, double worst, std::string detail = {}) {
    rows_.push_back({std::move(what), checks, wrong, worst, std::move(detail)});
  }

  // Logits of all tokens, read in pieces of these lengths, repeating.
  std::vector<float> logits(ThreadPool& pool, std::span<const size_t> pieces, bool restore) {
    Context context(pool);
    Session s(model_, context);
    std::vector<float> out;
    for (size_t i = 0, at = 0; at < kTokens; ++i) {
      const size_t count = std::min(kTokens - at, pieces[i % pieces.size()]);
      const Mat<const float> part = s.feed_all(std::span(tokens_).subspan(at, count));
      out.insert(out.end(), part.data, part.data + part.count());
      at += count;
      if (restore) {  // what happens to the session after the copy must not touch the copy
        const State saved = s.state();
        s.feed(std::span(tokens_).first(5));
        s.set_state(saved);
      }
    }
    return out;
  }

  void cuts() {
    const size_t whole[] = {kTokens}, steps[] = {1}, mixed[] = {7, 1, 64, 3};
    const std::vector<float> want = logits(one_, whole, false);
    const auto compare_to = [&](const char* what, const std::vector<float>& got) {
      const Diff d = compare<float, float>(got, want);
      row(what, 1, !within(d, kTolF32), d.rms);
    };
    compare_to("single steps = whole sequence", logits(one_, steps, false));
    compare_to("pieces = whole sequence", logits(one_, mixed, false));
    compare_to("copied state = never stopped", logits(one_, mixed, true));
    row("3 threads = 1 thread, bit for bit", 1, logits(many_, whole, false) != want, 0);
  }

  // Ragged batches: each sequence as if alone; and the gradient's bits do not depend on the threads.
  void gradients() {
    Batch batch;
    for (size_t i = 0, at = 0; at + 1 < kTokens; ++i) {
      const size_t count = std::min(kTokens - 1 - at, 3 + 5 * i);
      batch.append(std::span(tokens_).subspan(at, count), std::span(targets_).subspan(at, count));
      at += count;
    }
    Gradient g1(model_, one_, {.slice_tokens = 40}), g3(model_, many_, {.slice_tokens = 40}),
        inner(model_, many_, {.slice_tokens = 1000}), inner1(model_, one_, {.slice_tokens = 1000});
    const double loss = g1.run(batch, 0).loss;
    double alone = 0;
    for (size_t s = 0; s < batch.sequences(); ++s) {
      Batch single;
      const BatchView v = batch.slice(s, s + 1);
      single.append(v.tokens, v.targets);
      alone += g1.evaluate(single).loss * static_cast<double>(v.tokens.size());
    }
    alone /= static_cast<double>(batch.tokens.size());
    const double error = std::fabs(alone - loss) / (loss > 0 ? loss : 1);
    row("ragged batch = one by one", 1, !(error < kTolF32.rms), error);
    g1.run(batch, 0), g3.run(batch, 0);
    row("gradient: 3 threads = 1, bit for bit", 1, !std::ranges::equal(g1.grads(), g3.grads()), 0);
    inner.run(batch, 0), inner1.run(batch, 0);
    row("gradient: threads inside ops, bitwise", 1, !std::ranges::equal(inner.grads(), inner1.grads()), 0);
  }

  // An exact pass takes 16 bytes per parameter and about two seconds for ten million of them and 75 tokens.
  void references() {
    constexpr size_t kMost = 50'000'000, kDirections = 3, kRead = 75;
    const size_t count = model_.params().count();
    if (count > kMost)
      return row("f32 = references in double", 0, 0, 0,
                 fmt::format("not run: {} parameters, the limit is {}", count, kMost));
    const uint32_t offsets[] = {0, 70, kRead};  // longer than HQLT's window
    ExactCheck exact(model_, {std::span(tokens_).first(kRead), offsets, std::span(targets_).first(kRead)});
    const auto add = [&](const char* what, const CheckRow& r) {
      row(what, 1, !r.ok(), r.diff.rms, r.ok() ? "" : fmt::format("max {:.3g}", r.diff.max));
    };
    add("logits = references in double", exact.logits());
    add("gradient = complex step in double", exact.gradient_along(exact.f32_gradient(), kDirections));
  }

  Model& model_;
  ThreadPool one_, many_;
  std::vector<int32_t> tokens_, targets_;
  std::vector<ModelCheckRow> rows_;
};

}  // namespace

std::vector<ModelCheckRow> check_model(Model& model, const KernelChoice& kernels) {
  return Checker(model, kernels).run();
}

}  // namespace braid
