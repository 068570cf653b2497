// Weights for inference: mapped as they lie in a model's files, or brought to another format when they are
// loaded. A quantised folder of Braid's has, for a matrix NAME, its numbers under that name (q8: I8 [rows,
// columns]; q4: U8 [rows, columns / 2]) and NAME.scale (BF16 [rows, columns / 32]); kernels/weight_matmul
// says what they mean.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/param.h"
#include "base/error.h"
#include "io/safetensors.h"

namespace braid {

inline constexpr const char* kScaleSuffix = ".scale";

// Where a parameter's numbers lie: one after the other in these pieces, rows of a matrix as rows. Quantised
// ones have as many pieces of scales.
struct ParamSource {
  std::vector<View> pieces, scales;
  // What a product can read as it is; none: numbers of another kind, or of several.
  std::optional<WeightFormat> format() const;
};

// The parameters of a file of Braid's, quantised or not. All that does not fit is in the error.
Result<std::vector<ParamSource>> braid_sources(const ParamSet& params, const SafeTensors& file,
                                               const std::string& path);
bool is_quantised(const SafeTensors& file);

// Storage format of a matrix if `wanted` is requested: precise matrices, and those without whole blocks, keep
// theirs.
WeightFormat kept_format(const Param& p, const ParamSource& from, std::optional<WeightFormat> wanted);

// A parameter's numbers from `first` on, as f32.
void read_numbers(const ParamSource& from, const Param& p, size_t first_row, std::span<float> to);

using LoadProgress = std::function<void(uint64_t done, uint64_t all)>;  // elements of the weights

// What a model's stored matrices look at.
class StoredWeights {
 public:
  // Fills `params`. A matrix is mapped if it has the wanted format already (none: its own), else made anew.
  static Result<std::shared_ptr<StoredWeights>> load(SafeTensors file,
                                                     const std::vector<ParamSource>& sources,
                                                     std::optional<WeightFormat> wanted, ParamSet& params,
                                                     Par par, const LoadProgress& progress = {});

 private:
  StoredWeights() = default;
  std::optional<SafeTensors> file_;  // none: nothing looks at it
  std::vector<Tensor> made_;
  std::vector<std::vector<StoredRows>> parts_;
};

}  // namespace braid
