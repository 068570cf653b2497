// --dtype and --quant: the format in which weights are kept.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "kernels/weight_matmul/weight_matmul.h"

namespace braid {

struct WeightFlags {
  std::string dtype, quant;
  template <class V>
  void visit(V& v) {
    v("--dtype", dtype, "weights as f32 or bf16; else as they are stored");
    v("--quant", quant,
      "weights as q8 or q4: 8 or 4 bits and a scale for each 32 numbers; gates, norms, "
      "convolutions and decays stay f32");
  }
  // None: as they are stored.
  Result<std::optional<WeightFormat>> resolve() const {
    if (!dtype.empty() && !quant.empty())
      return Error{"--dtype and --quant are given", "give one: --quant says how numbers are kept"};
    if (!dtype.empty() && dtype != "f32" && dtype != "bf16")
      return Error{"--dtype is '" + dtype + "'", "use f32 or bf16"};
    if (!quant.empty() && quant != "q8" && quant != "q4")
      return Error{"--quant is '" + quant + "'", "use q8 or q4"};
    return weight_format_from_name(dtype.empty() ? quant : dtype);
  }
};

}  // namespace braid
