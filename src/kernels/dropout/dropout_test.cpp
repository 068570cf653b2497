#include "kernels/dropout/dropout.h"

#include "support/op_test.h"
#include "kernels/dropout/dropout_ref.h"

namespace braid {
namespace {

using C = std::complex<double>;

std::vector<float> drop(const DropoutMask& mask, const std::vector<float>& x, size_t rows, Par par = {}) {
  std::vector<float> y(x.size());
  dropout(mask, {x.data(), rows, x.size() / rows}, {y.data(), rows, x.size() / rows}, par);
  return y;
}

TEST(Dropout, RefBackwardEqualsComplexStep) {
  const size_t n = 11;
  const Rng rng(1, "dropout");
  std::vector<C> x = random_complex(n, 1), dy = random_complex(n, 2), y(n), dx(n);
  ref::dropout<C>(rng, 5, 0.5f, 0, dy.data(), dx.data(), n);  // its own backward
  expect_gradient(x, dx, [&] {
    ref::dropout<C>(rng, 5, 0.5f, 0, x.data(), y.data(), n);
    return dot(y, dy);
  });
}

TEST(Dropout, EveryImplementationEqualsTheReference) { expect_all_impls(dropout_impls(), dropout_check); }

TEST(Dropout, ThreadsAndShapeDoNotChangeABit) {
  const std::vector<float> x = random_vector(60 * 35, 1);
  const DropoutMask mask{Rng(1, "dropout"), 9, 0.3f};
  ThreadPool pool(3);
  EXPECT_EQ(drop(mask, x, 60), drop(mask, x, 60, Par(pool)));
  EXPECT_EQ(drop(mask, x, 60), drop(mask, x, 7));
  std::vector<float> in_place = x;
  dropout(mask, {in_place.data(), 60, 35}, {in_place.data(), 60, 35});
  EXPECT_EQ(drop(mask, x, 60), in_place);
}

TEST(Dropout, KeepsItsShareAndTheMean) {
  const size_t n = 100000;
  const std::vector<float> ones(n, 1.0f);
  for (const float p : {0.0f, 0.1f, 0.5f, 0.9f}) {
    double sum = 0;
    size_t zeros = 0;
    for (const float v : drop({Rng(1, "dropout"), 2, p}, ones, 100)) sum += v, zeros += v == 0;
    EXPECT_NEAR(static_cast<double>(zeros) / n, p, 0.01);
    EXPECT_NEAR(sum / n, 1, 0.04);
  }
}

TEST(Dropout, AMutantFails) {  // another substream: the backward of a mask that was not used
  const std::vector<float> x = random_vector(64, 1);
  const std::vector<float> a = drop({Rng(1, "dropout"), 1, 0.5f}, x, 1),
                           b = drop({Rng(1, "dropout"), 2, 0.5f}, x, 1);
  EXPECT_FALSE(within(compare<float, float>(a, b), kTolF32));
}

}  // namespace
}  // namespace braid
