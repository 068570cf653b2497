#include "infer/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace braid {
namespace {

// In the order of the enumeration.
constexpr std::array<std::string_view, 8> kNames{"penalties", "top_n_sigma", "top_k", "typical",
                                                 "top_p",     "min_p",       "xtc",   "temperature"};

constexpr auto kLikelier = [](const auto& a, const auto& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
};

}  // namespace

Result<std::vector<Filter>> parse_filters(std::string_view text) {
  std::vector<Filter> filters;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(",;"), text.size());
    const std::string_view name = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const auto found = std::ranges::find(kNames, name);
    if (found == kNames.end())
      return Error{fmt::format("--samplers: '{}' is not a sampler", name),
                   fmt::format("use some of: {}", fmt::join(kNames, ", "))};
    const auto filter = static_cast<Filter>(found - kNames.begin());
    if (std::ranges::find(filters, filter) != filters.end())
      return Error{fmt::format("--samplers: '{}' is named twice", name), "name it once"};
    filters.push_back(filter);
  }
  return filters;
}

std::string filters_text(std::span<const Filter> filters) {
  std::string text;
  for (const Filter f : filters) {
    if (!text.empty()) text += ',';
    text += kNames[static_cast<size_t>(f)];
  }
  return text;
}

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
  expect(o.typical_p > 0 && o.typical_p <= 1, "typical_p", o.typical_p,
         "use more than 0, up to 1 (keep all)");
  expect(o.top_n_sigma >= 0 && std::isfinite(o.top_n_sigma), "top_n_sigma", o.top_n_sigma,
         "use 0 (keep all) or more");
  expect(o.xtc_probability >= 0 && o.xtc_probability <= 1, "xtc_probability", o.xtc_probability,
         "use 0 (never) up to 1");
  expect(o.xtc_threshold >= 0 && o.xtc_threshold <= 1, "xtc_threshold", o.xtc_threshold, "use 0 up to 1");
  expect(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty), "repetition_penalty",
         o.repetition_penalty, "use more than 0; 1 changes nothing");
  expect(std::isfinite(o.presence_penalty), "presence_penalty", o.presence_penalty, "0 changes nothing");
  expect(std::isfinite(o.frequency_penalty), "frequency_penalty", o.frequency_penalty, "0 changes nothing");
  expect(o.last_n >= -1, "last_n", o.last_n, "use -1 (all), 0 (none) or more");
  return problems;
}

Sampler::Sampler(const SamplerOptions& options) : options_(options), rng_(options.seed, "sample") {
  check(validate(options).empty(), "Sampler needs valid options");
}

Result<int32_t> Sampler::operator()(std::span<const float> logits, std::span<const int32_t> history,
                                    uint64_t position) {
  kept_.clear();
  double best = -INFINITY;
  for (size_t i = 0; i < logits.size(); ++i)
    if (logits[i] > -INFINITY) {  // no NaN, either
      kept_.push_back({logits[i], static_cast<int32_t>(i), 0});
      best = std::max<double>(best, logits[i]);
    }
  if (kept_.empty())
    return Error{fmt::format("no token can be chosen: each of the {} logits is NaN or -inf", logits.size()),
                 "the weights are damaged or the model overflows; check them with `braid verify --model`"};
  if (best == INFINITY) {  // these alone, as equals: from here on all logits are finite
    std::erase_if(kept_, [](const Candidate& c) { return c.logit < INFINITY; });
    for (Candidate& c : kept_) c.logit = 0;
  }
  // Two numbers per position: one that xtc may take, one for the draw.
  rng_.seek(2 * position);
  const double xtc_draw = uniform(), draw = uniform();
  for (const Filter f : options_.filters) {
    if (f == Filter::kXtc && xtc_draw >= options_.xtc_probability) continue;
    apply(f, history);
  }
  weigh();
  const double target = draw * total_weight();
  double sum = 0;
  for (const Candidate& c : kept_)
    if ((sum += c.weight) > target) return c.id;
  return kept_.back().id;  // only if rounding left the target at the very end
}

