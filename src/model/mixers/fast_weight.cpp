#include "model/mixers/fast_weight.h"

#include <fmt/format.h>

#include <cmath>

#include "kernels/short_conv/short_conv.h"
#include "model/mixers/heads.h"
#include "model/mixers/remember.h"

namespace braid {

namespace {

constexpr float kSigmoidDecay = 1.0f / 16;  // GLA: log sigmoid / 16, arXiv:2312.06635
constexpr int64_t kSigmoidRank = 16;

FastWeightDecay kernel_decay(RuleDecay decay) {
  switch (decay) {
    case RuleDecay::kNone:
      return FastWeightDecay::kNone;
    case RuleDecay::kConstant:
      return FastWeightDecay::kHead;
    case RuleDecay::kToken:
      return FastWeightDecay::kToken;
    default:
      return FastWeightDecay::kChannel;
  }
}

}  // namespace

Choices<RuleDecay> rule_decays() {
  return {{"none", RuleDecay::kNone},       {"constant", RuleDecay::kConstant},
          {"token", RuleDecay::kToken},     {"channel", RuleDecay::kChannel},
          {"sigmoid", RuleDecay::kSigmoid}, {"forget", RuleDecay::kForget}};
}

void RuleConfig::resolve(int64_t head_dim) {
  if (decay_rank == 0)
    decay_rank = decay == RuleDecay::kChannel ? head_dim : decay == RuleDecay::kSigmoid ? kSigmoidRank : 0;
}

void OutputConfig::resolve(const ModelConfig& model) {
  if (out_norm == OutNorm::kNone)
    out_eps = 0;
  else if (out_eps == 0)
    out_eps = model.norm_eps;
}

FastWeightRule::FastWeightRule(const RuleConfig& c, const RuleShape& s, const ModelConfig& model,
                               Declare& declare)
    : c_(c),
      shape_{.value_heads = s.heads,
             .key_heads = s.key_heads,
             .dk = s.dk,
             .dv = s.dv,
             .decay = kernel_decay(c.decay),
             .write = c.write,
             .scale = 1.0f / std::sqrt(static_cast<float>(s.dk))},
      steps_(static_cast<size_t>(c.steps)),
      layer_(declare.layer()),
      forget_(c.decay == RuleDecay::kForget) {
  const size_t d = model.d_model, channels = s.heads * s.dk;
  if (shape_.write == FastWeightWrite::kDelta)
    b_ = declare.precise().matrix("b_proj.weight", steps_ * s.heads, d);
  if (c.decay == RuleDecay::kConstant) {  // 1 - 2^(-5-h), arXiv:2307.08621
    for (size_t h = 0; h < s.heads; ++h)
      constant_.push_back(static_cast<float>(std::log1p(-std::exp2(-5.0 - static_cast<double>(h)))));
  } else if (c.decay == RuleDecay::kToken) {
    a_ = declare.precise().matrix("a_proj.weight", s.heads, d);
    a_log_ = declare.vector("A_log", s.heads, kDecayInit);
    bias_ = static_cast<int>(declare.vector("dt_bias", s.heads, kStepInit));
  } else if (c.decay == RuleDecay::kChannel) {
    const size_t rank = c.decay_rank ? c.decay_rank : s.dk;
    f_a_ = declare.precise().matrix("f_a_proj.weight", rank, d);
    f_b_ = declare.precise().matrix("f_b_proj.weight", channels, rank);
    a_log_ = declare.vector("A_log", s.heads, kDecayInit);
    bias_ = static_cast<int>(declare.vector("dt_bias", channels, kStepInit));
  } else if (c.decay == RuleDecay::kSigmoid) {
    const int64_t rank = c.decay_rank ? c.decay_rank : kSigmoidRank;
    f_a_ = declare.precise().matrix("gk_a_proj.weight", rank, d);
    f_b_ = declare.precise().matrix("gk_b_proj.weight", channels, rank);
    bias_ = static_cast<int>(declare.vector("gk_b_proj.bias", channels, Init::kZeros));
  } else if (forget_) {
    a_ = declare.precise().matrix("f_proj.weight", channels, d);
    bounds_ =
        declare.shared("lower_bounds." + std::to_string(channels), model.n_layers, channels, Init::kZeros);
  }
}

FastWeightRule::Gates FastWeightRule::gates(const MixerCall& call) const {
  Exec& e = call.exec;
  Gates out;
  const float beta_max = c_.negative_eigenvalues ? 2.0f : 1.0f;
  if (c_.decay == RuleDecay::kToken && shape_.write == FastWeightWrite::kDelta && steps_ == 1) {
    const Var both =
        delta_gates(e, linear(e, call.input, a_), linear(e, call.input, b_), a_log_, bias_, beta_max);
    const size_t n = shape_.value_heads;
    out.g = cols(e, both, 0, n), out.beta = cols(e, both, n, 2 * n);
    return out;
  }
  if (shape_.write == FastWeightWrite::kDelta)
    out.beta = map(e, linear(e, call.input, b_), Map::kSigmoid, beta_max);
  if (c_.decay == RuleDecay::kToken) {
    out.g = decay(e, map(e, linear(e, call.input, a_), Map::kSoftplus, 1, bias_), a_log_);
  } else if (c_.decay == RuleDecay::kChannel) {
    out.g = decay(e, map(e, linear(e, linear(e, call.input, f_a_), f_b_), Map::kSoftplus, 1, bias_), a_log_);
  } else if (c_.decay == RuleDecay::kSigmoid) {
    out.g = map(e, linear(e, linear(e, call.input, f_a_), f_b_), Map::kLogSigmoid, kSigmoidDecay, bias_);
  } else if (forget_) {
    const Var gk = forget(e, linear(e, call.input, a_), bounds_, layer_);
    const size_t n = gk.v.cols / 2;
    out.g = cols(e, gk, 0, n), out.k = cols(e, gk, n, 2 * n);
  }
  return out;
}

FastWeightVars FastWeightRule::variables(Var q, Var k, Var v, const Gates& gates) const {
  FastWeightVars in{.q = q, .k = k, .v = v, .g = gates.g, .beta = gates.beta, .writes = steps_};
  if (!constant_.empty()) in.g_head = constant_.data();
  return in;
}

Var FastWeightRule::run(const MixerCall& call, Var q, Var k, Var v, const Gates& gates) const {
  return remembered_fast(call, &LayerState::fast, shape_, variables(q, k, v, gates));
}

Var FastWeightRule::run_chunks(const MixerCall& call, Var q, Var k, Var v, const Gates& gates,
                               size_t chunk) const {
  return remembered_chunks(call, shape_, variables(q, k, v, gates), chunk);
}

Var FastWeightRule::normalised(const MixerCall& call, Var o, Var q, Var k, const Gates& gates) const {
  Exec& e = call.exec;
  FastWeightShape s = shape_;
  s.dv = 1;
  const Var ones = e.result_like(k, s.value_heads, false);
  std::fill_n(ones.v.data, ones.v.count(), 1.0f);
  FastWeightVars in = variables(q, k, ones, gates);
  in.beta = {};
  return divide_heads(e, o, remembered_fast(call, &LayerState::normaliser, s, in), 1e-6f);
}

double FastWeightRule::flops_per_token() const {
  const bool delta = shape_.write == FastWeightWrite::kDelta, decays = shape_.decay != FastWeightDecay::kNone;
  // Per number of the state and write: two for the write, two more to look up what is there, one for the
  // decay; two for the read.
  return static_cast<double>(state_numbers()) *
         (static_cast<double>(steps_) * (delta ? 4 : 2) + (decays ? 1 : 0) + 2);
}

void validate_rule(const RuleConfig& c, const std::string& where, std::vector<Problem>& problems) {
  if (c.negative_eigenvalues && c.write != FastWeightWrite::kDelta)
    problems.push_back({where + ".negative_eigenvalues", "is true with additive writes",
                        "set write to delta, or leave it out"});
  if (c.decay_rank && c.decay != RuleDecay::kChannel && c.decay != RuleDecay::kSigmoid)
    problems.push_back({where + ".decay_rank", "is given, but decay is " + rule_decays().word(c.decay),
                        "leave it out, or set decay to channel or sigmoid"});
}

Var mapped(Exec& e, Var x, Map feature) { return feature == Map::kIdentity ? x : map(e, x, feature); }

Var normed(Exec& e, Var x, size_t heads, FeatureNorm norm) {
  return norm == FeatureNorm::kL2 ? l2norm(e, x, heads) : norm == FeatureNorm::kL1 ? l1norm(e, x, heads) : x;
}

FastWeightOutput::FastWeightOutput(const OutputConfig& c, size_t heads, size_t dv, const ModelConfig& model,
                                   Declare& declare)
    : c_(c),
      norm_{.eps = static_cast<float>(c.out_eps > 0 ? c.out_eps : model.norm_eps),
            .groups = c.out_norm == OutNorm::kHead ? heads : 1} {
  const size_t d = model.d_model, width = heads * dv;
  if (c.gate != OutGate::kNone && c.gate_rank == 0) {
    g_ = declare.matrix("g_proj.weight", width, d);
  } else if (c.gate != OutGate::kNone) {
    g_a_ = declare.matrix("g_a_proj.weight", c.gate_rank, d);
    g_b_ = declare.matrix("g_b_proj.weight", width, c.gate_rank);
  }
  if (c.out_norm != OutNorm::kNone)
    w_ = declare.norm("o_norm.weight", c.out_norm == OutNorm::kHead ? dv : width);
  o_ = declare.matrix("o_proj.weight", d, width, Init::kOutput);
}

Var FastWeightOutput::forward(const MixerCall& call, Var o) const {
  Exec& e = call.exec;
  Var gate;
  if (c_.gate != OutGate::kNone) {
    const Var x = call.gate_input();
    gate = c_.gate_rank ? linear(e, linear(e, x, g_a_), g_b_) : linear(e, x, g_);
  }
  const bool silu = c_.gate == OutGate::kSilu;
  if (c_.out_norm != OutNorm::kNone)
    o = rmsnorm(e, o, w_, norm_, {.z = gate, .gate = silu ? RmsNormGate::kSilu : RmsNormGate::kSigmoid});
  else if (c_.gate != OutGate::kNone)
    o = gated(e, o, gate, silu ? Gate::kSilu : Gate::kSigmoid);
  return linear(e, o, o_, call.residual);
}

namespace {

struct Dims {
  size_t heads, key_heads, dk, dv;
};

Dims dims_of(const FastWeightConfig& c, const ModelConfig& model) {
  const auto size = [](int64_t x) { return static_cast<size_t>(x); };
  const size_t dk = size(c.head_dim ? c.head_dim : model.d_model / c.heads);
  return {size(c.heads), size(c.key_heads ? c.key_heads : c.heads), dk, c.value_dim ? size(c.value_dim) : dk};
}

class FastWeightMixer : public Mixer {
 public:
  using Config = FastWeightConfig;

