#include <gtest/gtest.h>

#include "autograd/ops.h"
#include "verify/compare.h"

namespace braid {
namespace {

// Rows that go to a few parts each and come back weighted: y_r = sum over parts of w (2 x_r). Linear in x and
// in w, so the gradients are known.
TEST(Experts, RowsComeBackWeightedAndSoDoTheirGradients) {
  const size_t n = 4, d = 3, k = 2;
  const std::vector<float> x = random_vector(n * d, 1), w = random_vector(n * k, 2),
                           up = random_vector(n * d, 3);
  // Part 0 gets rows 0, 2, 3; part 1 all rows but 3; part 2 rows 1 and 3. Weights by their place in w.
  const std::vector<uint32_t> rows_of[] = {{0, 2, 3}, {0, 1, 2}, {1, 3}},
                              at[] = {{0, 4, 6}, {1, 2, 5}, {3, 7}};
  Arena arena;
  Tape tape(arena);
  Exec e({.arena = &arena, .tape = &tape});
  const Var vx = e.result(n, d), vw = e.result(n, k);
  std::copy(x.begin(), x.end(), vx.v.data), std::copy(w.begin(), w.end(), vw.v.data);
  std::vector<float> dx, dw;
  const auto keep = [&](Var v, std::vector<float>& to) {
    tape.record("input", v.slot, [&tape, v, &to] {
      const Mat<float> g = tape.grad(v.slot);
      to.assign(g.data, g.data + g.count());
    });
  };
  keep(vx, dx), keep(vw, dw);
  std::vector<Var> parts;
  std::vector<std::span<const uint32_t>> which;
  for (size_t p = 0; p < 3; ++p) {
    const Var doubled = map(e, rows(e, vx, rows_of[p]), Map::kIdentity, 2);
    parts.push_back(scale_heads(e, doubled, pick(e, vw, at[p])));
    which.emplace_back(rows_of[p]);
  }
  const Var y = sum_rows(e, parts, which, n, d);
  tape.record("loss", -1, [&] { std::copy(up.begin(), up.end(), tape.target(y.slot).to.data); });
  const std::vector<float> got(y.v.data, y.v.data + n * d);
  tape.backward();
  std::vector<double> want(n * d), want_dx(n * d), want_dw(n * k);
  for (size_t r = 0; r < n; ++r)
    for (size_t c = 0; c < d; ++c) {
      const double sum = static_cast<double>(w[r * k]) + w[r * k + 1];
      want[r * d + c] = 2 * sum * x[r * d + c];
      want_dx[r * d + c] = 2 * sum * up[r * d + c];
      for (size_t j = 0; j < k; ++j) want_dw[r * k + j] += 2.0 * x[r * d + c] * up[r * d + c];
    }
  EXPECT_TRUE(within(compare<float, double>(got, want), kTolF32));
  EXPECT_TRUE(within(compare<float, double>(dx, want_dx), kTolF32Grad));
  EXPECT_TRUE(within(compare<float, double>(dw, want_dw), kTolF32Grad));
}

}  // namespace
}  // namespace braid
