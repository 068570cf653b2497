// Parity - is the number of ones odd? Grazzi et al., arXiv:2411.12537, and its published generator.
//   tokens: 0 blank, 1 the bit 0, 2 the bit 1
//   A sample of length z holds z - 1 random bits; the answer, 1 + (ones mod 2), would be token z. It is not
//   part of the input: the last bit is the only supervised position.
// The original pads all samples to 256 tokens, which changes neither loss nor gradients of a causal model,
// and repeats its training stream after 5,120,000 samples; ours goes on.
#include "data/batch.h"
#include "tasks/makers.h"

namespace braid {
namespace {

class Parity final : public Task {
 public:
  std::vector<Setting> settings() override { return lengths_.settings(2); }
  std::vector<Problem> validate() const override { return lengths_.validate(); }
  bool grow() override { return lengths_.grow(); }
  size_t vocab_size() const override { return 3; }
  size_t max_length(Split split) const override { return static_cast<size_t>(lengths_.longest(split) - 1); }
  size_t min_length(Split split) const override { return static_cast<size_t>(lengths_.shortest(split) - 1); }
  double chance() const override { return 0.5; }

  Sample sample(Rng& rng, Split split) const override {
    Sample s;
    int32_t ones = 0;
    for (int64_t bits = lengths_.draw(rng, split) - 1; bits > 0; --bits) {
      const auto bit = static_cast<int32_t>(rng.below(2));
      ones += bit;
      s.tokens.push_back(1 + bit);
    }
    s.targets.assign(s.tokens.size(), kUnsupervised);
    s.targets.back() = 1 + ones % 2;
    return s;
  }

  std::string token_text(int32_t token) const override { return token == 0 ? "_" : token == 1 ? "0" : "1"; }

 private:
  Lengths lengths_{.train_min = 3, .train_max = 40, .test_min = 40, .test_max = 256};
};

}  // namespace

std::unique_ptr<Task> make_parity() { return std::make_unique<Parity>(); }

}  // namespace braid
