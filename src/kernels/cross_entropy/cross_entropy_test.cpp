#include "kernels/cross_entropy/cross_entropy.h"

#include <limits>

#include "support/op_test.h"
#include "kernels/cross_entropy/cross_entropy_ref.h"

namespace braid {
namespace {

using C = std::complex<double>;

TEST(CrossEntropy, RefGradientEqualsComplexStep) {
  for (const double scale : {1.0, 20.0}) {
    const size_t n = 7, target = 3;
    std::vector<C> x = random_complex(n, 1, scale), dx(n);
    const C weight = 0.7;
    for (const C z : {C(0), C(0.3)}) {
      ref::cross_entropy_grad<C>(x.data(), target, weight, z, dx.data(), n);
      expect_gradient(x, dx, [&] {
        return weight *
               (ref::cross_entropy_loss<C>(x.data(), target, n) + z * ref::squared_lse<C>(x.data(), n));
      });
    }
  }
}

TEST(CrossEntropy, EveryImplementationEqualsTheReference) {
  expect_all_impls(cross_entropy_impls(), cross_entropy_check);
}

TEST(CrossEntropy, NonFiniteLogitsAreNotHidden) {
  const float inf = std::numeric_limits<float>::infinity();
  cross_entropy_impls().each([&](std::string_view name, Par par) {
    for (const size_t n : {3u, 16u, 50u})
      for (size_t at = 0; at < n; ++at) {
        std::vector<float> x = random_vector(n, 1), dx(n);
        const int32_t target = 1;
        float loss = 0;
        int32_t argmax = -1;
        const CrossEntropyIn in{.logits = {x.data(), 1, n}, .target = &target};
        const CrossEntropyOut out{.loss = &loss, .argmax = &argmax, .dlogits = {dx.data(), 1, n}};
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(), inf}) {
          x[at] = bad;
          cross_entropy(in, out, par);
          EXPECT_TRUE(std::isnan(loss)) << name << " " << n << " " << at;
          EXPECT_TRUE(argmax >= 0 && argmax < static_cast<int32_t>(n));
          EXPECT_TRUE(std::isnan(dx[at]));
        }
        x[at] = -inf;  // a forbidden token: no probability, and an infinite loss if it is the target
        cross_entropy(in, out, par);
        EXPECT_EQ(std::isinf(loss), at == 1);
        EXPECT_EQ(dx[at], at == 1 ? -1.0f : 0.0f);
      }
  });
}

TEST(CrossEntropy, ThreadsDoNotChangeABit) {
  const size_t rows = 37, n = 301;
  const std::vector<float> x = random_vector(rows * n, 1, 3.0f);
  std::vector<int32_t> target(rows, 7);
  const auto run = [&](Par par) {
    std::vector<float> out(rows * n + 2 * rows);
    std::vector<int32_t> argmax(rows);
    cross_entropy({.logits = {x.data(), rows, n}, .target = target.data()},
                  {.loss = out.data(), .argmax = argmax.data(), .dlogits = {out.data() + 2 * rows, rows, n}},
                  par);
    std::copy(argmax.begin(), argmax.end(), out.begin() + rows);
    return out;
  };
  ThreadPool pool(3);
  EXPECT_EQ(run({}), run(Par(pool)));
}

TEST(CrossEntropy, AMutantFails) {  // forgets the target
  const size_t n = 20;
  const std::vector<double> x = to_double(random_vector(n, 1));
  std::vector<double> dx(n);
  ref::cross_entropy_grad<double>(x.data(), 4, 1.0, 0.0, dx.data(), n);
  std::vector<float> mutant(dx.begin(), dx.end());
  mutant[4] += 1;
  EXPECT_FALSE(within(compare<float, double>(mutant, dx), kTolF32Grad));
}

}  // namespace
}  // namespace braid
