#include "lab/fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"
#include "base/rng.h"

namespace braid {
namespace {

constexpr size_t kFree = 5;
using Vec = std::array<double, kFree>;  // E / least loss, log A, log B, alpha, beta

ScalingLaw law_of(const Vec& x, double least) {
  const auto within = [](double v, double low, double high) { return std::clamp(v, low, high); };
  return {.e = least * within(x[0], 0, 1),
          .a = std::exp(within(x[1], std::log(1e-6), std::log(1e4))),
          .b = std::exp(within(x[2], std::log(1e-6), std::log(1e4))),
          .alpha = within(x[3], 0.01, 2),
          .beta = within(x[4], 0.01, 2)};
}

double huber(double r) {
  constexpr double kDelta = 1e-3;
  const double size = std::abs(r);
  return size <= kDelta ? 0.5 * r * r : kDelta * (size - 0.5 * kDelta);
}

// Nelder-Mead: slow and sure for five numbers.
Vec minimise(const std::function<double(const Vec&)>& f, const Vec& start, size_t most) {
  struct Corner {
    Vec x;
    double value;
  };
  std::array<Corner, kFree + 1> s;
  s[0] = {start, f(start)};
  for (size_t i = 0; i < kFree; ++i) {
    Vec x = start;
    x[i] += i == 1 || i == 2 ? 0.5 : 0.1;
    s[i + 1] = {x, f(x)};
  }
  for (size_t n = 0; n < most; ++n) {
    std::ranges::sort(s, {}, &Corner::value);
    if (s.back().value - s[0].value <= 1e-12 * std::abs(s[0].value)) break;
    Vec centre{};
    for (size_t i = 0; i < kFree; ++i)
      for (size_t j = 0; j < kFree; ++j) centre[j] += s[i].x[j] / static_cast<double>(kFree);
    const auto along = [&](double t) {
      Corner c;
      for (size_t j = 0; j < kFree; ++j) c.x[j] = centre[j] + t * (s.back().x[j] - centre[j]);
      c.value = f(c.x);
      return c;
    };
    const Corner reflected = along(-1);
    if (reflected.value < s[0].value) {
      const Corner further = along(-2);
      s.back() = further.value < reflected.value ? further : reflected;
    } else if (reflected.value < s[kFree - 1].value) {
      s.back() = reflected;
    } else if (const Corner inner = along(reflected.value < s.back().value ? -0.5 : 0.5);
               inner.value < std::min(reflected.value, s.back().value)) {
      s.back() = inner;
    } else {
      for (size_t i = 1; i <= kFree; ++i) {
        for (size_t j = 0; j < kFree; ++j) s[i].x[j] = s[0].x[j] + 0.5 * (s[i].x[j] - s[0].x[j]);
        s[i].value = f(s[i].x);
      }
    }
  }
  return std::ranges::min(s, {}, &Corner::value).x;
}

// Larger runs count more, as they cost more; all together count one.
std::vector<double> weights_of(std::span<const ScalingPoint> points) {
  std::vector<double> w;
  double sum = 0;
  for (const ScalingPoint& p : points) sum += w.emplace_back(p.parameters * p.tokens);
  for (double& each : w) each /= sum;
  return w;
}

ScalingLaw fit_from(std::span<const ScalingPoint> points, std::span<const Vec> starts, size_t most) {
  check(!points.empty() && !starts.empty(), "fit_scaling needs points");
  const std::vector<double> weights = weights_of(points);
  double least = std::numeric_limits<double>::infinity();
  for (const ScalingPoint& p : points) least = std::min(least, p.loss);
  const auto cost = [&](const Vec& x) {
    const ScalingLaw law = law_of(x, least);
    double sum = 0;
    for (size_t i = 0; i < points.size(); ++i)
      sum += weights[i] * huber(std::log(law.loss(points[i].parameters, points[i].tokens) / points[i].loss));
    return sum;
  };
  Vec best = starts[0];
  double lowest = cost(best);
  for (const Vec& start : starts) {
    const Vec x = minimise(cost, start, most);
    if (const double c = cost(x); c < lowest) lowest = c, best = x;
  }
  best = minimise(cost, best, 4 * most);  // a fresh simplex around the best
  ScalingLaw law = law_of(best, least);
  double squares = 0;
  for (const ScalingPoint& p : points) {
    const double r = std::log(law.loss(p.parameters, p.tokens) / p.loss);
    squares += r * r;
  }
  law.error = std::sqrt(squares / static_cast<double>(points.size()));
  return law;
}

}  // namespace

double ScalingLaw::loss(double parameters, double tokens) const {
  return e + a * std::pow(parameters, -alpha) + b * std::pow(tokens, -beta);
}

double ScalingLaw::tokens_for(double parameters, double wanted) const {
  const double left = wanted - e - a * std::pow(parameters, -alpha);
  return left > 0 ? std::pow(b / left, 1 / beta) : std::numeric_limits<double>::infinity();
}

ScalingLaw fit_scaling(std::span<const ScalingPoint> points) {
  std::vector<Vec> starts;
  for (const double e : {0.0, 0.3, 0.6, 0.9})
    for (const double a : {1.0, 500.0})
      for (const double b : {1.0, 500.0})
        for (const double alpha : {0.1, 0.3, 0.5})
          for (const double beta : {0.1, 0.3, 0.5})
            starts.push_back({e, std::log(a), std::log(b), alpha, beta});
  return fit_from(points, starts, 400);
}

std::vector<ScalingLaw> resampled_fits(std::span<const ScalingPoint> points, const ScalingLaw& whole,
                                       size_t times, uint64_t seed) {
  double least = std::numeric_limits<double>::infinity();
  for (const ScalingPoint& p : points) least = std::min(least, p.loss);
  const Vec start{whole.e / least, std::log(whole.a), std::log(whole.b), whole.alpha, whole.beta};
  Rng rng(seed, "resampled fits");
  std::vector<ScalingLaw> out;
  for (size_t i = 0; i < times; ++i) {
    std::vector<ScalingPoint> drawn;
    while (drawn.size() < points.size()) drawn.push_back(points[rng.below(points.size())]);
    out.push_back(fit_from(drawn, std::span(&start, 1), 400));
  }
  return out;
}

double quantile(std::vector<double> values, double share) {
  check(!values.empty(), "quantile of nothing");
  std::ranges::sort(values);
  const double at = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  const double t = at - static_cast<double>(low);
  return t > 0 ? values[low] + t * (values[high] - values[low]) : values[low];  // no inf - inf
}

}  // namespace braid
