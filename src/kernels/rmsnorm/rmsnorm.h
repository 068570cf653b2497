// rmsnorm - root-mean-square normalisation, whole rows or head by head, plain, zero-centred or gated.
//   y = x * rstd * (offset + w) [* f(z)]              rstd = 1 / sqrt(mean(x^2) + eps)
//   y = u * rstd * (offset + w), u = x * f(z)         rstd = 1 / sqrt(mean(u^2) + eps)       gate before the
//   norm
// x, y, z: [rows, groups * width]; each row is `groups` independent groups (heads) that share w: [width], or
// have a weight each, w: [groups * width] (Mamba2).
// offset is 0 (plain) or 1 (zero-centred weights, Qwen3-Next). f is silu or the sigmoid. After the norm with
// silu: Gated DeltaNet; with the sigmoid: Kimi Delta Attention; before it with silu: Mamba2. Symbols:
// docs/reference/glossary.md   Backward: docs/explanation/math/rmsnorm.md
#pragma once

#include <cstdint>

#include "base/parallel.h"
#include "kernels/common/impl_table.h"
#include "kernels/common/into.h"
#include "tensor/tensor.h"

namespace braid {

enum class RmsNormGate : uint8_t { kSilu, kSigmoid };
enum class RmsNormOrder : uint8_t { kNormFirst, kGateFirst };

struct RmsNormIn {
  Mat<const float> x;
  const float* w = nullptr;  // [width], or [groups * width]
  Mat<const float> z = {};   // gate; data == nullptr means none
  size_t groups = 1;
  bool weight_per_group = false;
  float eps = 1e-6f;
  float offset = 0;
  RmsNormGate gate = RmsNormGate::kSilu;
  RmsNormOrder order = RmsNormOrder::kNormFirst;
};

struct RmsNormSaved {
  const float* rstd;  // [rows * groups], in whatever order forward left them
};

struct RmsNormGrad {  // every pointer may be null: not wanted
  Mat<float> dx;
  Into dx_mode = Into::kOverwrite;
  float* dw = nullptr;  // like w; parameters always add
  Mat<float> dz = {};   // overwritten
};

// rstd: [rows * groups], may be null when no backward follows. y may be x.
void rmsnorm_fwd(const RmsNormIn& in, Mat<float> y, float* rstd, Par par = {});
void rmsnorm_bwd(const RmsNormIn& in, const RmsNormSaved& saved, Mat<const float> dy, const RmsNormGrad& out,
                 Par par = {});

struct RmsNormFns {  // rows [begin, end) of one call; dw over columns [begin, end) of one group
  void (*fwd)(const RmsNormIn&, Mat<float> y, float* rstd, size_t begin, size_t end);
  void (*dx)(const RmsNormIn&, const RmsNormSaved&, Mat<const float> dy, const RmsNormGrad&, size_t begin,
             size_t end);
  void (*dw)(const RmsNormIn&, const RmsNormSaved&, Mat<const float> dy, const RmsNormGrad&, size_t begin,
             size_t end);
};
const Impls<RmsNormFns>& rmsnorm_impls();

}  // namespace braid
