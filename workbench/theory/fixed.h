// Constant precision: the numbers F_s = {0, +-k 2^-s : 1 <= k <= 4^s - 1}, the largest of them
// B_s = 2^s - 2^-s (Steifer, arXiv:2605.16640, definition 7.2).
//
// Every operation gives the nearest number of F_s to the real result, +-B_s where that is further out. A tie
// goes to the smaller magnitude, the even k or the larger magnitude, as chosen. So a sum saturates on its
// way, and its value depends on the order of its terms: the references of the kernels add from left to right.
// exp, log, sqrt, sigmoid, softplus and silu are single operations, rounded once: the theorems need
// sigmoid(-B_s) = 0, while 1 / (1 + exp(B_s)) with a rounding after each step is 1 / B_s.
// x / 0 is B_s with the sign of x, and 0 / 0 is 0, as if the divisor were a tiny positive number.
#pragma once

#include <cmath>
#include <compare>
#include <cstdint>
#include <cstdlib>

namespace braid {

enum class Tie : uint8_t { kZero, kEven, kAway };

template <int s, Tie tie = Tie::kEven>
class Fixed {
  static_assert(s >= 1 && s <= 12);  // products of two k fit in 64 bits, k itself in a double's mantissa

 public:
  static constexpr int32_t kLargest = (1 << (2 * s)) - 1;

  Fixed() = default;
  explicit Fixed(double x) : k_(nearest(std::ldexp(x, s))) {}
  explicit Fixed(float x) : Fixed(static_cast<double>(x)) {}
  explicit Fixed(int x) : Fixed(static_cast<double>(x)) {}
  explicit Fixed(size_t x) : Fixed(static_cast<double>(x)) {}
  explicit operator double() const { return std::ldexp(static_cast<double>(k_), -s); }

  static Fixed of(int32_t k) {  // k 2^-s
    Fixed x;
    x.k_ = saturated(k);
    return x;
  }
  int32_t k() const { return k_; }

  friend Fixed operator-(Fixed a) { return of(-a.k_); }
  friend Fixed operator+(Fixed a, Fixed b) { return of(a.k_ + b.k_); }
  friend Fixed operator-(Fixed a, Fixed b) { return of(a.k_ - b.k_); }
  friend Fixed operator*(Fixed a, Fixed b) {
    if (a.k_ == 0 || b.k_ == 0) return {};  // most weights of the constructions: three times as fast
    return quotient(static_cast<int64_t>(a.k_) * b.k_, int64_t{1} << s);
  }
  friend Fixed operator/(Fixed a, Fixed b) {
    if (b.k_ == 0) return of(a.k_ == 0 ? 0 : a.k_ > 0 ? kLargest : -kLargest);
    return quotient(static_cast<int64_t>(a.k_) * (int64_t{1} << s), b.k_);
  }
  Fixed& operator+=(Fixed b) { return *this = *this + b; }
  Fixed& operator-=(Fixed b) { return *this = *this - b; }
  Fixed& operator*=(Fixed b) { return *this = *this * b; }
  Fixed& operator/=(Fixed b) { return *this = *this / b; }
  friend auto operator<=>(Fixed, Fixed) = default;

 private:
  static int32_t saturated(int64_t k) {
    return static_cast<int32_t>(k > kLargest ? kLargest : k < -kLargest ? -kLargest : k);
  }
  static int32_t nearest(double x) {  // x: in units of 2^-s
    if (std::isnan(x)) return 0;
    if (std::fabs(x) >= kLargest) return x > 0 ? kLargest : -kLargest;
    const double down = std::floor(std::fabs(x)), rest = std::fabs(x) - down;
    auto k = static_cast<int32_t>(down);
    if (rest > 0.5 || (rest == 0.5 && up(k))) ++k;
    return x < 0 ? -k : k;
  }
  static Fixed quotient(int64_t a, int64_t b) {  // a / b, in units of 2^-s; exact before the one rounding
    const int64_t n = a < 0 ? -a : a, d = b < 0 ? -b : b;
    int64_t k = n / d;
    const int64_t twice = 2 * (n - k * d);
    if (twice > d || (twice == d && up(k))) ++k;
    return of(saturated((a < 0) != (b < 0) ? -k : k));
  }
  static bool up(int64_t k) { return tie == Tie::kAway || (tie == Tie::kEven && k % 2 != 0); }

  int32_t k_ = 0;
};

// Real functions, rounded once. Found by the references through their argument, before their own templates.
namespace fixed_detail {
template <int s, Tie tie, class F>
Fixed<s, tie> of(Fixed<s, tie> x, const F& f) {
  return Fixed<s, tie>(f(static_cast<double>(x)));
}
}  // namespace fixed_detail

template <int s, Tie tie>
double real(Fixed<s, tie> x) {
  return static_cast<double>(x);
}
template <int s, Tie tie>
double real_part(Fixed<s, tie> x) {
  return static_cast<double>(x);
}
template <int s, Tie tie>
Fixed<s, tie> exp(Fixed<s, tie> x) {
  return fixed_detail::of(x, [](double v) { return std::exp(v); });
}
template <int s, Tie tie>
Fixed<s, tie> log(Fixed<s, tie> x) {
  return fixed_detail::of(x, [](double v) { return std::log(v); });
}
template <int s, Tie tie>
Fixed<s, tie> sqrt(Fixed<s, tie> x) {
  return fixed_detail::of(x, [](double v) { return std::sqrt(v); });
}
template <int s, Tie tie>
Fixed<s, tie> sigmoid(Fixed<s, tie> x) {
  return fixed_detail::of(x, [](double v) { return 1 / (1 + std::exp(-v)); });
}
template <int s, Tie tie>
Fixed<s, tie> softplus(Fixed<s, tie> x) {
  return fixed_detail::of(x, [](double v) { return std::fmax(v, 0) + std::log1p(std::exp(-std::fabs(v))); });
}
template <int s, Tie tie>
Fixed<s, tie> silu(Fixed<s, tie> x) {
  return fixed_detail::of(x, [](double v) { return v / (1 + std::exp(-v)); });
}

}  // namespace braid
