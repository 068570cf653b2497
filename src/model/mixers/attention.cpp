// attention - causal softmax attention: full or windowed, grouped queries, RoPE (full, partial, scaled or
// none), QK-norm, biases, a short convolution (as Zoology puts before every mixer, arXiv:2312.04927), output
// gate (arXiv:2505.06708, Qwen3-Next).
#include <cmath>

#include "model/mixers/attend.h"
#include "model/mixers/heads.h"
#include "model/mixers/registry.h"
#include "model/mixers/remember.h"
#include "model/mixers/rope_scaling.h"

namespace braid {
namespace {

struct AttentionConfig {
  int64_t heads = 4, kv_heads = 0, head_dim = 0, window = 0, rotary_dim = 0, conv = 0;
  double rope_theta = 10000, weight_dropout = 0, qk_eps = 0;
  std::string qk_norm = "none", gate = "none", bias = "none";
  RopeScaling scaling;
  template <class V>
  void visit(V& v) {
    v("heads", heads, {1, 4096}, "query heads");
    v("kv_heads", kv_heads, {0, 4096}, "key-value heads; 0 = heads");
    v("head_dim", head_dim, {0, 512}, "numbers per head; 0 = d_model / heads");
    v("window", window, {0, 1e9}, "a token sees itself and the window-1 before it; 0 = all");
    v("rope_theta", rope_theta, {0, 1e12}, "base of the rotary embedding; 0 = no positions (NoPE)");
    v("rotary_dim", rotary_dim, {0, 512}, "numbers per head that are rotated; 0 = all");
    scaling.visit(v);
    v("qk_norm", qk_norm, {"none", "head", "full"},
      "RMSNorm of q and k: per head, or over the whole projection");
    v("qk_eps", qk_eps, {0, 1}, "epsilon of qk_norm; 0 = the model's norm_eps");
    v("bias", bias, {"none", "qkv", "all"},
      "biases in the projections: of q, k and v, or of the output, too");
    v("conv", conv, {0, 8}, "taps of a short convolution on q, k and v; 0 = none");
    v("gate", gate, {"none", "sigmoid"},
      "what the output is multiplied with: a projection of the layer's input");
    v("weight_dropout", weight_dropout, {0, 0.99},
      "share of the attention weights dropped in training (GPT-2)");
  }
};

// Zeros in the settings stand for values that follow from others.
AttentionConfig resolve(AttentionConfig c, const ModelConfig& model) {
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0) c.head_dim = model.d_model / c.heads;
  c.qk_eps = c.qk_norm == "none" ? 0 : c.qk_eps == 0 ? model.norm_eps : c.qk_eps;
  c.scaling.resolve();
  c.rotary_dim = c.rope_theta == 0 ? 0 : c.rotary_dim == 0 ? c.head_dim : c.rotary_dim;
  return c;
}

void validate(const Json& settings, const std::string& where, const ModelConfig& model,
              std::vector<Problem>& problems) {
  const size_t before = problems.size();
  const AttentionConfig raw = parse_fields<AttentionConfig>(settings, where, problems),
                        c = resolve(raw, model);
  if (problems.size() > before) return;
  check_head_dim(c.heads, raw.head_dim, where, model, problems);
  if (c.heads % c.kv_heads != 0)
    problems.push_back({where + ".kv_heads", fmt::format("{} does not divide heads {}", c.kv_heads, c.heads),
                        "give a divisor of heads"});
  if (c.rope_theta > 0 && (c.rotary_dim > c.head_dim || c.rotary_dim % 2 != 0))
    problems.push_back({where + ".rotary_dim",
                        fmt::format("is {} with head_dim {}", c.rotary_dim, c.head_dim),
                        "give an even number up to head_dim"});
  if (c.gate != "none" && c.bias != "none")
    problems.push_back({where + ".bias", "is " + c.bias + " with a gate", "set one of the two to none"});
  if (c.conv == 1) problems.push_back({where + ".conv", "is 1", "give 2 to 8 taps, or 0 for none"});
  raw.scaling.validate(c.rope_theta, where, problems);
}

class Attention : public Mixer {
 public:
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
    if (c.gate != "none") g_ = declare.matrix("g_proj.weight", q, d);
    o_ = declare.matrix("o_proj.weight", d, q, Init::kOutput);
    if (c.qk_norm != "none") {
      const bool head = c.qk_norm == "head";
      q_norm_ = static_cast<int>(declare.vector("q_norm.weight", head ? c.head_dim : q, norm_init(model)));
      k_norm_ = static_cast<int>(declare.vector("k_norm.weight", head ? c.head_dim : kv, norm_init(model)));
    }
    if (c.qk_eps > 0) norm_.eps = static_cast<float>(c.qk_eps);
    if (c.bias != "none")
      qkv_bias_ = static_cast<int>(declare.vector("qkv_proj.bias", q + 2 * kv, Init::kZeros));
    if (c.bias == "all") o_bias_ = static_cast<int>(declare.vector("o_proj.bias", d, Init::kZeros));
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
                              .norm_heads = c_.qk_norm == "head",
                              .norm = norm_,
                              .rope = rope_.get()});
    Var o = attend(call, qk.q, qk.k, values, shape_, static_cast<float>(c_.weight_dropout));
    if (c_.gate != "none") o = gated(e, o, linear(e, call.gate_input(), g_), Gate::kSigmoid);
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

AttentionConfig parsed(const Json& settings, const ModelConfig& model) {
  std::vector<Problem> none;
  return resolve(parse_fields<AttentionConfig>(settings, "", none), model);
}

std::unique_ptr<Mixer> make(const Json& settings, const ModelConfig& model, Declare declare) {
  return std::make_unique<Attention>(parsed(settings, model), model, declare);
}

}  // namespace

MixerEntry attention_entry() {
  return {
      "attention",
      "causal softmax attention: full or windowed, grouped queries, RoPE or none, QK-norm, output gate",
      validate,
      make,
      [] { return list_fields(AttentionConfig()); },
      [](const Json& settings, const ModelConfig& model) { return write_fields(parsed(settings, model)); }};
}

}  // namespace braid
