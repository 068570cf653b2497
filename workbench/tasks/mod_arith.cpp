// Modular arithmetic without brackets - the value mod 5 of d op d op ... d =, with + - * and the usual
// precedence. Grazzi et al., arXiv:2411.12537, and its published generator.
//   tokens: 0 blank (never occurs), 1 +, 2 -, 3 *, 4 =, 5 .. 9 the digits 0 .. 4
//   A sample of length z = 2 j - 1, with j uniform on (min + 1) / 2 .. (max + 1) / 2 rounded down, holds j -
//   1 digits, the operators between them and '='. The answer would be token z; '=' is the only supervised
//   position.
#include <algorithm>
#include <array>

#include "data/batch.h"
#include "tasks/makers.h"

namespace braid {
namespace {

constexpr int32_t kPlus = 1, kMinus = 2, kTimes = 3, kEquals = 4, kDigit = 5, kModulus = 5;

class ModArith final : public Task {
 public:
  std::vector<Setting> settings() override { return lengths_.settings(3); }
  std::vector<Problem> validate() const override { return lengths_.validate(); }
  bool grow() override { return lengths_.grow(); }
  size_t vocab_size() const override { return kDigit + kModulus; }
  size_t max_length(Split split) const override { return 2 * most_digits(split); }
  size_t min_length(Split split) const override { return 2 * fewest_digits(split); }

  // Zero is a little more likely than other values, since it survives products: 0.2 to four digits at the
  // paper's test lengths. Follows the distribution of (sum of finished terms, value of the last term).
  double chance() const override {
    std::array<std::array<double, kModulus>, kModulus> p{};
    for (double& x : p[0]) x = 1.0 / kModulus;
    double total = 0;
    for (size_t digits = 1; digits <= most_digits(Split::kTest); ++digits) {
      if (digits > 1) {
        decltype(p) next{};
        for (size_t sum = 0; sum < kModulus; ++sum)
          for (size_t term = 0; term < kModulus; ++term)
            for (size_t d = 0; d < kModulus; ++d) {
              const double third = p[sum][term] / (3 * kModulus);
              next[(sum + term) % kModulus][d] += 2 * third;  // + and -: any digit is as likely negated
              next[sum][term * d % kModulus] += third;
            }
        p = next;
      }
      if (digits < fewest_digits(Split::kTest)) continue;
      std::array<double, kModulus> value{};
      for (size_t sum = 0; sum < kModulus; ++sum)
        for (size_t term = 0; term < kModulus; ++term) value[(sum + term) % kModulus] += p[sum][term];
      total += *std::ranges::max_element(value);
    }
    return total / static_cast<double>(most_digits(Split::kTest) - fewest_digits(Split::kTest) + 1);
  }

  Sample sample(Rng& rng, Split split) const override {
    const int64_t digits =
        rng.between(static_cast<int64_t>(fewest_digits(split)), static_cast<int64_t>(most_digits(split)));
    Sample s;
    s.tokens.reserve(static_cast<size_t>(2 * digits));
    int32_t sum = 0, term = 0;
    for (int64_t i = 0; i < digits; ++i) {
      const auto op = i ? kPlus + static_cast<int32_t>(rng.below(3)) : kPlus;
      const auto digit = static_cast<int32_t>(rng.below(kModulus));
      if (i) s.tokens.push_back(op);
      s.tokens.push_back(kDigit + digit);
      if (op == kTimes) {
        term = term * digit % kModulus;
      } else {
        sum = (sum + term) % kModulus;
        term = op == kMinus ? (kModulus - digit) % kModulus : digit;
      }
    }
    s.tokens.push_back(kEquals);
    s.targets.assign(s.tokens.size(), kUnsupervised);
    s.targets.back() = kDigit + (sum + term) % kModulus;
    return s;
  }

  std::vector<Metric> metrics() const override {
    std::vector<Metric> all = Task::metrics();
    for (Metric& m : all)
      if (m.chance > 0) m.chance = 1.0 / kModulus;  // as the paper normalises
    return all;
  }

  std::string token_text(int32_t token) const override { return std::string(1, "_+-*=01234"[token]); }

 private:
  size_t fewest_digits(Split split) const {
    return static_cast<size_t>((lengths_.shortest(split) + 1) / 2 - 1);
  }
  size_t most_digits(Split split) const { return static_cast<size_t>((lengths_.longest(split) + 1) / 2 - 1); }

  Lengths lengths_{.train_min = 3, .train_max = 40, .test_min = 40, .test_max = 256};
};

}  // namespace

std::unique_ptr<Task> make_mod_arith() { return std::make_unique<ModArith>(); }

}  // namespace braid
