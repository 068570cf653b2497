// Qwen3-Next: projections of the Gated DeltaNet layers in two tensors, group of heads by group of heads.
#include "model/families/qwen.h"

namespace braid {
namespace {

constexpr QwenDefaults kDefaults{151936, 2048, 48, 2, 5632, 512, 10};

void projections(TensorTable& t, const std::string& hf, const std::string& ours, int64_t key_heads) {
  t.add(t.grouped(
      hf + "in_proj_qkvz.weight", key_heads,
      {ours + "q_proj.weight", ours + "k_proj.weight", ours + "v_proj.weight", ours + "g_proj.weight"}));
  t.add(t.grouped(hf + "in_proj_ba.weight", key_heads, {ours + "b_proj.weight", ours + "a_proj.weight"}));
}

}  // namespace

Family qwen3_next_family() {
  return {"qwen3_next",
          "Qwen3NextForCausalLM",
          "Qwen3-Next: gated attention and Gated DeltaNet, experts or one MLP",
          "arXiv:2412.06464, arXiv:2505.06708",
          {},
          [](HfConfig& hf) { return read_qwen(hf, kDefaults, QwenMlps::kEither); },
          [](const ModelConfig& c) { return write_qwen(qwen3_next_family(), c, QwenMlps::kEither); },
          [](const ModelConfig& c, TensorTable& t) { qwen_tensors(c, t, projections); },
          "",
          "",
          qwen_left_out};
}

}  // namespace braid
