#include "infer/prompt_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace braid {
namespace {

constexpr size_t kTexts = 16;  // remembered for telling why

size_t common(std::span<const int32_t> a, std::span<const int32_t> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

Recalled PromptMemory::recall(Session& session, std::span<const int32_t> prompt) {
  size_t best = kept_.size();
  for (size_t i = 0; i < kept_.size(); ++i) {
    const Kept& k = kept_[i];
    if (k.count < prompt.size() && (best == kept_.size() || k.count > kept_[best].count) &&
        common(std::span(*k.tokens).first(k.count), prompt) == k.count)
      best = i;
  }
  Recalled r;
  size_t seen = 0;
  for (const Tokens& t : read_) seen = std::max(seen, common(*t, prompt));
  const std::string parts = seen == prompt.size() ? "all of it was read before"
                            : seen > 0 ? fmt::format("what was read before differs from token {} on", seen)
                                       : "nothing like it was read before";
  if (best < kept_.size()) {
    std::rotate(kept_.begin() + static_cast<ptrdiff_t>(best),
                kept_.begin() + static_cast<ptrdiff_t>(best) + 1, kept_.end());
    const Kept& k = kept_.back();
    session.set_state(k.state);
    r.cached = k.count;
    r.why = fmt::format("goes on from token {}, {}; {}", k.count, k.what, parts);
  } else {
    session.restart();
    r.why = parts;
    if (seen > 0)
      r.why += dropped_ ? fmt::format("; no state of it is kept (dropped so far: {}, the budget is {} MB)",
                                      dropped_, options_.bytes >> 20)
                        : "; no state is kept before that";
  }
  r.replayed = seen > r.cached ? seen - r.cached : 0;
  r.computed = prompt.size() - r.cached - r.replayed;
  return r;
}

std::vector<size_t> PromptMemory::places(std::span<const int32_t> prompt, size_t known,
                                         std::span<const size_t> points) const {
  std::vector<size_t> all(points.begin(), points.end());
  for (size_t at = options_.grid; options_.grid > 0 && at < prompt.size(); at += options_.grid)
    all.push_back(at);
  std::erase_if(all, [&](size_t at) { return at <= known || at >= prompt.size(); });
  std::ranges::sort(all);
  all.erase(std::ranges::unique(all).begin(), all.end());
  return all;
}

PromptMemory::Tokens PromptMemory::text(std::span<const int32_t> tokens) {
  for (const Tokens& t : read_)
    if (t->size() >= tokens.size() && common(*t, tokens) == tokens.size()) return t;
  // A longer text takes the place of its beginnings.
  std::erase_if(read_, [&](const Tokens& t) { return common(*t, tokens) == t->size(); });
  if (read_.size() == kTexts) read_.erase(read_.begin());
  return read_.emplace_back(std::make_shared<const std::vector<int32_t>>(tokens.begin(), tokens.end()));
}

void PromptMemory::keep(std::span<const int32_t> tokens, size_t count, State state, const std::string& what) {
  check(static_cast<int64_t>(count) == state.position, "PromptMemory::keep: a state of other tokens");
  if (count == 0) return;
  std::erase_if(kept_, [&](const Kept& k) { return k.count == count && common(*k.tokens, tokens) >= count; });
  state.forget_trail();
  if (options_.narrow) state.narrow();
  kept_.push_back({text(tokens), count, std::move(state), what});
  for (; !kept_.empty() && bytes() > options_.bytes; ++dropped_) kept_.erase(kept_.begin());
}

size_t PromptMemory::bytes() const {
  std::map<const void*, size_t> blocks;
  for (const Kept& k : kept_) k.state.each_block([&](const void* p, size_t n) { blocks[p] = n; });
  size_t n = 0;
  for (const auto& [block, size] : blocks) n += size;
  return n;
}

}  // namespace braid
