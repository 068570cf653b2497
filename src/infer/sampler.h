// Chooses the next token from logits: a chain of filters, then a draw.
//
//   penalties    tokens of the last `last_n` lose: a positive logit is divided by `repetition_penalty`, a
//                negative one multiplied (once, however often the token occurs); then minus count times
//                `frequency_penalty`, minus `presence_penalty`
//   top_n_sigma  only logits within n standard deviations of the largest
//   top_k        only the k largest
//   typical      only tokens whose surprise is nearest to the entropy, until they reach `typical_p`
//   top_p        only the likeliest that together reach p
//   min_p        only tokens at least min_p times as likely as the likeliest
//   xtc          with probability `xtc_probability`: of all tokens with at least `xtc_threshold`, only the
//   least
//                likely one
//   temperature  logits divided by it; 0 keeps the largest alone
// In this order by default, which is llama.cpp's; Hugging Face's generate() has the temperature behind the
// penalties, so that it changes what the others keep. Each filter sees the probabilities of what the filters
// before it left, renormalised, and keeps at least one token.
//
// The n-th draw depends on seed and n alone, not on draws before it: a replayed or rolled-back generation
// draws the same. Ties go to the smaller id. A NaN or -inf logit is never chosen; +inf logits share all
// probability.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/rng.h"

namespace braid {

enum class Filter { kPenalties, kTopNSigma, kTopK, kTypical, kTopP, kMinP, kXtc, kTemperature };
inline constexpr Filter kUsualFilters[] = {Filter::kPenalties, Filter::kTopNSigma,  Filter::kTopK,
                                           Filter::kTypical,   Filter::kTopP,       Filter::kMinP,
                                           Filter::kXtc,       Filter::kTemperature};
// "penalties,top_k,...", each at most once; those left out are off.
Result<std::vector<Filter>> parse_filters(std::string_view text);
std::string filters_text(std::span<const Filter> filters);

// The defaults change nothing.
struct SamplerOptions {
  float temperature = 1;         // 0 takes the largest logit that is left
  int64_t top_k = 0;             // 0 keeps all
  float top_p = 1;               // 1 keeps all
  float min_p = 0;               // 0 keeps all
  float typical_p = 1;           // 1 keeps all
  float top_n_sigma = 0;         // 0 keeps all
  float xtc_probability = 0;     // 0 never
  float xtc_threshold = 0.1f;    // above 0.5 never
  float repetition_penalty = 1;  // 1 changes nothing
  float presence_penalty = 0, frequency_penalty = 0;
  int64_t last_n = -1;  // tokens that the penalties look at; -1 all, 0 none
  uint64_t seed = 0;
  std::vector<Filter> filters{std::begin(kUsualFilters), std::end(kUsualFilters)};
};

std::vector<Problem> validate(const SamplerOptions& options);

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);  // valid ones

  // `history`: tokens the penalties count, prompt included; `position`: index of the token to choose. The
  // result depends on nothing but the options and these arguments. Fails if no logit can be chosen.
  Result<int32_t> operator()(std::span<const float> logits, std::span<const int32_t> history,
                             uint64_t position);

 private:
  struct Candidate {
    double logit;
    int32_t id;
    double weight;  // proportional to the probability; the likeliest has 1
  };
  void apply(Filter filter, std::span<const int32_t> history);
  void penalise(std::span<const int32_t> history);
  void cut_top_n_sigma();
  void cut_top_k();
  void cut_typical();
  void cut_top_p();
  void cut_xtc();
  void weigh();                 // weights from logits
  double total_weight() const;  // of all that are kept
  double uniform();             // in [0, 1)

  SamplerOptions options_;
  Rng rng_;
  std::vector<Candidate> kept_;   // kept between calls only for their memory
  std::vector<uint32_t> counts_;  // of the history
};

}  // namespace braid
