// The optimiser over the flat parameter block, with global-norm clipping: AdamW, or Muon for the matrices
// inside the layers and AdamW for the rest; and the learning rate by step.
#pragma once

#include <string>

#include "autograd/param.h"
#include "base/parallel.h"
#include "tensor/tensor.h"

namespace braid {

enum class OptimizerKind { kAdamW, kMuon };

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.1, clip = 1.0;  // clip 0: none
  bool decay_norms = false;
  double momentum = 0.95;  // Muon's, with Nesterov's correction
};

// Muon, for each logical matrix (Param::hidden, Param::row_blocks):
//   m <- momentum m + g'    u = orthogonalize(g' + momentum m)
//   p <- (1 - lr weight_decay) p - lr 0.2 sqrt(max(rows, cols)) u
// The factor gives an update the root mean square of AdamW's, so that one learning rate serves both
// (arXiv:2502.16982).
class Optimizer {
 public:
  Optimizer(ParamSet& params, const OptimizerOptions& options);

  // Norm of the whole gradient, before clipping; not finite if any element is not.
  double grad_norm(std::span<const float> grads, Par par);
  void step(std::span<const float> grads, double grad_norm, double lr, Par par);

  uint64_t steps() const { return steps_; }
  void set_steps(uint64_t s) { steps_ = s; }
  Tensor& m() { return m_; }
  Tensor& v() { return v_; }  // zero where Muon works

 private:
  struct Piece {
    size_t begin, end;
    bool decay;
  };
  struct Matrix {
    size_t begin, rows, cols;
  };
  void adamw_pieces(std::span<const float> grads, double scale, double lr, Par par);
  void muon_matrices(std::span<const float> grads, double scale, double lr, Par par);

  ParamSet& params_;
  OptimizerOptions options_;
  std::vector<Piece> pieces_;
  std::vector<Matrix> matrices_;
  std::vector<double> partial_;
  Tensor m_, v_;
  uint64_t steps_ = 0;  // updates made
};

struct Schedule {
  std::string kind = "cosine";  // constant | cosine | wsd
  double lr = 1e-3, min_lr = 0;
  uint64_t warmup = 0, steps = 1;
  double decay_share = 0.2;        // wsd: the last part of the steps, falling linearly
  double at(uint64_t step) const;  // step counts from 0
};

}  // namespace braid
