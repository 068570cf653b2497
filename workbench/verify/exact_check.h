// A whole model against the same model made of the references, in double: its logits, its loss, and its
// gradient against derivatives along directions (complex step, so exact to rounding). Which experts a token
// goes to and on which side of a kink a number lies is taken as it is at the given parameters. A rounding
// (DeltaFormer's kernel) passes derivatives if its gradient is straight-through. For small models: an exact
// pass takes 16 bytes per parameter and about a thousand times as long as a fast one.
#pragma once

#include <complex>
#include <span>
#include <string>
#include <vector>

#include "autograd/exact.h"
#include "verify/compare.h"
#include "model/model.h"

namespace braid {

// Packed sequences without states; a target below zero is not supervised. The loss is the mean over the rest.
struct LossBatch {
  std::span<const int32_t> tokens;
  std::span<const uint32_t> offsets;
  std::span<const int32_t> targets;
};

class ExactCheck {
 public:
  // With a stream, dropout is on: always the same mask.
  ExactCheck(Model& model, const LossBatch& batch, const Rng* dropout = nullptr);

  CheckRow logits() const;  // f32 against exact, all tokens
  // `grads`: the gradient of the loss, a block like the parameters'. For every parameter by itself: a random
  // direction relative to the gradient's length, and two of its numbers relative to the steepest.
  CheckRow gradient(std::span<const float> grads);
  // Cheaper: `count` random directions in which every parameter's gradient weighs the same.
  CheckRow gradient_along(std::span<const float> grads, size_t count) const;
  std::vector<float> f32_gradient() const;  // without slices and lanes: ops and tape alone

  // Directions are blocks like the parameters'.
  double loss(std::span<const double> direction = {}, double h = 0) const;  // at parameters + h direction
  double slope(std::span<const double> direction) const;                    // its derivative at h = 0

 private:
  Exact::Number run(std::span<const double> direction, Exact::Number h) const;
  void set_params(Exact& exact, std::span<const double> direction, Exact::Number h) const;

  Model& model_;
  LossBatch batch_;
  const Rng* dropout_;
  std::vector<uint32_t> rows_;  // supervised
  std::vector<int32_t> targets_;
  std::vector<float> weights_;
  std::vector<double> slopes_;  // of gradient(), once it was called
};

}  // namespace braid
