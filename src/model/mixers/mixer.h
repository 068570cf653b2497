// A mixer moves information between tokens: projections, norms and gates around a kernel. One file each;
// registry.cpp lists them.
#pragma once

#include <memory>
#include <span>

#include "autograd/ops.h"
#include "base/rng.h"
#include "model/config.h"
#include "model/state.h"

namespace braid {

// How a parameter starts. kOutput: normal, scaled down by sqrt(2 layers), for the matrices that write to the
// residual stream.
enum class Init { kNormal, kOutput, kOnes, kZeros };

// Declares parameters under a prefix: "layers.0.mixer.".
class Declare {
 public:
  Declare(ParamSet& params, std::vector<Init>& inits, std::string prefix)
      : params_(params), inits_(inits), prefix_(std::move(prefix)) {}
  size_t matrix(const std::string& name, size_t rows, size_t cols, Init init = Init::kNormal) {
    inits_.push_back(init);
    return params_.add(prefix_ + name, {static_cast<int64_t>(rows), static_cast<int64_t>(cols)}, true);
  }
  size_t vector(const std::string& name, size_t size,
                Init init = Init::kOnes) {  // norms, biases, decay rates: no weight decay
    inits_.push_back(init);
    return params_.add(prefix_ + name, {static_cast<int64_t>(size)}, false);
  }
  Declare under(const std::string& name) const { return {params_, inits_, prefix_ + name + "."}; }

 private:
  ParamSet& params_;
  std::vector<Init>& inits_;
  std::string prefix_;
};

struct MixerCall {
  Exec& exec;
  Var x;                                // [tokens, d_model], already normalised
  Var residual;                         // added to the result
  std::span<const uint32_t> offsets;    // sequence s = tokens offsets[s] .. offsets[s+1]-1
  std::span<const int32_t> positions;   // of each token in its sequence
  std::span<LayerState* const> states;  // one per sequence, or empty: sequences stand alone (training)
};

class Mixer {
 public:
  virtual ~Mixer() = default;
  virtual Var forward(const MixerCall& call) const = 0;
  virtual void prepare(int64_t /*positions*/) {
  }  // tables for positions below this; before any forward that reaches them
  virtual double flops_per_token(
      int64_t length) const = 0;  // forward, besides the projections: 2 per multiply-add
  virtual size_t state_numbers(int64_t length) const = 0;  // kept per sequence after `length` tokens
};

}  // namespace braid
