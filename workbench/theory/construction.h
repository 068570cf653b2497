// Parity-conditioned retrieval solved by a model whose weights are written down, not learned: Gated DeltaNet
// keeps the parity and labels every token, gated attention looks up. docs/explanation/theory.md explains it.
//
//   auto model = pcr_model({.address_bits = 5});
//   model->save("pcr-model");                       // then: braid generate --model pcr-model --tokens ...
//
// One file for every arithmetic: what must be as large as possible is 100, which F_s reads as B_s.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "model/model.h"
#include "tasks/pcr.h"
#include "theory/number_model.h"

namespace braid {

// A head whose write strength stays within (0, 1) and that still turns the sign of its state, by rounding.
struct RoundingFlip {
  int64_t width;  // dk; the key is (1, .., 1), normalised
  double value;   // what BOS writes
};

struct PcrConstruction {
  int64_t address_bits = 5;
  bool scratchpad = true;  // false: one more layer of attention instead
  bool beta_to_2 = true;   // write strength 2 sigmoid(b); false: sigmoid(b), as Qwen3-Next has it
  std::optional<RoundingFlip> flip = {};  // with beta_to_2 false

  // Tokens that it writes after ASK: P, S, V or V alone.
  size_t steps() const { return scratchpad ? 3 : 1; }
};
std::unique_ptr<Model> pcr_model(const PcrConstruction& c);

// The fields of the residual stream, in order, for pictures.
struct PcrField {
  std::string name;
  size_t begin, size;
};
std::vector<PcrField> pcr_fields(int64_t address_bits);

// Weights that serve one purpose. Turned round (negated), the model must fail.
struct WeightGroup {
  std::string name;
  std::string param;
  size_t begin, end;  // rows of it
};
std::vector<WeightGroup> pcr_weight_groups(const PcrConstruction& c);
void turn_round(Model& model, const WeightGroup& group);

// The tokens that follow an instance by greedy decoding, and the smallest margin among them.
struct PcrAnswer {
  std::vector<int32_t> tokens;
  double margin;
};
PcrAnswer answer_pcr(const NumberModel& model, const PcrInstance& instance, size_t steps);
// What they should be.
std::vector<int32_t> pcr_answers(const PcrInstance& instance, size_t steps);

// Sign flips by rounding with write strength at most 1: widths up to `most` for which, in this arithmetic,
// BOS writes a state that each further write of 0 at the same key turns into its negative. Runs the reference
// of the fast weights behind that of the L2 norm.
std::vector<RoundingFlip> find_flips(const Arithmetic& a, int64_t most);

}  // namespace braid
