#include "kernels/swiglu/swiglu.h"

#include "support/op_test.h"
#include "kernels/swiglu/swiglu_ref.h"

namespace braid {
namespace {

using C = std::complex<double>;

TEST(Swiglu, RefBackwardEqualsComplexStep) {
  for (const Gate gate : {Gate::kSilu, Gate::kSigmoid}) {
    const size_t n = 9;
    std::vector<C> g = random_complex(n, 1, 3.0), u = random_complex(n, 2), dy = random_complex(n, 3);
    std::vector<C> dg(n), du(n), y(n);
    const auto loss = [&] {
      ref::swiglu_fwd<C>(gate, g.data(), u.data(), y.data(), n);
      return dot(y, dy);
    };
    ref::swiglu_bwd<C>(gate, g.data(), u.data(), dy.data(), dg.data(), du.data(), nullptr, n);
    expect_gradient(g, dg, loss);
    expect_gradient(u, du, loss);
  }
}

TEST(Swiglu, EveryImplementationEqualsTheReference) { expect_all_impls(swiglu_impls(), swiglu_check); }

TEST(Swiglu, ThreadsDoNotChangeABit) {
  const size_t rows = 100, cols = 131, n = rows * cols;
  const std::vector<float> g = random_vector(n, 1), u = random_vector(n, 2), dy = random_vector(n, 3);
  const auto run = [&](Par par) {
    std::vector<float> out(3 * n);
    const SwigluIn in{.g = {g.data(), rows, cols}, .u = {u.data(), rows, cols}, .gate = Gate::kSilu};
    swiglu_fwd(in, {out.data(), rows, cols}, par);
    swiglu_bwd(in, {dy.data(), rows, cols},
               {.dg = {out.data() + n, rows, cols}, .du = {out.data() + 2 * n, rows, cols}}, par);
    return out;
  };
  ThreadPool pool(3);
  EXPECT_EQ(run({}), run(Par(pool)));
}

TEST(Swiglu, AMutantFails) {  // sigmoid in place of the gate's slope
  for (const Gate gate : {Gate::kSilu, Gate::kSigmoid}) {
    const size_t n = 32;
    const std::vector<double> g = to_double(random_vector(n, 1)), u = to_double(random_vector(n, 2)),
                              dy = to_double(random_vector(n, 3));
    std::vector<double> dg(n), du(n);
    ref::swiglu_bwd<double>(gate, g.data(), u.data(), dy.data(), dg.data(), du.data(), nullptr, n);
    std::vector<float> mutant(n);
    for (size_t i = 0; i < n; ++i) mutant[i] = static_cast<float>(dy[i] * u[i] / (1 + std::exp(-g[i])));
    EXPECT_FALSE(within(compare<float, double>(mutant, dg), kTolF32Grad));
  }
}

}  // namespace
}  // namespace braid
