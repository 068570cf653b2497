// A mixer moves information between tokens: projections, norms and gates around a kernel. One file each;
// registry.cpp lists them.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "autograd/ops.h"
#include "base/rng.h"
#include "model/config.h"
#include "model/state.h"

namespace braid {

// How a parameter starts.
struct Init {
  enum Kind {
    kNormal,  // normal with the model's init_std
    kOutput,  // the same divided by sqrt(2 layers): matrices that write to the residual stream
    kConv,    // taps of a convolution: uniform up to 1 / sqrt(taps). With init "fla" it is kNormal,
              // and kOutput uniform up to 1 / sqrt(2 layers columns)
    kOnes,
    kZeros,
    kIdentity,    // ones at (i, low + i)
    kUniform,     // between low and high
    kLogUniform,  // the logarithm of a number between low and high: decay rates
    kLogColumn,   // log(1 + column): Mamba's decay rates
    kStep,        // softplus(x) is log-uniform between low and high: step lengths
  };
  Kind kind;
  double low = 0, high = 0;
  Init(Kind k, double l = 0, double h = 0) : kind(k), low(l), high(h) {}  // NOLINT: a kind alone is an Init
};
inline const Init kDecayInit{Init::kLogUniform, 0, 16}, kStepInit{Init::kStep, 1e-3, 1e-1};

// The norms of the residual stream and of queries and keys: plain, or 1 + weight around zero.
inline NormOptions norm_options(const ModelConfig& m) {
  return {.eps = static_cast<float>(m.norm_eps), .offset = m.zero_centred_norms ? 1.0f : 0.0f};
}
inline Init norm_init(const ModelConfig& m) { return m.zero_centred_norms ? Init::kZeros : Init::kOnes; }

// Declares parameters under a prefix: "layers.0.mixer.".
class Declare {
 public:
  Declare(ParamSet& params, std::vector<Init>& inits, std::string prefix, size_t layer = 0)
      : params_(params), inits_(inits), prefix_(std::move(prefix)), layer_(layer) {}
  size_t matrix(const std::string& name, size_t rows, size_t cols, Init init = Init::kNormal,
                bool decay = true) {
    inits_.push_back(init);
    const size_t i = params_.add(prefix_ + name, {static_cast<int64_t>(rows), static_cast<int64_t>(cols)},
                                 decay, share_, precise_);
    if (!prefix_.empty() && decay && !precise_) params_.mark_hidden(i);  // not the embedding, nor the head
    return i;
  }
  // Several matrices of `cols` columns in one, each with so many rows.
  size_t stacked(const std::string& name, const std::vector<size_t>& rows, size_t cols) {
    size_t all = 0;
    for (const size_t r : rows) all += r;
    const size_t i = matrix(name, all, cols);
    params_.set_row_blocks(i, rows);
    return i;
  }
  size_t vector(const std::string& name, size_t size,
                Init init = Init::kOnes) {  // norms, biases, decay rates: no weight decay
    inits_.push_back(init);
    return params_.add(prefix_ + name, {static_cast<int64_t>(size)}, false, 1, true);
  }
  size_t norm(const std::string& name, size_t size, Init init = Init::kOnes) {  // weights of a norm
    const size_t i = vector(name, size, init);
    params_.mark_norm(i);
    return i;
  }
  // A matrix that layers share, without weight decay: the first to ask declares it.
  size_t shared(const std::string& name, size_t rows, size_t cols, Init init) {
    for (size_t i = 0; i < params_.all().size(); ++i)
      if (params_[i].name == name) return i;
    return Declare(params_, inits_, "").precise().matrix(name, rows, cols, init, false);
  }
  Declare under(const std::string& name) const {
    Declare d(params_, inits_, prefix_ + name + ".", layer_);
    d.share_ = share_;
    return d;
  }
  Declare precise() const {  // matrices that stay f32 in inference: Param::precise
    Declare d = *this;
    d.precise_ = true;
    return d;
  }
  Declare for_share(double share) const {  // parameters that only this share of the tokens uses
    Declare d = *this;
    d.share_ = share;
    return d;
  }
  size_t layer() const { return layer_; }

 private:
  ParamSet& params_;
  std::vector<Init>& inits_;
  std::string prefix_;
  size_t layer_;
  double share_ = 1;
  bool precise_ = false;
};

// A requested copy of a layer's state after `tokens` tokens of a sequence.
struct LayerSnapshot {
  size_t tokens;
  LayerState* to;
};

// What a mixer works on. Its values may have fewer rows than there are tokens: the ops take care of that
// (autograd/row_map.h). An op of one's own that moves information between tokens starts with every_token().
struct MixerCall {
  Exec& exec;
  Var input;                            // already normalised
  Var residual;                         // added to the result; may be absent
  std::span<const uint32_t> offsets;    // sequence s = tokens offsets[s] .. offsets[s+1]-1
  std::span<const int32_t> positions;   // of each token in its sequence
  std::span<LayerState* const> states;  // one per sequence, or empty: sequences start at zero (training)
  std::span<const std::vector<LayerSnapshot>> snapshots;  // of each sequence, by tokens; or empty

  // The input once more, for what is applied to the result of the mixing: gates, blends.
  Var gate_input() const { return with_rows(exec, input, exec.output_rows()); }

  // The state of each sequence of one kind, `count` elements. Ops of remember.h also log it for rollback.
  std::vector<float*> memory(Memory LayerState::*part, size_t count) const {
    std::vector<float*> all;
    for (LayerState* s : states) all.push_back((s->*part).write(count));
    return all;
  }
};

// State elements per sequence. `memory`: matrices, keys and values, as the papers count. `tails`: the last
// inputs of convolutions and delayed tokens.
struct StateSize {
  size_t memory = 0, tails = 0;
};

class Mixer {
 public:
  virtual ~Mixer() = default;
  virtual Var forward(const MixerCall& call) const = 0;
  virtual double flops_per_token(
      int64_t length) const = 0;  // forward, besides the projections: 2 per multiply-add
  virtual StateSize state_size(int64_t length) const = 0;  // after `length` tokens
};

}  // namespace braid
