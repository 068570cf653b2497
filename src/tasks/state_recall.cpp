// State-based recall - follow five pointers through swaps, then look up (Olmo Hybrid, arXiv:2604.03444).
//   tokens: 0 blank (never occurs), 1 and 2 the bits 0 and 1, 3 INIT, 4 OPS, 5 QUERY, 6 .. 10 the pointers
//   a .. e, 11 .. addresses
//   A sample of length m: m random bits; INIT and five times a pointer and its address, all different; OPS
//   and m times two different pointers whose addresses are exchanged; QUERY and a pointer. That pointer is
//   the only supervised position; its target is the bit at its address.
// Three settings make it easier to learn. gradual=true: samples of training have any number of swaps up to m,
// and the value under each pointer of INIT and, at each swap, the value then under its first pointer are
// targets, too. compact=true: an address with its bit, a pointer with its first address, and a swap are one
// token each, so that recall is by content instead of by position and nothing need be put together from two
// tokens:
//   11 + m ..    11 + m + 2 i + b: bit b at address i
//   11 + 3 m ..  the ten swaps of two pointers
//   21 + 3 m ..  21 + 3 m + m p + i: pointer p begins at address i
// values=16 (or more) in the place of bits tells more with each answer; then the tokens 1 .. 16 are values
// and all others are 14 further. The paper sweeps the number of bits and of swaps together; table=64 has so
// many addresses whatever the number of swaps is, so that a curriculum can begin with few swaps in a whole
// table. Its lengths are not known to us; 32 is ours.
#include <algorithm>

#include <fmt/format.h>

#include "tasks/draw.h"
#include "tasks/makers.h"
#include "tasks/pairs.h"

namespace braid {
namespace {

constexpr int32_t kValue = 1;
constexpr size_t kPointers = 5;

class StateRecall final : public Task {
 public:
  std::vector<Setting> settings() override {
    std::vector<Setting> all = lengths_.settings(kPointers, 16384);
    all.push_back({"gradual", &gradual_, 0, 0,
                   "in training any number of swaps up to the length, and targets at each step"});
    all.push_back({"table", &table_, 0, 16384, "addresses; 0: as many as swaps"});
    all.push_back({"values", &values_, 2, 1024, "different values at the addresses; 2: bits"});
    all.push_back({"compact", &compact_, 0, 0,
                   "one token for an address with its bit, for a pointer with its address, for a swap"});
    all.push_back({"any_pointer", &any_pointer_, 0, 0, "ask for any of the five, not always for a"});
    return all;
  }
  std::vector<Problem> validate() const override {
    if (table_ == 0 || table_ >= static_cast<int64_t>(kPointers)) return {};
    return {{"table", fmt::format("has {} addresses, fewer than the {} pointers", table_, kPointers),
             fmt::format("use at least {}", kPointers)}};
  }
  bool grow() override { return lengths_.grow(); }
  size_t vocab_size() const override {
    return static_cast<size_t>(compact_ ? start_token(kPointers - 1, static_cast<size_t>(most_addresses()))
                                        : addresses() + most_addresses());
  }
  size_t max_length(Split split) const override {
    return static_cast<size_t>(table(split) + swap_tokens() * lengths_.of(split)) + start_tokens() + 4;
  }
  size_t min_length(Split split) const override {
    const bool any = gradual_ && split == Split::kTrain;
    return max_length(split) - (any ? static_cast<size_t>(swap_tokens() * lengths_.of(split)) : 0);
  }
  double chance() const override { return 1.0 / static_cast<double>(values_); }

  Sample sample(Rng& rng, Split split) const override {
    const auto m = static_cast<size_t>(table(split)), most = static_cast<size_t>(lengths_.of(split));
    Sample s;
    s.tokens.reserve(max_length(split));
    std::vector<int32_t> held(m);
    for (size_t i = 0; i < m; ++i) {
      held[i] = static_cast<int32_t>(rng.below(static_cast<uint64_t>(values_)));
      s.tokens.push_back(compact_ ? value_token(i, held[i]) : kValue + held[i]);
    }
    std::vector<size_t> address = draw_distinct(rng, kPointers, m);
    const bool gradual = gradual_ && split == Split::kTrain;
    const size_t swaps = gradual ? rng.below(most + 1) : most;
    s.tokens.push_back(init());
    const auto target = [&](bool supervised, size_t p) {
      s.targets.resize(s.tokens.size(), kUnsupervised);
      if (supervised) s.targets.back() = kValue + held[address[p]];
    };
    for (size_t p = 0; p < kPointers; ++p) {
      if (compact_) {
        s.tokens.push_back(start_token(p, address[p]));
      } else {
        s.tokens.push_back(pointer() + static_cast<int32_t>(p));
        s.tokens.push_back(addresses() + static_cast<int32_t>(address[p]));
      }
      target(gradual, p);
    }
    s.tokens.push_back(ops());
    target(false, 0);
    for (size_t i = 0; i < swaps; ++i) {
      auto [a, b] = draw_pair(rng, kPointers);
      if (rng.below(2) && !compact_) std::swap(a, b);
      std::swap(address[a], address[b]);
      if (compact_) {
        s.tokens.push_back(swap_token(a, b));
      } else {
        s.tokens.push_back(pointer() + static_cast<int32_t>(a));
        s.tokens.push_back(pointer() + static_cast<int32_t>(b));
      }
      target(gradual, a);
    }
    const size_t asked = any_pointer_ ? rng.below(kPointers) : 0;
    s.tokens.push_back(query());
    s.tokens.push_back(pointer() + static_cast<int32_t>(asked));
    target(true, asked);
    return s;
  }

