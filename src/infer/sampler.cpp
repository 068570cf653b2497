#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace braid {

std::vector<Problem> validate(const SamplerOptions& o) {
  std::vector<Problem> problems;
  const auto expect = [&](bool ok, const char* name, auto value, const char* fix) {  // NaN: ok is false
    if (!ok) problems.push_back({name, fmt::format("is {}", value), fix});
  };
  expect(o.temperature >= 0 && std::isfinite(o.temperature), "temperature", o.temperature,
         "use 0 (greedy) or more");
  expect(o.top_k >= 0, "top_k", o.top_k, "use 0 (keep all) or more");
  expect(o.top_p > 0 && o.top_p <= 1, "top_p", o.top_p, "use more than 0, up to 1 (keep all)");
  expect(o.min_p >= 0 && o.min_p <= 1, "min_p", o.min_p, "use 0 (keep all) up to 1");
  expect(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty), "repetition_penalty",
         o.repetition_penalty, "use more than 0; 1 changes nothing");
  return problems;
}

namespace {

constexpr auto kLikelier = [](const auto& a, const auto& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
};

double total_weight(const auto& candidates) {
  return std::accumulate(candidates.begin(), candidates.end(), 0.0,
                         [](double sum, const auto& c) { return sum + c.weight; });
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options), rng_(options.seed, "sample") {
  check(validate(options).empty(), "Sampler needs valid options");
}

Result<int32_t> Sampler::operator()(std::span<const float> logits, std::span<const int32_t> history,
                                    uint64_t position) {
  kept_.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) kept_[i] = {logits[i], static_cast<int32_t>(i), 0};
  penalise(history);
  std::erase_if(kept_, [](const Candidate& c) { return !(c.logit > -INFINITY); });
  if (kept_.empty())
    return Error{fmt::format("no token can be chosen: each of the {} logits is NaN or -inf", logits.size()),
                 "the weights are damaged or the model overflows; check them with `braid verify --model`"};

  const Candidate best = *std::ranges::min_element(kept_, kLikelier);
  if (options_.temperature == 0) return best.id;

  // The difference comes first, so no temperature can overflow; +inf minus +inf would be NaN.
  const double temperature = options_.temperature;
  for (Candidate& c : kept_)
    c.weight = c.logit == best.logit
                   ? 1
                   : std::exp((static_cast<double>(c.logit) - static_cast<double>(best.logit)) / temperature);
  if (options_.top_k > 0) keep_top_k();
  if (options_.top_p < 1) keep_top_p();
  if (options_.min_p > 0)
    std::erase_if(kept_, [&](const Candidate& c) { return c.weight < options_.min_p; });  // the best weighs 1

  rng_.seek(position);
  const double target = static_cast<double>(rng_.next64() >> 11) * 0x1p-53 * total_weight(kept_);
  double sum = 0;
  for (const Candidate& c : kept_)
    if ((sum += c.weight) > target) return c.id;
  return best.id;  // only if rounding left the target at the very end
}

// Each token of the history once, however often it occurs (Keskar et al., arXiv:1909.05858).
void Sampler::penalise(std::span<const int32_t> history) {
  const float penalty = options_.repetition_penalty;
  if (penalty == 1) return;
  seen_.assign(kept_.size(), false);
  for (const int32_t id : history) {
    const auto i = static_cast<size_t>(id);  // negative ids become too large, too
    if (i >= kept_.size() || seen_[i]) continue;
    seen_[i] = true;
    float& logit = kept_[i].logit;
    logit = logit < 0 ? logit * penalty : logit / penalty;
  }
}

void Sampler::keep_top_k() {
  const size_t k = std::min(static_cast<size_t>(options_.top_k), kept_.size());
  std::ranges::partial_sort(kept_, kept_.begin() + static_cast<std::ptrdiff_t>(k), kLikelier);
  kept_.resize(k);
}

void Sampler::keep_top_p() {
  // A heap gives the likeliest first without sorting the long tail that is thrown away.
  const auto less_likely = [](const Candidate& a, const Candidate& b) { return kLikelier(b, a); };
  const double enough = options_.top_p * total_weight(kept_);
  std::ranges::make_heap(kept_, less_likely);
  double sum = 0;
  auto first_taken = kept_.end();
  do {
    std::ranges::pop_heap(kept_.begin(), first_taken, less_likely);
    sum += (--first_taken)->weight;
  } while (sum < enough && first_taken != kept_.begin());
  kept_.erase(kept_.begin(), first_taken);
  std::ranges::reverse(kept_);
}

}  // namespace braid
