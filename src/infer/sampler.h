// Chooses the next token from logits.
//
// The filters run in the order of Hugging Face's generate():
//   repetition penalty -> temperature -> top-k -> top-p -> min-p -> draw
// (llama.cpp's default applies the temperature last, so there it does not change what top-p and min-p keep.)
// Each filter sees the probabilities of what the filters before it left, renormalised.
//
// The n-th draw depends on seed and n alone, not on draws before it: a replayed or rolled-back generation
// draws the same. Ties go to the smaller id. A NaN or -inf logit is never chosen; +inf logits share all
// probability.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/rng.h"

namespace braid {

struct SamplerOptions {
  float temperature = 1;         // 0 takes the largest logit, whatever the filters say
  int64_t top_k = 0;             // keep the k most likely; 0 keeps all
  float top_p = 1;               // keep the fewest whose probabilities reach p; 1 keeps all
  float min_p = 0;               // keep those with at least min_p times the largest probability; 0 keeps all
  float repetition_penalty = 1;  // > 1 makes tokens of the history less likely; 1 changes nothing
  uint64_t seed = 0;
};

std::vector<Problem> validate(const SamplerOptions& options);

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);  // valid ones

  // `history`: tokens the repetition penalty counts, prompt included; `position`: index of the token to
  // choose. The result depends on nothing but the options and these arguments. Fails if no logit can be
  // chosen.
  Result<int32_t> operator()(std::span<const float> logits, std::span<const int32_t> history,
                             uint64_t position);

 private:
  struct Candidate {
    float logit;
    int32_t id;
    double weight;  // proportional to the probability
  };
  void penalise(std::span<const int32_t> history);
  void keep_top_k();
  void keep_top_p();

  SamplerOptions options_;
  Rng rng_;
  std::vector<Candidate> kept_;  // kept between calls only for their memory
  std::vector<bool> seen_;
};

}  // namespace braid
