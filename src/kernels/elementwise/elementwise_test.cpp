#include "kernels/elementwise/elementwise.h"

#include <limits>

#include "support/op_test.h"
#include "kernels/elementwise/elementwise_ref.h"

namespace braid {
namespace {

TEST(Elementwise, EveryImplementationEqualsTheReference) {
  expect_all_impls(elementwise_impls(), elementwise_check);
}

TEST(Elementwise, ThreadsDoNotChangeABit) {
  const size_t rows = 300, cols = 133, n = rows * cols;
  const std::vector<float> a = random_vector(n, 1), b = random_vector(n, 2);
  const auto run = [&](Par par) {
    std::vector<float> y(n);
    std::vector<double> partials(sum_partials(n)), out;
    add({a.data(), rows, cols}, {b.data(), rows, cols}, {y.data(), rows, cols}, par);
    scale({y.data(), rows, cols}, 0.7f, {y.data(), rows, cols}, par);
    out = to_double(y);
    out.push_back(sum_squares(a, partials, par));
    return out;
  };
  ThreadPool pool(3);
  EXPECT_EQ(run({}), run(Par(pool)));
}

TEST(Elementwise, SumSquaresKeepsTheNonFiniteAndTheHuge) {
  elementwise_impls().each([&](std::string_view, Par par) {
    for (const size_t n : {1u, 5u, 40u, 5000u})
      for (const size_t at : {size_t{0}, n / 2, n - 1}) {
        std::vector<double> partials(sum_partials(n));
        std::vector<float> x(n, 1.0f);
        x[at] = std::numeric_limits<float>::quiet_NaN();
        EXPECT_TRUE(std::isnan(sum_squares(x, partials, par)));
        x[at] = -std::numeric_limits<float>::infinity();
        EXPECT_TRUE(std::isinf(sum_squares(x, partials, par)));
        x[at] = 1e38f;  // its square is no float
          EXPECT_NEAR(sum_squares(x, partials, par) / 1e76, 1, kTolOps.max);
      }
    std::vector<double> none;
    EXPECT_EQ(sum_squares({}, none, par), 0);
  });
}

TEST(Elementwise, NothingIsWrittenBesideARow) {
  elementwise_impls().each([&](std::string_view, Par par) {
    const size_t rows = 3, cols = 21, stride = 25;
    const std::vector<float> x = random_vector(rows * stride, 1);
    std::vector<float> y(rows * stride, -7.0f);
    std::vector<bf16> half(rows * stride, bf16{0x1234});
    add({x.data(), rows, cols, stride}, {x.data(), rows, cols, stride}, {y.data(), rows, cols, stride}, par);
    convert({x.data(), rows, cols, stride}, Mat<bf16>{half.data(), rows, cols, stride}, par);
    for (size_t i = 0; i < rows * stride; ++i)
      if (i % stride >= cols) {
        EXPECT_EQ(y[i], -7.0f);
        EXPECT_EQ(half[i].bits, 0x1234);
      }
  });
}

TEST(Elementwise, AMutantFails) {  // rounding by cutting off
  const std::vector<float> x = random_vector(64, 1);
  std::vector<double> cut, rounded;
  for (const float v : x) {
    cut.push_back(to_f32(bf16{static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16)}));
    rounded.push_back(to_f32(to_bf16(v)));
  }
  EXPECT_FALSE(within(compare<double, double>(cut, rounded), {0, 0}));
}

}  // namespace
}  // namespace braid