void Sampler::apply(Filter filter, std::span<const int32_t> history) {
  switch (filter) {
    case Filter::kPenalties:
      penalise(history);
      break;
    case Filter::kTopNSigma:
      if (options_.top_n_sigma > 0) cut_top_n_sigma();
      break;
    case Filter::kTopK:
      if (options_.top_k > 0) cut_top_k();
      break;
    case Filter::kTypical:
      if (options_.typical_p < 1) cut_typical();
      break;
    case Filter::kTopP:
      if (options_.top_p < 1) cut_top_p();
      break;
    case Filter::kMinP:
      if (options_.min_p <= 0) break;
      weigh();
      std::erase_if(kept_, [&](const Candidate& c) { return c.weight < options_.min_p; });
      break;
    case Filter::kXtc:
      cut_xtc();
      break;
    case Filter::kTemperature: {
      const double best = std::ranges::min_element(kept_, kLikelier)->logit;
      if (options_.temperature == 0)
        kept_ = {*std::ranges::min_element(kept_, kLikelier)};
      else  // the difference comes first, so that no temperature can overflow to two infinities
        for (Candidate& c : kept_)
          c.logit = c.logit == best ? 0 : (c.logit - best) / static_cast<double>(options_.temperature);
      break;
    }
  }
}

void Sampler::penalise(std::span<const int32_t> history) {
  if (options_.last_n >= 0)
    history = history.last(std::min(history.size(), static_cast<size_t>(options_.last_n)));
  const double penalty = options_.repetition_penalty, presence = options_.presence_penalty,
               frequency = options_.frequency_penalty;
  if (history.empty() || (penalty == 1 && presence == 0 && frequency == 0)) return;
  counts_.assign(static_cast<size_t>(std::ranges::max(kept_, {}, &Candidate::id).id) + 1, 0);
  for (const int32_t id : history)
    if (id >= 0 && static_cast<size_t>(id) < counts_.size()) ++counts_[static_cast<size_t>(id)];
  for (Candidate& c : kept_)
    if (const uint32_t n = counts_[static_cast<size_t>(c.id)]; n > 0) {
      c.logit = c.logit < 0 ? c.logit * penalty : c.logit / penalty;
      c.logit -= n * frequency + presence;
    }
}

void Sampler::cut_top_n_sigma() {
  double mean = 0, square = 0;
  for (const Candidate& c : kept_) mean += c.logit;
  mean /= static_cast<double>(kept_.size());
  for (const Candidate& c : kept_) square += (c.logit - mean) * (c.logit - mean);
  const double sigma = std::sqrt(square / static_cast<double>(kept_.size()));
  const double least =
      std::ranges::min_element(kept_, kLikelier)->logit - static_cast<double>(options_.top_n_sigma) * sigma;
  std::erase_if(kept_, [&](const Candidate& c) { return c.logit < least; });
}

void Sampler::cut_top_k() {
  const size_t k = std::min(static_cast<size_t>(options_.top_k), kept_.size());
  const auto end = kept_.begin() + static_cast<std::ptrdiff_t>(k);
  std::ranges::nth_element(kept_, end, kLikelier);
  kept_.erase(end, kept_.end());
  std::ranges::sort(kept_, kLikelier);
}

void Sampler::cut_top_p() {
  weigh();
  // A heap gives the likeliest first without sorting the long tail that is thrown away.
  const auto less_likely = [](const Candidate& a, const Candidate& b) { return kLikelier(b, a); };
  const double enough = options_.top_p * total_weight();
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

// Meister et al., arXiv:2202.00666.
void Sampler::cut_typical() {
  weigh();
  const double total = total_weight();
  double entropy = 0;
  for (const Candidate& c : kept_)
    if (c.weight > 0) entropy -= c.weight / total * std::log(c.weight / total);
  const auto distance = [&](const Candidate& c) { return std::abs(-std::log(c.weight / total) - entropy); };
  std::ranges::sort(kept_, [&](const Candidate& a, const Candidate& b) {
    const double da = distance(a), db = distance(b);
    return da != db ? da < db : kLikelier(a, b);
  });
  double sum = 0;
  size_t n = 0;
  do sum += kept_[n++].weight;
  while (sum < options_.typical_p * total && n < kept_.size());
  kept_.resize(n);
}

void Sampler::cut_xtc() {
  weigh();
  std::ranges::sort(kept_, kLikelier);
  const double least = static_cast<double>(options_.xtc_threshold) * total_weight();
  const auto end = std::ranges::find_if(kept_, [&](const Candidate& c) { return c.weight < least; });
  if (end - kept_.begin() >= 2) kept_.erase(kept_.begin(), end - 1);
}

void Sampler::weigh() {
  const double best = std::ranges::min_element(kept_, kLikelier)->logit;
  for (Candidate& c : kept_) c.weight = std::exp(c.logit - best);
}

double Sampler::total_weight() const {
  double sum = 0;
  for (const Candidate& c : kept_) sum += c.weight;
  return sum;
}

double Sampler::uniform() { return static_cast<double>(rng_.next64() >> 11) * 0x1p-53; }

}  // namespace braid
