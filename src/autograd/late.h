// Gradients of weights that come from a few rows at a time, as behind the last memory, where only supervised
// tokens go on. Such a product reads and writes all of the gradient for hardly any arithmetic, so the rows
// wait here until they are enough for one that is worth it.
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace braid {

class Exec;

class LateGradients {
 public:
  // Keeps rows of dy and x, whose product dy^T x belongs to the gradient of w. False: too many rows, or no
  // room.
  bool keep(const Exec& e, size_t w, Mat<const float> dy, Mat<const float> x);
  void add_all(const Exec& e);  // whatever waits is added to the gradients of e

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
