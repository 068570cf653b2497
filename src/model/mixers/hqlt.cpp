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

struct HqltConfig {
  int64_t heads = 4, head_dim = 0, window = 64, conv = 0;
  double rope_theta = 10000;
  std::string variant = "sync", mixing = "vector";
  FeatureConfig features;
  RuleConfig rule;
  OutputConfig output;
  template <class V>
  void visit(V& v) {
    v("variant", variant, {"sync", "delayed_stream", "delayed_chunk"}, "when the fast weights get a token");
    v("mixing", mixing, {"sum", "scalar", "vector"},
      "fast + kv; a fast + b kv with two sigmoids per head; c fast + (1 - c) kv, a sigmoid per number");
    v("heads", heads, {1, 4096}, "heads of both memories");
    v("head_dim", head_dim, {0, 512}, "numbers per head; 0 = d_model / heads");
    v("window", window, {1, 1e9}, "tokens that attention sees; delayed_chunk: length of a chunk");
    v("rope_theta", rope_theta, {0, 1e12}, "base of the rotary embedding of the key-value memory; 0 = none");
    v("conv", conv, {0, 8}, "taps of a short convolution on q, k and v; 0 = none");
    features.visit(v), rule.visit(v), output.visit(v);
  }
};

int64_t head_dim(const HqltConfig& c, const ModelConfig& model) {
  return c.head_dim ? c.head_dim : model.d_model / c.heads;
}

void validate(const Json& settings, const std::string& where, const ModelConfig& model,
              std::vector<Problem>& problems) {
  const size_t before = problems.size();
  const HqltConfig c = parse_fields<HqltConfig>(settings, where, problems);
  if (problems.size() > before) return;
  const auto problem = [&](const char* field, const std::string& what, const std::string& fix) {
    problems.push_back({where + "." + field, what, fix});
  };
  check_rotated(check_head_dim(c.heads, c.head_dim, where, model, problems), c.rope_theta, where, problems);
  if (c.conv == 1) problem("conv", "is 1", "give 2 to 8 taps, or 0 for none");
  if (c.rule.decay == "forget")
    problem("decay", "is forget, which makes keys that attention cannot use", "choose another decay");
  if (c.output.gate_rank && c.output.gate == "none")
    problem("gate_rank", "is given without a gate", "leave it out, or set gate");
  validate_rule(c.rule, where, problems);
}

class Hqlt : public Mixer {
 public:
  Hqlt(const HqltConfig& c, const ModelConfig& model, Declare declare)
      : c_(c),
        heads_(c.heads),
        dh_(head_dim(c, model)),
        width_(heads_ * dh_),
        kv_{.heads = heads_,
            .kv_heads = heads_,
            .dk = dh_,
            .dv = dh_,
            .scale = 1.0f / std::sqrt(static_cast<float>(dh_))},
        q_(declare.matrix("q_proj.weight", width_, model.d_model)),
        k_(declare.matrix("k_proj.weight", width_, model.d_model)),
        v_(declare.matrix("v_proj.weight", width_, model.d_model)),
        rule_(c.rule, {heads_, heads_, dh_, dh_}, model, declare),
        output_(c.output, heads_, dh_, model, declare) {
    (c.variant == "delayed_chunk" ? kv_.chunk : kv_.window) = static_cast<size_t>(c.window);
    if (c.conv) conv_ = declare.precise().matrix("conv1d.weight", 3 * width_, c.conv, Init::kConv);
    if (c.mixing != "sum")
      mix_ = declare.precise().matrix("mix_proj.weight", c.mixing == "scalar" ? 2 * heads_ : width_,
                                      model.d_model);
    if (c.rope_theta > 0) rope_ = std::make_unique<RopeTable>(dh_, c.rope_theta);
  }

  Var forward(const MixerCall& call) const override {
    Exec& e = call.exec;
    const size_t ws[] = {q_, k_, v_};
    Var qkv = linear_concat(e, call.input, ws);
    if (c_.conv) qkv = remembered_conv(call, qkv, conv_);
    auto [q, k, v] =
        split<3>(e, dropout(e, qkv, static_cast<float>(c_.features.qkv_dropout)), {width_, width_, width_});
    v = mapped(e, v, c_.features.value_feature);
    const Var fast = fast_weights(call, feature(e, q), feature(e, k), v);
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
    const bool chunk = c_.variant == "delayed_chunk", stream = c_.variant == "delayed_stream";
    return {.memory = attend_numbers(kv_, length) + rule_.state_numbers(),
            .tails = (stream ? 2 * width_ * static_cast<size_t>(c_.window) : 0) +
                     (chunk ? rule_.state_numbers() : 0) +
                     (c_.conv ? 3 * width_ * (static_cast<size_t>(c_.conv) - 1) : 0)};
  }

 private:
  Var feature(Exec& e, Var x) const {
    return normed(e, mapped(e, x, c_.features.feature), heads_, c_.features.feature_norm);
  }

  Var fast_weights(const MixerCall& call, Var q, Var k, Var v) const {
    const FastWeightRule::Gates gates = rule_.gates(call);
    const auto window = static_cast<size_t>(c_.window);
    if (c_.variant == "delayed_chunk") return rule_.run_chunks(call, q, k, v, gates, window);
    if (c_.variant == "delayed_stream") {
      const Var both[] = {k, v};
      const std::vector<Var> late = remembered_delay(call, both, window);
      k = late[0], v = late[1];
    }
    return rule_.run(call, q, k, v, gates);
  }

  Var mixed(const MixerCall& call, Var fast, Var kv) const {
    Exec& e = call.exec;
    if (c_.mixing == "sum") return add(e, fast, kv);
    const Var z = linear(e, call.gate_input(), mix_);
    if (c_.mixing == "vector") return blend(e, fast, kv, z);
    const auto [a, b] = split<2>(e, map(e, z, Map::kSigmoid), {heads_, heads_});
    return add(e, scale_heads(e, fast, a), scale_heads(e, kv, b));
  }

  HqltConfig c_;
  size_t heads_, dh_, width_;
  AttentionShape kv_;
  size_t q_, k_, v_, conv_ = 0, mix_ = 0;
  FastWeightRule rule_;
  FastWeightOutput output_;
  std::unique_ptr<RopeTable> rope_;
};

std::unique_ptr<Mixer> make(const Json& settings, const ModelConfig& model, Declare declare) {
  std::vector<Problem> none;
  return std::make_unique<Hqlt>(parse_fields<HqltConfig>(settings, "", none), model, declare);
}

Json complete(const Json& settings, const ModelConfig& model) {
  std::vector<Problem> none;
  HqltConfig c = parse_fields<HqltConfig>(settings, "", none);
  c.head_dim = head_dim(c, model);
  c.rule.resolve(c.head_dim), c.output.resolve(model);
  return write_fields(c);
}

}  // namespace

MixerEntry hqlt_entry() {
  return {"hqlt",
          "HQLT: windowed attention and fast weights in one layer, synchronous or delayed",
          validate,
          make,
          [] { return list_fields(HqltConfig()); },
          complete};
}

}  // namespace braid
