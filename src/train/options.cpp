#include "train/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/nearest.h"

namespace braid {

int64_t total_steps(const TrainOptions& o) {
  if (o.tokens <= 0) return o.steps;
  const double step =
      static_cast<double>(o.batch) * static_cast<double>(o.accumulate) * static_cast<double>(o.length);
  return static_cast<int64_t>(std::ceil(static_cast<double>(o.tokens) / step));
}

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
  range("--tokens", o.tokens, 0, 9e15);
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
  range("--sample-tokens", o.sample_tokens, 1, 1e6);
  range("--eval-size", o.eval_size, 1, 1e9), range("--patience", o.patience, 0, 1e9);
  range("--grow-at", o.grow_at, 0, 1), range("--stop-at", o.stop_at, 0, 1),
      range("--minutes", o.minutes, 0, 1e7);
  range("--seed", o.seed, 0, 9e15);
  range("--momentum", o.momentum, 0, 0.9999999), range("--z-loss", o.z_loss, 0, 1e3);
  choice("--optimizer", o.optimizer, {"adamw", "muon"});
  choice("--schedule", o.schedule, {"cosine", "constant", "wsd"});
  choice("--precision", o.precision, {"f32", "bf16"});
  if (o.eval_every == 0 && (o.patience > 0 || o.stop_at > 0))
    p.push_back({"--patience, --stop-at", "need evaluations", "set --eval-every"});
  return p;
}

namespace {

std::string absolute(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ec;
  if (path.empty() || path.starts_with('@')) return path;
  const fs::path whole = fs::absolute(path, ec);
  return ec ? path : whole.lexically_normal().string();
}

// A value as a message shows it; empty: the option is not given.
std::string shown(const std::string& x) { return x.empty() ? "" : "'" + x + "'"; }
std::string shown(bool x) { return x ? "on" : ""; }
std::string shown(int64_t x) { return std::to_string(x); }
std::string shown(double x) { return fmt::format("{:g}", x); }
std::string shown(const std::vector<std::string>& x) {
  return x.empty() ? "" : fmt::format("'{}'", fmt::join(x, "', '"));
}

std::map<std::string, std::string> fixed_options(TrainOptions& o) {
  constexpr std::array kFixed{"--arch",
                              "--size",
                              "--config",
                              "--set",
                              "--task",
                              "--task-set",
                              "--tokenizer",
                              "--length",
                              "--eval-length",
                              "--fixed-embedding",
                              "--reset-at-documents",
                              "--optimizer",
                              "--seed"};
  std::map<std::string, std::string> out;
  const auto take = [&](const char* name, const auto& value, const char*) {
    if (std::ranges::find(kFixed, std::string_view(name)) != kFixed.end()) out[name] = shown(value);
  };
  o.visit(take);
  return out;
}

}  // namespace

std::vector<Problem> changed_on_the_way(TrainOptions asked, TrainOptions started) {
  asked = with_absolute_paths(std::move(asked)), started = with_absolute_paths(std::move(started));
  const auto now = fixed_options(asked), then = fixed_options(started);
  std::vector<Problem> p;
  for (const auto& [name, value] : now)
    if (value != then.at(name))
      p.push_back({name,
                   fmt::format("{}, but the run was started {}", value.empty() ? "is missing" : "is " + value,
                               then.at(name).empty() ? "without it" : "with " + then.at(name)),
                   value.empty() ? "give it as the run has it" : "leave it out, or start a new run"});
  return p;
}

TrainOptions with_absolute_paths(TrainOptions o) {
  o.text = absolute(o.text), o.tokenizer = absolute(o.tokenizer), o.config = absolute(o.config);
  o.model = absolute(o.model);
  for (std::string& set : o.data) set = absolute(set);
  for (std::string& set : o.eval_data) {
    const size_t path = set.find('=') + 1;  // 0 without a name
    set = set.substr(0, path) + absolute(set.substr(path));
  }
  return o;
}

}  // namespace braid
