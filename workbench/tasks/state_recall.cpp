// State-based recall - follow five pointers through swaps, then look up (Olmo Hybrid, arXiv:2604.03444).
//   tokens: 0 blank (never occurs), 1 and 2 the bits 0 and 1, 3 INIT, 4 OPS, 5 QUERY, 6 .. 10 the pointers
//   a .. e, 11 .. addresses
//   A sample of length m: m random bits; INIT and five times a pointer and its address, all different; OPS
//   and m times two different pointers whose addresses are exchanged; QUERY and a pointer. That pointer is
//   the only supervised position; its target is the bit at its address.
// Settings make it easier to learn. gradual=true: samples of training have any number of swaps up to m, and
// the value under each pointer of INIT and, at each swap, the value then under its first pointer are targets,
// too. tracked=true: at each swap it is the address, so that following pointers is learned without looking up
// what they point to. all_pointers=true: all five are asked for behind QUERY, in any order. compact=true: an
// address with its bit, a pointer with its first address, and a swap are one token each, so that recall is by
// content instead of by position and nothing need be put together from two tokens:
//   11 + m ..    11 + m + 2 i + b: bit b at address i
//   11 + 3 m ..  the ten swaps of two pointers
//   21 + 3 m ..  21 + 3 m + m p + i: pointer p begins at address i
// values=16 (or more) in the place of bits tells more with each answer; then the tokens 1 .. 16 are values
// and all others are 14 further. The paper sweeps the number of bits and of swaps together; table=64 has so
// many addresses whatever the number of swaps is. train_table=16: training begins with so many, which a
// curriculum doubles together with the swaps. The paper's lengths are not known to us; 32 is ours.
#include <algorithm>
#include <bit>

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
    all.push_back(
        {"gradual", &gradual_, 0, 0,
         "training samples have any number of swaps up to the length, and targets at INIT (the value at each "
         "address) and at each swap (the value under its first pointer)"});
    all.push_back(
        {"tracked", &tracked_, 0, 0,
         "with gradual: the target at a swap is the address of its first pointer instead of the value"});
    all.push_back({"table", &table_, 0, 16384, "number of addresses; 0 = number of swaps"});
    all.push_back(
        {"train_table", &train_table_, 0, 16384, "addresses used when a curriculum begins; 0 = all"});
    all.push_back({"values", &values_, 2, 1024, "number of different values; 2 = bits"});
    all.push_back({"compact", &compact_, 0, 0,
                   "one token for an address with its value, a pointer with its address, a swap"});
    all.push_back({"any_pointer", &any_pointer_, 0, 0, "the question names a random pointer instead of a"});
    all.push_back(
        {"all_pointers", &all_pointers_, 0, 0, "questions about all five pointers, one after the other"});
    return all;
  }
  std::vector<Problem> validate() const override {
    std::vector<Problem> p;
    const auto few = [&](const char* name, int64_t n) {
      if (n > 0 && n < static_cast<int64_t>(kPointers))
        p.push_back({name, fmt::format("is {}, fewer than the {} pointers", n, kPointers),
                     fmt::format("use at least {}", kPointers)});
    };
    few("table", table_), few("train_table", train_table_);
    if (tracked_ && !gradual_) p.push_back({"tracked", "is given without gradual", "add gradual=true"});
    if (train_table_ > table_)
      p.push_back({"train_table", fmt::format("is {}, but table is {}", train_table_, table_),
                   "use a table that is as large"});
    return p;
  }
  bool grow() override {
    const bool longer = lengths_.grow(), larger = train_table_ > 0 && train_table_ < table_;
    if (larger) train_table_ = std::min(2 * train_table_, table_);
    return longer || larger;
  }
  size_t vocab_size() const override {
    return static_cast<size_t>(compact_ ? start_token(kPointers - 1, static_cast<size_t>(most_addresses()))
                                        : addresses() + most_addresses());
  }
  size_t answers() const override {
    return static_cast<size_t>(tracked_ ? addresses() + most_addresses() : kValue + values_);
  }
  size_t max_length(Split split) const override {
    return static_cast<size_t>(table(split) + swap_tokens() * lengths_.of(split)) + start_tokens() + 3 +
           questions();
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
    const auto target_at_swap = [&](size_t p) {
      target(gradual, p);
      if (gradual && tracked_) s.targets.back() = addresses() + static_cast<int32_t>(address[p]);
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
      target_at_swap(a);
    }
    s.tokens.push_back(query());
    std::vector<size_t> asked{any_pointer_ ? rng.below(kPointers) : 0};
    if (all_pointers_) asked = draw_distinct(rng, kPointers, kPointers);
    for (const size_t p : asked) s.tokens.push_back(pointer() + static_cast<int32_t>(p)), target(true, p);
    return s;
  }

  // What a token is made of: value, pointer, the bits of the address, and what kind of token it is; each swap
  // is a kind of its own, so that it can have any key. Who looks up addresses by their bits need not learn
  // every one by itself, and has to hold no more than the bits of five of them.
  std::optional<Tensor> fixed_embedding() const override {
    enum Kind {
      kInit,
      kOps,
      kQuery,
      kEntry,
      kStart,
      kSwap,
      kKinds = kSwap + kPointers * (kPointers - 1) / 2
    };
    const auto m = static_cast<uint64_t>(most_addresses());
    const int bits = std::bit_width(m - 1);
    const auto value = [](int64_t v) { return v; };
    const auto named = [&](size_t p) { return values_ + static_cast<int64_t>(p); };
    const int64_t first_bit = named(kPointers);
    const auto kind = [&](int k) { return first_bit + bits + k; };
    Tensor rows(DType::kF32, {static_cast<int64_t>(vocab_size()), kind(kKinds)});
    const auto put = [&](int32_t token, std::initializer_list<int64_t> ones) {
      for (const int64_t i : ones) rows.mat().row(static_cast<size_t>(token))[i] = 1;
    };
    const auto put_at = [&](int32_t token, uint64_t address, std::initializer_list<int64_t> ones) {
      put(token, ones);
      for (int b = 0; b < bits; ++b)
        rows.mat().row(static_cast<size_t>(token))[first_bit + b] = address >> b & 1 ? 1 : -1;
    };
    for (int64_t v = 0; v < values_; ++v) put(kValue + static_cast<int32_t>(v), {value(v)});
    put(init(), {kind(kInit)}), put(ops(), {kind(kOps)}), put(query(), {kind(kQuery)});
    for (size_t p = 0; p < kPointers; ++p) put(pointer() + static_cast<int32_t>(p), {named(p)});
    for (uint64_t i = 0; i < m; ++i) put_at(addresses() + static_cast<int32_t>(i), i, {});
    if (!compact_) return rows;
    for (uint64_t i = 0; i < m; ++i)
      for (int32_t v = 0; v < values_; ++v) put_at(value_token(i, v), i, {value(v), kind(kEntry)});
    for (size_t p = 0; p < kPointers; ++p) {
      for (size_t q = p + 1; q < kPointers; ++q)
        put(swap_token(p, q), {kind(kSwap + swap_token(p, q) - swap_token(0, 1))});
      for (uint64_t i = 0; i < m; ++i) put_at(start_token(p, i), i, {named(p), kind(kStart)});
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
    const size_t first = start + start_tokens() + 2;       // of the swaps
    const size_t end = a.tokens.size() - questions() - 1;  // of the swaps
    for (size_t question = end + 1; question < a.tokens.size(); ++question) {
      const int32_t asked = a.tokens[question];
      int32_t at = asked;  // whose first address the asked pointer has: follow the swaps backwards
      for (size_t t = end; t > first;) {
        t -= static_cast<size_t>(swap_tokens());
        const auto [p, q] = compact_ ? swap_of(a.tokens[t]) : std::pair(a.tokens[t], a.tokens[t + 1]);
        if (p == at)
          at = q;
        else if (q == at)
          at = p;
      }
      if (at != asked) m.back().add(a.right(question));
    }
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
  int64_t table(Split split) const {  // entries
    if (split == Split::kTrain && train_table_) return train_table_;
    return table_ ? table_ : lengths_.of(split);
  }
  int64_t most_addresses() const { return table_ ? table_ : lengths_.longest(); }
  size_t questions() const { return all_pointers_ ? kPointers : 1; }
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

  int64_t values_ = 2, table_ = 0, train_table_ = 0;
  FixedLengths lengths_{.train_length = 32, .test_length = 32};
  bool any_pointer_ = false, compact_ = false, gradual_ = false, tracked_ = false, all_pointers_ = false;
};

}  // namespace

std::unique_ptr<Task> make_state_recall() { return std::make_unique<StateRecall>(); }

}  // namespace braid
