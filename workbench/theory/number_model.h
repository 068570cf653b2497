// A whole model in another arithmetic: every op is the kernels' reference (kernels/*/*_ref.h) on that number
// type, one token at a time, weights rounded to it. Slow, and exactly what the definition says.
//
//   auto model = NumberModel::make(*braid_model, {.s = 2, .tie = Tie::kEven});     // or Arithmetic::f64()
//   if (!model) return model.error();
//   auto run = (*model)->start();
//   for (int32_t token : tokens) run->feed(token);
//   int32_t next = best(run->logits()).token;
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/model.h"
#include "theory/fixed.h"

namespace braid {

// F_s with a tie rule, s = 2, 3, 4, 6, 8 or 12; s = 0: float, s = -1: double.
struct Arithmetic {
  int s = 2;
  Tie tie = Tie::kEven;
  static Arithmetic f32() { return {.s = 0}; }
  static Arithmetic f64() { return {.s = -1}; }
  bool fixed() const { return s > 0; }
  double largest() const;    // B_s; not for floats
  std::string text() const;  // "F_2, ties to even", "float"
};
const char* tie_name(Tie tie);  // "zero", "even", "away"
inline constexpr Tie kTies[] = {Tie::kZero, Tie::kEven, Tie::kAway};

// State of a run, and the hidden row of its last token.
class NumberRun {
 public:
  virtual ~NumberRun() = default;
  virtual void feed(int32_t token) = 0;
  virtual std::vector<double> logits() const = 0;  // after the last token; every number is exact in a double
  // All that the rest of the run can depend on: fast weights, tails of convolutions, keys and values.
  virtual std::vector<double> state() const = 0;
  virtual std::vector<double> residual() const = 0;  // of the last token, before the final norm
  // The weights of the last token's query in one head of an attention layer, by position; for pictures.
  virtual std::vector<double> attention(size_t layer, size_t head) const = 0;
  virtual std::unique_ptr<NumberRun> copy() const = 0;
};

class NumberModel {
 public:
  virtual ~NumberModel() = default;
  virtual std::unique_ptr<NumberRun> start() const = 0;

  // Layers of Gated DeltaNet or DeltaNet and of attention, with SwiGLU or without; an error names what the
  // references here do not cover.
  static Result<std::unique_ptr<NumberModel>> make(const Model& model, const Arithmetic& arithmetic);
};

struct Best {
  int32_t token;
  double margin;  // its logit minus the next one's; 0 for a tie, which goes to the smaller token
};
Best best(std::span<const double> logits);

}  // namespace braid
