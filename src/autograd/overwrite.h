// For kernels that can only overwrite a gradient: a place to write to, which is the gradient itself if
// nothing has been written there yet, and otherwise a temporary that is added at the end.
#pragma once

#include "autograd/exec.h"
#include "kernels/elementwise/elementwise.h"

namespace braid {

class Overwrite {
 public:
  Overwrite(Tape& tape, Var x) : tape_(tape), target_(tape.target(x.slot)), to_(target_.to) {
    own_ = !to_.data || target_.into == Into::kAdd;
    if (own_) to_ = tape.take(x.v.rows, x.v.cols);
  }
  ~Overwrite() {
    if (!own_) return;
    if (target_.to.data) add_to(to_, target_.to, tape_.par());
    tape_.put(to_);
  }
  Overwrite(const Overwrite&) = delete;
  Overwrite& operator=(const Overwrite&) = delete;
  operator Mat<float>() const { return to_; }  // NOLINT: stands for the matrix
  const Mat<float>& mat() const { return to_; }

 private:
  Tape& tape_;
  Tape::Target target_;
  Mat<float> to_;
  bool own_;
};

}  // namespace braid
