// Induction heads - what followed the special token last time? (Mamba, Gu and Dao, arXiv:2312.00752.)
//   tokens: 0 special, 1 .. V - 1 others
//   A sample of length L: random others, but the special token once at a random place and again at the end.
//   The end is the only supervised position; its target is what followed the special token the first time.
// Training has one length; tests draw a power of two from test_min to test_max. The paper goes up to 2^20,
// but a set of 1024 samples would then be 2 GB: set test_max=1048576 and few samples.
#include <bit>

#include <fmt/format.h>

#include "tasks/makers.h"

namespace braid {
namespace {

class Induction final : public Task {
 public:
  std::vector<Setting> settings() override {
    const double least = 4, most = 1 << 20;
    return {{"train_length", &train_length_, least, most, "training length"},
            {"test_min", &test_min_, least, most, "shortest test length, a power of two"},
            {"test_max", &test_max_, least, most, "longest test length, a power of two"},
            {"vocabulary", &vocabulary_, 3, 65536, "tokens: the special token and the others"}};
  }
  std::vector<Problem> validate() const override {
    std::vector<Problem> problems;
    for (const auto& [name, length] : {std::pair{"test_min", test_min_}, {"test_max", test_max_}})
      if (!std::has_single_bit(static_cast<uint64_t>(length)))
        problems.push_back({name, fmt::format("{} is no power of two", length),
                            fmt::format("use {}", std::bit_ceil(static_cast<uint64_t>(length)))});
    if (test_min_ > test_max_)
      problems.push_back({"test_min", fmt::format("{} is more than test_max {}", test_min_, test_max_),
                          fmt::format("set test_max={}", test_min_)});
    return problems;
  }
  bool grow() override {
    if (train_length_ >= test_max_) return false;
    train_length_ = std::min(2 * train_length_, test_max_);
    return true;
  }
  size_t vocab_size() const override { return static_cast<size_t>(vocabulary_); }
  size_t max_length(Split split) const override {
    return static_cast<size_t>(split == Split::kTrain ? train_length_ : test_max_);
  }
  size_t min_length(Split split) const override {
    return static_cast<size_t>(split == Split::kTrain ? train_length_ : test_min_);
  }
  double chance() const override { return 1.0 / static_cast<double>(vocabulary_ - 1); }

  Sample sample(Rng& rng, Split split) const override {
    const auto longer =
        static_cast<uint64_t>(std::bit_width(max_length(split)) - std::bit_width(min_length(split)));
    const size_t length = min_length(split) << rng.below(longer + 1);
    Sample s{.tokens = std::vector<int32_t>(length), .targets = std::vector<int32_t>(length, kUnsupervised)};
    const size_t first = rng.below(length - 2);
    for (int32_t& token : s.tokens) token = 1 + static_cast<int32_t>(rng.below(vocab_size() - 1));
    s.tokens[first] = s.tokens.back() = 0;
    s.targets.back() = s.tokens[first + 1];
    return s;
  }

  std::string token_text(int32_t token) const override {
    if (token == 0) return "*";
    return vocabulary_ <= 27 ? std::string(1, static_cast<char>('a' + token - 1)) : fmt::format("{}", token);
  }

 private:
  int64_t train_length_ = 256, test_min_ = 64, test_max_ = 1024, vocabulary_ = 16;
};

}  // namespace

std::unique_ptr<Task> make_induction() { return std::make_unique<Induction>(); }

}  // namespace braid
