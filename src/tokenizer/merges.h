// Byte-pair merging: while any adjacent pair of symbols has a rule, the rule of the lowest rank is applied,
// leftmost first.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace braid {

// Rules (left, right) -> (rank, result), in one flat hash table.
class MergeTable {
 public:
  struct Rule {
    uint32_t rank = kNone;
    int32_t result = -1;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit MergeTable(size_t expected = 0);
  void put(int32_t left, int32_t right, Rule rule);  // replaces a rule for the same pair
  Rule find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t i = slot(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].rule;
      if (slots_[i].key == kEmpty) return {};
    }
  }

 private:
  struct Slot {
    uint64_t key = kEmpty;
    Rule rule;
  };
  static constexpr uint64_t kEmpty = UINT64_MAX;  // the pair (-1, -1), which has no rule
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t slot(uint64_t key) const { return (key * 0x9E3779B97F4A7C15u) >> shift_; }
  void grow();

  std::vector<Slot> slots_;
  size_t mask_ = 0, used_ = 0;
  int shift_ = 0;
};

struct Symbol {
  int32_t id;      // -1: no rule has it
  uint32_t bytes;  // of the text it covers
};

// Merges `symbols` in place; the result is at the front.
class Merger {
 public:
  void merge(const MergeTable& table, std::vector<Symbol>& symbols);

 private:
  void merge_short(const MergeTable& table, std::vector<Symbol>& symbols);
  void merge_long(const MergeTable& table, std::vector<Symbol>& symbols);

  struct Candidate {
    uint32_t rank, at;
    int32_t result;
  };
  struct Link {
    uint32_t before, after;
  };
  std::vector<MergeTable::Rule> rules_;
  std::vector<Candidate> heap_;
  std::vector<Link> links_;
};

}  // namespace braid
