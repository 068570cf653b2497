// Settings of the attention mixer.
#pragma once

#include "model/mixers/rope_scaling.h"

namespace braid {

enum class QkNorm : uint8_t { kNone, kHead, kFull };
enum class AttentionBias : uint8_t { kNone, kQkv, kAll };
enum class AttentionGate : uint8_t { kNone, kSigmoid };
inline Choices<AttentionBias> attention_biases() {
  return {{"none", AttentionBias::kNone}, {"qkv", AttentionBias::kQkv}, {"all", AttentionBias::kAll}};
}

struct AttentionConfig {
  int64_t heads = 4, kv_heads = 0, head_dim = 0, window = 0, rotary_dim = 0, conv = 0;
  double rope_theta = 10000, qk_eps = 0;
  Dropout weight_dropout = {};
  QkNorm qk_norm = QkNorm::kNone;
  AttentionGate gate = AttentionGate::kNone;
  AttentionBias bias = AttentionBias::kNone;
  RopeScaling scaling = {};
  template <class V>
  void visit(V& v) {
    v("heads", heads, {1, 4096}, "query heads");
    v("kv_heads", kv_heads, {0, 4096}, "key-value heads; 0 = heads");
    v("head_dim", head_dim, {0, 512}, "elements per head; 0 = d_model / heads");
    v("window", window, {0, 1e9},
      "sliding window in tokens: keys of the token itself and of window - 1 before it; 0 = full");
    v("rope_theta", rope_theta, {0, 1e12}, "base of the rotary embedding; 0 = no positions (NoPE)");
    v("rotary_dim", rotary_dim, {0, 512}, "elements per head that are rotated; 0 = all");
    scaling.visit(v);
    v("qk_norm", qk_norm, {{"none", QkNorm::kNone}, {"head", QkNorm::kHead}, {"full", QkNorm::kFull}},
      "RMSNorm of q and k: per head, or over the whole projection");
    v("qk_eps", qk_eps, {0, 1}, "epsilon of qk_norm; 0 = the model's norm_eps");
    v("bias", bias, attention_biases(), "biases of the projections: none, of q, k and v, or of all");
    v("conv", conv, {0, 8}, "taps of a short convolution on q, k and v; 0 = none");
    v("gate", gate, {{"none", AttentionGate::kNone}, {"sigmoid", AttentionGate::kSigmoid}},
      "output gate: none, or the sigmoid of a projection of the layer's input");
    v("weight_dropout", weight_dropout, "share of the attention weights dropped in training (GPT-2)");
  }
};

}  // namespace braid
