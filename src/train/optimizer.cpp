#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/adamw/adamw.h"
#include "kernels/elementwise/elementwise.h"

namespace braid {

AdamW::AdamW(ParamSet& params, const AdamWOptions& options)
    : params_(params),
      options_(options),
      m_(DType::kF32, {static_cast<int64_t>(params.block_size())}),
      v_(m_) {
  constexpr size_t kPiece = 16384;
  for (const Param& p : params.all()) {
    if (!p.train) continue;
    const bool decay = p.decay || (options.decay_norms && p.norm);
    for (size_t at = 0; at < p.count(); at += kPiece)
      pieces_.push_back({p.offset + at, p.offset + std::min(p.count(), at + kPiece), decay});
  }
}

double AdamW::grad_norm(std::span<const float> grads, Par par) {
  partial_.resize(sum_partials(grads.size()));
  return std::sqrt(sum_squares(grads, partial_, par));
}

void AdamW::step(std::span<const float> grads, double grad_norm, double lr, Par par) {
  ++steps_;
  const double scale = options_.clip > 0 && grad_norm > options_.clip ? options_.clip / grad_norm : 1.0;
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
