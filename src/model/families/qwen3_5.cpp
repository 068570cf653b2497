// Qwen3.5: projections of the Gated DeltaNet layers apart, but q, k and v in one tensor. Released with a
// vision tower around the language model, which is what is read here.
#include "model/families/qwen.h"

namespace braid {
namespace {

constexpr QwenDefaults kDense{248320, 4096, 32, 4, 12288, 0, 0}, kExperts{248320, 2048, 40, 2, 0, 256, 8};

void projections(TensorTable& t, const std::string& hf, const std::string& ours, int64_t /*key_heads*/) {
  t.add(t.stacked(hf + "in_proj_qkv.weight",
                  {ours + "q_proj.weight", ours + "k_proj.weight", ours + "v_proj.weight"}));
  t.add(t.same(hf + "in_proj_z.weight", ours + "g_proj.weight"));
  t.add(t.same(hf + "in_proj_b.weight", ours + "b_proj.weight"));
  t.add(t.same(hf + "in_proj_a.weight", ours + "a_proj.weight"));
}

void tensors(const ModelConfig& c, TensorTable& t) { qwen_tensors(c, t, projections); }

constexpr const char *kWrapped = "model.language_model.", *kPlain = "model.";

}  // namespace

Family qwen3_5_family() {
  return {"qwen3_5_text",
          "Qwen3_5ForCausalLM",
          "Qwen3.5: gated attention and Gated DeltaNet, one MLP",
          "arXiv:2412.06464, arXiv:2505.06708",
          {"qwen3_5"},
          [](HfConfig& hf) {
            hf.no_effect({"mlp_only_layers"});
            return read_qwen(hf, kDense, QwenMlps::kDense);
          },
          [](const ModelConfig& c) { return write_qwen(qwen3_5_family(), c, QwenMlps::kDense); },
          tensors,
          kWrapped,
          kPlain,
          qwen_left_out};
}

Family qwen3_5_moe_family() {
  return {"qwen3_5_moe_text",
          "Qwen3_5MoeForCausalLM",
          "Qwen3.5 with experts",
          "arXiv:2412.06464, arXiv:2505.06708",
          {"qwen3_5_moe"},
          [](HfConfig& hf) {
            hf.no_effect({"mlp_only_layers", "decoder_sparse_step", "intermediate_size"});
            return read_qwen(hf, kExperts, QwenMlps::kExperts);
          },
          [](const ModelConfig& c) { return write_qwen(qwen3_5_moe_family(), c, QwenMlps::kExperts); },
          tensors,
          kWrapped,
          kPlain,
          qwen_left_out};
}

}  // namespace braid
