// Mamba2, arXiv:2405.21060: the additive fast-weight memory with one decay per head and token; keys are B,
// queries C, values dt x. The gate comes before the norm, which takes each group by itself, as the authors'
// code does.
#include <fmt/format.h>

#include <cmath>

#include "model/mixers/registry.h"
#include "model/mixers/remember.h"

namespace braid {
namespace {

struct Mamba2Config {
  int64_t d_inner = 0, head_dim = 64, state = 128, groups = 1, conv = 4;
  bool conv_bias = true, bias = false;
  template <class V>
  void visit(V& v) {
    v("d_inner", d_inner, {0, 1 << 20}, "inner width; 0 = 2 d_model");
    v("head_dim", head_dim, {1, 512}, "channels per head");
    v("state", state, {1, 512}, "state elements per channel");
    v("groups", groups, {1, 4096}, "groups of heads that share B and C, and a norm");
    v("conv", conv, {2, 8}, "taps of the convolution");
    v("conv_bias", conv_bias, "a bias in the convolution");
    v("bias", bias, "biases in the projections");
  }
};

class Mamba2 : public Mixer {
 public:
  using Config = Mamba2Config;

  static Config resolve(Config c, const ModelConfig& model) {
    if (c.d_inner == 0) c.d_inner = 2 * model.d_model;
    return c;
  }

  static void validate(const Config& raw, const std::string& where, const ModelConfig& model,
                       std::vector<Problem>& problems) {
    const Config c = resolve(raw, model);
    if (c.d_inner % c.head_dim != 0)
      problems.push_back({where + ".head_dim",
                          fmt::format("{} does not divide d_inner {}", c.head_dim, c.d_inner),
                          "give a divisor"});
    else if (c.d_inner / c.head_dim % c.groups != 0)
      problems.push_back({where + ".groups",
                          fmt::format("{} does not divide the {} heads", c.groups, c.d_inner / c.head_dim),
                          "give a divisor"});
  }

  Mamba2(const Mamba2Config& c, const ModelConfig& model, Declare declare)
      : inner_(c.d_inner),
        taps_(c.conv),
        norm_{.eps = static_cast<float>(model.norm_eps),
              .groups = static_cast<size_t>(c.groups),
              .weight_per_group = true},
        shape_{.value_heads = static_cast<size_t>(c.d_inner / c.head_dim),
               .key_heads = static_cast<size_t>(c.groups),
               .dk = static_cast<size_t>(c.state),
               .dv = static_cast<size_t>(c.head_dim),
               .decay = FastWeightDecay::kToken,
               .write = FastWeightWrite::kAdditive,
               .scale = 1} {
    const size_t heads = shape_.value_heads;
    bc_ = shape_.key_heads * shape_.dk;
    in_ = declare.stacked("in_proj.weight", {inner_, inner_, bc_, bc_, heads},
                          model.d_model);  // z, x, B, C, dt
    conv_ = declare.precise().matrix("conv1d.weight", inner_ + 2 * bc_, taps_, Init::kConv);
    const auto bias = [&](bool wanted, const char* name, size_t size) {
      return wanted ? static_cast<int>(declare.vector(name, size, Init::kZeros)) : -1;
    };
    conv_bias_ = bias(c.conv_bias, "conv1d.bias", inner_ + 2 * bc_);
    in_bias_ = bias(c.bias, "in_proj.bias", 2 * inner_ + 2 * bc_ + heads);
    out_bias_ = bias(c.bias, "out_proj.bias", model.d_model);
    dt_bias_ = declare.vector("dt_bias", heads, kStepInit);
    a_log_ = declare.vector("A_log", heads, {Init::kLogUniform, 1, 16});
    skip_ = declare.vector("D", heads);
    norm_weight_ = declare.norm("norm.weight", inner_);
    out_ = declare.matrix("out_proj.weight", model.d_model, inner_, Init::kOutput);
  }

  Var forward(const MixerCall& call) const override {
    Exec& e = call.exec;
    const auto [z, xbc, raw_dt] = split<3>(e, linear_bias(e, call.input, in_, in_bias_),
                                           {inner_, inner_ + 2 * bc_, shape_.value_heads});
    const Var c = map(e, remembered_conv(call, xbc, conv_), Map::kSilu, 1, conv_bias_);
    const auto [x, B, C] = split<3>(e, c, {inner_, bc_, bc_});
    const Var dt = map(e, raw_dt, Map::kSoftplus, 1, static_cast<int>(dt_bias_));
    const Var o =
        remembered_fast(call, &LayerState::fast, shape_,
                        {.q = C, .k = B, .v = scale_heads(e, x, dt), .g = decay(e, dt, a_log_), .beta = {}});
    const Var y = add(e, o, scale_heads_by(e, x, skip_));
    const NormGate gate{.z = z, .order = RmsNormOrder::kGateFirst};
    return linear_bias(e, rmsnorm(e, y, norm_weight_, norm_, gate), out_, out_bias_, call.residual);
  }

  double flops_per_token(int64_t) const override {
    return 5.0 * static_cast<double>(inner_ * shape_.dk) + 2.0 * static_cast<double>(inner_);
  }
  StateSize state_size(int64_t) const override {
    return {.memory = inner_ * shape_.dk, .tails = (inner_ + 2 * bc_) * (taps_ - 1)};
  }

 private:
  size_t inner_, taps_, bc_;
  NormOptions norm_;
  FastWeightShape shape_;
  int conv_bias_, in_bias_, out_bias_;
  size_t in_, conv_, dt_bias_, a_log_, skip_, norm_weight_, out_;
};

}  // namespace

MixerEntry mamba2_entry() {
  return mixer_entry<Mamba2>(
      "mamba2", "Mamba2: additive writes, one decay per head and token, convolution, skip and gate", {},
      "arXiv:2405.21060");
}

}  // namespace braid
