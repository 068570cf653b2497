// What a session has read, kept at a few places, so that a prompt that begins like an earlier one need not be
// read again. Recurrent states cannot be cut: only whole beginnings help, and a chat keeps one where each
// answer begins and one where it ends (templates often drop a part of the answer from the next prompt).
#pragma once

#include <span>
#include <vector>

#include "infer/session.h"

namespace braid {

class PromptMemory {
 public:
  explicit PromptMemory(size_t most = 8) : most_(most) {}

  // Puts the session behind the longest beginning of `prompt` that is kept and leaves at least one token to
  // read. Returns its length; 0: the session starts anew.
  size_t recall(Session& session, std::span<const int32_t> prompt) const;
  // `tokens`: all that `state` has read.
  void keep(std::span<const int32_t> tokens, const State& state);

 private:
  struct Kept {
    std::vector<int32_t> tokens;
    State state;
  };
  size_t most_;
  std::vector<Kept> kept_;  // the oldest first
};

}  // namespace braid
