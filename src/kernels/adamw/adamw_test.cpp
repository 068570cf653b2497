#include "kernels/adamw/adamw.h"

#include "kernels/adamw/adamw_ref.h"
#include "support/op_test.h"

namespace braid {
namespace {

TEST(AdamW, EveryImplementationEqualsTheReference) { expect_all_impls(adamw_impls(), adamw_check); }

TEST(AdamW, ThreadsDoNotChangeABit) {
  const size_t n = 50001;
  const std::vector<float> g = random_vector(n, 2);
  const auto run = [&](Par par) {
    std::vector<float> p = random_vector(n, 1), m(n), v(n);
    for (int64_t step = 1; step <= 3; ++step)
      adamw({.lr = 0.01, .weight_decay = 0.1, .step = step}, {.p = p, .g = g, .m = m, .v = v}, par);
    p.insert(p.end(), m.begin(), m.end());
    p.insert(p.end(), v.begin(), v.end());
    return p;
  };
  ThreadPool pool(3);
  EXPECT_EQ(run({}), run(Par(pool)));
}

TEST(AdamW, TheFirstStepIsTheRateWhateverTheGradient) {  // bias correction: m / sqrt(v) = sign(g)
  for (const float g : {1e-3f, -5.0f, 1e4f}) {
    std::vector<float> p{1.0f}, m{0}, v{0};
    adamw({.lr = 0.01}, {.p = p, .g = {&g, 1}, .m = m, .v = v});
    EXPECT_NEAR(p[0], 1.0f - std::copysign(0.01f, g), kTolOps.max);
  }
}

TEST(AdamW, ZeroGradientOnlyDecays) {
  std::vector<float> p{2.0f}, g{0}, m{0}, v{0};
  adamw({.lr = 0.01, .weight_decay = 0.1}, {.p = p, .g = g, .m = m, .v = v});
  EXPECT_FLOAT_EQ(p[0], 2.0f * (1 - 0.001f));
}

TEST(AdamW, AMutantFails) {  // decay put into the gradient, as in plain Adam
  const size_t n = 64;
  const AdamWIn in{.lr = 0.1, .weight_decay = 0.1};
  const std::vector<double> g = to_double(random_vector(n, 1));
  std::vector<double> p = to_double(random_vector(n, 2)), m(n), v(n), q = p, mq(n), vq(n), coupled(n);
  for (size_t i = 0; i < n; ++i) coupled[i] = g[i] + in.weight_decay * q[i];
  ref::adamw<double>(in, p.data(), g.data(), m.data(), v.data(), n);
  AdamWIn without = in;
  without.weight_decay = 0;
  ref::adamw<double>(without, q.data(), coupled.data(), mq.data(), vq.data(), n);
  EXPECT_FALSE(within(compare<double, double>(q, p), kTolF32));
}

}  // namespace
}  // namespace braid
