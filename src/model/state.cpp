#include "model/state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

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

void KvCache::drop_before_window(size_t window, int64_t from) {
  if (window == 0) return;
  const int64_t oldest = from - static_cast<int64_t>(window) + 1;  // what that query sees
  while (pages_.size() > 1 && first_ + static_cast<int64_t>(kPageTokens) <= oldest) {
    pages_.erase(pages_.begin());
    first_ += kPageTokens;
  }
}

void KvCache::truncate(int64_t end) {
  check(end >= first_ && end <= end_, "KvCache::truncate: a position that is not kept");
  end_ = end;
  pages_.resize((static_cast<size_t>(end - first_) + kPageTokens - 1) / kPageTokens);
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
  if (!numbers_) {
    numbers_ = std::make_shared<Tensor>(DType::kF32, Shape{static_cast<int64_t>(count)});
  } else if (numbers_->dtype() != DType::kF32) {
    const auto wide = std::make_shared<Tensor>(DType::kF32, numbers_->shape());
    convert_to_f32(numbers_->view(), wide->as<float>());
    numbers_ = wide;
  } else if (numbers_.use_count() > 1) {
    numbers_ = std::make_shared<Tensor>(*numbers_);
  }
  check(numbers_->shape()[0] == static_cast<int64_t>(count), "Memory::write: another count");
  return numbers_->as<float>().data();
}

void Memory::narrow() {
  if (!numbers_ || numbers_->dtype() != DType::kF32) return;
  const auto half = std::make_shared<Tensor>(DType::kBF16, numbers_->shape());
  std::ranges::transform(numbers(), half->as<bf16>().begin(), [](float x) { return to_bf16(x); });
  numbers_ = half;
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

bool LayerState::operator==(const LayerState& other) const {
  for (const NamedMemory& m : kMemories)
    if (!(this->*m.which == other.*m.which)) return false;
  return kv == other.kv;
}

size_t State::bytes() const {
  size_t n = 0;
  for (const LayerState& l : layers) n += l.bytes();
  return n;
}

// A new stretch begins when the newest one reaches back far enough; before that the older one still serves.
// So a state is copied once in `undo` tokens, and at most twice as many are replayed.
void State::begin_pass(size_t tokens) {
  if (undo == 0 && trail_.empty()) return;
  if (undo == 0) return forget_trail();
  if (trail_.empty() || position - trail_.back().first >= undo) {
    const auto needless = [&] { return trail_.size() > 1 && trail_[1].first <= position - undo; };
    trail_.push_back({position, {}});
    while (needless()) {
      trail_.erase(trail_.begin());
      for (LayerState& l : layers) l.trail.erase(l.trail.begin());
    }
    for (LayerState& l : layers) {
      l.reach = trail_.front().first;
      LayerState::Stretch& s = l.trail.emplace_back();
      for (size_t i = 0; i < s.size(); ++i) s[i].before = l.*kMemories[i].which;
    }
  }
  trail_.back().passes.push_back(tokens);
}

int64_t State::oldest() const {
  if (!trail_.empty()) return trail_.front().first;
  bool whole = true;  // caches that hold everything can be cut anywhere
  for (const LayerState& l : layers) {
    whole = whole && l.kv.first() == 0;
    for (const NamedMemory& m : kMemories) whole = whole && (l.*m.which).bytes() == 0;
  }
  return whole ? 0 : position;
}

Status State::rollback(Exec& exec, int64_t to) {
  check(to >= 0 && to <= position, "State::rollback: a position that was not read");
  if (to == position) return {};
  if (to < oldest())
    return Error{
        fmt::format("the state at position {} can be taken back to {}, not to {}", position, oldest(), to),
        "set undo to as many tokens before they are read"};
  size_t stretch = trail_.size();  // the newest one that begins early enough, plus one
  while (stretch > 1 && trail_[stretch - 1].first > to) --stretch;
  // The same passes as then, the last one shorter: so the same bits.
  std::vector<size_t> passes;
  const int64_t first = trail_.empty() ? to : trail_[stretch - 1].first;
  for (int64_t at = first; at < to; at += static_cast<int64_t>(passes.back()))
    passes.push_back(std::min(trail_[stretch - 1].passes[passes.size()], static_cast<size_t>(to - at)));
  const auto tokens = static_cast<size_t>(to - first);
  size_t recorded = 0;
  if (!trail_.empty())
    for (const size_t n : trail_[stretch - 1].passes) recorded += n;
  for (const LayerState& l : layers)
    for (size_t i = 0; i < LayerState::kKinds; ++i)
      if ((l.*kMemories[i].which).bytes() > 0)
        if (const LayerState::Given& g = l.trail[stretch - 1][i];
            !g.replay || g.rows.size() != recorded * g.width)
          return Error{
              fmt::format("a mixer does not record what it writes to its '{}' memory", kMemories[i].name),
              "use the functions of model/mixers/remember.h in it"};
  trail_.resize(stretch);
  for (LayerState& l : layers) {
    l.trail.resize(stretch);
    if (l.kv.end() > to) l.kv.truncate(to);
    for (size_t i = 0; i < LayerState::kKinds; ++i) {
      Memory& memory = l.*kMemories[i].which;
      if (memory.bytes() == 0) continue;
      LayerState::Given& g = l.trail.back()[i];
      memory = g.before;
      const float* rows = g.rows.data();
      int64_t at = first;
      for (const size_t n : passes) {
        g.replay(exec, {rows, n, g.width}, at, memory.write(g.count));
        rows += n * g.width, at += static_cast<int64_t>(n);
      }
      g.rows.resize(tokens * g.width);
    }
  }
  if (!trail_.empty()) trail_.back().passes = passes;
  position = to;
  return {};
}

void State::forget_trail() {
  undo = 0;
  trail_.clear();
  for (LayerState& l : layers) l.trail.clear(), l.reach = INT64_MAX;
}

void State::narrow() {
  forget_trail();
  for (LayerState& l : layers)
    for (const NamedMemory& m : kMemories) (l.*m.which).narrow();
}

}  // namespace braid
