// State-based recall - follow five pointers through swaps, then look up (Olmo Hybrid, arXiv:2604.03444).
//   tokens: 0 blank (never occurs), 1 and 2 the bits 0 and 1, 3 INIT, 4 OPS, 5 QUERY, 6 .. 10 the pointers
//   a .. e, 11 .. addresses
//   A sample of length m: m random bits; INIT and five times a pointer and its address, all different; OPS
//   and m times two different pointers whose addresses are exchanged; QUERY and a pointer. That pointer is
//   the only supervised position; its target is the bit at its address.
// Two settings make it easier to learn. ask_often=true: every other sample of training has QUERY and a
// pointer, with the answer of that moment, also before and after each swap. compact=true: a bit and its
// address are one token, a swap is another, so that recall is by content instead of by position and a swap
// need not be put together from two tokens:
//   11 + m .. the address i with bit b is token 11 + m + 2 i + b; 11 + 3 m .. the ten swaps of two pointers
// The paper sweeps the number of bits and of swaps together. Its lengths are not known to us; 32 is ours.
#include <algorithm>

#include <fmt/format.h>

#include "tasks/draw.h"
#include "tasks/makers.h"
#include "tasks/pairs.h"

namespace braid {
namespace {

constexpr int32_t kBit = 1, kInit = 3, kOps = 4, kQuery = 5, kPointer = 6;
constexpr size_t kPointers = 5;
constexpr int32_t kAddress = kPointer + static_cast<int32_t>(kPointers);

class StateRecall final : public Task {
 public:
  std::vector<Setting> settings() override {
    std::vector<Setting> all = lengths_.settings(kPointers, 16384);
    all.push_back({"ask_often", &ask_often_, 0, 0,
                   "in every other sample of training, the question also stands before and after each swap"});
    all.push_back({"compact", &compact_, 0, 0, "one token for a bit with its address, one for a swap"});
    all.push_back({"any_pointer", &any_pointer_, 0, 0, "ask for any of the five, not always for a"});
    return all;
  }
  std::vector<Problem> validate() const override { return {}; }
  bool grow() override { return lengths_.grow(); }
  size_t vocab_size() const override {
    return static_cast<size_t>(compact_ ? swap_token(kPointers - 2, kPointers - 1) + 1
                                        : kAddress + lengths_.longest());
  }
  size_t max_length(Split split) const override {
    const bool often = ask_often_ && split == Split::kTrain;
    return min_length(split) + (often ? 2 * static_cast<size_t>(lengths_.of(split)) : 0);
  }
  size_t min_length(Split split) const override {
    return static_cast<size_t>((1 + swap_tokens()) * lengths_.of(split)) + 2 * kPointers + 4;
  }
  double chance() const override { return 0.5; }

  Sample sample(Rng& rng, Split split) const override {
    const auto m = static_cast<size_t>(lengths_.of(split));
    Sample s;
    s.tokens.reserve(max_length(split));
    std::vector<int32_t> bits(m);
    for (size_t i = 0; i < m; ++i) {
      bits[i] = static_cast<int32_t>(rng.below(2));
      s.tokens.push_back(compact_ ? bit_token(i, bits[i]) : kBit + bits[i]);
    }
    std::vector<size_t> address = draw_distinct(rng, kPointers, m);
    s.tokens.push_back(kInit);
    for (size_t p = 0; p < kPointers; ++p) {
      s.tokens.push_back(kPointer + static_cast<int32_t>(p));
      s.tokens.push_back(kAddress + static_cast<int32_t>(address[p]));
    }
    s.tokens.push_back(kOps);
    s.targets.assign(s.tokens.size(), kUnsupervised);
    const auto ask = [&] {
      const size_t asked = any_pointer_ ? rng.below(kPointers) : 0;
      s.tokens.push_back(kQuery);
      s.tokens.push_back(kPointer + static_cast<int32_t>(asked));
      s.targets.resize(s.tokens.size(), kUnsupervised);
      s.targets.back() = kBit + bits[address[asked]];
    };
    const bool often = ask_often_ && split == Split::kTrain && rng.below(2);
    for (size_t i = 0; i < m; ++i) {
      if (often) ask();
      auto [a, b] = draw_pair(rng, kPointers);
      if (rng.below(2)) std::swap(a, b);
      std::swap(address[a], address[b]);
      if (compact_) {
        s.tokens.push_back(swap_token(std::min(a, b), std::max(a, b)));
        continue;
      }
      s.tokens.push_back(kPointer + static_cast<int32_t>(a));
      s.tokens.push_back(kPointer + static_cast<int32_t>(b));
    }
    ask();
    return s;
  }

