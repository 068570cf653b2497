#include "kernels/delta_gates/delta_gates.h"

#include <cmath>

#include "support/op_test.h"
#include "kernels/delta_gates/delta_gates_ref.h"

namespace braid {
namespace {

using C = std::complex<double>;

TEST(DeltaGates, RefBackwardEqualsComplexStep) {
  const size_t n = 9;  // tokens of one head
  std::vector<C> a = random_complex(n, 1, 3.0), b = random_complex(n, 2), A_log = random_complex(1, 3),
                 dt_bias = random_complex(1, 4), dg = random_complex(n, 5), dbeta = random_complex(n, 6);
  a[3] = 25.0;  // the straight part
  std::vector<C> g(n), beta(n), da(n), db(n), dA_log(1), ddt_bias(1);
  const auto loss = [&] {
    for (size_t t = 0; t < n; ++t)
      ref::delta_gates_fwd<C>(a[t], b[t], A_log[0], dt_bias[0], 2.0, &g[t], &beta[t]);
    return dot(g, dg) + dot(beta, dbeta);
  };
  for (size_t t = 0; t < n; ++t)
    ref::delta_gates_bwd<C>(a[t], b[t], A_log[0], dt_bias[0], 2.0, dg[t], dbeta[t], &da[t], &db[t],
                            &dA_log[0], &ddt_bias[0]);
  expect_gradient(a, da, loss);
  expect_gradient(b, db, loss);
  expect_gradient(A_log, dA_log, loss);
  expect_gradient(dt_bias, ddt_bias, loss);
}

TEST(DeltaGates, EveryImplementationEqualsTheReference) {
  expect_all_impls(delta_gates_impls(), delta_gates_check);
}

TEST(DeltaGates, ThreadsDoNotChangeABit) {
  const size_t rows = 1000, H = 11, n = rows * H;
  const std::vector<float> a = random_vector(n, 1), b = random_vector(n, 2), A_log = random_vector(H, 3),
                           dt_bias = random_vector(H, 4), dg = random_vector(n, 5);
  const auto run = [&](Par par) {
    std::vector<float> out(4 * n + 2 * H), scratch(delta_gates_bwd_scratch(rows, H), NAN);
    const auto mat = [&](size_t i) { return Mat<float>(&out[i * n], rows, H); };
    const DeltaGatesIn in{
        .a = {a.data(), rows, H}, .b = {b.data(), rows, H}, .A_log = A_log.data(), .dt_bias = dt_bias.data()};
    delta_gates_fwd(in, mat(0), mat(1), par);
    delta_gates_bwd(in, {dg.data(), rows, H}, {a.data(), rows, H},
                    {.da = mat(2), .db = mat(3), .dA_log = &out[4 * n], .ddt_bias = &out[4 * n + H]}, scratch,
                    par);
    return out;
  };
  ThreadPool pool(3);
  EXPECT_EQ(run({}), run(Par(pool)));
}

// Limits: nothing overflows, NaN comes out.
TEST(DeltaGates, ExtremesAreFinite) {
  const std::vector<float> a{-200, -50, 19.9f, 20.1f, 1000, NAN}, b{-200, 0, 200, 1, 2, NAN};
  const size_t n = a.size();
  const float A_log = 0, dt_bias = 0;
  std::vector<float> g(n), beta(n);
  delta_gates_fwd({.a = {a.data(), n, 1}, .b = {b.data(), n, 1}, .A_log = &A_log, .dt_bias = &dt_bias},
                  {g.data(), n, 1}, {beta.data(), n, 1});
  EXPECT_EQ(g[4], -1000.0f);
  EXPECT_EQ(g[3], -20.1f);
  EXPECT_LE(g[0], 0.0f);
  EXPECT_EQ(beta[2], 1.0f);
  EXPECT_TRUE(std::isnan(g[5]) && std::isnan(beta[5]));
}

// A backward that forgets the slope of softplus, and a sum that forgets exp(A_log), must fail.
TEST(DeltaGates, MutantsFail) {
  const size_t n = 32;
  const std::vector<double> a = to_double(random_vector(n, 1)), dg = to_double(random_vector(n, 2));
  std::vector<double> da(n);
  std::vector<float> mutant(n);
  double db, dA_log = 0, ddt_bias = 0, wrong = 0;
  for (size_t t = 0; t < n; ++t) {
    ref::delta_gates_bwd<double>(a[t], 0, 0.3, 0.1, 1, dg[t], 1, &da[t], &db, &dA_log, &ddt_bias);
    mutant[t] = static_cast<float>(-dg[t] * std::exp(0.3));
    wrong -= dg[t] * ref::softplus(a[t] + 0.1);
  }
  EXPECT_FALSE(within(compare<float, double>(mutant, da), kTolF32Grad));
  const std::vector<double> got{wrong}, want{dA_log};
  EXPECT_FALSE(within(compare<double, double>(got, want), kTolF32Grad));
}

}  // namespace
}  // namespace braid
