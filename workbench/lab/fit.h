// Scaling laws: L = E + A N^-alpha + B D^-beta from losses of models with N parameters after D tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace braid {

struct ScalingPoint {
  double parameters, tokens, loss;
};

struct ScalingLaw {
  double e = 0, a = 0, b = 0, alpha = 0, beta = 0;
  double error = 0;  // root mean square of log(predicted / observed)
  double loss(double parameters, double tokens) const;
  // Tokens that a model of this size needs to reach a loss; infinite if it never does.
  double tokens_for(double parameters, double loss) const;
};

// Minimises the Huber loss (delta 1e-3) of the log residuals, weighted by flops, from a grid of starts.
ScalingLaw fit_scaling(std::span<const ScalingPoint> points);

// The same on resampled points, `times` times, starting from `whole`: for confidence intervals.
std::vector<ScalingLaw> resampled_fits(std::span<const ScalingPoint> points, const ScalingLaw& whole,
                                       size_t times, uint64_t seed);

// The value below which this share of the numbers lies.
double quantile(std::vector<double> values, double share);

}  // namespace braid
