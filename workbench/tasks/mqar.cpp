// Multi-query associative recall - repeat the value that came with a key (Zoology, Arora et al.,
// arXiv:2312.04927, and its published generator).
//   tokens: 0 blank, 1 .. V/2 - 1 keys, V/2 .. V - 1 values
//   A sample of length N with D pairs: k1 v1 .. kD vD, all different; then N - 2 D places, where key i stands
//   again at place 2 g_i. The g_i are different numbers below (N - 2 D) / 2, drawn one after another with
//   weights (g + 1)^(power - 1). The target at a repeated key is its value, which is not part of the input.
//   The other places are blank, or hold any tokens if noise is set.
// mix=true draws (N, D) instead: in training (64,4) in 5 of 9 samples, else one of (128,8), (256,16),
// (256,32), (256,64); in tests one of seven from (64,4) to (1024,256). This is the later sweep of the same
// repository.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "tasks/draw.h"
#include "tasks/makers.h"

namespace braid {
namespace {

struct Size {
  int64_t length, pairs;
};
constexpr std::array<Size, 9> kMixTrain{
    {{64, 4}, {64, 4}, {64, 4}, {64, 4}, {64, 4}, {128, 8}, {256, 16}, {256, 32}, {256, 64}}};
constexpr std::array<Size, 7> kMixTest{
    {{64, 4}, {64, 8}, {64, 16}, {128, 32}, {256, 64}, {512, 128}, {1024, 256}}};

class Mqar final : public Task {
 public:
  std::vector<Setting> settings() override {
    std::vector<Setting> all = lengths_.settings(4);
    all.push_back({"train_pairs", &train_pairs_, 1, 16384, "pairs in a training sample"});
    all.push_back({"test_pairs", &test_pairs_, 1, 16384, "pairs in a test sample"});
    all.push_back({"vocabulary", &vocabulary_, 4, 1 << 20, "tokens: the blank, keys and values"});
    all.push_back(
        {"power", &power_, 1e-6, 1, "weights of the gaps: 1 is uniform, near 0 prefers early queries"});
    all.push_back({"noise", &noise_, 0, 0, "random tokens instead of blanks"});
    all.push_back({"mix", &mix_, 0, 0, "a mix of lengths and pairs instead of one length"});
    return all;
  }
  std::vector<Problem> validate() const override {
    std::vector<Problem> problems;
    if (vocabulary_ % 2)
      problems.push_back({"vocabulary", fmt::format("is {}, which has no half", vocabulary_),
                          fmt::format("use {}", vocabulary_ + 1)});
    const auto fits = [&](const std::string& split, Size s) {
      if (s.length % 2)
        problems.push_back({split + "_length", fmt::format("is {}, which has no half", s.length),
                            fmt::format("use {}", s.length + 1)});
      if (s.length < 4 * s.pairs)
        problems.push_back({split + "_pairs",
                            fmt::format("{} pairs need a length of {}", s.pairs, 4 * s.pairs),
                            fmt::format("use at most {}", s.length / 4)});
      if (s.pairs > vocabulary_ / 2 - 1)
        problems.push_back(
            {"vocabulary",
             fmt::format("has {} keys, fewer than {} pairs in {}", vocabulary_ / 2 - 1, s.pairs, split),
             fmt::format("use {}", 2 * s.pairs + 2)});
    };
    fits("train", mix_ ? kMixTrain.back() : Size{lengths_.train_length, train_pairs_});
    fits("test", mix_ ? kMixTest.back() : Size{lengths_.test_length, test_pairs_});
    return problems;
  }
  void prepare() override {
    wait_.clear();
    for (size_t g = 0; g < longest() / 2; ++g)
      wait_.push_back(std::pow(static_cast<double>(g + 1), 1 - power_));
  }
  bool grow() override {  // both, so that a sample keeps its share of queries
    if (mix_ || !lengths_.grow()) return false;
    train_pairs_ = std::max(train_pairs_, std::min(2 * train_pairs_, test_pairs_));
    return true;
  }

