// Parity-conditioned retrieval - a parity tells which of two addresses to look up (after Steifer,
// arXiv:2605.16640; the paper's exact definition is not known to us, this one has its two parts).
//   tokens: BOS, X0, X1, T, V0, V1, Q0, Q1, ASK, P0, P1, then the addresses A0 .., then S0 ..
//   A sample of length n: BOS, n bits X; T and m times an address and a bit V, addresses all different; Q0
//   and an address, Q1 and another; ASK. With p the parity of the bits X, the answer is the bit V at Qp's
//   address. m is `pairs` or half of it, as likely. scratchpad=true: two more tokens. Targets at ASK, Pp and
//   Sq are Pp, S of Qp's address q, and the answer. scratchpad=false: the target at ASK is the answer.
// compact=true: an address with its bit and Q with its address are one token each, so that recall is by
// content: after S0 .. come the pairs (address, bit), then Q0 with each address, then Q1 with each.
// With all three predictions right, greedy decoding writes the scratchpad by itself: "sequences" counts that.
#include "tasks/pcr.h"

#include <fmt/format.h>

#include "tasks/draw.h"
#include "tasks/makers.h"

namespace braid {

PcrInstance draw_pcr(Rng& rng, int64_t bits, size_t pairs, int64_t address_bits) {
  const auto addresses = size_t{1} << address_bits;
  PcrInstance out;
  std::vector<int32_t>& tokens = out.tokens;
  tokens.reserve(static_cast<size_t>(bits) + 2 * pairs + 9);
  tokens.push_back(pcr::kBos);
  int32_t parity = 0;
  for (int64_t i = 0; i < bits; ++i) {
    const auto bit = static_cast<int32_t>(rng.below(2));
    parity ^= bit;
    tokens.push_back(pcr::kX + bit);
  }
  tokens.push_back(pcr::kTable);
  const std::vector<size_t> address = draw_distinct(rng, pairs, addresses);
  std::vector<int32_t> value(pairs);
  for (size_t j = 0; j < pairs; ++j) {
    value[j] = pcr::kValue + static_cast<int32_t>(rng.below(2));
    tokens.push_back(pcr::kAddress + static_cast<int32_t>(address[j]));
    tokens.push_back(value[j]);
  }
  const std::vector<size_t> asked = draw_distinct(rng, 2, pairs);
  for (int32_t q = 0; q < 2; ++q) {
    tokens.push_back(pcr::kAsked + q);
    tokens.push_back(pcr::kAddress + static_cast<int32_t>(address[asked[static_cast<size_t>(q)]]));
  }
  tokens.push_back(pcr::kAsk);
  const size_t chosen = asked[static_cast<size_t>(parity)];
  out.answers = {pcr::kParity + parity, pcr::kAddress + static_cast<int32_t>(addresses + address[chosen]),
                 value[chosen]};
  return out;
}

std::string pcr_token_text(int32_t token, int64_t address_bits) {
  constexpr std::array<const char*, 11> names{"BOS", "0",  "1",   "T",  "V0", "V1",
                                              "Q0",  "Q1", "ASK", "P0", "P1"};
  if (token < pcr::kAddress) return names[static_cast<size_t>(token)];
  const int64_t id = token - pcr::kAddress, addresses = int64_t{1} << address_bits;
  return id < addresses ? fmt::format("A{}", id) : fmt::format("S{}", id - addresses);
}

namespace {

using namespace pcr;

class Pcr final : public Task {
 public:
  std::vector<Setting> settings() override {
    std::vector<Setting> all = lengths_.settings(1);
    all.push_back({"train_pairs", &train_pairs_, 4, 65536, "longest table in training"});
    all.push_back({"test_pairs", &test_pairs_, 4, 65536, "longest table in tests"});
    all.push_back({"address_bits", &address_bits_, 2, 16, "bits of an address: 2^bits addresses"});
    all.push_back({"scratchpad", &scratchpad_, 0, 0, "targets for the parity and the address, too"});
    all.push_back({"compact", &compact_, 0, 0, "one token for an address with its bit or its Q"});
    return all;
  }
  std::vector<Problem> validate() const override {
    std::vector<Problem> problems = lengths_.validate();
    for (const auto& [name, pairs] : {std::pair{"train_pairs", train_pairs_}, {"test_pairs", test_pairs_}}) {
      if (pairs % 2)
        problems.push_back(
            {name, fmt::format("is {}, which has no half", pairs), fmt::format("use {}", pairs + 1)});
      if (pairs > addresses())
        problems.push_back({name,
                            fmt::format("{} pairs need as many addresses; there are {}", pairs, addresses()),
                            "use a larger address_bits"});
    }
    return problems;
  }
  bool grow() override {
    if (!lengths_.grow()) return false;
    train_pairs_ = std::max(train_pairs_, std::min(2 * train_pairs_, test_pairs_));
    return true;
  }
  size_t vocab_size() const override {
    return static_cast<size_t>(pcr_vocabulary(address_bits_) + (compact_ ? 4 * addresses() : 0));
  }
  size_t max_length(Split split) const override { return tokens(lengths_.longest(split), pairs(split)); }
  size_t min_length(Split split) const override { return tokens(lengths_.shortest(split), pairs(split) / 2); }
  double chance() const override {
    return scratchpad_ ? (0.5 + 1.0 / static_cast<double>(addresses()) + 0.5) / 3 : 0.5;
  }

