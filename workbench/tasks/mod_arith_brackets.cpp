// Modular arithmetic with brackets - the value mod 5 of a bracketed expression (Grazzi et al.,
// arXiv:2411.12537; the grammar is that of Deletang et al., arXiv:2207.02098).
//   tokens: 0 .. 4 digits, 5 +, 6 -, 7 *, 8 (, 9 ), 10 =, 11 blank (never occurs)
//   An expression of 1 token is d, of 2 is -d, of 3 is (d), of 4 is (-d), of more is (left op right), where
//   the length of left is uniform among the possible ones and op among + - *. A sample of length z holds an
//   expression of z - 2 tokens and '=', the only supervised position.
#include <algorithm>
#include <array>

#include "data/batch.h"
#include "tasks/makers.h"

namespace braid {
namespace {

constexpr int32_t kModulus = 5, kPlus = 5, kMinus = 6, kTimes = 7, kOpen = 8, kClose = 9, kEquals = 10;
constexpr int64_t kAround = 3;          // "(", op and ")" around left and right
constexpr int64_t kLongestHere = 4096;  // chance() takes time with its square

int32_t negative(int32_t v) { return (kModulus - v) % kModulus; }

class ModArithBrackets final : public Task {
 public:
  std::vector<Setting> settings() override { return lengths_.settings(3, kLongestHere); }
  std::vector<Problem> validate() const override { return lengths_.validate(); }
  bool grow() override { return lengths_.grow(); }
  size_t vocab_size() const override { return 12; }
  size_t max_length(Split split) const override { return static_cast<size_t>(lengths_.longest(split) - 1); }
  size_t min_length(Split split) const override { return static_cast<size_t>(lengths_.shortest(split) - 1); }

  // The outermost operator is * in a third of all samples, and a product is 0 if any factor is: 0 is the best
  // guess, right in 0.305 of the test samples. The paper normalises with 0.2.
  double chance() const override {
    using Values = std::array<double, kModulus>;
    std::vector<Values> p(static_cast<size_t>(lengths_.test_max) -
                          1);  // p[n]: values of expressions of n tokens
    double total = 0;
    for (size_t n = 1; n < p.size(); ++n) {
      p[n].fill(n < 5 ? 1.0 / kModulus : 0);
      for (size_t left = 1; left + kAround < n; ++left)
        for (size_t a = 0; a < kModulus; ++a)
          for (size_t b = 0; b < kModulus; ++b) {
            const double each =
                p[left][a] * p[n - kAround - left][b] / (3 * static_cast<double>(n - 1 - kAround));
            p[n][(a + b) % kModulus] += each;
            p[n][(a + kModulus - b) % kModulus] += each;
            p[n][a * b % kModulus] += each;
          }
      if (n + 2 >= static_cast<size_t>(lengths_.test_min)) total += *std::ranges::max_element(p[n]);
    }
    return total / static_cast<double>(lengths_.test_max - lengths_.test_min + 1);
  }

  Sample sample(Rng& rng, Split split) const override {
    const int64_t z = lengths_.draw(rng, split);
    Sample s;
    s.tokens.reserve(static_cast<size_t>(z - 1));
    const int32_t value = expression(rng, z - 2, s.tokens);
    s.tokens.push_back(kEquals);
    s.targets.assign(s.tokens.size(), kUnsupervised);
    s.targets.back() = value;
    return s;
  }

  std::vector<Metric> metrics() const override {
    std::vector<Metric> all = Task::metrics();
    for (Metric& m : all)
      if (m.chance > 0) m.chance = 1.0 / kModulus;  // as the paper normalises
    return all;
  }

  std::string token_text(int32_t token) const override { return std::string(1, "01234+-*()=_"[token]); }

 private:
  static int32_t expression(Rng& rng, int64_t length, std::vector<int32_t>& out) {
    if (length < 5) {
      const bool brackets = length > 2, minus = length % 2 == 0;
      const auto digit = static_cast<int32_t>(rng.below(kModulus));
      if (brackets) out.push_back(kOpen);
      if (minus) out.push_back(kMinus);
      out.push_back(digit);
      if (brackets) out.push_back(kClose);
      return minus ? negative(digit) : digit;
    }
    const int64_t left = rng.between(1, length - kAround - 1);
    const auto op = kPlus + static_cast<int32_t>(rng.below(3));
    out.push_back(kOpen);
    const int32_t a = expression(rng, left, out);
    out.push_back(op);
    const int32_t b = expression(rng, length - kAround - left, out);
    out.push_back(kClose);
    return op == kTimes ? a * b % kModulus : (a + (op == kMinus ? negative(b) : b)) % kModulus;
  }

  Lengths lengths_{.train_min = 3, .train_max = 40, .test_min = 40, .test_max = 256};
};

}  // namespace

std::unique_ptr<Task> make_mod_arith_brackets() { return std::make_unique<ModArithBrackets>(); }

}  // namespace braid
