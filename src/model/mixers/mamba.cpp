// Mamba, arXiv:2312.00752: convolution, selective scan and gate.
#include <cmath>

#include "kernels/selective_scan/selective_scan.h"
#include "model/mixers/registry.h"
#include "model/mixers/remember.h"

namespace braid {
namespace {

struct MambaConfig {
  int64_t d_inner = 0, state = 16, dt_rank = 0, conv = 4;
  bool negative_eigenvalues = false;
  template <class V>
  void visit(V& v) {
    v("d_inner", d_inner, {0, 1 << 20}, "inner width; 0 = 2 d_model");
    v("state", state, {1, static_cast<double>(kSelectiveScanMaxState)}, "state elements per channel");
    v("dt_rank", dt_rank, {0, 1 << 20}, "rank of the step-length projection; 0 = d_model / 16, rounded up");
    v("conv", conv, {2, 8}, "taps of the convolution");
    v("negative_eigenvalues", negative_eigenvalues, "decays from -1 to 1 instead of 0 to 1");
  }
};

class Mamba : public Mixer {
 public:
  using Config = MambaConfig;

  static Config resolve(Config c, const ModelConfig& model) {
    if (c.d_inner == 0) c.d_inner = 2 * model.d_model;
    if (c.dt_rank == 0) c.dt_rank = (model.d_model + 15) / 16;
    return c;
  }

  Mamba(const MambaConfig& c, const ModelConfig& model, Declare declare)
      : inner_(c.d_inner),
        state_(c.state),
        rank_(c.dt_rank),
        taps_(c.conv),
        low_(c.negative_eigenvalues ? -1.0f : 0.0f) {
    const double rank = 1 / std::sqrt(static_cast<double>(rank_));
    in_ = declare.stacked("in_proj.weight", {inner_, inner_}, model.d_model);
    conv_ = declare.precise().matrix("conv1d.weight", inner_, taps_, Init::kConv);
    conv_bias_ = declare.vector("conv1d.bias", inner_, Init::kZeros);
    x_ = declare.precise().matrix("x_proj.weight", rank_ + 2 * state_, inner_);
    dt_ = declare.precise().matrix("dt_proj.weight", inner_, rank_, {Init::kUniform, -rank, rank});
    dt_bias_ = declare.vector("dt_proj.bias", inner_, kStepInit);
    a_log_ = declare.precise().matrix("A_log", inner_, state_, Init::kLogColumn, false);
    skip_ = declare.vector("D", inner_);
    out_ = declare.matrix("out_proj.weight", model.d_model, inner_, Init::kOutput);
  }

  Var forward(const MixerCall& call) const override {
    Exec& e = call.exec;
    const auto [raw, z] = split<2>(e, linear(e, call.input, in_), {inner_, inner_});
    Var x = remembered_conv(call, raw, conv_);
    x = map(e, x, Map::kSilu, 1, static_cast<int>(conv_bias_));
    const auto [low, B, C] = split<3>(e, linear(e, x, x_), {rank_, state_, state_});
    const Var dt = map(e, linear(e, low, dt_), Map::kSoftplus, 1, static_cast<int>(dt_bias_));
    const Var y = remembered_scan(
        call, {.x = x, .dt = dt, .B = B, .C = C, .a_log = a_log_, .skip = skip_, .low = low_});
    return linear(e, gated(e, y, z, Gate::kSilu), out_, call.residual);
  }

  // Decay, write and read of each number of the state, and the skip.
  double flops_per_token(int64_t) const override {
    return static_cast<double>(inner_) * (7 * static_cast<double>(state_) + 2);
  }
  StateSize state_size(int64_t) const override {
    return {.memory = inner_ * state_, .tails = inner_ * (taps_ - 1)};
  }

 private:
  size_t inner_, state_, rank_, taps_;
  float low_;
  size_t in_, conv_, conv_bias_, x_, dt_, dt_bias_, a_log_, skip_, out_;
};

}  // namespace

MixerEntry mamba_entry() {
  return mixer_entry<Mamba>("mamba", "Mamba: convolution, selective scan, gate", {}, "arXiv:2312.00752");
}

}  // namespace braid
