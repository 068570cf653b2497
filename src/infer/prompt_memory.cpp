#include "infer/prompt_memory.h"

#include <algorithm>

namespace braid {

size_t PromptMemory::recall(Session& session, std::span<const int32_t> prompt) const {
  const Kept* best = nullptr;
  for (const Kept& k : kept_)
    if (k.tokens.size() < prompt.size() && (!best || k.tokens.size() > best->tokens.size()) &&
        std::ranges::equal(k.tokens, prompt.first(k.tokens.size())))
      best = &k;
  if (best)
    session.set_state(best->state);
  else
    session.restart();
  return best ? best->tokens.size() : 0;
}

void PromptMemory::keep(std::span<const int32_t> tokens, const State& state) {
  std::erase_if(kept_, [&](const Kept& k) { return std::ranges::equal(k.tokens, tokens); });
  if (kept_.size() == most_) kept_.erase(kept_.begin());
  kept_.push_back({{tokens.begin(), tokens.end()}, state});
}

}  // namespace braid
