// Log-likelihoods of many sequences and greedy continuations of many prompts: packed passes without padding,
// in which a prefix that sequences have in common is read once.
//
//   Scorer scorer(model, pool);
//   std::vector<ScoreRequest> requests{{.tokens = {1, 5, 9, 4}, .from = 2}};   // log p(9, 4 | 1, 5)
//   std::vector<SequenceScore> scores(requests.size());
//   if (Status s = scorer.score(requests, scores); !s) return s;
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "infer/context.h"

namespace braid {

class Model;

struct ScoreRequest {
  std::vector<int32_t> tokens = {};
  size_t from = 1;  // tokens[from] and those behind it are scored, each given all before it; at least 1
};
struct SequenceScore {
  double log_likelihood = 0;
  bool greedy = true;  // every scored token is the likeliest
};

struct PromptRequest {
  std::vector<int32_t> tokens = {};  // at least one
  int64_t max_tokens = 256;
};

struct ScorerOptions {
  Activations activations = Activations::kF32;
  // Tokens of a pass. Each thread computes passes of its own, so results are the same for any number of them.
  size_t pass_tokens = 2048;
  // A common prefix of so many tokens is read into a state, and each sequence continues a copy of it. In
  // sequences with a shorter one, equal rows of a pass are computed once.
  size_t state_from = 128;
  size_t lanes = 32;  // copies of states that a thread has at a time: prompts that it decodes together
};

class Scorer {
 public:
  // Tokens done since the last call; false: stop, which is an error.
  using Tick = std::function<bool(size_t tokens)>;
  // The next token of a request; true ends it. Calls for different requests come from different threads.
  using Next = std::function<bool(size_t request, int32_t token)>;

  // Model and pool must outlive it.
  Scorer(const Model& model, ThreadPool& pool, const ScorerOptions& options = {});
  ~Scorer();

  Status score(std::span<const ScoreRequest> requests, std::span<SequenceScore> to, const Tick& tick = {});
  // Greedy: the likeliest token each time.
  Status generate(std::span<const PromptRequest> prompts, const Next& next, const Tick& tick = {});

 private:
  class Worker;
  template <class F>
  Status run_tasks(size_t count, const F& task);

  const Model& model_;
  ThreadPool& pool_;
  ScorerOptions options_;
  std::mutex mutex_;  // of what follows
  std::vector<std::unique_ptr<Worker>> idle_;
};

}  // namespace braid
