// HQLT, arXiv:2506.00744: a key-value memory and a fast-weight memory in one layer, fed by the same
// projections.
//   sync            both get every token
//   delayed_stream  the fast weights get a token when it leaves the attention window, with the write strength
//   and
//                   the decay of the token that pushes it out
//   delayed_chunk   attention inside a chunk of `window` positions, fast weights for everything before it
#include <cmath>

#include "model/mixers/attend.h"
#include "model/mixers/heads.h"
#include "model/mixers/fast_weight.h"
#include "model/mixers/remember.h"

namespace braid {
namespace {

enum class Variant : uint8_t { kSync, kDelayedStream, kDelayedChunk };
enum class Mixing : uint8_t { kSum, kScalar, kVector };

struct HqltConfig {
  int64_t heads = 4, head_dim = 0, window = 64, conv = 0;
  double rope_theta = 10000;
  Variant variant = Variant::kSync;
  Mixing mixing = Mixing::kVector;
  FastRule base = FastRule::kDeltanet;
  FeatureConfig features = {};
  RuleConfig rule = rule_of(FastRule::kDeltanet);
  OutputConfig output = {};
  template <class V>
  void visit(V& v) {
    v("variant", variant,
      {{"sync", Variant::kSync},
       {"delayed_stream", Variant::kDelayedStream},
       {"delayed_chunk", Variant::kDelayedChunk}},
      "tokens that update the fast weights: every token, those that leave the window, those of earlier "
      "chunks");
    v("mixing", mixing, {{"sum", Mixing::kSum}, {"scalar", Mixing::kScalar}, {"vector", Mixing::kVector}},
      "fast + kv; a fast + b kv with two sigmoids per head; c fast + (1 - c) kv, one sigmoid per element");
    v("heads", heads, {1, 4096}, "heads of both memories");
    v("head_dim", head_dim, {0, 512}, "elements per head; 0 = d_model / heads");
    v("window", window, {1, 1e9}, "window of attention in tokens; delayed_chunk: length of a chunk");
    v("rope_theta", rope_theta, {0, 1e12}, "base of the rotary embedding of the key-value memory; 0 = none");
    v("conv", conv, {0, 8}, "taps of a short convolution on q, k and v; 0 = none");
    v("rule", base, fast_rules(),
      "update rule of the fast weights: the name of the mixer that defines it; sets decay, write, "
      "negative_eigenvalues and steps, unless they are given",
      [this](FastRule r) { rule = rule_of(r); });
    rule.visit_steps(v);
    features.visit(v), rule.visit(v), output.visit(v);
  }
};

class Hqlt : public Mixer {
 public:
  using Config = HqltConfig;

  static Config resolve(Config c, const ModelConfig& model) {
    if (c.head_dim == 0) c.head_dim = model.d_model / c.heads;
    c.rule.resolve(c.head_dim), c.output.resolve(model);
    return c;
  }

  static void validate(const Config& c, const std::string& where, const ModelConfig& model,
                       std::vector<Problem>& problems) {
    const auto problem = [&](const char* field, const std::string& what, const std::string& fix) {
      problems.push_back({where + "." + field, what, fix});
    };
    check_rotated(check_head_dim(c.heads, c.head_dim, where, model, problems), c.rope_theta, where, problems);
    if (c.conv == 1) problem("conv", "is 1", "give 2 to 8 taps, or 0 for none");
    if (c.rule.decay == RuleDecay::kForget) {
      if (c.base == FastRule::kHgrn2)
        problem("rule", "is hgrn2, which makes keys that attention cannot use", "choose another rule");
      else
        problem("decay", "is forget, which makes keys that attention cannot use", "choose another decay");
    }
    if (c.rule.steps > 1 && c.rule.write != FastWeightWrite::kDelta)
      problem("steps", "is above 1 with additive writes", "set write to delta");
    if (c.output.gate_rank && c.output.gate == OutGate::kNone)
      problem("gate_rank", "is given without a gate", "leave it out, or set gate");
    validate_rule(c.rule, where, problems);
  }

  Hqlt(const HqltConfig& c, const ModelConfig& model, Declare declare)
      : c_(c),
        heads_(c.heads),
        dh_(c.head_dim),
        width_(heads_ * dh_),
        kv_{.heads = heads_,
            .kv_heads = heads_,
            .dk = dh_,
            .dv = dh_,
            .scale = 1.0f / std::sqrt(static_cast<float>(dh_))},
        q_(declare.matrix("q_proj.weight", width_, model.d_model)),
        writes_(static_cast<size_t>(c.rule.steps) * width_),
        k_(declare.stacked("k_proj.weight", std::vector(static_cast<size_t>(c.rule.steps), width_),
                           model.d_model)),
        v_(declare.stacked("v_proj.weight", std::vector(static_cast<size_t>(c.rule.steps), width_),
                           model.d_model)),
        rule_(c.rule, {heads_, heads_, dh_, dh_}, model, declare),
        output_(c.output, heads_, dh_, model, declare) {
    (c.variant == Variant::kDelayedChunk ? kv_.chunk : kv_.window) = static_cast<size_t>(c.window);
    if (c.conv) conv_ = declare.precise().matrix("conv1d.weight", channels(), c.conv, Init::kConv);
    if (c.mixing != Mixing::kSum)
      mix_ = declare.precise().matrix("mix_proj.weight", c.mixing == Mixing::kScalar ? 2 * heads_ : width_,
                                      model.d_model);
    if (c.rope_theta > 0) rope_ = std::make_unique<RopeTable>(dh_, c.rope_theta);
  }