  static Config resolve(Config c, const ModelConfig& model) {
    const Dims d = dims_of(c, model);
    c.key_heads = static_cast<int64_t>(d.key_heads);
    c.head_dim = static_cast<int64_t>(d.dk), c.value_dim = static_cast<int64_t>(d.dv);
    c.rule.resolve(c.head_dim), c.output.resolve(model);
    return c;
  }

  static void validate(const Config& c, const std::string& where, const ModelConfig& model,
                       std::vector<Problem>& problems) {
    const auto problem = [&](const char* field, const std::string& what, const std::string& fix) {
      problems.push_back({where + "." + field, what, fix});
    };
    check_rotated(check_head_dim(c.heads, c.head_dim, where, model, problems), c.rope_theta, where, problems);
    const Dims d = dims_of(c, model);
    if (d.heads % d.key_heads != 0)
      problem("key_heads", fmt::format("{} does not divide heads {}", d.key_heads, d.heads),
              "give a divisor of heads");
    if (c.conv == 1) problem("conv", "is 1", "give 2 to 8 taps, or 0 for none");
    if (c.normalise && c.rule.write != FastWeightWrite::kAdditive)
      problem("normalise", "is true with the delta rule", "set write to additive");
    if (c.rule.steps > 1 && c.rule.write != FastWeightWrite::kDelta)
      problem("steps", "is above 1 with additive writes", "set write to delta");
    if (c.rule.decay == RuleDecay::kForget &&
        (c.conv || c.rule.steps > 1 || d.key_heads != d.heads || c.rope_theta > 0))
      problem("decay", "is forget, which makes the keys: no conv, steps, key_heads or rope_theta then",
              "set conv to 0 and leave the others out");
    if (c.output.gate_rank && c.output.gate == OutGate::kNone)
      problem("gate_rank", "is given without a gate", "leave it out, or set gate");
    validate_rule(c.rule, where, problems);
  }