  Sample sample(Rng& rng, Split split) const override {
    const int64_t n = lengths_.draw(rng, split);
    const auto m = static_cast<size_t>(pairs(split)) >> rng.below(2);
    PcrInstance drawn = draw_pcr(rng, n, m, address_bits_);
    Sample s{.tokens = compact_ ? compact(drawn.tokens) : std::move(drawn.tokens), .targets = {}};
    s.targets.assign(s.tokens.size(), kUnsupervised);
    const auto [parity, scratch, value] = drawn.answers;
    if (scratchpad_) {
      s.tokens.insert(s.tokens.end(), {parity, scratch});
      s.targets.back() = parity;
      s.targets.insert(s.targets.end(), {scratch, value});
    } else {
      s.targets.back() = value;
    }
    return s;
  }

  // Who finds both values but not the parity is right in half of the samples where they differ.
  std::string headline() const override { return scratchpad_ ? "sequences" : "accuracy"; }
  std::vector<Metric> metrics() const override {
    std::vector<Metric> all = Task::metrics();
    all.push_back({"answer", 0.5});
    all.push_back({"answer, values differ", 0.5});
    for (size_t i = 0; i <= doubling(static_cast<size_t>(std::max(lengths_.train_max, lengths_.test_max)));
         ++i)
      all.push_back({"sequences, " + doubling_text(i) + " bits"});
    if (scratchpad_) {
      all.push_back({"parity", 0.5});
      all.push_back({"address given parity", 1.0 / static_cast<double>(addresses())});
      all.push_back({"answer given parity", 0.5});
    }
    return all;
  }
  void measure(const Answered& a, std::span<Metric> m) const override {
    Task::measure(a, m);
    m = m.subspan(Task::metrics().size());
    const size_t last = a.tokens.size() - 1, ask = scratchpad_ ? last - 2 : last;
    size_t table = 1;
    while (a.tokens[table] != kTable) ++table;
    const auto value_of = [&](int32_t address) {
      for (size_t t = table + 1;; t += compact_ ? 1 : 2)
        if (compact_ && a.tokens[t] == pair_token(address, 0))
          return kValue + 0;
        else if (compact_ && a.tokens[t] == pair_token(address, 1))
          return kValue + 1;
        else if (!compact_ && a.tokens[t] == address)
          return a.tokens[t + 1];
    };
    const auto address_of = [&](size_t t) {
      return compact_
                 ? kAddress + static_cast<int32_t>((a.tokens[t] - asked_token(0, kAddress)) % addresses())
                 : a.tokens[t];
    };
    m[0].add(a.right(last));
    if (value_of(address_of(ask - (compact_ ? 2 : 3))) != value_of(address_of(ask - 1)))
      m[1].add(a.right(last));
    bool sequence = true;
    for (size_t t = ask; t <= last; ++t) sequence &= a.right(t);
    m[2 + doubling(table - 1)].add(sequence);
    if (!scratchpad_) return;
    m = m.last(3);
    m[0].add(a.right(ask));
    if (a.right(ask)) m[1].add(a.right(ask + 1)), m[2].add(a.right(last));
  }

  std::string token_text(int32_t token) const override {
    const auto name = [&](int64_t address) {
      return pcr_token_text(static_cast<int32_t>(kAddress + address), address_bits_);
    };
    if (token >= asked_token(0, kAddress)) {
      const int64_t id = token - asked_token(0, kAddress);
      return fmt::format("Q{}={}", id / addresses(), name(id % addresses()));
    }
    if (token >= pair_token(kAddress, 0)) {
      const int64_t id = token - pair_token(kAddress, 0);
      return fmt::format("{}=V{}", name(id / 2), id % 2);
    }
    return pcr_token_text(token, address_bits_);
  }

 private:
  int64_t addresses() const { return int64_t{1} << address_bits_; }
  int64_t pairs(Split split) const { return split == Split::kTrain ? train_pairs_ : test_pairs_; }
  size_t tokens(int64_t bits, int64_t pairs) const {
    return static_cast<size_t>(bits + (compact_ ? pairs + 5 : 2 * pairs + 7) + (scratchpad_ ? 2 : 0));
  }
  int32_t pair_token(int32_t address, int32_t bit) const {
    return static_cast<int32_t>(pcr_vocabulary(address_bits_)) + 2 * (address - kAddress) + bit;
  }
  int32_t asked_token(int32_t q, int32_t address) const {
    return static_cast<int32_t>(pcr_vocabulary(address_bits_) + (2 + q) * addresses()) + address - kAddress;
  }
  std::vector<int32_t> compact(const std::vector<int32_t>& from) const {
    std::vector<int32_t> out;
    for (size_t t = 0; t < from.size(); ++t)
      if (from[t] >= kAddress)
        out.push_back(pair_token(from[t], from[t + 1] - kValue)), ++t;
      else if (from[t] >= kAsked && from[t] < kAsk)
        out.push_back(asked_token(from[t] - kAsked, from[t + 1])), ++t;
      else
        out.push_back(from[t]);
    return out;
  }

  Lengths lengths_{.train_min = 1, .train_max = 20, .test_min = 20, .test_max = 200};
  int64_t train_pairs_ = 16, test_pairs_ = 32, address_bits_ = 5;
  bool scratchpad_ = true, compact_ = false;
};

}  // namespace

std::unique_ptr<Task> make_pcr() { return std::make_unique<Pcr>(); }

}  // namespace braid
