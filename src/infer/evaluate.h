// How well a model predicts a text, and how far another model is from it.
//
//   llama   llama-perplexity's convention: chunks of `context` tokens, each from an empty state (the first
//   token
//           replaced by BOS if the tokenizer puts one in front of texts), the second half scored
//   plain   the text as one sequence, every token but the first scored
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "infer/session.h"

namespace braid {

struct EvaluateOptions {
  bool plain = false;
  size_t context = 512;             // of llama's chunks
  size_t chunks = 0;                // only the first so many of `context` tokens; 0 = all
  std::optional<int32_t> bos = {};  // what begins a chunk
};

// Of the scored tokens. Errors are standard errors of the mean.
struct TextScore {
  size_t tokens = 0;
  double nll = 0, nll_error = 0;  // mean of -log p(token)
  double perplexity() const;
  double perplexity_error() const;
};

// Another model against the base model, on the same tokens.
struct Comparison {
  TextScore base, other;
  double kl = 0, kl_error = 0;                    // mean of KL(base || other) in nats
  double kl_median = 0, kl_99 = 0, kl_worst = 0;  // percentiles
  double same_top = 0;                            // share of tokens with the same likeliest next token
  double rms_dp = 0;                              // root mean square of p_other(token) - p_base(token)
};

// How many of a text's tokens an evaluation reads.
size_t scored_tokens(size_t tokens, const EvaluateOptions& options);

// base and other have different contexts. tick(done, total) in tokens; returning false ends it early with an
// error. other: null for the base alone.
Result<Comparison> evaluate(Session& base, Session* other, std::span<const int32_t> tokens,
                            const EvaluateOptions& options,
                            const std::function<bool(size_t done, size_t total)>& tick = {});

}  // namespace braid
