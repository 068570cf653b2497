// The mixers that are one recurrence (docs/explanation/math/fast_weight.md) with other defaults, one row
// each.
#include "model/mixers/fast_weight.h"

namespace braid {
namespace {

struct Row {
  FastRule rule;
  const char *name, *summary, *paper;
  FastWeightConfig defaults;
};

constexpr FastWeightWrite kAdditive = FastWeightWrite::kAdditive;
constexpr FeatureConfig kPlain{
    .feature = Map::kIdentity, .feature_norm = FeatureNorm::kNone, .value_feature = Map::kIdentity};

constexpr Row kRows[] = {
    // S_t = S_{t-1} + k v^T with features 1 + elu, divided by the sum of the features.
    // Normalise=false, feature=silu, feature_norm=l2 is the plain additive memory.
    {FastRule::kLinearAttention,
     "linear_attention",
     "linear attention: additive writes, 1 + elu features, normalised or plain",
     "arXiv:2006.16236",
     {.conv = 0,
      .normalise = true,
      .features = {.feature = Map::kElu1,
                   .feature_norm = FeatureNorm::kNone,
                   .value_feature = Map::kIdentity},
      .rule = {.write = kAdditive},
      .output = {.out_norm = OutNorm::kNone}}},
    // Additive writes that decay by a constant 1 - 2^(-5-h) in head h; RoPE on q and k.
    {FastRule::kRetnet,
     "retnet",
     "RetNet: additive writes, constant decay per head, RoPE",
     "arXiv:2307.08621",
     {.conv = 0,
      .rope_theta = 10000,
      .features = kPlain,
      .rule = {.decay = RuleDecay::kConstant, .write = kAdditive},
      .output = {.gate = OutGate::kSilu}}},
    // Additive writes, decay per key channel from a low-rank projection.
    {FastRule::kGla,
     "gla",
     "gated linear attention: additive writes, decay per key channel",
     "arXiv:2312.06635",
     {.conv = 0,
      .features = kPlain,
      .rule = {.decay = RuleDecay::kSigmoid, .write = kAdditive},
      .output = {.gate = OutGate::kSilu}}},
    // Additive writes with key 1 - f and decay f, whose lower bound grows with depth.
    {FastRule::kHgrn2,
     "hgrn2",
     "HGRN2: additive writes, decay per key channel, key = 1 - decay",
     "arXiv:2404.07904",
     {.conv = 0,
      .features = {.feature = Map::kSilu,
                   .feature_norm = FeatureNorm::kNone,
                   .value_feature = Map::kIdentity},
      .rule = {.decay = RuleDecay::kForget, .write = kAdditive},
      .output = {.out_norm = OutNorm::kFull}}},
    // The delta rule without decay.
    {FastRule::kDeltanet, "deltanet", "DeltaNet: the delta rule", "arXiv:2102.11174, arXiv:2406.06484", {}},
    // The delta rule with Mamba2's decay.
    {FastRule::kGatedDeltanet,
     "gated_deltanet",
     "Gated DeltaNet: the delta rule with one decay per head and token",
     "arXiv:2412.06464",
     {.rule = {.decay = RuleDecay::kToken}, .output = {.gate = OutGate::kSilu}}},
    // The delta rule with a decay per key channel.
    {FastRule::kKda,
     "kda",
     "Kimi Delta Attention: the delta rule with a decay per key channel",
     "arXiv:2510.26692",
     {.rule = {.decay = RuleDecay::kChannel}, .output = {.gate = OutGate::kSigmoid}}},
    // One decay and several delta steps per token.
    {FastRule::kGatedDeltaproduct,
     "gated_deltaproduct",
     "Gated DeltaProduct: one decay and several delta steps per token",
     "arXiv:2502.10297",
     {.rule = {.decay = RuleDecay::kToken, .negative_eigenvalues = true, .steps = 2},
      .output = {.gate = OutGate::kSilu}}},
};

const Row& row_of(FastRule rule) {
  for (const Row& r : kRows)
    if (r.rule == rule) return r;
  check(false, "fast weights: a rule without a row");
  return kRows[0];
}

}  // namespace

MixerEntry fast_weight_entry(FastRule rule) {
  const Row& row = row_of(rule);
  return fast_weight_mixer(row.name, row.summary, row.defaults, row.paper);
}

RuleConfig rule_of(FastRule rule) { return row_of(rule).defaults.rule; }

Choices<FastRule> fast_rules() {
  std::vector<Choice<FastRule>> all;
  for (const Row& r : kRows) all.push_back({r.name, r.rule});
  return Choices<FastRule>(std::move(all));
}

}  // namespace braid
