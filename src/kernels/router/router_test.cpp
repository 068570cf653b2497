#include "kernels/router/router.h"

#include <gtest/gtest.h>

#include "support/op_test.h"
#include "kernels/router/router_ref.h"

namespace braid {
namespace {

using C = std::complex<double>;

TEST(Router, RefBackwardEqualsComplexStep) {
  const size_t experts = 7, k = 3;
  std::vector<C> logits = random_complex(experts, 1), dw = random_complex(k, 2), w(k), d(experts);
  std::vector<int32_t> chosen(k);
  const auto loss = [&] {
    ref::router_fwd<C>(logits.data(), experts, k, chosen.data(), w.data());
    return dot(w, dw);
  };
  loss();
  ref::router_bwd<C>(w.data(), chosen.data(), dw.data(), experts, k, d.data());
  expect_gradient(logits, d, loss);
  std::vector<double> wrong, right;  // a mutant without the mean
  for (size_t i = 0; i < k; ++i) wrong.push_back((w[i] * dw[i]).real()), right.push_back(d[chosen[i]].real());
  EXPECT_FALSE(within(compare<double, double>(wrong, right), kTolF64));
}

TEST(Router, TakesTheLargestAndTheFirstOfEquals) {
  const std::vector<float> logits{1, 3, 3, -2, 3, 5, 0, 0, 0, 0, 0, 0};
  std::vector<int32_t> chosen(6);
  std::vector<float> w(6);
  router_fwd({logits.data(), 2, 6}, 3, chosen.data(), {w.data(), 2, 3});
  EXPECT_EQ(chosen, (std::vector<int32_t>{5, 1, 2, 0, 1, 2}));
  EXPECT_NEAR(w[0] + w[1] + w[2], 1, kTolOps.max);
  EXPECT_NEAR(w[0] / w[1], std::exp(2.0), kTolOps.max * std::exp(2.0));
  EXPECT_NEAR(w[4], 1.0 / 3, kTolOps.max);
}

}  // namespace
}  // namespace braid
