// Named parameters in one flat block: gradients, optimiser moments and bf16 copies are flat blocks of the
// same layout, so a parameter is found in each of them at the same offset.
#pragma once

#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace braid {

struct Param {
  std::string name;
  Shape shape;  // rank 1 or 2
  size_t offset =
      0;  // in numbers, from the start of the block; a multiple of 16, so rows stay cache-line aligned
  bool decay = true;  // weight decay applies: matrices yes; norms, biases and decay rates no
  double share = 1;   // of the tokens meet it: less than one for experts
  bool train = true;  // false: the optimiser leaves it alone

  size_t count() const { return static_cast<size_t>(shape.count()); }
  size_t rows() const { return shape.rank() == 2 ? shape[0] : 1; }
  size_t cols() const { return shape.rank() == 2 ? shape[1] : shape[0]; }
};

class ParamSet {
 public:
  // Declares a parameter and returns its index; the block is made by allocate().
  size_t add(std::string name, Shape shape, bool decay, double share = 1);
  void allocate();  // zero-filled

  const std::vector<Param>& all() const { return params_; }
  const Param& operator[](size_t i) const { return params_[i]; }
  void freeze(size_t i) { params_[i].train = false; }
  size_t block_size() const { return size_; }  // numbers in the block, padding included
  size_t count() const;                        // numbers that are parameters
  bool allocated() const { return block_.bytes() > 0; }
  std::span<float> block() { return block_.as<float>(); }
  std::span<const float> block() const { return block_.as<float>(); }
  Mat<float> mat(size_t i) {
    return {block().data() + params_[i].offset, params_[i].rows(), params_[i].cols()};
  }
  Mat<const float> mat(size_t i) const {
    return {block().data() + params_[i].offset, params_[i].rows(), params_[i].cols()};
  }

 private:
  std::vector<Param> params_;
  size_t size_ = 0;
  Tensor block_;
};

}  // namespace braid
