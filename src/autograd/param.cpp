#include "autograd/param.h"

namespace braid {
namespace {

size_t aligned(size_t count) {
  constexpr size_t kAlign = 16;
  return (count + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

size_t ParamSet::add(std::string name, Shape shape, bool decay, double share, bool precise) {
  check(shape.rank() == 1 || shape.rank() == 2, "a parameter has rank 1 or 2");
  params_.push_back({.name = std::move(name),
                     .shape = shape,
                     .offset = size_,
                     .decay = decay,
                     .share = share,
                     .precise = precise || shape.rank() == 1});
  size_ += aligned(params_.back().count());
  return params_.size() - 1;
}

void ParamSet::allocate() { block_ = Tensor(DType::kF32, {static_cast<int64_t>(size_)}); }

void ParamSet::allocate_beside(std::vector<StoredMatrix> stored) {
  check(!allocated() && stored.size() == params_.size(),
        "ParamSet::allocate_beside: too late, or another count");
  size_ = 0;
  for (size_t i = 0; i < params_.size(); ++i) {
    params_[i].offset = size_;
    if (!stored[i].present()) size_ += aligned(params_[i].count());
  }
  stored_ = std::move(stored);
  allocate();
}

size_t ParamSet::count() const {
  size_t n = 0;
  for (const Param& p : params_) n += p.count();
  return n;
}

}  // namespace braid