  // What a token is made of, a one each: value, pointer, address, and what kind of token it is; each swap is
  // a kind of its own, so that it can have any key. With learned vectors every address has to be learned by
  // itself, in all the tokens that it is part of.
  std::optional<Tensor> fixed_embedding() const override {
    const auto value = [](int64_t v) { return v; };
    const auto named = [&](size_t p) { return values_ + static_cast<int64_t>(p); };
    const auto place = [&](size_t i) { return named(kPointers) + static_cast<int64_t>(i); };
    const auto m = static_cast<size_t>(most_addresses());
    enum Kind {
      kInit,
      kOps,
      kQuery,
      kEntry,
      kStart,
      kSwap,
      kKinds = kSwap + kPointers * (kPointers - 1) / 2
    };
    const auto kind = [&](int k) { return place(m) + k; };
    Tensor rows(DType::kF32, {static_cast<int64_t>(vocab_size()), kind(kKinds)});
    const auto put = [&](int32_t token, std::initializer_list<int64_t> ones) {
      for (const int64_t i : ones) rows.mat().row(static_cast<size_t>(token))[i] = 1;
    };
    for (int64_t v = 0; v < values_; ++v) put(kValue + static_cast<int32_t>(v), {value(v)});
    put(init(), {kind(kInit)}), put(ops(), {kind(kOps)}), put(query(), {kind(kQuery)});
    for (size_t p = 0; p < kPointers; ++p) put(pointer() + static_cast<int32_t>(p), {named(p)});
    for (size_t i = 0; i < m; ++i) put(addresses() + static_cast<int32_t>(i), {place(i)});
    if (!compact_) return rows;
    for (size_t i = 0; i < m; ++i)
      for (int32_t v = 0; v < values_; ++v) put(value_token(i, v), {place(i), value(v), kind(kEntry)});
    for (size_t p = 0; p < kPointers; ++p) {
      for (size_t q = p + 1; q < kPointers; ++q)
        put(swap_token(p, q), {kind(kSwap + swap_token(p, q) - swap_token(0, 1))});
      for (size_t i = 0; i < m; ++i) put(start_token(p, i), {named(p), place(i), kind(kStart)});
    }
    return rows;
  }

  std::string show(const Sample& s) const override { return gradual_ ? show_in_place(s) : Task::show(s); }

  // "moved": the pointer does not end where it began. Who ignores the swaps is right in half of these.
  std::vector<Metric> metrics() const override {
    std::vector<Metric> all = Task::metrics();
    all.push_back({"accuracy, moved", chance()});
    return all;
  }
  void measure(const Answered& a, std::span<Metric> m) const override {
    Task::measure(a, m);
    const auto start = static_cast<size_t>(std::ranges::find(a.tokens, init()) - a.tokens.begin());
    const size_t first = start + start_tokens() + 2;  // of the swaps
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
    const auto name = [&](int32_t p) { return static_cast<char>('a' + p - pointer()); };
    if (token >= start_token(0, 0)) {
      const int64_t id = token - start_token(0, 0);
      return fmt::format("{}@{}", name(pointer() + static_cast<int32_t>(id / most_addresses())),
                         id % most_addresses());
    }
    if (token >= swap_token(0, 1)) {
      const auto [p, q] = swap_of(token);
      return fmt::format("{}-{}", name(p), name(q));
    }
    if (token >= value_token(0, 0))
      return fmt::format("@{}={}", (token - value_token(0, 0)) / values_,
                         (token - value_token(0, 0)) % values_);
    if (token >= addresses()) return fmt::format("@{}", token - addresses());
    if (token >= pointer()) return std::string(1, name(token));
    if (token >= init()) return std::array{"INIT", "OPS", "QUERY"}[static_cast<size_t>(token - init())];
    return token >= kValue ? std::to_string(token - kValue) : "_";
  }

 private:
  int32_t init() const { return kValue + static_cast<int32_t>(values_); }
  int32_t ops() const { return init() + 1; }
  int32_t query() const { return init() + 2; }
  int32_t pointer() const { return init() + 3; }
  int32_t addresses() const { return pointer() + static_cast<int32_t>(kPointers); }
  int64_t table(Split split) const { return table_ ? table_ : lengths_.of(split); }
  int64_t most_addresses() const { return table_ ? table_ : lengths_.longest(); }
  int64_t swap_tokens() const { return compact_ ? 1 : 2; }
  int32_t value_token(size_t address, int32_t value) const {
    return static_cast<int32_t>(addresses() + most_addresses() + values_ * static_cast<int64_t>(address)) +
           value;
  }
  // Pairs p < q in the order of p, then q.
  int32_t swap_token(size_t p, size_t q) const {
    const size_t before = p * (2 * kPointers - 1 - p) / 2;
    return static_cast<int32_t>(addresses() + (1 + values_) * most_addresses() +
                                static_cast<int64_t>(before + q - p - 1));
  }
  int32_t start_token(size_t p, size_t address) const {
    return swap_token(kPointers - 2, kPointers - 1) + 1 +
           static_cast<int32_t>(static_cast<int64_t>(p) * most_addresses() + static_cast<int64_t>(address));
  }
  size_t start_tokens() const { return compact_ ? kPointers : 2 * kPointers; }
  std::pair<int32_t, int32_t> swap_of(int32_t token) const {
    for (size_t p = 0; p < kPointers; ++p)
      for (size_t q = p + 1; q < kPointers; ++q)
        if (swap_token(p, q) == token)
          return {pointer() + static_cast<int32_t>(p), pointer() + static_cast<int32_t>(q)};
    return {};
  }

  int64_t values_ = 2, table_ = 0;
  FixedLengths lengths_{.train_length = 32, .test_length = 32};
  bool any_pointer_ = false, compact_ = false, gradual_ = false;
};

}  // namespace

std::unique_ptr<Task> make_state_recall() { return std::make_unique<StateRecall>(); }

}  // namespace braid
