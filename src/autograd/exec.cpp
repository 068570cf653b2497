#include "autograd/exec.h"

#include <algorithm>
#include <cstring>

#include "autograd/exact.h"
#include "kernels/elementwise/elementwise.h"

namespace braid {

void Profile::add(const Profile& other) {
  for (const auto& [op, e] : other.ops) {
    Entry& to = ops[op];
    to.forward += e.forward, to.backward += e.backward, to.calls += e.calls;
  }
}

int Tape::new_slot(size_t rows, size_t cols) {
  slots_.push_back({rows, cols});
  return static_cast<int>(slots_.size()) - 1;
}

int Tape::new_part(int slot, size_t begin, size_t end) {
  check(slots_[slot].whole < 0, "Tape::new_part: a part of a part");
  slots_.push_back({slots_[slot].rows, end - begin});
  const int part = static_cast<int>(slots_.size()) - 1;
  slots_[part].whole = slot, slots_[part].begin = begin;
  slots_[slot].parts.push_back(part);
  return part;
}

void Tape::complete(Slot& s) {
  std::vector<std::pair<size_t, size_t>> written;  // column ranges
  for (const int p : s.parts)
    if (slots_[p].written) written.emplace_back(slots_[p].begin, slots_[p].begin + slots_[p].cols);
  std::sort(written.begin(), written.end());
  written.emplace_back(s.cols, s.cols);
  size_t at = 0;
  for (const auto& [begin, end] : written) {
    check(begin >= at, "Tape: parts overlap");
    for (size_t r = 0; begin > at && r < s.rows; ++r) std::fill_n(s.grad.row(r) + at, begin - at, 0.0f);
    at = end;
  }
}

void Tape::record(std::string_view op, int out, std::function<void()> backward) {
  nodes_.push_back({op, out, std::move(backward)});
}

void Tape::record_in_place(std::string_view op, int slot, std::function<void()> backward) {
  nodes_.push_back({op, slot, std::move(backward), true});
}

Mat<float> Tape::grad(int slot) const {
  check(slot >= 0 && slots_[slot].written, "Tape::grad: nothing was written");
  const Slot& s = slots_[slot];
  return s.whole < 0 ? s.grad : slots_[s.whole].grad.col_range(s.begin, s.begin + s.cols);
}

Mat<float> Tape::take(size_t rows, size_t cols) {
  std::vector<float*>& bin = free_[rows * cols];
  if (bin.empty()) return arena_.mat(rows, cols);
  float* p = bin.back();
  bin.pop_back();
  return {p, rows, cols};
}

Tape::Target Tape::target(int slot) {
  if (slot < 0) return {{}, Into::kOverwrite};
  Slot& s = slots_[slot];
  check(s.parts.empty(), "Tape::target: this value is read through its parts");
  if (s.whole >= 0) {
    Slot& w = slots_[s.whole];
    if (!w.grad.data) w.grad = take(w.rows, w.cols);
    const Into into = s.written ? Into::kAdd : Into::kOverwrite;
    s.written = w.written = true;
    return {w.grad.col_range(s.begin, s.begin + s.cols), into};
  }
  const Into into = s.written ? Into::kAdd : Into::kOverwrite;
  if (!s.grad.data) s.grad = take(s.rows, s.cols);
  s.written = true;
  return {s.grad, into};
}

void Tape::give(int from, int to) {
  if (to < 0) return;
  Slot &f = slots_[from], &t = slots_[to];
  const Mat<float> grad{f.grad.data, t.rows, t.cols};  // a reshaped value has a gradient of another shape
  if (!t.written && !t.grad.data && t.whole < 0) {
    check(t.parts.empty(), "Tape::give: this value is read through its parts");
    t.grad = grad, t.written = true, t.borrowed = f.borrowed;
    f.grad = {}, f.written = false;
    return;
  }
  const Target out = target(to);
  if (out.into == Into::kAdd)
    add_to(grad, out.to, par_);
  else
    copy<float>(grad, out.to);
}

void Tape::set_grad(int slot, Mat<float> grad) {
  Slot& s = slots_[slot];
  check(!s.written, "Tape::set_grad: a gradient is there already");
  s.grad = grad, s.written = true, s.borrowed = true;
}

void Tape::backward(Profile* profile) {
  while (!nodes_.empty()) {
    Node node = std::move(nodes_.back());
    nodes_.pop_back();
    // A node without a result (the loss) starts the pass; one whose result nobody used is skipped.
    if (node.out >= 0 && !slots_[node.out].written) continue;
    if (node.out >= 0 && !slots_[node.out].parts.empty()) complete(slots_[node.out]);
    {
      const OpTimer timer(node.op.empty() ? nullptr : profile, node.op, true);
      node.backward();
    }
    if (node.out < 0 || node.in_place) continue;
    Slot& s = slots_[node.out];
    if (s.grad.data && !s.borrowed) put(s.grad);
    s.grad = {}, s.written = false;
  }
  clear();
}

void Tape::clear() {
  slots_.clear();
  nodes_.clear();
  free_.clear();
}

void Exec::forget_exact(Mat<const float> m) const { o_.exact->forget(m); }

void PackedParams::refresh(const ParamSet& params, const bf16* block, Par par) {
  constexpr size_t kAlign = 16;  // floats in a cache line
  const Precision precision = block ? Precision::kBf16 : Precision::kF32;
  const auto size = [&](const Param& p, MatmulForm form) {
    return p.shape.rank() == 2
               ? (packed_weight_size(precision, form, p.rows(), p.cols(), par) + kAlign - 1) / kAlign * kAlign
               : 0;
  };
  size_t total = 0;
  for (const Param& p : params.all()) total += size(p, MatmulForm::kNT) + size(p, MatmulForm::kNN);
  if (memory_.shape().count() != static_cast<int64_t>(total))
    memory_ = Tensor(DType::kF32, {static_cast<int64_t>(total)});
  forward_.assign(params.all().size(), {}), backward_ = forward_;
  size_t at = 0;
  const auto pack = [&](size_t i, MatmulForm form) -> PackedWeight {
    const size_t n = size(params[i], form);
    if (n == 0) return {};
    const std::span<float> to = memory_.as<float>().subspan(at, n);
    at += n;
    const Param& p = params[i];
    if (block) return pack_weight(form, Mat<const bf16>(block + p.offset, p.rows(), p.cols()), to, par);
    return pack_weight(form, params.mat(i), to, par);
  };
  for (size_t i = 0; i < params.all().size(); ++i)
    forward_[i] = pack(i, MatmulForm::kNT), backward_[i] = pack(i, MatmulForm::kNN);
}

}  // namespace braid
