// attention - causal softmax attention: full or windowed, grouped queries, RoPE (full, partial, scaled or
// none), QK-norm, biases, a short convolution (as Zoology puts before every mixer, arXiv:2312.04927), output
// gate (arXiv:2505.06708, Qwen3-Next).
#include "model/mixers/attention.h"

#include <fmt/format.h>

#include <cmath>

#include "model/mixers/attend.h"
#include "model/mixers/heads.h"
#include "model/mixers/registry.h"
#include "model/mixers/remember.h"

namespace braid {
namespace {

class Attention : public Mixer {
 public:
  using Config = AttentionConfig;

  // Zeros in the settings stand for values that follow from others.
  static Config resolve(Config c, const ModelConfig& model) {
    if (c.kv_heads == 0) c.kv_heads = c.heads;
    if (c.head_dim == 0) c.head_dim = model.d_model / c.heads;
    c.qk_eps = c.qk_norm == QkNorm::kNone ? 0 : c.qk_eps == 0 ? model.norm_eps : c.qk_eps;
    c.scaling.resolve();
    c.rotary_dim = c.rope_theta == 0 ? 0 : c.rotary_dim == 0 ? c.head_dim : c.rotary_dim;
    return c;
  }

  static void validate(const Config& raw, const std::string& where, const ModelConfig& model,
                       std::vector<Problem>& problems) {
    const Config c = resolve(raw, model);
    check_head_dim(c.heads, raw.head_dim, where, model, problems);
    if (c.heads % c.kv_heads != 0)
      problems.push_back({where + ".kv_heads",
                          fmt::format("{} does not divide heads {}", c.kv_heads, c.heads),
                          "give a divisor of heads"});
    if (c.rope_theta > 0 && (c.rotary_dim > c.head_dim || c.rotary_dim % 2 != 0))
      problems.push_back({where + ".rotary_dim",
                          fmt::format("is {} with head_dim {}", c.rotary_dim, c.head_dim),
                          "give an even number up to head_dim"});
    if (c.gate != AttentionGate::kNone && c.bias != AttentionBias::kNone)
      problems.push_back({where + ".bias", "is " + attention_biases().word(c.bias) + " with a gate",
                          "set one of the two to none"});
    if (c.conv == 1) problems.push_back({where + ".conv", "is 1", "give 2 to 8 taps, or 0 for none"});
    raw.scaling.validate(c.rope_theta, where, problems);
  }

  Attention(const AttentionConfig& c, const ModelConfig& model, Declare declare)
      : c_(c),
        norm_(norm_options(model)),
        shape_{.heads = static_cast<size_t>(c.heads),
               .kv_heads = static_cast<size_t>(c.kv_heads),
               .dk = static_cast<size_t>(c.head_dim),
               .dv = static_cast<size_t>(c.head_dim),
               .window = static_cast<size_t>(c.window),
               .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim))} {
    const size_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim, d = model.d_model;
    q_ = declare.matrix("q_proj.weight", q, d);
    k_ = declare.matrix("k_proj.weight", kv, d);
    v_ = declare.matrix("v_proj.weight", kv, d);
    if (c.gate != AttentionGate::kNone) g_ = declare.matrix("g_proj.weight", q, d);
    o_ = declare.matrix("o_proj.weight", d, q, Init::kOutput);
    if (c.qk_norm != QkNorm::kNone) {
      const bool head = c.qk_norm == QkNorm::kHead;
      q_norm_ = static_cast<int>(declare.norm("q_norm.weight", head ? c.head_dim : q, norm_init(model)));
      k_norm_ = static_cast<int>(declare.norm("k_norm.weight", head ? c.head_dim : kv, norm_init(model)));
    }
    if (c.qk_eps > 0) norm_.eps = static_cast<float>(c.qk_eps);
    if (c.bias != AttentionBias::kNone)
      qkv_bias_ = static_cast<int>(declare.vector("qkv_proj.bias", q + 2 * kv, Init::kZeros));
    if (c.bias == AttentionBias::kAll)
      o_bias_ = static_cast<int>(declare.vector("o_proj.bias", d, Init::kZeros));
    if (c.conv) conv_ = declare.precise().matrix("conv1d.weight", q + 2 * kv, c.conv, Init::kConv);
    if (c.rope_theta > 0) rope_ = c.scaling.table(static_cast<size_t>(c.rotary_dim), c.rope_theta);
  }

  Var forward(const MixerCall& call) const override {
    Exec& e = call.exec;
    const size_t ws[] = {q_, k_, v_}, q = shape_.heads * shape_.dk, kv = shape_.kv_heads * shape_.dk;
    Var qkv = linear_concat(e, call.input, ws);
    if (qkv_bias_ >= 0) qkv = map(e, qkv, Map::kIdentity, 1, qkv_bias_);
    if (c_.conv) qkv = remembered_conv(call, qkv, conv_);
    const auto [raw_q, raw_k, values] = split<3>(e, qkv, {q, kv, kv});
    const Qk qk = qk_prepare(e, raw_q, raw_k, call.positions,
                             {.heads = shape_.heads,
                              .kv_heads = shape_.kv_heads,
                              .dk = shape_.dk,
                              .q_norm = q_norm_,
                              .k_norm = k_norm_,
                              .norm_heads = c_.qk_norm == QkNorm::kHead,
                              .norm = norm_,
                              .rope = rope_.get()});
    Var o = attend(call, qk.q, qk.k, values, shape_, static_cast<float>(c_.weight_dropout));
    if (c_.gate != AttentionGate::kNone) o = gated(e, o, linear(e, call.gate_input(), g_), Gate::kSigmoid);
    return linear_bias(e, o, o_, o_bias_, call.residual);
  }

  double flops_per_token(int64_t length) const override { return attend_flops(shape_, length); }
  StateSize state_size(int64_t length) const override {
    const size_t channels = (shape_.heads + 2 * shape_.kv_heads) * shape_.dk;
    return {.memory = attend_numbers(shape_, length),
            .tails = c_.conv ? channels * (static_cast<size_t>(c_.conv) - 1) : 0};
  }

 private:
  AttentionConfig c_;
  NormOptions norm_;
  AttentionShape shape_;
  size_t q_, k_, v_, g_ = 0, conv_ = 0, o_;
  int q_norm_ = -1, k_norm_ = -1, qkv_bias_ = -1, o_bias_ = -1;
  std::unique_ptr<RopeTable> rope_;
};

}  // namespace

MixerEntry attention_entry() {
  return mixer_entry<Attention>(
      "attention",
      "causal softmax attention: full or windowed, grouped queries, RoPE or none, QK-norm, output gate", {},
      "arXiv:1706.03762");
}

}  // namespace braid
