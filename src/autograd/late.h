// Batches small weight-gradient products. With few rows dW += dY^T X is bound by reading and writing dW, so
// rows of dY and X are collected and multiplied together later.
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace braid {

class Exec;

class LateGradients {
 public:
  // Collects rows of dy and x for the gradient of w. False: too many rows, or no room.
  bool keep(const Exec& e, size_t w, Mat<const float> dy, Mat<const float> x);
  void add_all(const Exec& e);  // adds all collected products to the gradients of e

 private:
  struct Waiting {
    Tensor memory;  // rows of dy, as many as can wait, then rows of x
    size_t rows = 0;
  };
  void add(const Exec& e, size_t w);

  std::vector<Waiting> waiting_;  // by parameter
  size_t bytes_ = 0;
};

}  // namespace braid
