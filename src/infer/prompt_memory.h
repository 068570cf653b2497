// Prefix cache. A recurrent state cannot be truncated, so states are saved every `grid` tokens and at the
// ends of messages, prompts and answers. A new prompt resumes from its longest saved prefix; the tokens to
// prefill again are bounded by the grid.
//
//   PromptMemory memory;
//   Recalled r = memory.recall(session, prompt);          // the session has read r.cached tokens
//   g.known = r.cached;
//   g.snapshots_at = memory.places(prompt, r.cached, ends_of_messages);
//   g.snapshot = [&](size_t n, State s) { memory.keep(prompt, n, std::move(s), "..."); };
//
// Saved states share pages of the KV cache, so a further one costs only the recurrent states. The budget
// counts each page once; the least recently used state is evicted first.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "infer/session.h"

namespace braid {

struct PromptMemoryOptions {
  size_t bytes = size_t{1} << 30;  // of kept states
  size_t grid = 512;               // tokens between places
  bool narrow = false;             // keep memories as bf16: half the bytes, not bit-exact
};

struct Recalled {
  size_t cached = 0;    // tokens that a kept state has read
  size_t replayed = 0;  // read before, but behind that state: to be read again
  size_t computed = 0;  // never read before
  std::string why;      // in words
};

class PromptMemory {
 public:
  explicit PromptMemory(const PromptMemoryOptions& options = {}) : options_(options) {}

  // Puts the session behind the longest beginning of `prompt` that is kept and leaves at least one token to
  // read; or at the start.
  Recalled recall(Session& session, std::span<const int32_t> prompt);
  // Where to take snapshots of what is left to read: the grid and `points`.
  std::vector<size_t> places(std::span<const int32_t> prompt, size_t known,
                             std::span<const size_t> points) const;
  // `state` has read the first `count` of `tokens`. what: for people, "the end of a message".
  void keep(std::span<const int32_t> tokens, size_t count, State state, const std::string& what);

  size_t bytes() const;  // of kept states, each page once
  size_t size() const { return kept_.size(); }

 private:
  using Tokens = std::shared_ptr<const std::vector<int32_t>>;
  struct Kept {
    Tokens tokens;
    size_t count;  // of them
    State state;
    std::string what;
  };
  Tokens text(std::span<const int32_t> tokens);

  PromptMemoryOptions options_;
  std::vector<Kept> kept_;    // used longest ago first
  std::vector<Tokens> read_;  // the last few texts, to tell what was read before from what was not
  size_t dropped_ = 0;        // states that the budget had no place for
};

}  // namespace braid
