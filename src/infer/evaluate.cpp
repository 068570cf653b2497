#include "infer/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace braid {
namespace {

constexpr size_t kRows = 128;  // logits at a time: 80 MB for a vocabulary of 150 000

// Mean and standard error of a stream of numbers.
class Mean {
 public:
  void add(double x) {
    ++n_;
    const double off = x - mean_;
    mean_ += off / static_cast<double>(n_);
    squares_ += off * (x - mean_);
  }
  size_t count() const { return n_; }
  double mean() const { return mean_; }
  double error() const {
    return n_ > 1 ? std::sqrt(squares_ / static_cast<double>(n_ - 1) / static_cast<double>(n_)) : 0;
  }

 private:
  size_t n_ = 0;
  double mean_ = 0, squares_ = 0;
};

// A row of logits as a distribution.
struct Row {
  std::span<const float> logits;
  double log_sum = 0;
  size_t top = 0;
  explicit Row(std::span<const float> x) : logits(x) {
    top = static_cast<size_t>(std::ranges::max_element(x) - x.begin());
    double sum = 0;
    for (const float v : x) sum += std::exp(static_cast<double>(v) - x[top]);
    log_sum = x[top] + std::log(sum);
  }
  double log_p(size_t i) const { return logits[i] - log_sum; }
};

struct Scores {
  Mean base, other, kl;
  std::vector<double> kls;
  size_t same = 0;
  double dp_squares = 0;

  // Null, or whose logits give no probability: NaN does not compare.
  const char* add(std::span<const float> base_logits,
                  const std::optional<std::span<const float>>& other_logits, int32_t next) {
    const Row b(base_logits);
    const double log_p = b.log_p(static_cast<size_t>(next));
    if (!std::isfinite(log_p)) return "model";
    base.add(-log_p);
    if (!other_logits) return nullptr;
    const Row o(*other_logits);
    const double other_log_p = o.log_p(static_cast<size_t>(next));
    if (!std::isfinite(other_log_p)) return "compare";
    other.add(-other_log_p);
    double divergence = 0;
    for (size_t i = 0; i < b.logits.size(); ++i) {
      const double lp = b.log_p(i), p = std::exp(lp);
      if (p > 0) divergence += p * (lp - o.log_p(i));
    }
    kl.add(divergence), kls.push_back(divergence);
    same += b.top == o.top;
    const double dp =
        std::exp(o.log_p(static_cast<size_t>(next))) - std::exp(b.log_p(static_cast<size_t>(next)));
    dp_squares += dp * dp;
    return nullptr;
  }

  Comparison result() {
    const auto evaluation = [](const Mean& m) { return TextScore{m.count(), m.mean(), m.error()}; };
    Comparison c{
        .base = evaluation(base), .other = evaluation(other), .kl = kl.mean(), .kl_error = kl.error()};
    if (kls.empty()) return c;
    std::ranges::sort(kls);
    const auto at = [&](double share) {
      return kls[static_cast<size_t>(share * static_cast<double>(kls.size() - 1))];
    };
    c.kl_median = at(0.5), c.kl_99 = at(0.99), c.kl_worst = kls.back();
    c.same_top = static_cast<double>(same) / static_cast<double>(kls.size());
    c.rms_dp = std::sqrt(dp_squares / static_cast<double>(kls.size()));
    return c;
  }
};

}  // namespace

double TextScore::perplexity() const { return std::exp(nll); }
double TextScore::perplexity_error() const { return perplexity() * nll_error; }

size_t scored_tokens(size_t tokens, const EvaluateOptions& o) {
  if (o.plain) return o.chunks ? std::min(tokens, o.chunks * o.context) : tokens;
  const size_t chunks = o.context ? tokens / o.context : 0;
  return (o.chunks ? std::min(chunks, o.chunks) : chunks) * o.context;
}

Result<Comparison> evaluate(Session& base, Session* other, std::span<const int32_t> tokens,
                            const EvaluateOptions& o,
                            const std::function<bool(size_t done, size_t total)>& tick) {
  check(!other || &base.context() != &other->context(), "evaluate: both models in one context");
  const size_t given = tokens.size();
  tokens = tokens.first(scored_tokens(given, o));
  const size_t context = o.plain ? tokens.size() : o.context, chunks = context ? tokens.size() / context : 0;
  if (context < 2 || chunks == 0 || tokens.size() < 2)
    return Error{fmt::format("--context: is {}, but the text has {} tokens", o.context, given),
                 "give a longer text or a shorter --context"};
  const size_t length = o.plain ? tokens.size() : context, first = o.plain ? 0 : context / 2;
  Scores scores;
  for (size_t c = 0; c < chunks; ++c) {
    std::vector<int32_t> chunk(tokens.begin() + static_cast<ptrdiff_t>(c * length),
                               tokens.begin() + static_cast<ptrdiff_t>((c + 1) * length));
    if (o.bos && !o.plain) chunk[0] = *o.bos;
    base.restart();
    if (other) other->restart();
    // What only has to be read, then pieces whose rows are scored: row i predicts token i + 1.
    if (first > 0) {
      base.feed(std::span(chunk).first(first));
      if (other) other->feed(std::span(chunk).first(first));
    }
    for (size_t at = first; at + 1 < length; at += kRows) {
      const size_t n = std::min(kRows, length - 1 - at);
      const std::span<const int32_t> piece = std::span(chunk).subspan(at, n);
      const Mat<const float> rows = base.feed_all(piece);
      const Mat<const float> others = other ? other->feed_all(piece) : Mat<const float>{};
      for (size_t i = 0; i < n; ++i) {
        std::optional<std::span<const float>> there;
        if (other) there = std::span(others.row(i), others.cols);
        if (const char* whose = scores.add({rows.row(i), rows.cols}, there, chunk[at + i + 1]))
          return Error{fmt::format("--{}: logits behind token {} are not finite", whose, c * length + at + i),
                       "check the weights: braid verify --model FOLDER"};
      }
      if (tick && !tick(c * length + at + n, chunks * length))
        return Error{"eval: interrupted", "run it again, or with --chunks for a part of the text"};
    }
  }
  return scores.result();
}

}  // namespace braid
