#include "theory/collision.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <unordered_map>

#include "base/rng.h"
#include "tasks/pcr.h"

namespace braid {
namespace {

std::string key_of(const NumberRun& run) {
  const std::vector<double> s = run.state();
  std::string key(s.size() * sizeof(double), '\0');
  std::memcpy(key.data(), s.data(), key.size());
  return key;
}

std::vector<int32_t> table_tokens(Table table, size_t pairs) {
  std::vector<int32_t> out;
  for (size_t j = 0; j < pairs; ++j) {
    out.push_back(pcr::kAddress + static_cast<int32_t>(j));
    out.push_back(pcr::kValue + static_cast<int32_t>(table >> j & 1));
  }
  return out;
}

std::unique_ptr<NumberRun> after(const NumberModel& model, std::span<const int32_t> tokens) {
  std::unique_ptr<NumberRun> run = model.start();
  for (const int32_t t : tokens) run->feed(t);
  return run;
}

constexpr int32_t kBefore[] = {pcr::kBos, pcr::kTable};  // no bits: the parity is even, Q0 counts

}  // namespace

CollisionSearch find_collision(const NumberModel& model, int64_t address_bits, size_t pairs, size_t most,
                               uint64_t seed) {
  using How = CollisionSearch::How;
  pairs = std::min({pairs, kMostPairs, size_t{1} << address_bits});
  CollisionSearch out;
  const auto met = [&](How how, Table a, Table b, size_t n) {
    if (out.how != How::kNone) return;
    out.how = how, out.tables = {a, b};
    out.pairs = std::max<size_t>(2, n);  // two addresses are asked; equal states stay equal
  };
  struct Reached {
    Table table;
    std::unique_ptr<NumberRun> run;
  };
  std::vector<Reached> now;
  now.push_back({0, after(model, kBefore)});
  // Pair j with each of the values [first, last].
  const auto read_pair = [&](size_t j, Table first, Table last, How how) {
    std::unordered_map<std::string, Table> seen;
    std::vector<Reached> next;
    for (const Reached& r : now)
      for (Table bit = first; bit <= last; ++bit) {
        std::unique_ptr<NumberRun> run = r.run->copy();
        const Table table = r.table | bit << j;
        run->feed(pcr::kAddress + static_cast<int32_t>(j));
        run->feed(pcr::kValue + static_cast<int32_t>(bit));
        ++out.tried;
        const auto [it, fresh] = seen.emplace(key_of(*run), table);
        if (fresh)
          next.push_back({table, std::move(run)});
        else
          met(how, it->second, table, j + 1);
      }
    now = std::move(next);
  };
  size_t j = 0;
  for (; j < pairs && 2 * now.size() <= most; ++j) {
    read_pair(j, 0, 1, How::kAll);
    out.states.push_back(now.size());
  }
  Rng rng(seed, "collision");
  for (; j < pairs && out.how == How::kNone; ++j) {
    const Table bit = rng.below(2);
    read_pair(j, bit, bit, How::kContinued);
  }
  std::unordered_map<std::string, Table> seen;
  for (size_t i = 0; i < most && out.how == How::kNone; ++i, ++out.tried) {
    const Table table = rng.next64() & (pairs == 64 ? ~Table{0} : (Table{1} << pairs) - 1);
    std::vector<int32_t> tokens(std::begin(kBefore), std::end(kBefore));
    const std::vector<int32_t> rest = table_tokens(table, pairs);
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    const auto [it, fresh] = seen.emplace(key_of(*after(model, tokens)), table);
    if (!fresh && it->second != table) met(How::kRandom, it->second, table, pairs);
  }
  return out;
}

CollisionProof prove_collision(const NumberModel& model, int64_t address_bits, const CollisionSearch& found,
                               bool scratchpad) {
  check(found.how != CollisionSearch::How::kNone, "prove_collision: nothing was found");
  const auto [a, b] = found.tables;
  const auto differ = static_cast<int32_t>(std::countr_zero(a ^ b));
  const int32_t other = differ == 0 ? 1 : 0;
  check(int64_t{1} << address_bits > std::max(differ, other), "prove_collision: an address out of range");
  CollisionProof out{};
  std::vector<double> logits[2];
  for (size_t i = 0; i < 2; ++i) {
    const Table table = i == 0 ? a : b;
    std::vector<int32_t>& tokens = out.input[i];
    tokens.assign(std::begin(kBefore), std::end(kBefore));
    const std::vector<int32_t> pairs = table_tokens(table, found.pairs);
    tokens.insert(tokens.end(), pairs.begin(), pairs.end());
    tokens.insert(tokens.end(),
                  {pcr::kAsked, pcr::kAddress + differ, pcr::kAsked + 1, pcr::kAddress + other, pcr::kAsk});
    const std::unique_ptr<NumberRun> run = after(model, tokens);
    logits[i] = run->logits();
    for (int step = 0; scratchpad && step < 2; ++step) {
      run->feed(best(logits[i]).token);
      logits[i] = run->logits();
    }
    out.said[i] = best(logits[i]).token;
    out.right[i] = pcr::kValue + static_cast<int32_t>(table >> differ & 1);
  }
  out.same_logits = logits[0] == logits[1];
  return out;
}

double state_bits(size_t numbers, int s) {
  return static_cast<double>(numbers) * std::log2(std::ldexp(1.0, 2 * s + 1) - 1);
}

}  // namespace braid
