#include "tasks/keys.h"

#include <array>
#include <cmath>
#include <vector>

#include "base/rng.h"

namespace braid {
namespace {

constexpr int kRounds = 150;

float dot(const float* a, const float* b, size_t n) {
  std::array<float, 8> sum{};  // lanes, for the compiler to vectorise without reordering anything
  size_t i = 0;
  for (; i + sum.size() <= n; i += sum.size())
    for (size_t lane = 0; lane < sum.size(); ++lane) sum[lane] += a[i + lane] * b[i + lane];
  for (size_t lane = 0; i < n; ++i, ++lane) sum[lane] += a[i] * b[i];
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

void add_scaled(const float* x, float factor, float* to, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] += factor * x[i];
}

void normalise(float* row, size_t n) {
  const float length = std::sqrt(dot(row, row, n));
  for (size_t i = 0; i < n; ++i) row[i] /= length;
}

}  // namespace

float coherence(Mat<const float> keys) {
  float largest = 0;
  for (size_t i = 0; i < keys.rows; ++i)
    for (size_t j = 0; j < i; ++j)
      largest = std::max(largest, std::abs(dot(keys.row(i), keys.row(j), keys.cols)));
  return largest;
}

Tensor near_orthogonal_keys(size_t count, size_t width, uint64_t seed) {
  Tensor keys(DType::kF32, {static_cast<int64_t>(count), static_cast<int64_t>(width)});
  const Mat<float> k = keys.mat();
  Rng rng(seed, "near-orthogonal keys");
  for (float& x : keys.as<float>()) x = rng.normal();
  for (size_t i = 0; i < count; ++i) normalise(k.row(i), width);
  if (count <= width) {  // Gram-Schmidt, twice: once is exact only to the condition of the draw
    for (size_t i = 0; i < count; ++i)
      for (int twice = 0; twice < 2; ++twice) {
        for (size_t j = 0; j < i; ++j) add_scaled(k.row(j), -dot(k.row(i), k.row(j), width), k.row(i), width);
        normalise(k.row(i), width);
      }
    return keys;
  }
  // Rounds of: clip the Gram matrix K K^T off its diagonal to +-bound, go back to rank `width`, normalise.
  // The nearest factor of rank `width` of K K^T + E is K + E K (K^T K)^-1 to first order: no eigenvectors
  // needed. The largest eigenvalue of K^T K is about (1 + sqrt(n / d))^2; dividing by that instead cannot
  // overshoot.
  const auto n = static_cast<float>(count), d = static_cast<float>(width);
  const float bound = 1.2f * std::sqrt((n - d) / (d * (n - 1))),
              step = 1 / ((1 + std::sqrt(n / d)) * (1 + std::sqrt(n / d)));
  std::vector<float> excess(count * count, 0.0f);
  Tensor best = keys;
  float least = 2;
  for (int round = 0; round <= kRounds; ++round) {
    float now = 0;
    for (size_t i = 0; i < count; ++i)
      for (size_t j = 0; j < i; ++j) {
        const float g = dot(k.row(i), k.row(j), width);
        now = std::max(now, std::abs(g));
        excess[i * count + j] = excess[j * count + i] = g - std::clamp(g, -bound, bound);
      }
    if (now < least) least = now, best = keys;
    const Tensor before = keys;
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < count; ++j)
        if (const float e = excess[i * count + j]; e != 0)
          add_scaled(before.mat().row(j), -step * e, k.row(i), width);
      normalise(k.row(i), width);
    }
  }
  return best;
}

}  // namespace braid
