// What Qwen3-Next and Qwen3.5 share: gated attention, Gated DeltaNet and a mixture of experts. They differ in
// how projections are stored.
#pragma once

#include "model/families/shared.h"

namespace braid {

struct QwenDefaults {
  int64_t vocab_size, hidden_size, layers, kv_heads, intermediate_size, experts, top_k;
};

// Which MLPs the layers of a family may have.
enum class QwenMlps : uint8_t { kDense, kExperts, kEither };

Translated read_qwen(HfConfig& hf, const QwenDefaults& d, QwenMlps mlps);
Json write_qwen(const Family& family, const ModelConfig& c, QwenMlps mlps);
// All but the projections of the Gated DeltaNet layers, which `projections` adds.
void qwen_tensors(const ModelConfig& c, TensorTable& t,
                  void (*projections)(TensorTable& t, const std::string& hf, const std::string& ours,
                                      int64_t key_heads));
const char* qwen_left_out(std::string_view name);

}  // namespace braid