  std::string show(const Sample& s) const override { return ask_often_ ? show_in_place(s) : Task::show(s); }

  // "moved": the pointer does not end where it began. Who ignores the swaps is right in half of these.
  std::vector<Metric> metrics() const override {
    std::vector<Metric> all = Task::metrics();
    all.push_back({"accuracy, moved", chance()});
    return all;
  }
  void measure(const Answered& a, std::span<Metric> m) const override {
    Task::measure(a, m);
    const auto init = static_cast<size_t>(std::ranges::find(a.tokens, kInit) - a.tokens.begin());
    const size_t first = init + 2 * kPointers + 2;  // of the swaps
    const int32_t asked = a.tokens.back();
    int32_t at = asked;  // whose first address the asked pointer has: follow the swaps backwards
    for (size_t t = a.tokens.size() - 2; t > first;) {
      t -= static_cast<size_t>(swap_tokens());
      const auto [p, q] = compact_ ? swap_of(a.tokens[t]) : std::pair(a.tokens[t], a.tokens[t + 1]);
      if (p == at)
        at = q;
      else if (q == at)
        at = p;
    }
    if (at != asked) m.back().add(a.right(a.tokens.size() - 1));
  }

  std::string token_text(int32_t token) const override {
    const auto name = [](int32_t pointer) { return static_cast<char>('a' + pointer - kPointer); };
    if (token >= swap_token(0, 1)) {
      const auto [p, q] = swap_of(token);
      return fmt::format("{}-{}", name(p), name(q));
    }
    if (token >= bit_token(0, 0))
      return fmt::format("@{}={}", (token - bit_token(0, 0)) / 2, (token - bit_token(0, 0)) % 2);
    if (token >= kAddress) return fmt::format("@{}", token - kAddress);
    if (token >= kPointer) return std::string(1, name(token));
    constexpr std::array<const char*, 6> names{"_", "0", "1", "INIT", "OPS", "QUERY"};
    return names[static_cast<size_t>(token)];
  }

 private:
  int64_t swap_tokens() const { return compact_ ? 1 : 2; }
  int32_t bit_token(size_t address, int32_t bit) const {
    return static_cast<int32_t>(kAddress + lengths_.longest() + 2 * static_cast<int64_t>(address)) + bit;
  }
  // Pairs p < q in the order of p, then q.
  int32_t swap_token(size_t p, size_t q) const {
    const size_t before = p * (2 * kPointers - 1 - p) / 2;
    return static_cast<int32_t>(kAddress + 3 * lengths_.longest() + static_cast<int64_t>(before + q - p - 1));
  }
  std::pair<int32_t, int32_t> swap_of(int32_t token) const {
    for (size_t p = 0; p < kPointers; ++p)
      for (size_t q = p + 1; q < kPointers; ++q)
        if (swap_token(p, q) == token)
          return {kPointer + static_cast<int32_t>(p), kPointer + static_cast<int32_t>(q)};
    return {};
  }

  FixedLengths lengths_{.train_length = 32, .test_length = 32};
  bool any_pointer_ = false, compact_ = false, ask_often_ = false;
};

}  // namespace

std::unique_ptr<Task> make_state_recall() { return std::make_unique<StateRecall>(); }

}  // namespace braid
