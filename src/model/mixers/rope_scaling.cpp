#include "model/mixers/rope_scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace braid {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

}  // namespace

void RopeScaling::resolve() {
  if (scaling == RopeKind::kNone) {
    *this = {};
    return;
  }
  if (factor == 0) factor = 1;
  if (scaling == RopeKind::kLinear) original = 0, low = high = 0;
  if (scaling != RopeKind::kYarn) amplitude = 0;
  if (scaling == RopeKind::kLinear) return;
  if (low == 0) low = 1;
  if (high == 0) high = scaling == RopeKind::kYarn ? 32 : 4;
  if (scaling == RopeKind::kYarn && amplitude == 0) amplitude = factor > 1 ? 1 + 0.1 * std::log(factor) : 1;
}

void RopeScaling::validate(double theta, const std::string& where, std::vector<Problem>& problems) const {
  const auto problem = [&](const char* field, const std::string& what, const char* fix) {
    problems.push_back({where + "." + field, what, fix});
  };
  if (scaling == RopeKind::kNone) {
    if (factor != 0 || original != 0 || low != 0 || high != 0 || amplitude != 0)
      problem("rope_scaling", "is none, but others of its settings are given", "set it, or leave them out");
    return;
  }
  if (theta <= 1) problem("rope_theta", fmt::format("is {} with rope_scaling", theta), "give a base above 1");
  if (scaling == RopeKind::kLinear) return;
  if (original == 0) problem("rope_original", "is missing", "give the length of the first training");
  RopeScaling full = *this;
  full.resolve();
  if (full.high <= full.low)
    problem("rope_high", fmt::format("is {}, not above rope_low {}", full.high, full.low), "exchange them");
}

std::unique_ptr<RopeTable> RopeScaling::table(size_t rot, double theta) const {
  if (scaling == RopeKind::kNone) return std::make_unique<RopeTable>(rot, theta);
  const auto n = static_cast<double>(rot), length = static_cast<double>(original);
  // YaRN: the i whose frequency turns so many times within the first training's length.
  const auto index_of = [&](double turns) {
    return n * std::log(length / (turns * kTurn)) / (2 * std::log(theta));
  };
  double first = 0, last = 0;
  if (scaling == RopeKind::kYarn) {
    first = std::max(std::floor(index_of(high)), 0.0);
    last = std::min(std::ceil(index_of(low)), n - 1);
    if (first == last) last += 0.001;
  }
  std::vector<double> frequency(rot / 2);
  for (size_t i = 0; i < frequency.size(); ++i) {
    const double f = std::pow(theta, -2.0 * static_cast<double>(i) / n);
    double keep = 0;  // the share of f itself beside f / factor
    if (scaling == RopeKind::kLlama3) keep = std::clamp((length * f / kTurn - low) / (high - low), 0.0, 1.0);
    if (scaling == RopeKind::kYarn)
      keep = 1 - std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    frequency[i] = keep * f + (1 - keep) * f / factor;
  }
  return std::make_unique<RopeTable>(std::move(frequency), scaling == RopeKind::kYarn ? amplitude : 1);
}

}  // namespace braid
