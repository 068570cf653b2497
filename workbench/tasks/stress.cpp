// The n >= d stress test - more places than dimensions (DeltaFormer, arXiv:2505.19488, appendix B.1).
//   n objects are written to n places, then pairs of places are swapped. Which object is at place 0?
//   tokens: 0 .. n - 1 "object i to place i", then the swaps of two places, numbered as in pairs.h
//   A sample of length T: the n writes in order, then T - n random swaps. The target at every swap is the
//   object at place 0, named by its write.
// Keys and values are fixed and only the read-out is learned, so the input is vectors: fixed_embedding() has
// rows [key | value | query] of 3 width numbers, [k_i | k_i | k_0] for a write and [k_j - k_i | 0 | k_0] for
// the swap of i < j.
// With u_t = v_t - sum over s < t of kappa(k_s, k_t) u_s and kappa rounding inner products to whole numbers,
// reading with k_0 gives the value of the object at place 0 exactly, as long as the keys' inner products stay
// below 1/8. That values are the keys again is our choice; the paper does not say.
#include <algorithm>

#include <fmt/format.h>

#include "tasks/keys.h"
#include "tasks/makers.h"
#include "tasks/pairs.h"

namespace braid {
namespace {

constexpr int64_t kMostPerDimension = 8;  // with more, keys.h's rounds can end in keys that coincide

class Stress final : public Task {
 public:
  std::vector<Setting> settings() override {
    std::vector<Setting> all = lengths_.settings(3);
    all.push_back({"objects", &objects_, 2, 1024, "objects and places; the paper: 128, 256, 512"});
    all.push_back({"width", &width_, 2, 1024, "dimensions of a key"});
    all.push_back(
        {"key_seed", &key_seed_, 0, 1e15, "random seed of the keys, independent of the samples' seed"});
    return all;
  }
  std::vector<Problem> validate() const override {
    std::vector<Problem> problems;
    if (objects_ > kMostPerDimension * width_)
      problems.push_back({"objects", fmt::format("{} keys do not spread in {} dimensions", objects_, width_),
                          fmt::format("use at most {}", kMostPerDimension * width_)});
    for (const auto& [name, length] :
         {std::pair{"train_length", lengths_.train_length}, {"test_length", lengths_.test_length}})
      if (length <= objects_)
        problems.push_back({name, fmt::format("{} leaves no swap after {} writes", length, objects_),
                            fmt::format("use {}", 2 * objects_)});
    return problems;
  }
  bool grow() override { return lengths_.grow(); }
  size_t vocab_size() const override { return n() + pair_count(n()); }
  size_t answers() const override { return n(); }
  size_t max_length(Split split) const override { return static_cast<size_t>(lengths_.of(split)); }

  // Few swaps touch place 0: with n swaps it still holds object 0 in 0.43 of all steps.
  double chance() const override {
    StaysAfterSwaps stays(n());
    const int64_t swaps = lengths_.test_length - objects_;
    double total = 0;
    for (int64_t t = 0; t < swaps; ++t) {
      const double p = stays.next();
      total += std::max(p, (1 - p) / static_cast<double>(n() - 1));
    }
    return total / static_cast<double>(swaps);
  }

  Sample sample(Rng& rng, Split split) const override {
    const auto length = static_cast<size_t>(lengths_.of(split));
    Sample s;
    s.tokens.reserve(length), s.targets.reserve(length);
    std::vector<int32_t> at(n());
    for (size_t i = 0; i < n(); ++i) {
      at[i] = static_cast<int32_t>(i);
      s.tokens.push_back(at[i]);
      s.targets.push_back(kUnsupervised);
    }
    while (s.tokens.size() < length) {
      const auto [i, j] = draw_pair(rng, n());
      std::swap(at[i], at[j]);
      s.tokens.push_back(static_cast<int32_t>(n() + pair_number(i, j, n())));
      s.targets.push_back(at[0]);
    }
    return s;
  }

  std::optional<Tensor> fixed_embedding() const override {
    const auto width = static_cast<size_t>(width_);
    const Tensor keys = near_orthogonal_keys(n(), width, static_cast<uint64_t>(key_seed_));
    const Mat<const float> k = keys.mat();
    Tensor rows(DType::kF32, {static_cast<int64_t>(vocab_size()), 3 * width_});
    for (size_t i = 0; i < n(); ++i) {
      std::copy_n(k.row(i), width, rows.mat().row(i));
      std::copy_n(k.row(i), width, rows.mat().row(i) + width);
      for (size_t j = i + 1; j < n(); ++j)
        std::transform(k.row(j), k.row(j) + width, k.row(i), rows.mat().row(n() + pair_number(i, j, n())),
                       std::minus<>{});
    }
    for (size_t row = 0; row < vocab_size(); ++row)
      std::copy_n(k.row(0), width, rows.mat().row(row) + 2 * width);
    return rows;
  }

  // "changed": place 0 holds another object than at the start.
  std::vector<Metric> metrics() const override {
    std::vector<Metric> all = Task::metrics();
    all.push_back({"accuracy, changed"});
    for (size_t i = 0; i <= doubling(most_swaps()); ++i)
      all.push_back({"accuracy, swaps " + doubling_text(i)});
    return all;
  }
  void measure(const Answered& a, std::span<Metric> m) const override {
    Task::measure(a, m);
    m = m.last(doubling(most_swaps()) + 2);
    for (size_t t = n(); t < a.tokens.size(); ++t) {
      if (a.targets[t] != 0) m[0].add(a.right(t));
      m[1 + doubling(t - n() + 1)].add(a.right(t));
    }
  }

  std::string token_text(int32_t token) const override {
    const auto id = static_cast<size_t>(token);
    if (id < n()) return fmt::format("{}", id);
    const auto [i, j] = pair_of(id - n(), n());
    return fmt::format("{}-{}", i, j);
  }
  // The writes are always the same: "0 .. 127 | 3-17:0 0-5:5"
  std::string show(const Sample& sample) const override {
    const auto swaps = static_cast<std::ptrdiff_t>(n());
    return fmt::format("0 .. {} | ", n() - 1) +
           show_in_place({.tokens = {sample.tokens.begin() + swaps, sample.tokens.end()},
                          .targets = {sample.targets.begin() + swaps, sample.targets.end()}});
  }

 private:
  size_t n() const { return static_cast<size_t>(objects_); }
  size_t most_swaps() const { return static_cast<size_t>(lengths_.longest() - objects_); }

  FixedLengths lengths_{.train_length = 256, .test_length = 256};
  int64_t objects_ = 128, width_ = 128, key_seed_ = 0;
};

}  // namespace

std::unique_ptr<Task> make_stress() { return std::make_unique<Stress>(); }

}  // namespace braid
