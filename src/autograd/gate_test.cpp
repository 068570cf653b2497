#include <gtest/gtest.h>

#include "autograd/ops.h"
#include "verify/compare.h"
#include "kernels/swiglu/swiglu_ref.h"

namespace braid {
namespace {

// y = sigmoid(g) * u, where g has a second reader: its gradients add up.
TEST(SigmoidGate, GradientsReachBothInputsAndAddUp) {
  const size_t rows = 5, cols = 19, n = rows * cols;
  const std::vector<float> g = random_vector(n, 1), u = random_vector(n, 2), dy = random_vector(n, 3),
                           other = random_vector(n, 4);
  Arena arena;
  Tape tape(arena);
  Exec e({.arena = &arena, .tape = &tape});
  const Var vg = e.result(rows, cols), vu = e.result(rows, cols);
  std::copy(g.begin(), g.end(), vg.v.data);
  std::copy(u.begin(), u.end(), vu.v.data);
  std::vector<float> dg, du;
  const auto keep = [&](Var x, std::vector<float>& to) {
    tape.record("input", x.slot, [&tape, x, &to] {
      const Mat<float> d = tape.grad(x.slot);
      to.assign(d.data, d.data + d.count());
    });
  };
  keep(vg, dg), keep(vu, du);
  const Var y = gated(e, vu, vg, Gate::kSigmoid);
  tape.record("loss", -1, [&] {
    std::copy(dy.begin(), dy.end(), tape.target(y.slot).to.data);
    std::copy(other.begin(), other.end(), tape.target(vg.slot).to.data);
  });
  const std::vector<float> recorded(y.v.data, y.v.data + n);
  tape.backward();

  std::vector<double> want(n), want_dg(n), want_du(n);
  const std::vector<double> gd = to_double(g), ud = to_double(u), dyd = to_double(dy);
  ref::swiglu_fwd<double>(Gate::kSigmoid, gd.data(), ud.data(), want.data(), n);
  ref::swiglu_bwd<double>(Gate::kSigmoid, gd.data(), ud.data(), dyd.data(), want_dg.data(), want_du.data(),
                          nullptr, n);
  for (size_t i = 0; i < n; ++i) want_dg[i] += other[i];
  EXPECT_TRUE(within(compare<float, double>(recorded, want), kTolF32));
  EXPECT_TRUE(within(compare<float, double>(dg, want_dg), kTolF32Grad));
  EXPECT_TRUE(within(compare<float, double>(du, want_du), kTolF32Grad));

  Exec alone({.arena = &arena});  // without a tape: in place, the same bits
  const Var z = gated(alone, vu, vg, Gate::kSigmoid);
  EXPECT_EQ(z.v.data, vu.v.data);
  EXPECT_EQ(recorded, std::vector<float>(z.v.data, z.v.data + n));
}

}  // namespace
}  // namespace braid
