// Reachability in two trees - which nodes hang together with node 1? (DeltaFormer, arXiv:2505.19488.)
//   Nodes 1 .. n are dealt into two halves; in each, every node but the smallest hangs below a random smaller
//   one. Position c - 1 shows node c and its parent; its target says whether c is in node 1's tree.
//   tokens: c and parent as (c - 1) n + (parent - 1), with c as its own parent at a root; n n "no", n n + 1
//   "yes"
// The paper's input is a vector with ones at c and at its parent: fixed_embedding().
#include <fmt/format.h>

#include "tasks/makers.h"

namespace braid {
namespace {

class Reachability final : public Task {
 public:
  std::vector<Setting> settings() override { return lengths_.settings(2, 256); }
  std::vector<Problem> validate() const override {
    std::vector<Problem> problems;
    const auto even = [&](const char* name, int64_t length) {
      if (length % 2)
        problems.push_back(
            {name, fmt::format("is {}, which has no half", length), fmt::format("use {}", length + 1)});
    };
    even("train_length", lengths_.train_length);
    even("test_length", lengths_.test_length);
    return problems;
  }
  bool grow() override { return lengths_.grow(); }
  size_t vocab_size() const override { return n() * n() + 2; }
  size_t max_length(Split split) const override { return static_cast<size_t>(lengths_.of(split)); }

  // Node 1 is surely in its own tree; of the n - 1 others n / 2 are not.
  double chance() const override {
    const auto nodes = static_cast<double>(lengths_.test_length);
    return (1 + nodes / 2) / nodes;
  }

  Sample sample(Rng& rng, Split split) const override {
    const auto nodes = static_cast<size_t>(lengths_.of(split));
    std::vector<bool> second(nodes);  // dealt to the second half
    size_t left = nodes / 2;
    for (size_t c = 0; c < nodes; ++c)
      if (rng.below(nodes - c) < left) second[c] = true, --left;
    Sample s;
    std::vector<size_t> tree[2];
    for (size_t c = 0; c < nodes; ++c) {
      std::vector<size_t>& mine = tree[second[c]];
      const size_t parent = mine.empty() ? c : mine[rng.below(mine.size())];
      mine.push_back(c);
      s.tokens.push_back(static_cast<int32_t>(c * n() + parent));
      s.targets.push_back(static_cast<int32_t>(n() * n() + (second[c] == second[0])));
    }
    return s;
  }

  std::optional<Tensor> fixed_embedding() const override {
    Tensor rows(DType::kF32, {static_cast<int64_t>(vocab_size()), static_cast<int64_t>(n())});
    for (size_t c = 0; c < n(); ++c)
      for (size_t parent = 0; parent <= c; ++parent) {
        float* row = rows.mat().row(c * n() + parent);
        row[c] = row[parent] = 1;
      }
    return rows;
  }

  std::string token_text(int32_t token) const override {
    const auto id = static_cast<size_t>(token);
    if (id >= n() * n()) return id == n() * n() ? "no" : "yes";
    const size_t c = id / n(), parent = id % n();
    return c == parent ? fmt::format("{}", c + 1) : fmt::format("{}<{}", c + 1, parent + 1);
  }
  std::string show(const Sample& sample) const override { return show_in_place(sample); }

 private:
  size_t n() const { return static_cast<size_t>(lengths_.longest()); }

  FixedLengths lengths_{.train_length = 32, .test_length = 32};
};

}  // namespace

std::unique_ptr<Task> make_reachability() { return std::make_unique<Reachability>(); }

}  // namespace braid
