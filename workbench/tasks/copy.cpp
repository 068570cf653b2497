// Copy - repeat a random string after a separator (Jelassi et al., arXiv:2402.01032).
//   tokens: 0 blank (never occurs), 1 separator, 2 .. symbols
//   A sample of length m:   input   s1 .. sm  |   s1 .. s(m-1)      2 m tokens
//                           target   -  ..  -  s1  s2 .. sm         m supervised positions
// The copy is teacher-forced: each position sees the right symbols before it.
#include <fmt/format.h>

#include "data/batch.h"
#include "tasks/makers.h"

namespace braid {
namespace {

constexpr int32_t kSeparator = 1, kFirstSymbol = 2;

class Copy final : public Task {
 public:
  std::vector<Setting> settings() override {
    std::vector<Setting> all = lengths_.settings(1);
    all.push_back({"symbols", &symbols_, 2, 65536, "number of different symbols"});
    return all;
  }
  std::vector<Problem> validate() const override { return lengths_.validate(); }
  bool grow() override { return lengths_.grow(); }
  size_t vocab_size() const override { return static_cast<size_t>(kFirstSymbol + symbols_); }
  size_t max_length(Split split) const override { return static_cast<size_t>(2 * lengths_.longest(split)); }
  size_t min_length(Split split) const override { return static_cast<size_t>(2 * lengths_.shortest(split)); }
  double chance() const override { return 1.0 / static_cast<double>(symbols_); }

  Sample sample(Rng& rng, Split split) const override {
    const auto m = static_cast<size_t>(lengths_.draw(rng, split));
    std::vector<int32_t> text(m);
    for (int32_t& s : text)
      s = kFirstSymbol + static_cast<int32_t>(rng.below(static_cast<uint64_t>(symbols_)));
    Sample s{.tokens = text, .targets = std::vector<int32_t>(m, kUnsupervised)};
    s.tokens.push_back(kSeparator);
    s.tokens.insert(s.tokens.end(), text.begin(), text.end() - 1);
    s.targets.insert(s.targets.end(), text.begin(), text.end());
    return s;
  }

  std::string token_text(int32_t token) const override {
    if (token < kFirstSymbol) return token == kSeparator ? "|" : "_";
    const int32_t i = token - kFirstSymbol;
    return symbols_ <= 26 ? std::string(1, static_cast<char>('a' + i)) : fmt::format("{}", i);
  }

 private:
  Lengths lengths_{.train_min = 1, .train_max = 20, .test_min = 1, .test_max = 40};
  int64_t symbols_ = 16;
};

}  // namespace

std::unique_ptr<Task> make_copy() { return std::make_unique<Copy>(); }

}  // namespace braid
