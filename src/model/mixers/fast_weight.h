// What the fast-weight mixers share. Each of them is this one mixer with other defaults: how q, k and v are
// made, where decay and write strength come from, and what happens to the output. Every switch works in every
// mixer, so the ablations of the papers are settings.
#pragma once

#include "model/mixers/registry.h"

namespace braid {

// ---- The rule: decay, write and read, with their projections. HQLT uses it, too.

enum class RuleDecay : uint8_t { kNone, kConstant, kToken, kChannel, kSigmoid, kForget };
Choices<RuleDecay> rule_decays();

struct RuleConfig {
  RuleDecay decay = RuleDecay::kNone;
  FastWeightWrite write = FastWeightWrite::kDelta;
  bool negative_eigenvalues = false;
  int64_t decay_rank = 0, steps = 1;
  template <class V>
  void visit_steps(V& v) {
    v("steps", steps, {1, 16}, "writes per token: several Householder steps (DeltaProduct)");
  }
  template <class V>
  void visit(V& v) {
    v("decay", decay, rule_decays(),
      "decay: constant per head (RetNet); token = per head and token (Mamba2, Gated DeltaNet), channel = per "
      "key channel (KDA), both -exp(A_log) softplus; sigmoid = per channel, log sigmoid / 16 (GLA); forget = "
      "per channel, with key = 1 - decay (HGRN2)");
    v("write", write, {{"additive", FastWeightWrite::kAdditive}, {"delta", FastWeightWrite::kDelta}},
      "write rule: the value, or the value minus the prediction of the state (delta rule)");
    v("negative_eigenvalues", negative_eigenvalues, "write strength of the delta rule up to 2 instead of 1");
    v("decay_rank", decay_rank, {0, 65536},
      "inner width of the low-rank decay projection; 0 = 16 for sigmoid, head_dim for channel");
  }
  void resolve(int64_t head_dim);  // zeros become what they stand for
};

struct RuleShape {
  size_t heads, key_heads, dk, dv;
};

class FastWeightRule {
 public:
  FastWeightRule(const RuleConfig& c, const RuleShape& shape, const ModelConfig& model, Declare& declare);

  bool makes_keys() const { return forget_; }  // decay "forget": g and k come from one projection
  struct Gates {
    Var g, beta;
    Var k;  // if it makes keys
  };
  Gates gates(const MixerCall& call) const;

  // q: [N, key_heads dk], k: [N, steps key_heads dk], v: [N, steps heads dv] -> [N, heads dv].
  Var run(const MixerCall& call, Var q, Var k, Var v, const Gates& gates) const;
  // A token reads the state from before its chunk.
  Var run_chunks(const MixerCall& call, Var q, Var k, Var v, const Gates& gates, size_t chunk) const;
  // Divides o by what a memory of ones would give: linear attention's normaliser.
  Var normalised(const MixerCall& call, Var o, Var q, Var k, const Gates& gates) const;

  double flops_per_token() const;
  size_t state_numbers() const { return shape_.value_heads * shape_.dk * shape_.dv; }

 private:
  FastWeightVars variables(Var q, Var k, Var v, const Gates& gates) const;

