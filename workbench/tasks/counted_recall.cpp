// Counted recall - keys to look up and bits to count, and answers that need both. Braid's own.
//   tokens: bits 0 and 1, "even", "odd", then the values, the keys, the keys again with a star, and every key
//   with every value
//   A sample of length n: a table of different keys with their values, a token for each pair, `pairs` of them
//   in tests and 1 .. `pairs` in training; then n questions, each of one of three kinds, as likely:
//     a bit          the target is the parity of all bits so far: even or odd
//     a key          the target is its value
//     a starred key  the target is its value if the parity so far is even, else the next value
// The first kind needs a state that every token can turn around, the second a memory of all pairs, the third
// both.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "tasks/draw.h"
#include "tasks/makers.h"

namespace braid {
namespace {

enum : int32_t { kBit, kParity = 2, kValue = 4 };
enum Kind : size_t { kCount, kRecall, kBoth };

class CountedRecall final : public Task {
 public:
  std::vector<Setting> settings() override {
    std::vector<Setting> all = lengths_.settings(1);
    all.push_back({"pairs", &pairs_, 1, 65536, "keys in the longest table"});
    all.push_back({"keys", &keys_, 1, 65536, "number of different keys"});
    all.push_back({"values", &values_, 2, 65536, "number of different values"});
    return all;
  }
  std::vector<Problem> validate() const override {
    std::vector<Problem> problems = lengths_.validate();
    if (pairs_ > keys_)
      problems.push_back({"pairs", fmt::format("{} pairs need as many keys; there are {}", pairs_, keys_),
                          fmt::format("set keys={}", pairs_)});
    return problems;
  }
  bool grow() override { return lengths_.grow(); }
  size_t vocab_size() const override {
    return static_cast<size_t>(kValue + values_ + 2 * keys_ + keys_ * values_);
  }
  size_t max_length(Split split) const override { return tokens(pairs_, lengths_.longest(split)); }
  size_t min_length(Split split) const override {
    return tokens(split == Split::kTrain ? 1 : pairs_, lengths_.shortest(split));
  }
  double chance() const override { return std::max(1.0 / 6, 2.0 / 3 / static_cast<double>(values_)); }

  Sample sample(Rng& rng, Split split) const override {
    const int64_t n = lengths_.draw(rng, split);
    const auto pairs = static_cast<size_t>(split == Split::kTrain ? rng.between(1, pairs_) : pairs_);
    const auto keys = static_cast<size_t>(keys_), values = static_cast<size_t>(values_);
    Sample s;
    s.tokens.reserve(max_length(split));
    const std::vector<size_t> key = draw_distinct(rng, pairs, keys);
    std::vector<int32_t> value(pairs);
    for (size_t i = 0; i < pairs; ++i) {
      value[i] = static_cast<int32_t>(rng.below(values));
      s.tokens.push_back(key_token(2 * keys + key[i] * values) + value[i]);
    }
    s.targets.assign(s.tokens.size(), kUnsupervised);
    int32_t parity = 0;
    for (int64_t q = 0; q < n; ++q) {
      const size_t kind = rng.below(3);
      if (kind == kCount) {
        const auto bit = static_cast<int32_t>(rng.below(2));
        parity ^= bit;
        s.tokens.push_back(kBit + bit), s.targets.push_back(kParity + parity);
        continue;
      }
      const size_t i = rng.below(pairs);
      const int32_t shift = kind == kBoth ? parity : 0;
      s.tokens.push_back(key_token(key[i] + (kind == kBoth ? keys : 0)));
      s.targets.push_back(kValue + (value[i] + shift) % static_cast<int32_t>(values_));
    }
    return s;
  }

  std::vector<Metric> metrics() const override {
    std::vector<Metric> all = Task::metrics();
    const double guess = 1.0 / static_cast<double>(values_);
    all.push_back({"count", 0.5});
    all.push_back({"recall", guess});
    all.push_back({"both", guess});
    return all;
  }
  void measure(const Answered& a, std::span<Metric> m) const override {
    Task::measure(a, m);
    const auto keys = static_cast<size_t>(keys_);
    m = m.last(3);
    for (size_t t = 0; t < a.tokens.size(); ++t) {
      if (a.targets[t] == kUnsupervised) continue;
      m[a.tokens[t] < kParity ? kCount : a.tokens[t] < key_token(keys) ? kRecall : kBoth].add(a.right(t));
    }
  }

  std::string token_text(int32_t token) const override {
    constexpr std::array<const char*, kValue> names{"0", "1", "even", "odd"};
    if (token < kValue) return names[static_cast<size_t>(token)];
    const int64_t id = token - kValue;
    if (id < values_) return fmt::format("v{}", id);
    if (id < values_ + keys_) return fmt::format("k{}", id - values_);
    if (id < values_ + 2 * keys_) return fmt::format("k{}*", id - values_ - keys_);
    const int64_t pair = id - values_ - 2 * keys_;
    return fmt::format("k{}=v{}", pair / values_, pair % values_);
  }
  std::string show(const Sample& sample) const override { return show_in_place(sample); }

 private:
  int32_t key_token(size_t key) const {
    return static_cast<int32_t>(kValue + values_ + static_cast<int64_t>(key));
  }
  static size_t tokens(int64_t pairs, int64_t questions) { return static_cast<size_t>(pairs + questions); }

  Lengths lengths_{.train_min = 8, .train_max = 32, .test_min = 32, .test_max = 64};
  int64_t pairs_ = 48, keys_ = 48, values_ = 4;
};

}  // namespace

std::unique_ptr<Task> make_counted_recall() { return std::make_unique<CountedRecall>(); }

}  // namespace braid
