#include "autograd/param.h"

namespace braid {

size_t ParamSet::add(std::string name, Shape shape, bool decay, double share) {
  constexpr size_t kAlign = 16;
  check(shape.rank() == 1 || shape.rank() == 2, "a parameter has rank 1 or 2");
  params_.push_back(
      {.name = std::move(name), .shape = shape, .offset = size_, .decay = decay, .share = share});
  size_ += (params_.back().count() + kAlign - 1) / kAlign * kAlign;
  return params_.size() - 1;
}

void ParamSet::allocate() { block_ = Tensor(DType::kF32, {static_cast<int64_t>(size_)}); }

size_t ParamSet::count() const {
  size_t n = 0;
  for (const Param& p : params_) n += p.count();
  return n;
}

}  // namespace braid
