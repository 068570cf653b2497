// short_conv - depthwise causal convolution over a few tokens, on ragged sequences.
//   z_t[d] = sum_j w[d, j] x_{t - (W - 1) + j}[d]     y = z, or silu(z)     j < W, w[:, W - 1] is for x_t
// The first l2_channels of y, in heads of l2_dim, may be scaled to length one as l2norm does, with eps 1e-6
// inside the root: queries and keys of delta-rule mixers, where the values follow in the same row. Inputs
// before a sequence come from its state, the last W - 1 of them, oldest first; without one they are zero. The
// layout of w is that of PyTorch's conv1d with groups = channels; there is no bias. Any split of a sequence
// into pieces that pass on the state is bit-identical to the whole. Symbols: docs/reference/glossary.md
// Backward and blocking: docs/explanation/math/short_conv.md
#pragma once

#include <cstdint>
#include <span>

#include "base/parallel.h"
#include "kernels/common/impl_table.h"
#include "tensor/tensor.h"

namespace braid {

inline constexpr size_t kShortConvMinWidth = 2, kShortConvMaxWidth = 8;
inline constexpr size_t kShortConvMaxL2 = 256;  // numbers per normalised head
inline constexpr float kShortConvL2Eps = 1e-6f;

struct ShortConvIn {
  Mat<const float> x;                 // [N, D]
  const float* w;                     // [D, W]
  size_t width;                       // W
  std::span<const uint32_t> offsets;  // sequence s is rows offsets[s] .. offsets[s + 1] - 1
  const float* state = nullptr;       // [n, D, W - 1] or null
  bool silu = false;
  size_t l2_dim = 0;       // 0: nothing is normalised
  size_t l2_channels = 0;  // a multiple of l2_dim
  size_t seqs() const { return offsets.empty() ? 0 : offsets.size() - 1; }
};

struct ShortConvGrad {
  Mat<float> dx;            // overwritten; may be x or dy
  float* dw = nullptr;      // [D, W], added to
  float* dstate = nullptr;  // [n, D, W - 1], overwritten
};

// last: [n, D, W - 1] or null, the states after the sequences; may be in.state. Rows of no sequence are left
// alone.
void short_conv_fwd(const ShortConvIn& in, Mat<float> y, float* last, Par par = {});  // y may be in.x
// dlast: the gradient of last, or null. Reads nothing of the forward but its inputs.
void short_conv_bwd(const ShortConvIn& in, Mat<const float> dy, const float* dlast, const ShortConvGrad& out,
                    Par par = {});

// One token for each of n sequences.
struct ShortConvStep {
  Mat<const float> x;  // [n, D]
  const float* w;      // [D, W]
  size_t width;
  std::span<float* const> states;  // n times [D, W - 1], moved on by one token
  bool silu = false;
  size_t l2_dim = 0, l2_channels = 0;
};
void short_conv_step(const ShortConvStep& in, Mat<float> y, Par par = {});  // y may be in.x

// Some tokens of one sequence. state and last may be null or the same, y may be x.
struct ShortConvPiece {
  Mat<const float> x;
  const float* w;
  size_t width;
  bool silu;
  const float* state;
  Mat<float> y;
  float* last;
  bool stream;  // y is larger than the caches: writes go past them
};

// Channels per task: whole heads that are normalised, or channels that are not; a thread's share of a row, so
// that memory is read in long runs.
inline constexpr size_t kShortConvMinBlock = 64, kShortConvMaxBlock = 3072;
// Larger results do not stay in a last-level cache: they are written past it, which saves reading the lines
// first. Not in place, where the lines are there already.
inline constexpr size_t kShortConvStreamBytes = size_t{32} << 20;
struct ShortConvFns {  // channels [begin, end); heads of l2_dim are normalised, none if it is 0
  void (*fwd)(const ShortConvPiece&, size_t l2_dim, size_t begin, size_t end);
  void (*bwd)(const ShortConvIn&, Mat<const float> dy, const float* dlast, const ShortConvGrad&,
              size_t l2_dim, size_t begin, size_t end);  // all sequences
};
const Impls<ShortConvFns>& short_conv_impls();

}  // namespace braid