  RuleConfig c_;
  FastWeightShape shape_;
  size_t steps_, layer_;
  bool forget_;
  float g_scale_ = 1;
  size_t b_ = 0, a_ = 0, f_a_ = 0, f_b_ = 0, a_log_ = 0, bounds_ = 0;
  int bias_ = -1;
  std::vector<float> constant_;  // decay per head
};

void validate_rule(const RuleConfig& c, const std::string& where, std::vector<Problem>& problems);

// ---- Feature maps of queries, keys and values.

enum class FeatureNorm : uint8_t { kL2, kL1, kNone };

struct FeatureConfig {
  Map feature = Map::kSilu;
  FeatureNorm feature_norm = FeatureNorm::kL2;
  Map value_feature = Map::kSilu;
  Dropout qkv_dropout = {};
  template <class V>
  void visit(V& v) {
    v("feature", feature,
      {{"silu", Map::kSilu}, {"relu", Map::kRelu}, {"elu1", Map::kElu1}, {"identity", Map::kIdentity}},
      "feature map of q and k; elu1 = 1 + elu");
    v("feature_norm", feature_norm,
      {{"l2", FeatureNorm::kL2}, {"l1", FeatureNorm::kL1}, {"none", FeatureNorm::kNone}},
      "normalisation of q and k after the feature map, per head");
    v("value_feature", value_feature, {{"silu", Map::kSilu}, {"identity", Map::kIdentity}},
      "feature map of v");
    v("qkv_dropout", qkv_dropout,
      "share of q, k and v dropped in training: after the feature map; hqlt: before it, for both memories");
  }
};
Var mapped(Exec& e, Var x, Map feature);
Var normed(Exec& e, Var x, size_t heads, FeatureNorm norm);

// ---- Norm and gate of the output.

enum class OutNorm : uint8_t { kHead, kFull, kNone };
enum class OutGate : uint8_t { kNone, kSilu, kSigmoid };

struct OutputConfig {
  OutNorm out_norm = OutNorm::kHead;
  OutGate gate = OutGate::kNone;
  int64_t gate_rank = 0;
  double out_eps = 0;
  template <class V>
  void visit(V& v) {
    v("out_norm", out_norm, {{"head", OutNorm::kHead}, {"full", OutNorm::kFull}, {"none", OutNorm::kNone}},
      "RMSNorm of the output: per head, or over all heads");
    v("gate", gate, {{"none", OutGate::kNone}, {"silu", OutGate::kSilu}, {"sigmoid", OutGate::kSigmoid}},
      "output gate: activation of a projection of the layer's input");
    v("gate_rank", gate_rank, {0, 65536}, "inner width of a low-rank gate projection; 0 = full rank");
    v("out_eps", out_eps, {0, 1}, "epsilon of out_norm; 0 = the model's norm_eps");
  }
  void resolve(const ModelConfig& model);
};

class FastWeightOutput {
 public:
  FastWeightOutput(const OutputConfig& c, size_t heads, size_t dv, const ModelConfig& model,
                   Declare& declare);
  Var forward(const MixerCall& call, Var o) const;  // norm, gate, projection, residual

 private:
  OutputConfig c_;
  NormOptions norm_;
  size_t w_ = 0, g_ = 0, g_a_ = 0, g_b_ = 0, o_;
};

// ---- The mixer.

struct FastWeightConfig {
  int64_t heads = 4, key_heads = 0, head_dim = 0, value_dim = 0, conv = 4;
  double rope_theta = 0;
  bool normalise = false;
  FeatureConfig features = {};
  RuleConfig rule = {};
  OutputConfig output = {};
  template <class V>
  void visit(V& v) {
    v("heads", heads, {1, 4096}, "value heads, each with a state");
    v("key_heads", key_heads, {0, 4096}, "heads of queries and keys; 0 = heads");
    v("head_dim", head_dim, {0, 512}, "elements per head of q and k; 0 = d_model / heads");
    v("value_dim", value_dim, {0, 512}, "elements per head of v; 0 = head_dim");
    v("conv", conv, {0, 8}, "taps of the short convolution on q, k and v; 0 = none");
    rule.visit_steps(v);
    v("rope_theta", rope_theta, {0, 1e12}, "base of a rotary embedding of q and k; 0 = none");
    v("normalise", normalise, "divide the output by the sum of q k over the keys (additive writes)");
    features.visit(v), rule.visit(v), output.visit(v);
  }
};

MixerEntry fast_weight_mixer(std::string name, std::string summary, const FastWeightConfig& defaults,
                             std::string paper);

// ---- The mixers that are this one with other defaults: the rows of fast_weight_table.cpp.

enum class FastRule : uint8_t {
  kLinearAttention,
  kRetnet,
  kGla,
  kHgrn2,
  kDeltanet,
  kGatedDeltanet,
  kKda,
  kGatedDeltaproduct
};
MixerEntry fast_weight_entry(FastRule row);
RuleConfig rule_of(FastRule row);
Choices<FastRule> fast_rules();  // by the mixers' names

}  // namespace braid
