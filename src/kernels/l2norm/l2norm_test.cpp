#include "kernels/l2norm/l2norm.h"

#include "support/op_test.h"
#include "kernels/l2norm/l2norm_ref.h"

namespace braid {
namespace {

using C = std::complex<double>;

TEST(L2Norm, RefBackwardEqualsComplexStep) {
  for (const double scale : {1.0, 1e-3}) {  // 1e-3: eps counts
    const size_t n = 9;
    std::vector<C> x = random_complex(n, 1, scale), dy = random_complex(n, 2), y(n), dx(n);
    const auto loss = [&] {
      ref::l2norm_fwd<C>(x.data(), y.data(), nullptr, n, 1e-6);
      return dot(y, dy);
    };
    C rstd;
    ref::l2norm_fwd<C>(x.data(), y.data(), &rstd, n, 1e-6);
    ref::l2norm_bwd<C>(x.data(), rstd, dy.data(), dx.data(), n, false);
    expect_gradient(x, dx, loss);
  }
}

TEST(L2Norm, EveryImplementationEqualsTheReference) { expect_all_impls(l2norm_impls(), l2norm_check); }

TEST(L2Norm, ThreadsDoNotChangeABitAndInPlaceIsTheSame) {
  const size_t rows = 300, cols = 132, groups = 4, n = rows * cols;
  const std::vector<float> x = random_vector(n, 1), dy = random_vector(n, 2);
  const auto run = [&](Par par, bool in_place) {
    std::vector<float> y = x, dx = dy, rstd(rows * groups);
    const Mat<const float> from{in_place ? y.data() : x.data(), rows, cols},
        up{in_place ? dx.data() : dy.data(), rows, cols};
    l2norm_fwd({.x = from, .groups = groups}, {y.data(), rows, cols}, rstd.data(), par);
    l2norm_bwd({.x = {x.data(), rows, cols}, .groups = groups}, {rstd.data()}, up, {dx.data(), rows, cols},
               Into::kOverwrite, par);
    y.insert(y.end(), dx.begin(), dx.end());
    return y;
  };
  ThreadPool pool(3);
  EXPECT_EQ(run({}, false), run(Par(pool), false));
  EXPECT_EQ(run({}, false), run(Par(pool), true));
}

TEST(L2Norm, AMutantFails) {  // forgets that the length changes
  const size_t n = 32;
  const std::vector<double> x = to_double(random_vector(n, 1)), dy = to_double(random_vector(n, 2));
  std::vector<double> y(n), dx(n);
  double rstd = 0;
  ref::l2norm_fwd<double>(x.data(), y.data(), &rstd, n, 1e-6);
  ref::l2norm_bwd<double>(x.data(), rstd, dy.data(), dx.data(), n, false);
  std::vector<float> mutant(n);
  for (size_t i = 0; i < n; ++i) mutant[i] = static_cast<float>(rstd * dy[i]);
  EXPECT_FALSE(within(compare<float, double>(mutant, dx), kTolF32Grad));
}

}  // namespace
}  // namespace braid