  size_t vocab_size() const override { return static_cast<size_t>(vocabulary_); }
  size_t max_length(Split split) const override {
    if (!mix_) return static_cast<size_t>(lengths_.of(split));
    return static_cast<size_t>((split == Split::kTrain ? kMixTrain.back() : kMixTest.back()).length);
  }
  size_t min_length(Split split) const override { return mix_ ? 64 : max_length(split); }
  double chance() const override { return 2.0 / static_cast<double>(vocabulary_); }

  Sample sample(Rng& rng, Split split) const override {
    const Size size = draw_size(rng, split);
    const auto length = static_cast<size_t>(size.length), pairs = static_cast<size_t>(size.pairs);
    const auto half = static_cast<size_t>(vocabulary_ / 2);
    Sample s{.tokens = std::vector<int32_t>(length, 0),
             .targets = std::vector<int32_t>(length, kUnsupervised)};
    if (noise_)
      for (size_t t = 2 * pairs; t < length; ++t) s.tokens[t] = static_cast<int32_t>(rng.below(2 * half));
    const std::vector<size_t> keys = draw_distinct(rng, pairs, half - 1),
                              values = draw_distinct(rng, pairs, half),
                              gaps = draw_gaps(rng, pairs, (length - 2 * pairs) / 2);
    for (size_t i = 0; i < pairs; ++i) {
      const size_t query = 2 * pairs + 2 * gaps[i];
      s.tokens[2 * i] = s.tokens[query] = static_cast<int32_t>(1 + keys[i]);
      s.tokens[2 * i + 1] = s.targets[query] = static_cast<int32_t>(half + values[i]);
    }
    return s;
  }

  std::vector<Metric> metrics() const override {
    std::vector<Metric> all = Task::metrics();
    if (mix_)
      for (const Size& s : kMixTest)
        all.push_back({fmt::format("accuracy, length {} pairs {}", s.length, s.pairs), chance()});
    return all;
  }
  void measure(const Answered& a, std::span<Metric> m) const override {
    Task::measure(a, m);
    if (!mix_) return;
    const Score s = score(a);
    m = m.last(kMixTest.size());
    for (size_t i = 0; i < kMixTest.size(); ++i)
      if (a.tokens.size() == static_cast<size_t>(kMixTest[i].length) &&
          s.positions == static_cast<size_t>(kMixTest[i].pairs))
        m[i].right += s.right_positions, m[i].total += s.positions;
  }

  std::string token_text(int32_t token) const override {
    if (token == 0) return "_";
    const auto half = static_cast<int32_t>(vocabulary_ / 2);
    return token < half ? fmt::format("k{}", token) : fmt::format("v{}", token - half);
  }
  std::string show(const Sample& sample) const override { return show_in_place(sample); }

 private:
  Size draw_size(Rng& rng, Split split) const {
    if (!mix_) return {lengths_.of(split), split == Split::kTrain ? train_pairs_ : test_pairs_};
    return split == Split::kTrain ? kMixTrain[rng.below(kMixTrain.size())]
                                  : kMixTest[rng.below(kMixTest.size())];
  }
  size_t longest() const { return std::max(max_length(Split::kTrain), max_length(Split::kTest)); }

  // Drawing one after another by weight is the order in which clocks ring whose rates are the weights.
  std::vector<size_t> draw_gaps(Rng& rng, size_t count, size_t n) const {
    std::vector<std::pair<double, size_t>> rings(n);
    for (size_t g = 0; g < n; ++g) rings[g] = {-std::log((rng.next() + 0.5) * 0x1p-32) * wait_[g], g};
    std::partial_sort(rings.begin(), rings.begin() + static_cast<std::ptrdiff_t>(count), rings.end());
    std::vector<size_t> gaps(count);
    for (size_t i = 0; i < count; ++i) gaps[i] = rings[i].second;
    return gaps;
  }

  FixedLengths lengths_{.train_length = 64, .test_length = 64};
  int64_t train_pairs_ = 4, test_pairs_ = 4, vocabulary_ = 8192;
  double power_ = 0.01;
  bool noise_ = false, mix_ = false;
  std::vector<double> wait_;  // mean time until a gap's clock rings, one over its weight
};

}  // namespace

std::unique_ptr<Task> make_mqar() { return std::make_unique<Mqar>(); }

}  // namespace braid