  FastWeightMixer(const FastWeightConfig& c, const ModelConfig& model, Declare declare)
      : c_(c),
        d_(dims_of(c, model)),
        steps_(static_cast<size_t>(c.rule.steps)),
        q_(declare.matrix("q_proj.weight", d_.key_heads * d_.dk, model.d_model)),
        rule_(c.rule, {d_.heads, d_.key_heads, d_.dk, d_.dv}, model, declare) {
    const size_t keys = d_.key_heads * d_.dk, values = d_.heads * d_.dv, d = model.d_model;
    if (!rule_.makes_keys()) k_ = declare.stacked("k_proj.weight", std::vector(steps_, keys), d);
    v_ = declare.stacked("v_proj.weight", std::vector(steps_, values), d);
    channels_ = keys + steps_ * ((rule_.makes_keys() ? 0 : keys) + values);
    if (c.conv) conv_ = declare.precise().matrix("conv1d.weight", channels_, c.conv, Init::kConv);
    if (c.rope_theta > 0) rope_ = std::make_unique<RopeTable>(d_.dk, c.rope_theta);
    output_ = std::make_unique<FastWeightOutput>(c.output, d_.heads, d_.dv, model, declare);
  }

  Var forward(const MixerCall& call) const override {
    Exec& e = call.exec;
    const size_t keys = d_.key_heads * d_.dk, values = d_.heads * d_.dv;
    FastWeightRule::Gates gates = rule_.gates(call);
    Var q, k, v;
    const auto parts = [&](Var all) {
      const std::array<Var, 3> x =
          split<3>(e, all, {keys, rule_.makes_keys() ? 0 : steps_ * keys, steps_ * values});
      q = x[0], k = rule_.makes_keys() ? gates.k : x[1], v = x[2];
    };
    const FeatureConfig& f = c_.features;
    const auto p = static_cast<float>(f.qkv_dropout);
    const bool drop = p > 0 && e.dropout_rng() != nullptr,
               fused = c_.conv && f.feature == Map::kSilu && f.value_feature == Map::kSilu,
               fused_norm =
                   fused && !drop && f.feature_norm == FeatureNorm::kL2 && !rope_ && d_.dk <= kShortConvMaxL2;
    if (steps_ == 1 || c_.conv) {
      const size_t ws[] = {q_, rule_.makes_keys() ? v_ : k_, v_};
      Var all = linear_concat(e, call.input, std::span(ws, rule_.makes_keys() ? 2 : 3));
      if (c_.conv)
        all = remembered_conv(call, all, conv_,
                              {.silu = fused,
                               .l2_dim = fused_norm ? d_.dk : 0,
                               .l2_channels = fused_norm ? (1 + steps_) * keys : 0});
      parts(all);
    } else {
      q = linear(e, call.input, q_), k = linear(e, call.input, k_), v = linear(e, call.input, v_);
    }
    if (!fused) {
      q = mapped(e, q, f.feature), v = mapped(e, v, f.value_feature);
      if (!rule_.makes_keys()) k = mapped(e, k, f.feature);
    }
    q = dropout(e, q, p), k = dropout(e, k, p), v = dropout(e, v, p);
    if (rope_) {
      const Qk rotated = qk_prepare(e, q, k, call.positions,
                                    {.heads = d_.key_heads,
                                     .kv_heads = steps_ * d_.key_heads,
                                     .dk = d_.dk,
                                     .rope = rope_.get(),
                                     .in_place = false});
      q = rotated.q, k = rotated.k;
    }
    if (!fused_norm) {
      q = normed(e, q, d_.key_heads, f.feature_norm);
      if (!rule_.makes_keys()) k = normed(e, k, steps_ * d_.key_heads, f.feature_norm);
    }
    Var o = rule_.run(call, q, k, v, gates);
    if (c_.normalise) o = rule_.normalised(call, o, q, k, gates);
    return output_->forward(call, o);
  }

  double flops_per_token(int64_t) const override { return rule_.flops_per_token(); }
  StateSize state_size(int64_t) const override {
    return {.memory = rule_.state_numbers() + (c_.normalise ? d_.heads * d_.dk : 0),
            .tails = c_.conv ? channels_ * (static_cast<size_t>(c_.conv) - 1) : 0};
  }

 private:
  FastWeightConfig c_;
  Dims d_;
  size_t steps_, q_;
  FastWeightRule rule_;
  size_t k_ = 0, v_, conv_ = 0, channels_;
  std::unique_ptr<RopeTable> rope_;
  std::unique_ptr<FastWeightOutput> output_;
};

}  // namespace

MixerEntry fast_weight_mixer(std::string name, std::string summary, const FastWeightConfig& defaults,
                             std::string paper) {
  return mixer_entry<FastWeightMixer>(std::move(name), std::move(summary), defaults, std::move(paper));
}

}  // namespace braid
