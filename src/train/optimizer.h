// AdamW over the flat parameter block, with global-norm clipping; and the learning rate by step.
#pragma once

#include <string>

#include "autograd/param.h"
#include "base/parallel.h"
#include "tensor/tensor.h"

namespace braid {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.1, clip = 1.0;  // clip 0: none
  bool decay_norms = false;
};

class AdamW {
 public:
  AdamW(ParamSet& params, const AdamWOptions& options);

  // Norm of the whole gradient, before clipping; not finite if any element is not.
  double grad_norm(std::span<const float> grads, Par par);
  void step(std::span<const float> grads, double grad_norm, double lr, Par par);

  uint64_t steps() const { return steps_; }
  void set_steps(uint64_t s) { steps_ = s; }
  Tensor& m() { return m_; }
  Tensor& v() { return v_; }

 private:
  struct Piece {
    size_t begin, end;
    bool decay;
  };
  ParamSet& params_;
  AdamWOptions options_;
  std::vector<Piece> pieces_;
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
