#include "kernels/rmsnorm/rmsnorm.h"

#include <gtest/gtest.h>

#include "support/op_test.h"
#include "kernels/rmsnorm/rmsnorm_ref.h"

namespace braid {
namespace {

using C = std::complex<double>;

// The reference's backward against the complex step, for every input.
TEST(RmsNorm, RefBackwardEqualsComplexStep) {
  for (const bool gated : {false, true})
    for (const RmsNormGate gate : {RmsNormGate::kSilu, RmsNormGate::kSigmoid})
      for (const RmsNormOrder order : {RmsNormOrder::kNormFirst, RmsNormOrder::kGateFirst}) {
        const size_t n = 9;
        std::vector<C> x = random_complex(n, 1), w = random_complex(n, 2), z = random_complex(n, 3),
                       dy = random_complex(n, 4);
        std::vector<C> dx(n), dw(n), dz(n), y(n);
        const C* zp = gated ? z.data() : nullptr;
        C rstd;
        const auto loss = [&] {
          ref::rmsnorm_fwd<C>(x.data(), w.data(), zp, y.data(), &rstd, n, 1e-6, 1.0, {gate, order});
          return dot(y, dy);
        };
        loss();
        ref::rmsnorm_bwd<C>(x.data(), w.data(), zp, rstd, dy.data(), dx.data(), dw.data(), dz.data(), n, 1.0,
                            {gate, order});
        expect_gradient(x, dx, loss);
        expect_gradient(w, dw, loss);
        if (gated) expect_gradient(z, dz, loss);
      }
}

TEST(RmsNorm, EveryImplementationEqualsTheReference) { expect_all_impls(rmsnorm_impls(), rmsnorm_check); }

TEST(RmsNorm, ThreadsDoNotChangeABit) {
  const size_t rows = 300, cols = 130;
  const std::vector<float> x = random_vector(rows * cols, 1), w = random_vector(cols, 2),
                           dy = random_vector(rows * cols, 3);
  const auto run = [&](Par par) {
    std::vector<float> out(2 * rows * cols + cols, 0), rstd(rows);
    const RmsNormIn in{.x = {x.data(), rows, cols}, .w = w.data()};
    float* y = out.data();
    rmsnorm_fwd(in, {y, rows, cols}, rstd.data(), par);
    rmsnorm_bwd(in, {rstd.data()}, {dy.data(), rows, cols},
                {.dx = {y + rows * cols, rows, cols}, .dw = y + 2 * rows * cols}, par);
    return out;
  };
  ThreadPool pool(3);
  EXPECT_EQ(run({}), run(Par(pool)));
}

// A mutant that forgets the mean term of dx must be caught by the same comparison.
TEST(RmsNorm, AMutantFails) {
  const size_t n = 32;
  const std::vector<double> x = to_double(random_vector(n, 1)), w = to_double(random_vector(n, 2)),
                            dy = to_double(random_vector(n, 4));
  std::vector<double> y(n), dx(n), dw(n);
  double rstd;
  ref::rmsnorm_fwd<double>(x.data(), w.data(), nullptr, y.data(), &rstd, n, 1e-6, 0);
  ref::rmsnorm_bwd<double>(x.data(), w.data(), nullptr, rstd, dy.data(), dx.data(), dw.data(), nullptr, n, 0);
  std::vector<float> mutant(n);
  for (size_t i = 0; i < n; ++i) mutant[i] = static_cast<float>(rstd * dy[i] * w[i]);
  EXPECT_FALSE(within(compare<float, double>(mutant, dx), kTolF32Grad));
}

// The two orders of norm and gate, and the two gates, are four different functions.
TEST(RmsNorm, AnotherGateOrOrderFails) {
  const size_t n = 32;
  const std::vector<double> x = to_double(random_vector(n, 1)), w = to_double(random_vector(n, 2)),
                            z = to_double(random_vector(n, 3));
  std::vector<std::vector<double>> ys;
  for (const RmsNormGate gate : {RmsNormGate::kSilu, RmsNormGate::kSigmoid})
    for (const RmsNormOrder order : {RmsNormOrder::kNormFirst, RmsNormOrder::kGateFirst}) {
      ys.emplace_back(n);
      ref::rmsnorm_fwd<double>(x.data(), w.data(), z.data(), ys.back().data(), nullptr, n, 1e-6, 0,
                               {gate, order});
    }
  for (size_t i = 0; i < ys.size(); ++i)
    for (size_t j = 0; j < ys.size(); ++j)
      EXPECT_EQ(within(compare<double, double>(ys[i], ys[j]), kTolF32), i == j);
}

}  // namespace
}  // namespace braid
