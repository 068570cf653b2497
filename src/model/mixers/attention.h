// attention - causal softmax attention: full or windowed, grouped queries, RoPE (full, partial or none),
// QK-norm.
#pragma once

#include "model/mixers/registry.h"

namespace braid {

struct AttentionConfig {
  int64_t heads = 4, kv_heads = 0, head_dim = 0, window = 0, rotary_dim = 0;
  double rope_theta = 10000;
  std::string qk_norm = "none";
  template <class V>
  void visit(V& v) {
    v("heads", heads, {1, 4096}, "query heads");
    v("kv_heads", kv_heads, {0, 4096}, "key-value heads; 0 = heads");
    v("head_dim", head_dim, {0, 512}, "numbers per head; 0 = d_model / heads");
    v("window", window, {0, 1e9}, "a token sees itself and the window-1 before it; 0 = all");
    v("rope_theta", rope_theta, {0, 1e12}, "base of the rotary embedding; 0 = no positions (NoPE)");
    v("rotary_dim", rotary_dim, {0, 512}, "numbers per head that are rotated; 0 = all");
    v("qk_norm", qk_norm, {"none", "head", "full"},
      "RMSNorm of q and k: per head, or over the whole projection");
  }
};

MixerEntry attention_entry();

}  // namespace braid
