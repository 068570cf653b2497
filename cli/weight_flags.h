// --dtype and --quant: the format of weights; --activations: the precision of activations.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

#include "autograd/param.h"
#include "base/error.h"
#include "cli/output.h"
#include "kernels/weight_matmul/activations.h"

namespace braid {

struct WeightFlags {
  std::string dtype, quant;
  template <class V>
  void visit(V& v) {
    v("--dtype", dtype, "weight format: f32 or bf16; default: as stored");
    v("--quant", quant,
      "weight format: q8 or q4, 8 or 4 bits with a scale per 32 elements; gates, norms, convolutions and "
      "decays "
      "stay f32");
  }
  // None: as they are stored.
  Result<std::optional<WeightFormat>> resolve() const {
    if (!dtype.empty() && !quant.empty())
      return Error{"--dtype, --quant: exclude each other", "use --dtype f32 or bf16, or --quant q8 or q4"};
    if (!dtype.empty() && dtype != "f32" && dtype != "bf16")
      return Error{"--dtype: is '" + dtype + "'", "use f32 or bf16"};
    if (!quant.empty() && quant != "q8" && quant != "q4")
      return Error{"--quant: is '" + quant + "'", "use q8 or q4"};
    return weight_format_from_name(dtype.empty() ? quant : dtype);
  }
};

// The same where a model runs.
struct InferenceFlags : WeightFlags {
  std::string activations;
  explicit InferenceFlags(const char* by_default) : activations(by_default) {}
  template <class V>
  void visit(V& v) {
    WeightFlags::visit(v);
    v("--activations", activations,
      "activation precision in prefill with bf16 weights: f32, bf16 or auto. bf16 rounds activations as "
      "transformers and llama.cpp do; about 2x faster on CPUs with bf16 dot products. auto: bf16 on these "
      "CPUs, else "
      "f32");
  }
  Result<Activations> resolve_activations() const {
    const std::optional<Activations> a = activations_from_name(activations);
    if (!a) return Error{"--activations: is '" + activations + "'", "use f32, bf16 or auto"};
    return *a;
  }
};

// Prints a note to stderr if some matrices could not be stored in the requested format.
inline void tell_not_quantised(const ParamSet& params, std::optional<WeightFormat> wanted) {
  if (!wanted || !has_scales(*wanted)) return;
  size_t all = 0, not_fitting = 0;
  for (const Param& p : params.all()) {
    if (p.precise) continue;
    ++all, not_fitting += !weight_fits(*wanted, p.cols());
  }
  if (not_fitting)
    tell("[{} of {} matrices stay as they are: their rows are no multiple of {} elements]\n", not_fitting,
         all, kWeightBlock);
}

}  // namespace braid
