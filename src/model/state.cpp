#include "model/state.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace braid {

void KvCache::append(Mat<const float> k, Mat<const float> v) {
  for (size_t r = 0; r < k.rows; ++r) {
    const size_t row = static_cast<size_t>(end_ - first_) % kPageTokens,
                 page = static_cast<size_t>(end_ - first_) / kPageTokens;
    if (page == pages_.size()) {
      const auto rows = static_cast<int64_t>(kPageTokens);
      pages_.push_back(
          std::make_shared<Page>(Page{Tensor(DType::kF32, {rows, static_cast<int64_t>(k.cols)}),
                                      Tensor(DType::kF32, {rows, static_cast<int64_t>(v.cols)})}));
    }
    std::shared_ptr<Page>& p = pages_[page];
    if (p.use_count() > 1) p = std::make_shared<Page>(*p);  // another state looks at it: copy before writing
    std::copy_n(k.row(r), k.cols, p->k.mat().row(row));
    std::copy_n(v.row(r), v.cols, p->v.mat().row(row));
    ++end_;
  }
}

void KvCache::drop_before_window(size_t window) {
  if (window == 0) return;
  const int64_t oldest =
      end_ - static_cast<int64_t>(window) + 1;  // the oldest position that the next query sees
  while (pages_.size() > 1 && first_ + static_cast<int64_t>(kPageTokens) <= oldest) {
    pages_.erase(pages_.begin());
    first_ += kPageTokens;
  }
}

void KvCache::segments(std::vector<KvSegment>& out) const {
  for (size_t i = 0; i < pages_.size(); ++i) {
    const int64_t first = first_ + static_cast<int64_t>(i * kPageTokens);
    const Mat<const float> k = std::as_const(pages_[i]->k).mat(), v = std::as_const(pages_[i]->v).mat();
    out.push_back({.k = k.data,
                   .v = v.data,
                   .count = static_cast<size_t>(std::min<int64_t>(kPageTokens, end_ - first)),
                   .first = first,
                   .k_stride = k.stride,
                   .v_stride = v.stride});
  }
}

size_t KvCache::bytes() const {
  size_t n = 0;
  for (const auto& p : pages_) n += p->k.bytes() + p->v.bytes();
  return n;
}

bool KvCache::operator==(const KvCache& other) const {
  if (end_ != other.end_ || first_ != other.first_ || pages_.size() != other.pages_.size()) return false;
  std::vector<KvSegment> a, b;
  segments(a), other.segments(b);
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(a[i].k, b[i].k, a[i].count * a[i].k_stride * sizeof(float)) != 0 ||
        std::memcmp(a[i].v, b[i].v, a[i].count * a[i].v_stride * sizeof(float)) != 0)
      return false;
  return true;
}

float* Memory::write(size_t count) {
  if (!numbers_)
    numbers_ = std::make_shared<Tensor>(DType::kF32, Shape{static_cast<int64_t>(count)});
  else if (numbers_.use_count() > 1)
    numbers_ = std::make_shared<Tensor>(*numbers_);
  check(numbers_->shape()[0] == static_cast<int64_t>(count), "Memory::write: another count");
  return numbers_->as<float>().data();
}

std::span<const float> Memory::numbers() const {
  return numbers_ ? std::as_const(*numbers_).as<float>() : std::span<const float>();
}

bool Memory::operator==(const Memory& other) const {
  if (!numbers_ || !other.numbers_) return numbers_ == other.numbers_;
  return numbers_->bytes() == other.numbers_->bytes() &&
         std::memcmp(numbers_->data(), other.numbers_->data(), numbers_->bytes()) == 0;
}

size_t LayerState::bytes() const {
  size_t n = kv.bytes();
  for (const NamedMemory& m : kMemories) n += (this->*m.which).bytes();
  return n;
}

size_t State::bytes() const {
  size_t n = 0;
  for (const LayerState& l : layers) n += l.bytes();
  return n;
}

}  // namespace braid
