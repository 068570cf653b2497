// Selective copying - repeat the symbols that are scattered in noise (Mamba, Gu and Dao, arXiv:2312.00752,
// appendix E.1).
//   tokens: 0 noise, 1 .. V - 2 symbols, V - 1 the slot of an answer
//   A sample of length L: L tokens, of which `symbols` at random places are symbols and the others noise;
//   then as many slots. The target at slot i is symbol i: not teacher-forced.
// The paper says "16 tokens, including the noise"; that the slot is one of them is our reading.
#include <algorithm>

#include <fmt/format.h>

#include "tasks/draw.h"
#include "tasks/makers.h"

namespace braid {
namespace {

class SelectiveCopy final : public Task {
 public:
  std::vector<Setting> settings() override {
    std::vector<Setting> all = lengths_.settings(1);
    all.push_back({"symbols", &symbols_, 1, 4096, "symbols to be copied"});
    all.push_back({"vocabulary", &vocabulary_, 4, 65536, "tokens: noise, symbols and the slot"});
    return all;
  }
  std::vector<Problem> validate() const override {
    std::vector<Problem> problems;
    for (const auto& [name, length] :
         {std::pair{"train_length", lengths_.train_length}, {"test_length", lengths_.test_length}})
      if (length < symbols_)
        problems.push_back({name, fmt::format("{} has no room for {} symbols", length, symbols_),
                            fmt::format("use {} or more", symbols_)});
    return problems;
  }
  bool grow() override { return lengths_.grow(); }
  size_t vocab_size() const override { return static_cast<size_t>(vocabulary_); }
  size_t max_length(Split split) const override { return static_cast<size_t>(lengths_.of(split) + symbols_); }
  double chance() const override { return 1.0 / static_cast<double>(vocabulary_ - 2); }

  Sample sample(Rng& rng, Split split) const override {
    const auto length = static_cast<size_t>(lengths_.of(split)), n = static_cast<size_t>(symbols_);
    std::vector<size_t> places = draw_distinct(rng, n, length);
    std::ranges::sort(places);
    Sample s{.tokens = std::vector<int32_t>(length, 0),
             .targets = std::vector<int32_t>(length, kUnsupervised)};
    s.tokens.resize(length + n, static_cast<int32_t>(vocabulary_ - 1));
    for (const size_t place : places) {
      s.tokens[place] = 1 + static_cast<int32_t>(rng.below(static_cast<uint64_t>(vocabulary_ - 2)));
      s.targets.push_back(s.tokens[place]);
    }
    return s;
  }

  std::string token_text(int32_t token) const override {
    if (token == 0) return ".";
    if (token == vocabulary_ - 1) return "?";
    return vocabulary_ <= 28 ? std::string(1, static_cast<char>('a' + token - 1)) : fmt::format("{}", token);
  }
  // Runs of noise as their length: "(210) c (35) a (1) a -> c a a"
  std::string show(const Sample& sample) const override {
    std::string text;
    size_t noise = 0;
    for (size_t t = 0; t < sample.tokens.size(); ++t) {
      if (sample.tokens[t] == 0) {
        ++noise;
        continue;
      }
      if (noise) text += fmt::format("({}) ", noise);
      noise = 0;
      if (sample.targets[t] == kUnsupervised) text += token_text(sample.tokens[t]) + " ";
    }
    text += "->";
    for (const int32_t target : sample.targets)
      if (target != kUnsupervised) text += " " + token_text(target);
    return text;
  }

 private:
  FixedLengths lengths_{.train_length = 4096, .test_length = 4096};
  int64_t symbols_ = 16, vocabulary_ = 16;
};

}  // namespace

std::unique_ptr<Task> make_selective_copy() { return std::make_unique<SelectiveCopy>(); }

}  // namespace braid
