// Cache of the ids of words. Most words of a text are repeated.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace braid {

class WordCache {
 public:
  static constexpr size_t kLongest = 64;  // longer words are not kept

  static uint64_t hash(std::string_view word) {
    uint64_t h = word.size() * 0x9E3779B97F4A7C15u;
    const char* p = word.data();
    size_t n = word.size();
    for (; n >= 8; p += 8, n -= 8) h = mix(h ^ load(p, 8));
    return n ? mix(h ^ load(p, n)) : h;
  }

  // Appends the ids of a word that is known.
  bool find(std::string_view word, uint64_t hash, std::vector<int32_t>& out) const {
    const Slot& s = slots_[hash >> (64 - kBits)];
    if (s.hash != hash || s.bytes != word.size() ||
        std::memcmp(&text_[s.text], word.data(), word.size()) != 0)
      return false;
    out.insert(out.end(), ids_.data() + s.ids, ids_.data() + s.ids + s.count);
    return true;
  }

  void put(std::string_view word, uint64_t hash, std::span<const int32_t> ids) {
    if (text_.size() + word.size() > kTextBytes || ids_.size() + ids.size() > kIds) clear();
    slots_[hash >> (64 - kBits)] = {hash, static_cast<uint32_t>(text_.size()),
                                    static_cast<uint32_t>(ids_.size()), static_cast<uint16_t>(word.size()),
                                    static_cast<uint16_t>(ids.size())};
    text_.insert(text_.end(), word.begin(), word.end());
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t text = 0, ids = 0;
    uint16_t bytes = 0, count = 0;
  };
  static constexpr int kBits = 16;
  static constexpr size_t kTextBytes = size_t{2} << 20, kIds = size_t{1} << 19;

  __extension__ using Wide = unsigned __int128;
  static uint64_t load(const char* p, size_t n) {
    uint64_t v = 0;
    std::memcpy(&v, p, n);
    return v;
  }
  static uint64_t mix(uint64_t v) {
    const auto wide = static_cast<Wide>(v ^ 0x2D358DCCAA6C78A5u) * 0x8BB84B93962EACC9u;
    return static_cast<uint64_t>(wide) ^ static_cast<uint64_t>(wide >> 64);
  }
  void clear() {
    slots_.assign(slots_.size(), {});
    text_.clear();
    ids_.clear();
  }

  std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << kBits);
  std::vector<char> text_ = {};
  std::vector<int32_t> ids_ = {};
};

}  // namespace braid
