// Named parameters in one flat block: gradients, optimiser moments and bf16 copies are flat blocks of the
// same layout, so a parameter is found in each of them at the same offset.
#pragma once

#include <string>
#include <vector>

#include "kernels/weight_matmul/weight_matmul.h"
#include "tensor/tensor.h"

namespace braid {

struct Param {
  std::string name;
  Shape shape;  // rank 1 or 2
  size_t offset =
      0;  // in numbers, from the start of the block; a multiple of 16, so rows stay cache-line aligned
  bool decay = true;     // weight decay applies: matrices yes; norms, biases and decay rates no
  double share = 1;      // share of the tokens that use it: below 1 for experts
  bool train = true;     // false: the optimiser leaves it alone
  bool norm = false;     // weights of a norm, which decay only if requested
  bool precise = false;  // f32 in inference, too: vectors, and matrices whose small errors would grow
  bool hidden = false;   // a projection inside the layers: Muon orthogonalises its update
  // Rows of the logical matrices that are one below the other in it; empty: it is one.
  std::vector<size_t> row_blocks = {};

  size_t count() const { return static_cast<size_t>(shape.count()); }
  size_t rows() const { return shape.rank() == 2 ? shape[0] : 1; }
  size_t cols() const { return shape.rank() == 2 ? shape[1] : shape[0]; }
};

class ParamSet {
 public:
  // Declares a parameter and returns its index; the block is made by allocate().
  size_t add(std::string name, Shape shape, bool decay, double share = 1, bool precise = false);
  void allocate();  // zero-filled
  // For inference: matrices that lie elsewhere, by index; those that are not present go to the block. What
  // they look at must live as long as this.
  void allocate_beside(std::vector<StoredMatrix> stored);

  const std::vector<Param>& all() const { return params_; }
  const Param& operator[](size_t i) const { return params_[i]; }
  void freeze(size_t i) { params_[i].train = false; }
  void mark_norm(size_t i) { params_[i].norm = true; }
  void mark_hidden(size_t i) { params_[i].hidden = true; }
  void set_row_blocks(size_t i, std::vector<size_t> rows) { params_[i].row_blocks = std::move(rows); }
  size_t block_size() const { return size_; }  // numbers in the block, padding included
  // Null: it is in the block.
  const StoredMatrix* stored(size_t i) const {
    return i < stored_.size() && stored_[i].present() ? &stored_[i] : nullptr;
  }
  size_t count() const;  // numbers that are parameters
  // f(bytes) for every piece of memory with parameters: the block, then what is stored elsewhere.
  template <class F>
  void each_piece(const F& f) const {
    f(std::as_bytes(block()));
    for (const StoredMatrix& m : stored_)
      for (const StoredRows& part : m.parts) {
        f(std::span(part.data, part.count * weight_row_bytes(m.format, m.cols)));
        f(std::as_bytes(std::span(part.scales, part.count * weight_row_scales(m.format, m.cols))));
      }
  }
  bool allocated() const { return block_.bytes() > 0; }
  std::span<float> block() { return block_.as<float>(); }
  std::span<const float> block() const { return block_.as<float>(); }
  Mat<float> mat(size_t i) {
    check(!stored(i), "ParamSet::mat: a stored matrix");
    return {block().data() + params_[i].offset, params_[i].rows(), params_[i].cols()};
  }
  Mat<const float> mat(size_t i) const {
    check(!stored(i), "ParamSet::mat: a stored matrix");
    return {block().data() + params_[i].offset, params_[i].rows(), params_[i].cols()};
  }

 private:
  std::vector<Param> params_;
  size_t size_ = 0;
  Tensor block_;
  std::vector<StoredMatrix> stored_;
};

}  // namespace braid
