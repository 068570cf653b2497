#include "tokenizer/merges.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace braid {

MergeTable::MergeTable(size_t expected) {
  const size_t size = std::bit_ceil(std::max<size_t>(16, 2 * expected));
  slots_.resize(size);
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
}

void MergeTable::put(int32_t left, int32_t right, Rule rule) {
  if (2 * (used_ + 1) > slots_.size()) grow();
  const uint64_t key = key_of(left, right);
  size_t i = slot(key);
  while (slots_[i].key != key && slots_[i].key != kEmpty) i = (i + 1) & mask_;
  used_ += slots_[i].key == kEmpty;
  slots_[i] = {key, rule};
}

void MergeTable::grow() {
  MergeTable larger(slots_.size());
  for (const Slot& s : slots_)
    if (s.key != kEmpty)
      larger.put(static_cast<int32_t>(s.key >> 32), static_cast<int32_t>(s.key & UINT32_MAX), s.rule);
  *this = std::move(larger);
}

// Short words: look at all pairs each time. Longer ones: a heap, so that time stays n log n.
void Merger::merge(const MergeTable& table, std::vector<Symbol>& symbols) {
  constexpr size_t kShort = 48;
  if (symbols.size() <= kShort)
    merge_short(table, symbols);
  else
    merge_long(table, symbols);
}

void Merger::merge_short(const MergeTable& table, std::vector<Symbol>& symbols) {
  size_t n = symbols.size();
  if (n < 2) return;
  rules_.resize(n);
  const auto rule = [&](size_t i) { return table.find(symbols[i].id, symbols[i + 1].id); };
  for (size_t i = 0; i + 1 < n; ++i) rules_[i] = rule(i);
  for (;;) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (rules_[i].rank < rules_[best].rank) best = i;
    if (rules_[best].rank == MergeTable::kNone) break;
    symbols[best] = {rules_[best].result, symbols[best].bytes + symbols[best + 1].bytes};
    for (size_t i = best + 1; i + 1 < n; ++i) symbols[i] = symbols[i + 1], rules_[i] = rules_[i + 1];
    if (--n == 1) break;
    if (best > 0) rules_[best - 1] = rule(best - 1);
    if (best + 1 < n) rules_[best] = rule(best);
    rules_[n - 1] = {};
  }
  symbols.resize(n);
}

void Merger::merge_long(const MergeTable& table, std::vector<Symbol>& symbols) {
  constexpr uint32_t kEnd = UINT32_MAX;
  check(symbols.size() < kEnd, "a word of four billion symbols");
  const auto n = static_cast<uint32_t>(symbols.size());
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  heap_.clear();
  links_.resize(n);
  for (uint32_t i = 0; i < n; ++i) links_[i] = {i - 1, i + 1 < n ? i + 1 : kEnd};  // 0 - 1 is kEnd
  const auto candidate = [&](uint32_t at) {
    const MergeTable::Rule r = table.find(symbols[at].id, symbols[links_[at].after].id);
    if (r.rank == MergeTable::kNone) return false;
    heap_.push_back({r.rank, at, r.result});
    return true;
  };
  for (uint32_t i = 0; i + 1 < n; ++i) candidate(i);
  std::make_heap(heap_.begin(), heap_.end(), later);
  while (!heap_.empty()) {
    const Candidate c = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), later);
    heap_.pop_back();
    Symbol& left = symbols[c.at];
    const uint32_t next = links_[c.at].after;
    if (left.bytes == 0 || next == kEnd) continue;  // merged into another, or the last by now
    const MergeTable::Rule r = table.find(left.id, symbols[next].id);
    if (r.rank != c.rank || r.result != c.result) continue;  // one of the two has changed
    left = {c.result, left.bytes + symbols[next].bytes};
    symbols[next].bytes = 0;
    links_[c.at].after = links_[next].after;
    if (links_[c.at].after != kEnd) links_[links_[c.at].after].before = c.at;
    if (links_[c.at].before != kEnd && candidate(links_[c.at].before))
      std::push_heap(heap_.begin(), heap_.end(), later);
    if (links_[c.at].after != kEnd && candidate(c.at)) std::push_heap(heap_.begin(), heap_.end(), later);
  }
  std::erase_if(symbols, [](const Symbol& s) { return s.bytes == 0; });
  if (heap_.capacity() > (size_t{1} << 20)) heap_ = {}, links_ = {};  // a giant word's memory is given back
}

}  // namespace braid
