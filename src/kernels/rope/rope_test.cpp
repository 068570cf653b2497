#include "kernels/rope/rope.h"

#include "support/op_test.h"
#include "kernels/rope/rope_ref.h"

namespace braid {
namespace {

using C = std::complex<double>;

TEST(Rope, RefBackwardEqualsComplexStep) {
  const size_t rot = 6, dh = 9;
  std::vector<C> x = random_complex(dh, 1), dy = random_complex(dh, 2), cos(rot / 2), sin(rot / 2), y(dh),
                 dx(dh);
  for (size_t i = 0; i < rot / 2; ++i) cos[i] = std::cos(1.0 + i), sin[i] = std::sin(1.0 + i);
  const auto loss = [&] {
    ref::rope_fwd<C>(x.data(), cos.data(), sin.data(), y.data(), rot, dh);
    return dot(y, dy);
  };
  ref::rope_bwd<C>(dy.data(), cos.data(), sin.data(), dx.data(), rot, dh);
  expect_gradient(x, dx, loss);
}

TEST(Rope, EveryImplementationEqualsTheReference) { expect_all_impls(rope_impls(), rope_check); }

TEST(Rope, ThreadsDoNotChangeABitAndInPlaceIsTheSame) {
  const size_t rows = 200, heads = 3, dh = 40, cols = heads * dh, n = rows * cols;
  RopeTable table(24, 1e4);
  table.ensure(rows);
  const std::vector<float> x = random_vector(n, 1);
  std::vector<int32_t> positions(rows);
  for (size_t r = 0; r < rows; ++r) positions[r] = static_cast<int32_t>(rows - 1 - r);
  const auto run = [&](Par par, bool in_place) {
    std::vector<float> y = x;
    const RopeIn in{.x = {in_place ? y.data() : x.data(), rows, cols},
                    .positions = positions.data(),
                    .table = &table,
                    .heads = heads};
    rope_fwd(in, {y.data(), rows, cols}, par);
    return y;
  };
  ThreadPool pool(3);
  EXPECT_EQ(run({}, false), run(Par(pool), false));
  EXPECT_EQ(run({}, false), run({}, true));
}

TEST(Rope, FrequenciesAndAmplitudeAreThoseGiven) {
  RopeTable table(std::vector<double>{0.5, 0.01}, 1.25), plain(4, 1e4), same(std::vector<double>{1, 0.01});
  table.ensure(8), plain.ensure(8), same.ensure(8);
  EXPECT_EQ(table.rot(), 4u);
  for (size_t p = 0; p < 8; ++p) {
    EXPECT_FLOAT_EQ(table.cos(p)[0], static_cast<float>(1.25 * std::cos(0.5 * p)));
    EXPECT_FLOAT_EQ(table.sin(p)[1], static_cast<float>(1.25 * std::sin(0.01 * p)));
    for (size_t i = 0; i < 2; ++i) EXPECT_FLOAT_EQ(plain.sin(p)[i], same.sin(p)[i]);
  }
}

TEST(Rope, ScoresDependOnlyOnTheDistance) {
  const size_t dh = 32;
  RopeTable table(dh, 1e4);
  table.ensure(100);
  const std::vector<float> q = random_vector(dh, 1), k = random_vector(dh, 2);
  const auto score = [&](int32_t i, int32_t j) {
    std::vector<float> a(dh), b(dh);
    rope_fwd({.x = {q.data(), 1, dh}, .positions = &i, .table = &table}, {a.data(), 1, dh});
    rope_fwd({.x = {k.data(), 1, dh}, .positions = &j, .table = &table}, {b.data(), 1, dh});
    double s = 0;
    for (size_t e = 0; e < dh; ++e) s += a[e] * b[e];
    return s;
  };
  EXPECT_NEAR(score(7, 3), score(99, 95), kTolF32.max);
  EXPECT_GT(std::abs(score(7, 3) - score(7, 4)), 1e-2);
}

TEST(Rope, AMutantFails) {  // neighbours paired, as in the paper
  const size_t dh = 8;
  const std::vector<double> x = to_double(random_vector(dh, 1)), cos{0.5, 0.6, 0.7, 0.8},
                            sin{0.8, 0.7, 0.6, 0.5};
  std::vector<double> y(dh);
  ref::rope_fwd<double>(x.data(), cos.data(), sin.data(), y.data(), dh, dh);
  std::vector<float> mutant(dh);
  for (size_t i = 0; i < dh / 2; ++i) {
    mutant[2 * i] = static_cast<float>(x[2 * i] * cos[i] - x[2 * i + 1] * sin[i]);
    mutant[2 * i + 1] = static_cast<float>(x[2 * i + 1] * cos[i] + x[2 * i] * sin[i]);
  }
  EXPECT_FALSE(within(compare<float, double>(mutant, y), kTolF32));
}

}  // namespace
}  // namespace braid
