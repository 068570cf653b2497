// A family of released models: its config.json and tensor names <-> Braid's, both ways from one table. No
// maths: every tensor of a family consists of whole rows of Braid's parameters, under another name and in
// another order.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/families/tensor_table.h"
#include "model/model.h"

namespace braid {

class HfConfig;
struct Translated;

struct Family {
  std::string_view model_type, architecture;  // as config.json names them
  std::string_view summary, paper;            // paper: "arXiv:NUMBER", several with commas between
  std::vector<std::string_view> also_reads;   // model_types that are the same model in another wrapping

  // config.json -> layers and settings; what Braid cannot express is a problem of the reader.
  Translated (*read)(HfConfig& hf);
  // Braid -> config.json, as far as possible: the caller reads the result again and compares.
  Json (*write)(const ModelConfig& config);
  void (*tensors)(const ModelConfig& config, TensorTable& table);

  // Names of another wrapping: this prefix stands for the second.
  std::string_view prefix_in_file = "", prefix_here = "";
  // Why a tensor that the table does not have may be left out, or null: it may not.
  const char* (*left_out)(std::string_view name) = nullptr;
  // What to tell of a model that was read, or written, whose numbers depend on the version of the family's
  // code; null: nothing.
  const char* (*read_note)(const ModelConfig& config) = nullptr;
  const char* (*write_note)(const ModelConfig& config) = nullptr;
};

// One per file in this folder, and more where a file holds variants.
Family llama_family();
Family mistral_family();
Family qwen3_family();
Family qwen2_family();
Family olmo2_family();
Family olmo3_family();
Family mamba2_family();
Family fla_transformer_family();
Family delta_net_family();
Family gated_deltanet_family();
Family qwen3_next_family();
Family qwen3_5_family();
Family qwen3_5_moe_family();
Family olmo_hybrid_family();

}  // namespace braid