  Var forward(const MixerCall& call) const override {
    Exec& e = call.exec;
    const size_t ws[] = {q_, k_, v_};
    Var qkv = linear_concat(e, call.input, ws);
    if (c_.conv) qkv = remembered_conv(call, qkv, conv_);
    // Attention has the first of the keys and values that a token writes.
    const size_t further = writes_ - width_;
    auto [q, k, next_k, v, next_v] = split<5>(e, dropout(e, qkv, static_cast<float>(c_.features.qkv_dropout)),
                                              {width_, width_, further, width_, further});
    v = value(e, v);
    const Var fast = fast_weights(call, feature(e, q), side_by_side(e, feature(e, k), feature(e, next_k)),
                                  side_by_side(e, v, value(e, next_v)));
    const Qk rotated =
        qk_prepare(e, q, k, call.positions,
                   {.heads = heads_, .kv_heads = heads_, .dk = dh_, .rope = rope_.get(), .in_place = false});
    const Var kv = attend(call, rotated.q, rotated.k, v, kv_);
    return output_.forward(call, mixed(call, fast, kv));
  }

  double flops_per_token(int64_t length) const override {
    return attend_flops(kv_, length) + rule_.flops_per_token();
  }
  StateSize state_size(int64_t length) const override {
    const bool chunk = c_.variant == Variant::kDelayedChunk, stream = c_.variant == Variant::kDelayedStream;
    return {.memory = attend_numbers(kv_, length) + rule_.state_numbers(),
            .tails = (stream ? 2 * writes_ * static_cast<size_t>(c_.window) : 0) +
                     (chunk ? rule_.state_numbers() : 0) +
                     (c_.conv ? channels() * (static_cast<size_t>(c_.conv) - 1) : 0)};
  }

 private:
  size_t channels() const { return width_ + 2 * writes_; }  // of q, k and v

  Var feature(Exec& e, Var x) const {
    if (!x.present()) return x;
    return normed(e, mapped(e, x, c_.features.feature), x.v.cols / dh_, c_.features.feature_norm);
  }
  Var value(Exec& e, Var x) const { return x.present() ? mapped(e, x, c_.features.value_feature) : x; }
  static Var side_by_side(Exec& e, Var a, Var b) {
    if (!b.present()) return a;
    const size_t width = a.v.cols + b.v.cols;
    return add(e, place(e, a, width, 0), place(e, b, width, a.v.cols));
  }

  Var fast_weights(const MixerCall& call, Var q, Var k, Var v) const {
    const FastWeightRule::Gates gates = rule_.gates(call);
    const auto window = static_cast<size_t>(c_.window);
    if (c_.variant == Variant::kDelayedChunk) return rule_.run_chunks(call, q, k, v, gates, window);
    if (c_.variant == Variant::kDelayedStream) {
      const Var both[] = {k, v};
      const std::vector<Var> late = remembered_delay(call, both, window);
      k = late[0], v = late[1];
    }
    return rule_.run(call, q, k, v, gates);
  }

  Var mixed(const MixerCall& call, Var fast, Var kv) const {
    Exec& e = call.exec;
    if (c_.mixing == Mixing::kSum) return add(e, fast, kv);
    const Var z = linear(e, call.gate_input(), mix_);
    if (c_.mixing == Mixing::kVector) return blend(e, fast, kv, z);
    const auto [a, b] = split<2>(e, map(e, z, Map::kSigmoid), {heads_, heads_});
    return add(e, scale_heads(e, fast, a), scale_heads(e, kv, b));
  }

  HqltConfig c_;
  size_t heads_, dh_, width_;
  AttentionShape kv_;
  size_t q_, writes_, k_, v_, conv_ = 0, mix_ = 0;
  FastWeightRule rule_;
  FastWeightOutput output_;
  std::unique_ptr<RopeTable> rope_;
};

}  // namespace

MixerEntry hqlt_entry() {
  return mixer_entry<Hqlt>("hqlt",
                           "HQLT: windowed attention and fast weights in one layer, synchronous or delayed",
                           {}, "arXiv:2506.00744");
}

}  // namespace braid
