// selective_scan - the diagonal state-space recurrence of Mamba 1, on ragged sequences.
//   h_t[d, s] = a_t[d, s] h_{t-1}[d, s] + dt_t[d] B_t[s] x_t[d]        s < S, S = 1 .. 64
//   a_t[d, s] = low + (1 - low) exp(dt_t[d] A[d, s])        low = 0, or -1 for negative eigenvalues
//   y_t[d]    = sum_s C_t[s] h_t[d, s] + skip[d] x_t[d]
// arXiv:2312.00752 algorithm 2 with its simplified discretisation of B, as in the authors' code; its N is our
// S, its D our skip. A is given itself, negative, not as a logarithm; dt after its softplus.
// Any cut of a sequence into pieces that hand on h gives the same bits as the whole.
// Symbols: docs/reference/glossary.md   Backward and chunks: docs/explanation/math/selective_scan.md
#pragma once

#include <cstdint>
#include <span>

#include "base/parallel.h"
#include "kernels/common/impl_table.h"
#include "tensor/tensor.h"

namespace braid {

inline constexpr size_t kSelectiveScanMaxState = 64;

struct SelectiveScanIn {
  Mat<const float> x, dt;             // [N, D]
  const float* A;                     // [D, S]
  Mat<const float> B, C;              // [N, S]
  const float* skip = nullptr;        // [D] or null
  std::span<const uint32_t> offsets;  // sequence s is rows offsets[s] .. offsets[s + 1] - 1
  const float* h0 = nullptr;          // [n, D, S] or null: zeros
  float low = 0;
  size_t seqs() const { return offsets.empty() ? 0 : offsets.size() - 1; }
};

struct SelectiveScanGrad {
  Mat<float> dx, ddt;      // overwritten; dx may be x or dy, ddt may be dt
  Mat<float> dB, dC;       // overwritten
  float* dA = nullptr;     // [D, S], added to
  float* dskip = nullptr;  // [D], added to
  float* dh0 = nullptr;    // [n, D, S], overwritten; may be dlast
};

// last: [n, D, S] or null, the states after the sequences; may be in.h0. y may be x or dt. Rows of no
// sequence are left alone.
void selective_scan_fwd(const SelectiveScanIn& in, Mat<float> y, float* last, Par par = {});
// dlast: the gradient of last, or null. Reads nothing of the forward but its inputs. scratch:
// selective_scan_bwd_scratch() numbers; what is in it does not matter.
void selective_scan_bwd(const SelectiveScanIn& in, Mat<const float> dy, const float* dlast,
                        const SelectiveScanGrad& out, std::span<float> scratch, Par par = {});
// About 2 N S for every 64 channels, and 4 S times the longest sequence for each thread.
size_t selective_scan_bwd_scratch(size_t channels, size_t state, std::span<const uint32_t> offsets,
                                  Par par = {});

// One token for each of n sequences.
struct SelectiveScanStep {
  Mat<const float> x, dt;  // [n, D]
  const float* A;
  Mat<const float> B, C;  // [n, S]
  const float* skip = nullptr;
  std::span<float* const> states;  // n times [D, S], moved on by one token
  float low = 0;
};
void selective_scan_step(const SelectiveScanStep& in, Mat<float> y, Par par = {});  // y may be x or dt

// Some tokens of one sequence. h0 and last may be null or the same.
struct SelectiveScanPiece {
  Mat<const float> x, dt;
  const float* A;
  Mat<const float> B, C;
  const float* skip;
  const float* h0;
  Mat<float> y;
  float* last;
  float low;
};

inline constexpr size_t kSelectiveScanBlock = 64;  // channels per task
inline constexpr size_t kSelectiveScanChunk = 16;  // tokens between the states that the backward keeps
struct SelectiveScanFns {                          // channels [begin, end), at most kSelectiveScanBlock
  void (*fwd)(const SelectiveScanPiece&, size_t begin, size_t end);
  // All sequences. What these channels give to dB and dC goes to rows of their own; row 0 is offsets[0].
  // checkpoints: [chunks of the longest sequence, S, kSelectiveScanBlock].
  void (*bwd)(const SelectiveScanIn&, Mat<const float> dy, const float* dlast, const SelectiveScanGrad&,
              float* checkpoints, Mat<float> dB, Mat<float> dC, size_t begin, size_t end);
};
const Impls<SelectiveScanFns>& selective_scan_impls();

}  // namespace braid
