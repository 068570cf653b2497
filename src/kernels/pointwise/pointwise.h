// pointwise - the small functions around a mixer's recurrence: feature maps, gates, decays, blends.
//   map:         y = scale f(x + bias)              f: identity, silu, sigmoid, relu, 1 + elu, softplus,
//                                                      log sigmoid, gelu (its tanh form, arXiv:1606.08415)
//   scale_heads: y = x s  or  y = x / (s + eps)     one s for each head of a row
//   blend:       y = sigmoid(z) a + (1 - sigmoid(z)) b
//   decay:       g = -exp(A_log) dt                 one A_log per head: log-decay of Mamba2, Gated DeltaNet,
//   KDA forget:      f = low + (1 - low) sigmoid(x),  g = log f,  k = 1 - f       HGRN2, arXiv:2404.07904
//   l1norm:      y = x / max(sum |x|, eps)          head by head, as PyTorch's normalize(p=1)
// Matrices are [rows, cols], strided; a row is `heads` groups of equal width.
// Symbols: docs/reference/glossary.md   Backward: docs/explanation/math/pointwise.md
#pragma once

#include <cstdint>

#include "base/parallel.h"
#include "kernels/common/impl_table.h"
#include "kernels/common/into.h"
#include "tensor/tensor.h"

namespace braid {

enum class Map : uint8_t { kIdentity, kSilu, kSigmoid, kRelu, kElu1, kSoftplus, kLogSigmoid, kGelu };

struct MapIn {
  Mat<const float> x;
  Map map = Map::kIdentity;
  float scale = 1;
  const float* bias = nullptr;  // [cols] or null
};
struct MapGrad {
  Mat<float> dx = {};  // no data: not wanted; may be dy when it overwrites
  Into dx_mode = Into::kOverwrite;
  float* dbias = nullptr;  // [cols], added to
};
void map_fwd(const MapIn& in, Mat<float> y, Par par = {});  // y may be x
void map_bwd(const MapIn& in, Mat<const float> dy, const MapGrad& out, Par par = {});

struct ScaleHeadsIn {
  Mat<const float> x, s;  // [rows, heads * width], [rows, heads]
  bool divide = false;
  float eps = 0;  // added to a divisor
};
struct ScaleHeadsGrad {  // no data: not wanted
  Mat<float> dx = {};
  Into dx_mode = Into::kOverwrite;
  Mat<float> ds = {};
  Into ds_mode = Into::kOverwrite;
};
void scale_heads_fwd(const ScaleHeadsIn& in, Mat<float> y, Par par = {});  // y may be x
void scale_heads_bwd(const ScaleHeadsIn& in, Mat<const float> dy, const ScaleHeadsGrad& out, Par par = {});

struct BlendIn {
  Mat<const float> a, b, z;
};
struct BlendGrad {  // no data: not wanted; all overwritten
  Mat<float> da = {}, db = {}, dz = {};
};
void blend_fwd(const BlendIn& in, Mat<float> y, Par par = {});
void blend_bwd(const BlendIn& in, Mat<const float> dy, const BlendGrad& out, Par par = {});

struct DecayIn {
  Mat<const float> dt;  // [rows, heads * width]
  const float* a_log;   // [heads]
  size_t heads;
};
struct DecayGrad {
  Mat<float> ddt = {};  // no data: not wanted
  Into ddt_mode = Into::kOverwrite;
  float* da_log = nullptr;  // [heads], added to
};
void decay_fwd(const DecayIn& in, Mat<float> g, Par par = {});
void decay_bwd(const DecayIn& in, Mat<const float> dg, const DecayGrad& out, Par par = {});

struct ForgetIn {
  Mat<const float> x;
  const float* low;  // [cols], in [0, 1)
};
struct ForgetGrad {
  Mat<float> dx = {};  // no data: not wanted
  Into dx_mode = Into::kOverwrite;
  float* dlow = nullptr;  // [cols], added to
};
void forget_fwd(const ForgetIn& in, Mat<float> g, Mat<float> k, Par par = {});
void forget_bwd(const ForgetIn& in, Mat<const float> dg, Mat<const float> dk, const ForgetGrad& out,
                Par par = {});

struct L1NormIn {
  Mat<const float> x;
  size_t heads = 1;
  float eps = 1e-6f;
};
void l1norm_fwd(const L1NormIn& in, Mat<float> y, Par par = {});
void l1norm_bwd(const L1NormIn& in, Mat<const float> dy, Mat<float> dx, Into mode, Par par = {});

// HGRN2's lower bounds, which grow with depth: low = sum over j = 1 .. layer of softmax(P)_j, the softmax
// over the layers. P: [layers, cols] -> low: [cols]. Once per layer and pass, so a plain loop is all there
// is.
void lower_bound_fwd(Mat<const float> P, size_t layer, float* low);
void lower_bound_bwd(Mat<const float> P, size_t layer, const float* dlow, Mat<float> dP);  // added to

struct PointwiseFns {  // rows [begin, end), or columns (map_dbias, forget_dlow) or heads (decay_da)
  void (*map_fwd)(const MapIn&, Mat<float> y, size_t begin, size_t end);
  void (*map_dx)(const MapIn&, Mat<const float> dy, const MapGrad&, size_t begin, size_t end);
  void (*map_dbias)(const MapIn&, Mat<const float> dy, const MapGrad&, size_t begin, size_t end);
  void (*scale_fwd)(const ScaleHeadsIn&, Mat<float> y, size_t begin, size_t end);
  void (*scale_bwd)(const ScaleHeadsIn&, Mat<const float> dy, const ScaleHeadsGrad&, size_t begin,
                    size_t end);
  void (*blend_fwd)(const BlendIn&, Mat<float> y, size_t begin, size_t end);
  void (*blend_bwd)(const BlendIn&, Mat<const float> dy, const BlendGrad&, size_t begin, size_t end);
  void (*decay_fwd)(const DecayIn&, Mat<float> g, size_t begin, size_t end);
  void (*decay_ddt)(const DecayIn&, Mat<const float> dg, const DecayGrad&, size_t begin, size_t end);
  void (*decay_da)(const DecayIn&, Mat<const float> dg, const DecayGrad&, size_t begin, size_t end);
  void (*forget_fwd)(const ForgetIn&, Mat<float> g, Mat<float> k, size_t begin, size_t end);
  void (*forget_dx)(const ForgetIn&, Mat<const float> dg, Mat<const float> dk, const ForgetGrad&,
                    size_t begin, size_t end);
  void (*forget_dlow)(const ForgetIn&, Mat<const float> dg, Mat<const float> dk, const ForgetGrad&,
                      size_t begin, size_t end);
  void (*l1_fwd)(const L1NormIn&, Mat<float> y, size_t begin, size_t end);
  void (*l1_bwd)(const L1NormIn&, Mat<const float> dy, Mat<float> dx, Into, size_t begin, size_t end);
};
const Impls<PointwiseFns>& pointwise_impls();

}  // namespace braid
