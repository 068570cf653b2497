#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "kernels/adamw/adamw.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/orthogonalize/orthogonalize.h"

namespace braid {

Optimizer::Optimizer(ParamSet& params, const OptimizerOptions& options)
    : params_(params),
      options_(options),
      m_(DType::kF32, {static_cast<int64_t>(params.block_size())}),
      v_(m_) {
  constexpr size_t kPiece = 16384;
  for (const Param& p : params.all()) {
    if (!p.train) continue;
    if (options.kind == OptimizerKind::kMuon && p.hidden) {
      size_t row = 0;
      for (const size_t rows : p.row_blocks.empty() ? std::vector{p.rows()} : p.row_blocks) {
        if (rows > 0) matrices_.push_back({p.offset + row * p.cols(), rows, p.cols()});
        row += rows;
      }
      continue;
    }
    const bool decay = p.decay || (options.decay_norms && p.norm);
    for (size_t at = 0; at < p.count(); at += kPiece)
      pieces_.push_back({p.offset + at, p.offset + std::min(p.count(), at + kPiece), decay});
  }
  // The largest first, so that no thread is left with one at the end.
  std::ranges::stable_sort(matrices_, std::greater(), [](const Matrix& m) { return m.rows * m.cols; });
}

double Optimizer::grad_norm(std::span<const float> grads, Par par) {
  partial_.resize(sum_partials(grads.size()));
  return std::sqrt(sum_squares(grads, partial_, par));
}

void Optimizer::step(std::span<const float> grads, double grad_norm, double lr, Par par) {
  ++steps_;
  const double scale = options_.clip > 0 && grad_norm > options_.clip ? options_.clip / grad_norm : 1.0;
  adamw_pieces(grads, scale, lr, par);
  muon_matrices(grads, scale, lr, par);
}

void Optimizer::adamw_pieces(std::span<const float> grads, double scale, double lr, Par par) {
  float *p = params_.block().data(), *m = m_.as<float>().data(), *v = v_.as<float>().data();
  par.tasks(pieces_.size(), [&](size_t i) {
    const auto [begin, end, decay] = pieces_[i];
    const size_t n = end - begin;
    adamw({.lr = lr,
           .beta1 = options_.beta1,
           .beta2 = options_.beta2,
           .eps = options_.eps,
           .weight_decay = decay ? options_.weight_decay : 0,
           .grad_scale = scale,
           .step = static_cast<int64_t>(steps_)},
          {.p = {p + begin, n}, .g = {grads.data() + begin, n}, .m = {m + begin, n}, .v = {v + begin, n}},
          par.alone());
  });
}

void Optimizer::muon_matrices(std::span<const float> grads, double scale, double lr, Par par) {
  const auto mu = static_cast<float>(options_.momentum), factor = static_cast<float>(scale);
  par.tasks(matrices_.size(), [&](size_t i) {
    const auto [begin, rows, cols] = matrices_[i];
    const size_t n = rows * cols;
    const float* g = grads.data() + begin;
    float *p = params_.block().data() + begin, *m = m_.as<float>().data() + begin;
    std::vector<float> update(n), scratch(orthogonalize_scratch(rows, cols));
    for (size_t j = 0; j < n; ++j) {
      m[j] = mu * m[j] + factor * g[j];
      update[j] = factor * g[j] + mu * m[j];
    }
    orthogonalize({}, {update.data(), rows, cols}, scratch, par.alone());
    const auto keep = static_cast<float>(1 - lr * options_.weight_decay),
               step = static_cast<float>(lr * 0.2 * std::sqrt(static_cast<double>(std::max(rows, cols))));
    for (size_t j = 0; j < n; ++j) p[j] = keep * p[j] - step * update[j];
  });
}

double Schedule::at(uint64_t step) const {
  if (step < warmup) return lr * static_cast<double>(step) / static_cast<double>(warmup);
  if (kind == "constant") return lr;
  const double end = static_cast<double>(steps), t = static_cast<double>(step);
  if (kind == "wsd") {
    const double start = std::max(static_cast<double>(warmup), end * (1 - decay_share));
    return t < start || end <= start ? lr : min_lr + (lr - min_lr) * std::max(0.0, (end - t) / (end - start));
  }
  const double span = end - static_cast<double>(warmup);
  const double share = span > 0 ? std::min(1.0, (t - static_cast<double>(warmup)) / span) : 1.0;
  return min_lr + 0.5 * (lr - min_lr) * (1 + std::cos(std::numbers::pi * share));
}

}  // namespace braid
