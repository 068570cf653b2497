// Group word problem - the running product of a word (Grazzi et al., arXiv:2411.12537; Siems et al.,
// arXiv:2502.10297; and the generator both share).
//   tokens: 0 .. |G| - 1 elements, then BOS, then the filler
//   A sample of length T is BOS and T tokens: every tokens_per_element-th is an element, uniform among the
//   allowed ones, the others are fillers. The target at each is the product x_1 * x_2 * ... of the elements,
//   tokens_per_element - 1 positions late (until then the identity), so that there is time to compute.
// Settings of the paper's four S5 tests: all elements; elements=swaps (with the identity: 11);
// elements=moved3 (31); tokens_per_element=4 train_length=64.
// The original also asks for BOS at BOS, which is learned at once, and has five more tokens that never occur.
#include <algorithm>
#include <fmt/format.h>

#include "tasks/groups.h"
#include "tasks/makers.h"

namespace braid {
namespace {

constexpr std::array<std::string_view, 3> kElements{"all", "swaps", "moved3"};

class WordProblem final : public Task {
 public:
  std::vector<Setting> settings() override {
    std::vector<Setting> all = lengths_.settings(1);
    all.push_back({"group", &group_name_, 0, 0, "the group", kGroups});
    all.push_back({"elements", &elements_, 0, 0,
                   "elements that occur: all, swaps (with the identity), or moved3 (at most 3 points move)",
                   kElements});
    all.push_back(
        {"tokens_per_element", &tokens_per_element_, 1, 16, "tokens per element: the element, then fillers"});
    return all;
  }
  std::vector<Problem> validate() const override {
    const Group g = make_group(group_name_);
    if (elements_ == "all" ||
        (!g.moved.empty() && (elements_ == "moved3" || std::ranges::count(g.moved, 2u))))
      return {};
    return {{"elements", fmt::format("is {}, but {} has no such elements", elements_, group_name_),
             "use all, or another group"}};
  }
  void prepare() override {
    group_ = make_group(group_name_);
    const size_t most = elements_ == "all" ? 5 : elements_ == "swaps" ? 2 : 3;
    allowed_.clear();
    for (size_t e = 0; e < group_.order; ++e)
      if (group_.moved.empty() || group_.moved[e] <= most) allowed_.push_back(e);
  }
  bool grow() override { return lengths_.grow(); }

  size_t vocab_size() const override { return group_.order + 2; }
  size_t max_length(Split split) const override { return static_cast<size_t>(lengths_.of(split)) + 1; }

  // The product of many elements is uniform; that of few need not be.
  double chance() const override {
    const auto positions = static_cast<size_t>(lengths_.test_length);
    const double uniform = 1.0 / static_cast<double>(group_.order);
    std::vector<double> p(group_.order, 0.0);
    p[0] = 1;
    double total = 0, best = 1;
    size_t products = 0;
    for (size_t t = 0; t < positions; ++t) {
      if (best - uniform > 1e-12 && done(t) > products) {
        std::vector<double> next(group_.order, 0.0);
        for (size_t a = 0; a < group_.order; ++a)
          for (const size_t x : allowed_)
            next[group_.product(a, x)] += p[a] / static_cast<double>(allowed_.size());
        p = next;
        best = *std::ranges::max_element(p);
        products = done(t);
      }
      total += best;
    }
    return total / static_cast<double>(positions);
  }

  Sample sample(Rng& rng, Split split) const override {
    const auto length = static_cast<size_t>(lengths_.of(split)),
               step = static_cast<size_t>(tokens_per_element_);
    Sample s{.tokens = std::vector<int32_t>(length + 1, filler()),
             .targets = std::vector<int32_t>(length + 1, kUnsupervised)};
    s.tokens[0] = bos();
    size_t now = 0, late = 0;  // the product with and without the newest element
    for (size_t t = 0; t < length; ++t) {
      if (t % step == 0) {
        const size_t x = allowed_[rng.below(allowed_.size())];
        s.tokens[t + 1] = static_cast<int32_t>(x);
        late = now;
        now = group_.product(now, x);
      }
      s.targets[t + 1] = static_cast<int32_t>(t % step + 1 == step ? now : late);
    }
    return s;
  }

  // "first L": sequences whose first L answers are all right, the curve of the papers.
  std::string headline() const override { return fmt::format("first {}", lengths_.test_length); }
  std::vector<Metric> metrics() const override {
    std::vector<Metric> all = Task::metrics();
    for (const size_t n : prefixes()) all.push_back({fmt::format("first {}", n)});
    return all;
  }
  void measure(const Answered& a, std::span<Metric> m) const override {
    Task::measure(a, m);
    size_t right = 0;
    while (right + 1 < a.tokens.size() && a.right(right + 1)) ++right;
    const std::vector<size_t> all = prefixes();
    m = m.last(all.size());
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i] < a.tokens.size()) m[i].add(right >= all[i]);
  }

  std::string token_text(int32_t token) const override {
    return token == bos() ? "BOS" : token == filler() ? "_" : group_.names[static_cast<size_t>(token)];
  }
  std::string show(const Sample& sample) const override { return show_in_place(sample); }

 private:
  int32_t bos() const { return static_cast<int32_t>(group_.order); }
  int32_t filler() const { return bos() + 1; }
  size_t done(size_t t) const { return (t + 1) / static_cast<size_t>(tokens_per_element_); }  // elements
  std::vector<size_t> prefixes() const {
    const auto longest = static_cast<size_t>(lengths_.test_length);
    std::vector<size_t> all;
    for (size_t n = 1; n < longest; n *= 2) all.push_back(n);
    all.push_back(longest);
    return all;
  }

  FixedLengths lengths_{.train_length = 32, .test_length = 500};
  std::string group_name_ = "S5", elements_ = "all";
  int64_t tokens_per_element_ = 1;
  Group group_;
  std::vector<size_t> allowed_;
};

}  // namespace

std::unique_ptr<Task> make_word_problem() { return std::make_unique<WordProblem>(); }

}  // namespace braid
