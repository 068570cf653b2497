#include "tokenizer/json_fields.h"
#include "tokenizer/pipeline.h"

namespace braid {

AddedToken added_token(JsonFields& f) {
  AddedToken t;
  t.content = f.needed_text("content");
  t.special = f.flag("special", false);
  t.lstrip = f.flag("lstrip", false);
  t.rstrip = f.flag("rstrip", false);
  t.single_word = f.flag("single_word", false);
  t.normalized = f.flag("normalized", !t.special);
  return t;
}

bool Vocab::put(std::string name, int32_t id) {
  const auto at = static_cast<size_t>(id);
  if (has(id) || !ids_.emplace(name, id).second) return false;
  if (at >= names_.size()) names_.resize(at + 1), present_.resize(at + 1);
  present_[at] = true;
  names_[at] = std::move(name);
  return true;
}

std::optional<int32_t> Vocab::find(std::string_view name) const {
  const auto at = ids_.find(name);
  return at == ids_.end() ? std::nullopt : std::optional(at->second);
}

void AddedMatcher::put(std::string_view pattern, uint32_t token) {
  if (pattern.empty()) return;
  uint32_t node = 0;
  starts_[static_cast<uint8_t>(pattern[0])] = true;
  for (const char c : pattern) {
    const auto [at, fresh] = edges_.try_emplace(uint64_t{node} << 8 | static_cast<uint8_t>(c), ends_.size());
    if (fresh) ends_.push_back(-1);
    node = at->second;
  }
  if (ends_[node] < 0) ends_[node] = token;
}

bool AddedMatcher::find(std::string_view text, size_t from, size_t& begin, size_t& end,
                        uint32_t& token) const {
  for (size_t at = from; at < text.size(); ++at) {
    if (!starts_[static_cast<uint8_t>(text[at])]) continue;
    int64_t found = -1;
    uint32_t node = 0;
    for (size_t i = at; i < text.size(); ++i) {
      const auto edge = edges_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[i]));
      if (edge == edges_.end()) break;
      node = edge->second;
      if (ends_[node] >= 0) found = ends_[node], end = i + 1;
    }
    if (found < 0) continue;
    begin = at;
    token = static_cast<uint32_t>(found);
    return true;
  }
  return false;
}

}  // namespace braid
