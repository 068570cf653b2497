// Cache of values that are costly to make: a fixed number of them, by key, the newest kept. For kernels,
// which cannot allocate or fail: a value is made before the work, and a failure is cached, too.
//
//   static thread_local Kept<Key, Made, 64> kept;
//   if (Made* m = kept.get(key, [&](Made& to) { return make(key, to); })) ...
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace braid {

// Key: == and a member hash(). Value: default-constructed until made. kCapacity: a multiple of the 8 places
// that one hash can go to, the least recently used of which makes room.
template <class Key, class Value, size_t kCapacity>
class Kept {
  static constexpr size_t kWays = 8, kSets = kCapacity / kWays;
  static_assert(kSets > 0 && kCapacity % kWays == 0);
  static_assert(std::is_nothrow_default_constructible_v<Value> && std::is_nothrow_move_assignable_v<Value>);

 public:
  // make(Value&) says whether it could; it does not throw. Null if not, now or when it was tried.
  template <class Make>
  Value* get(const Key& key, const Make& make) noexcept {
    static_assert(std::is_nothrow_invocable_r_v<bool, Make, Value&>);
    auto& set = sets_[key.hash() % kSets];
    Entry* oldest = &set[0];
    for (Entry& e : set) {
      if (e.used && e.key == key) return found(e);
      if (e.used < oldest->used) oldest = &e;
    }
    oldest->value = Value();  // gives its memory back before more is taken
    oldest->key = key;
    oldest->made = make(oldest->value);
    return found(*oldest);
  }

 private:
  struct Entry {
    Key key{};
    Value value{};
    uint64_t used = 0;  // 0: empty
    bool made = false;
  };
  Value* found(Entry& e) noexcept {
    e.used = ++clock_;
    return e.made ? &e.value : nullptr;
  }

  std::array<std::array<Entry, kWays>, kSets> sets_{};
  uint64_t clock_ = 0;
};

}  // namespace braid
