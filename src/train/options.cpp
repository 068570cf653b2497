#include "train/options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/nearest.h"

namespace braid {

std::vector<Problem> unusable(const TrainOptions& o) {
  std::vector<Problem> p;
  const auto range = [&](const char* name, double value, double low, double high) {
    if (!(value >= low && value <= high))
      p.push_back(
          {name, fmt::format("is {:g}", value), fmt::format("give a number from {:g} to {:g}", low, high)});
  };
  const auto choice = [&](const char* name, const std::string& value,
                          const std::vector<std::string>& choices) {
    if (std::find(choices.begin(), choices.end(), value) == choices.end())
      p.push_back({name, "is '" + value + "'", suggest(value, choices)});
  };
  range("--steps", o.steps, 1, 1e12), range("--batch", o.batch, 1, 1e6),
      range("--accumulate", o.accumulate, 1, 1e6);
  range("--length", o.length, 1, 1e8), range("--eval-length", o.eval_length, 0, 1e8),
      range("--warmup", o.warmup, 0, 1e12), range("--lr", o.lr, 0, 1e3);
  range("--min-lr-ratio", o.min_lr_ratio, 0, 1), range("--weight-decay", o.weight_decay, 0, 1e3),
      range("--clip", o.clip, 0, 1e9);
  range("--beta1", o.beta1, 0, 0.9999999), range("--beta2", o.beta2, 0, 0.9999999),
      range("--eps", o.eps, 0, 1);
  range("--threads", o.threads, 0, 1024), range("--checkpoint-every", o.checkpoint_every, 1, 1e12),
      range("--keep", o.keep, 1, 1e6);
  range("--eval-every", o.eval_every, 0, 1e12), range("--log-every", o.log_every, 1, 1e12),
      range("--bad-steps", o.bad_steps, 1, 1e9);
  range("--eval-size", o.eval_size, 1, 1e9), range("--patience", o.patience, 0, 1e9);
  range("--grow-at", o.grow_at, 0, 1), range("--stop-at", o.stop_at, 0, 1),
      range("--minutes", o.minutes, 0, 1e7);
  range("--seed", o.seed, 0, 9e15);
  choice("--schedule", o.schedule, {"cosine", "constant", "wsd"});
  choice("--precision", o.precision, {"f32", "bf16"});
  if (o.eval_every == 0 && (o.patience > 0 || o.stop_at > 0))
    p.push_back({"--patience, --stop-at", "need evaluations", "set --eval-every"});
  return p;
}

}  // namespace braid
