// The samplers' options, shared by the verbs that generate.
#pragma once

#include <optional>
#include <string>

#include "cli/cli.h"
#include "infer/generate.h"
#include "infer/generation_config.h"

namespace braid {

// What the user does not give is taken from the model's generation_config.json; if that does not say how to
// sample, from llama.cpp's defaults.
struct SamplingFlags {
  std::optional<double> temperature, top_p, min_p, typical_p, top_n_sigma, xtc_probability, xtc_threshold,
      repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, last_n;
  int64_t seed = 0;
  std::string samplers;
  bool greedy = false;

  template <class V>
  void visit(V& v) {
    v("--temperature,--temp", temperature,
      "temperature; 0 = the likeliest token (default: the model's, else 0.8)", Bounds<double>{0, 1e30});
    v("--top-k", top_k, "keep the k likeliest tokens; 0 = all (default: the model's, else 40)", kFromZero);
    v("--top-p", top_p,
      "keep the likeliest tokens of total probability p; 1 = all (default: the model's, else 0.95)",
      Bounds<double>{0, 1, true});
    v("--min-p", min_p,
      "keep tokens at least min-p times as likely as the likeliest; 0 = all (default: the model's, else "
      "0.05)",
      Bounds<double>{0, 1});
    v("--typical-p,--typical", typical_p,
      "locally typical sampling: keep tokens of total probability p whose surprise is nearest to the "
      "entropy; 1 = all",
      Bounds<double>{0, 1, true});
    v("--top-n-sigma", top_n_sigma,
      "keep logits within this many standard deviations of the largest; 0 = all", Bounds<double>{0, 1e30});
    v("--xtc-probability", xtc_probability, "XTC: probability of its use per token; 0 = never",
      Bounds<double>{0, 1});
    v("--xtc-threshold", xtc_threshold,
      "XTC: removes all tokens with at least this probability except the least likely of them (default 0.1)",
      Bounds<double>{0, 1});
    v("--repetition-penalty,--repeat-penalty", repetition_penalty,
      "divisor of positive logits of tokens that occurred; 1 = none", Bounds<double>{0, 1e30, true});
    v("--presence-penalty", presence_penalty, "subtracted from the logit of each token that occurred",
      Bounds<double>{-1e30, 1e30});
    v("--frequency-penalty", frequency_penalty, "subtracted once per occurrence of the token",
      Bounds<double>{-1e30, 1e30});
    v("--repeat-last-n", last_n, "tokens that the three penalties count; -1 = all (default 64)",
      Bounds<int64_t>{.low = -1});
    v("--samplers", samplers,
      "samplers in their order (default penalties,top_n_sigma,top_k,typical,top_p,min_p,xtc,temperature)");
    v("--greedy", greedy, "take the likeliest token");
    v("--seed", seed, "random seed of the sampler", kFromZero);
  }

  // Errors are the user's.
  Result<SamplerOptions> resolve(const GenerationConfig& model) const;
};

// --max-tokens: the user's number, else the model's, else `otherwise`.
inline constexpr Bounds<int64_t> kMaxTokens{1, 1'000'000'000};
int64_t most_tokens(const std::optional<int64_t>& given, const GenerationConfig& model, int64_t otherwise);

// --draft: guesses per pass, and what became of them.
inline constexpr Bounds<int64_t> kDraft{0, kMostDraft};
std::string draft_text(const Generated& r);
Json draft_json(const Generated& r);

// Says on stderr what of generation_config.json has no effect.
void tell_ignored(const GenerationConfig& model);

}  // namespace braid
