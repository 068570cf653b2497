// Swap tracking - which object is at place 0? (DeltaFormer, Zhong et al., arXiv:2505.19488.)
//   tokens: 0 .. n (n - 1) / 2 - 1 the swaps of two places, numbered as in pairs.h, then the n objects
//   Object p begins at place p. Every token swaps what is at two places; its target is the object at place 0.
// The paper's curriculum begins with 32 swaps and doubles up to 256: train_length=32 test_length=256.
#include <fmt/format.h>

#include "tasks/makers.h"
#include "tasks/pairs.h"

namespace braid {
namespace {

class SwapTracking final : public Task {
 public:
  std::vector<Setting> settings() override {
    std::vector<Setting> all = lengths_.settings(1);
    all.push_back({"objects", &objects_, 2, 256, "objects and places"});
    return all;
  }
  std::vector<Problem> validate() const override { return {}; }
  bool grow() override { return lengths_.grow(); }
  size_t vocab_size() const override { return pair_count(n()) + n(); }
  size_t max_length(Split split) const override { return static_cast<size_t>(lengths_.of(split)); }

  double chance() const override {
    // Two objects come back with every second swap; more of them are at home most often.
    StaysAfterSwaps stays(n());
    double total = 0;
    for (int64_t t = 0; t < lengths_.test_length; ++t) {
      const double p = stays.next();
      total += std::max(p, (1 - p) / static_cast<double>(n() - 1));
    }
    return total / static_cast<double>(lengths_.test_length);
  }

  Sample sample(Rng& rng, Split split) const override {
    Sample s;
    std::vector<int32_t> at(n());
    for (size_t i = 0; i < n(); ++i) at[i] = static_cast<int32_t>(pair_count(n()) + i);
    for (int64_t t = 0; t < lengths_.of(split); ++t) {
      const auto [i, j] = draw_pair(rng, n());
      std::swap(at[i], at[j]);
      s.tokens.push_back(static_cast<int32_t>(pair_number(i, j, n())));
      s.targets.push_back(at[0]);
    }
    return s;
  }

  std::vector<Metric> metrics() const override {
    std::vector<Metric> all = Task::metrics();
    for (size_t i = 0; i <= doubling(static_cast<size_t>(lengths_.longest())); ++i)
      all.push_back({"accuracy, swaps " + doubling_text(i)});
    return all;
  }
  void measure(const Answered& a, std::span<Metric> m) const override {
    Task::measure(a, m);
    m = m.last(doubling(static_cast<size_t>(lengths_.longest())) + 1);
    for (size_t t = 0; t < a.tokens.size(); ++t) m[doubling(t + 1)].add(a.right(t));
  }

  std::string token_text(int32_t token) const override {
    const auto id = static_cast<size_t>(token);
    if (id >= pair_count(n())) return fmt::format("{}", id - pair_count(n()));
    const auto [i, j] = pair_of(id, n());
    return fmt::format("{}-{}", i, j);
  }
  std::string show(const Sample& sample) const override { return show_in_place(sample); }

 private:
  size_t n() const { return static_cast<size_t>(objects_); }

  FixedLengths lengths_{.train_length = 16, .test_length = 16};
  int64_t objects_ = 5;
};

}  // namespace

std::unique_ptr<Task> make_swap_tracking() { return std::make_unique<SwapTracking>(); }

}  // namespace braid
