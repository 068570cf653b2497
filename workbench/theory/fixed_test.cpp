// The arithmetic of F_2 in full, against tables and against exact rationals, and where it is not that of
// reals.
#include "theory/fixed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/common/ref_math.h"

namespace braid {
namespace {

using F = Fixed<2, Tie::kEven>;
using Zero = Fixed<2, Tie::kZero>;
using Away = Fixed<2, Tie::kAway>;

double v(F x) { return static_cast<double>(x); }

std::vector<F> all_numbers() {
  std::vector<F> out;
  for (int32_t k = -F::kLargest; k <= F::kLargest; ++k) out.push_back(F::of(k));
  return out;
}

TEST(Fixed, IsTheSetOfTheDefinition) {
  EXPECT_EQ(all_numbers().size(), 31u);  // 0 and +-1 .. 15 quarters
  EXPECT_EQ(v(F::of(F::kLargest)), 3.75);
  EXPECT_EQ(static_cast<double>(Fixed<3>::of(63)), 7.875);
  EXPECT_EQ(static_cast<double>(Fixed<4>(1e9)), 15.9375);
}

TEST(Fixed, RoundsToTheNearestAndTiesAsTold) {
  struct Case {
    double x, zero, even, away;
  };
  for (const Case& c : std::vector<Case>{{0.125, 0, 0, 0.25},
                                         {0.375, 0.25, 0.5, 0.5},
                                         {0.625, 0.5, 0.5, 0.75},
                                         {0.3, 0.25, 0.25, 0.25},
                                         {0.126, 0.25, 0.25, 0.25},
                                         {3.8, 3.75, 3.75, 3.75},
                                         {100, 3.75, 3.75, 3.75}})
    for (const double sign : {1.0, -1.0}) {
      EXPECT_EQ(static_cast<double>(Zero(sign * c.x)), sign * c.zero) << c.x;
      EXPECT_EQ(static_cast<double>(F(sign * c.x)), sign * c.even) << c.x;
      EXPECT_EQ(static_cast<double>(Away(sign * c.x)), sign * c.away) << c.x;
    }
}

// Every sum, difference, product and quotient: k / 4 with k found in whole numbers another way.
template <Tie tie>
void check_operations() {
  using T = Fixed<2, tie>;
  // The nearest k to n / d, by trying all: nothing is shared with the class.
  const auto nearest = [](int n, int d) {
    int best = 0;
    for (int k = -15; k <= 15; ++k) {
      const int off = std::abs(k * d - n), now = std::abs(best * d - n);  // times |d|
      const bool smaller = std::abs(k) < std::abs(best);
      const bool wins = tie == Tie::kZero ? smaller : tie == Tie::kAway ? !smaller : k % 2 == 0;
      if (off < now || (off == now && k != best && wins)) best = k;
    }
    return best;
  };
  for (int a = -15; a <= 15; ++a)
    for (int b = -15; b <= 15; ++b) {
      const T x = T::of(a), y = T::of(b);
      EXPECT_EQ((x + y).k(), std::clamp(a + b, -15, 15));
      EXPECT_EQ((x - y).k(), std::clamp(a - b, -15, 15));
      EXPECT_EQ((x * y).k(), nearest(a * b, 4)) << a << " * " << b;
      if (b == 0) continue;
      EXPECT_EQ((x / y).k(), nearest(b > 0 ? 4 * a : -4 * a, std::abs(b))) << a << " / " << b;
    }
  for (int a = -15; a <= 15; ++a) EXPECT_EQ((T::of(a) / T(0)).k(), a == 0 ? 0 : a > 0 ? 15 : -15);
}
TEST(Fixed, SumsProductsAndQuotientsAreThoseOfTheTable) {
  check_operations<Tie::kZero>();
  check_operations<Tie::kEven>();
  check_operations<Tie::kAway>();
}

// Quarters of the functions at -15 .. 15 quarters, computed with 50 digits elsewhere. None is a tie.
TEST(Fixed, FunctionsAreThoseOfTheTable) {
  const int exp_[] = {0, 0, 0, 0,  0,  0,  0,  1,  1,  1,  1,  1,  2,  2,  3, 4,
                      5, 7, 8, 11, 14, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15};
  const int sigmoid_[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2,
                          2, 2, 3, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4};
  const int softplus_[] = {0, 0, 0, 0, 0, 0, 0, 1, 1, 1,  1,  1,  2,  2,  2, 3,
                           3, 4, 5, 5, 6, 7, 8, 9, 9, 10, 11, 12, 13, 14, 15};
  for (int k = -15; k <= 15; ++k) {
    const F x = F::of(k);
    EXPECT_EQ(exp(x).k(), exp_[k + 15]) << k;
    EXPECT_EQ(sigmoid(x).k(), sigmoid_[k + 15]) << k;
    EXPECT_EQ(softplus(x).k(), softplus_[k + 15]) << k;
  }
}

// What the construction rests on, for every s and tie rule that it is run with.
template <class T>
void check_limits() {
  const T big = T::of(T::kLargest), zero(0), one(1);
  EXPECT_EQ(exp(-big), zero);
  EXPECT_EQ(exp(zero), one);
  EXPECT_EQ(sigmoid(big), one);
  EXPECT_EQ(sigmoid(-big), zero);
  EXPECT_EQ(softplus(-big), zero);
  EXPECT_EQ(silu(big), big);
  EXPECT_EQ(T(2) * sigmoid(zero), one);
}
TEST(Fixed, LimitsThatTheConstructionUses) {
  check_limits<Fixed<2, Tie::kZero>>(), check_limits<Fixed<2, Tie::kEven>>(),
      check_limits<Fixed<2, Tie::kAway>>();
  check_limits<Fixed<3, Tie::kZero>>(), check_limits<Fixed<3, Tie::kEven>>(),
      check_limits<Fixed<3, Tie::kAway>>();
  check_limits<Fixed<4, Tie::kZero>>(), check_limits<Fixed<4, Tie::kEven>>(),
      check_limits<Fixed<4, Tie::kAway>>();
}

TEST(Fixed, IsNotTheArithmeticOfReals) {
  const F b = F::of(15), one(1), quarter(0.25);
  // Sums: not associative; saturated on the way.
  EXPECT_EQ(v((b + one) - b), 0);
  EXPECT_EQ(v(b + (one - b)), 1);
  EXPECT_EQ(v((-b + b) - b), -3.75);
  // Products: x y = 0 without a zero; (x y) z is not x (y z); x (y + z) not x y + x z.
  EXPECT_EQ(v(quarter * quarter), 0);
  EXPECT_EQ(v((quarter * quarter) * b), 0);
  EXPECT_EQ(v(quarter * (quarter * b)), 0.25);
  EXPECT_EQ(v(F(0.5) * F(0.25) + F(0.5) * F(0.25)), 0);
  EXPECT_EQ(v(F(0.5) * (F(0.25) + F(0.25))), 0.25);
  // (1 / x) x is not 1, and a unit vector is longer than 1: (3/4)^2 + (3/4)^2 = 9/8.
  EXPECT_EQ(v(one / F(1.5) * F(1.5)), 1);
  EXPECT_EQ(v(one / F(3.0) * F(3.0)), 0.75);
  EXPECT_EQ(v(one / sqrt(F(2.0))), 0.75);
  // exp(x) exp(-x) is not 1.
  EXPECT_EQ(v(exp(b) * exp(-b)), 0);
  // A sigmoid that is put together from steps has other limits: 1 / (1 + exp(-x)) never reaches 0, while
  // exp(x) / (1 + exp(x)) does.
  EXPECT_EQ(v(sigmoid(-b)), 0);
  EXPECT_EQ(v(one / (one + exp(b))), 0.25);
  EXPECT_EQ(v(exp(-b) / (one + exp(-b))), 0);
  EXPECT_EQ(v(exp(b) / (one + exp(b))), 1);
}

// The references find these functions, not their own templates.
TEST(Fixed, ReferencesUseTheSingleRounding) {
  EXPECT_EQ(ref::sigmoid<F>(-F::of(15)).k(), 1);  // the template itself, put together
  const auto through = [](auto x) {
    using namespace ref;
    return sigmoid(x);
  };
  EXPECT_EQ(through(-F::of(15)).k(), 0);
}

}  // namespace
}  // namespace braid
