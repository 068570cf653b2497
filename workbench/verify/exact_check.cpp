#include "verify/exact_check.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace braid {

using Number = Exact::Number;

ExactCheck::ExactCheck(Model& model, const LossBatch& batch, const Rng* dropout)
    : model_(model), batch_(batch), dropout_(dropout) {
  for (size_t i = 0; i < batch.targets.size(); ++i)
    check(batch.targets[i] < model.config().answers(), "ExactCheck: a target is not an answer of the model");
  for (size_t i = 0; i < batch.targets.size(); ++i)
    if (batch.targets[i] >= 0)
      rows_.push_back(static_cast<uint32_t>(i)), targets_.push_back(batch.targets[i]);
  weights_.assign(rows_.size(), static_cast<float>(1.0 / static_cast<double>(rows_.size())));
}

void ExactCheck::set_params(Exact& exact, std::span<const double> direction, Number h) const {
  const std::span<const float> block = std::as_const(model_.params()).block();
  Exact::Numbers all(block.begin(), block.end());
  for (size_t i = 0; i < direction.size(); ++i) all[i] += h * direction[i];
  exact.set({block.data(), 1, block.size()}, all);
}

Number ExactCheck::run(std::span<const double> direction, Number h) const {
  Arena arena;
  Exact exact;
  set_params(exact, direction, h);
  Exec exec({.arena = &arena, .params = &model_.params(), .dropout_rng = dropout_, .exact = &exact});
  // Each token by itself, so that what tokens share in training is compared with something.
  const Var x =
      model_.hidden(exec, {.tokens = batch_.tokens, .offsets = batch_.offsets, .share = false}, rows_);
  linear_cross_entropy(exec, x, model_.head(), targets_, weights_);
  return exact.loss();
}

double ExactCheck::loss(std::span<const double> direction, double h) const {
  return run(direction, h).real();
}

double ExactCheck::slope(std::span<const double> direction) const {
  constexpr double kStep = 1e-30;  // squares of it vanish beside anything
  return run(direction, {0, kStep}).imag() / kStep;
}

CheckRow ExactCheck::logits() const {
  Arena arena;
  Exact exact;
  set_params(exact, {}, 0);
  Exec exec({.arena = &arena, .params = &model_.params(), .exact = &exact});
  std::vector<uint32_t> all(batch_.tokens.size());
  std::iota(all.begin(), all.end(), 0u);
  const Var y = linear(
      exec, model_.hidden(exec, {.tokens = batch_.tokens, .offsets = batch_.offsets, .share = false}, all),
      model_.head());
  std::vector<double> want;
  for (const Number& x : exact.get(y.v)) want.push_back(x.real());
  return {"logits", compare<float, double>({y.v.data, y.v.count()}, want), kTolF32};
}

std::vector<float> ExactCheck::f32_gradient() const {
  Arena arena;
  Tape tape(arena);
  std::vector<float> grads(model_.params().block_size());
  Exec exec({.arena = &arena,
             .params = &model_.params(),
             .grads = grads.data(),
             .tape = &tape,
             .dropout_rng = dropout_});
  const Var x = model_.hidden(exec, {.tokens = batch_.tokens, .offsets = batch_.offsets}, rows_);
  linear_cross_entropy(exec, x, model_.head(), targets_, weights_);
  tape.backward();
  return grads;
}

namespace {

double length(std::span<const float> x) {
  double square = 0;
  for (const float v : x) square += static_cast<double>(v) * v;
  return std::sqrt(square);
}

}  // namespace

CheckRow ExactCheck::gradient(std::span<const float> grads) {
  constexpr size_t kNumbers = 2;  // of each parameter, besides the direction
  std::vector<double> got, want, direction(grads.size());
  std::vector<const Param*> of;
  const bool first = slopes_.empty();
  for (const Param& p : model_.params().all()) {
    const std::span<const float> g = grads.subspan(p.offset, p.count());
    const auto along = [&](double unit) {  // what makes the slope about one
      double sum = 0;
      for (size_t i = 0; i < g.size(); ++i) sum += direction[p.offset + i] * g[i];
      if (first) slopes_.push_back(slope(direction));
      unit = unit > 0 ? unit : 1;
      got.push_back(sum / unit), want.push_back(slopes_[want.size()] / unit), of.push_back(&p);
      std::fill_n(direction.begin() + static_cast<std::ptrdiff_t>(p.offset), g.size(), 0.0);
    };
    Rng rng(1, "direction/" + p.name);
    for (size_t i = 0; i < g.size(); ++i) direction[p.offset + i] = rng.normal();
    along(length(g));
    double steepest = 0;
    for (const float x : g) steepest = std::max(steepest, std::fabs(static_cast<double>(x)));
    for (size_t i = 0; i < kNumbers; ++i) direction[p.offset + rng.below(g.size())] = 1, along(steepest);
  }
  const Diff d = compare<double, double>(got, want);
  return {"gradient, worst in " + of[d.worst]->name, d, kTolF32Grad};
}

CheckRow ExactCheck::gradient_along(std::span<const float> grads, size_t count) const {
  std::vector<double> got, want, direction(grads.size());
  Rng rng(1, "directions");
  for (size_t n = 0; n < count; ++n) {
    double sum = 0;
    for (const Param& p : model_.params().all()) {
      const std::span<const float> g = grads.subspan(p.offset, p.count());
      const double norm = length(g);
      for (size_t i = 0; i < g.size(); ++i) {
        const double d = rng.normal() / (norm > 0 ? norm : 1);
        direction[p.offset + i] = d, sum += d * g[i];
      }
    }
    got.push_back(sum), want.push_back(slope(direction));
  }
  return {"gradient", compare<double, double>(got, want), kTolF32Grad};
}

}  // namespace braid
