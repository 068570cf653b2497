#include "autograd/ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "autograd/exact.h"
#include "autograd/late.h"
#include "autograd/overwrite.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/dropout/dropout.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/embedding/embedding.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/swiglu/swiglu.h"

namespace braid {
namespace {

// A matrix as a product takes it: f32, or rounded to bf16 once for all the products it enters; a weight may
// be packed.
struct Operand {
  Mat<const float> f;
  Mat<const bf16> b = {};
  PackedWeight nt = {}, nn = {};
  Operand col_range(size_t begin, size_t end) const {
    return {f.col_range(begin, end), b.data ? b.col_range(begin, end) : b};
  }
  Operand row_range(size_t begin, size_t end) const {
    return {f.row_range(begin, end), b.data ? b.row_range(begin, end) : b};
  }
};

Operand activation(const Exec& e, Mat<const float> x) {
  if (e.precision() == Precision::kF32) return {x};
  const Mat<bf16> b(e.arena().take<bf16>(x.count()).data(), x.rows, x.cols);
  convert(x, b, e.par());
  return {x, b};
}

// A gradient inside a backward function. Its rounded copy goes back to the tape, where the next one finds it
// in cache.
class GradientOperand {
 public:
  GradientOperand(const Exec& e, Mat<const float> x) : tape_(e.tape()), operand_{x} {
    if (e.precision() == Precision::kF32) return;
    memory_ = tape_.take(x.rows, (x.cols + 1) / 2);
    const Mat<bf16> b(reinterpret_cast<bf16*>(memory_.data), x.rows, x.cols);
    convert(x, b, e.par());
    operand_.b = b;
  }
  ~GradientOperand() {
    if (memory_.data) tape_.put(memory_);
  }
  GradientOperand(const GradientOperand&) = delete;
  GradientOperand& operator=(const GradientOperand&) = delete;
  const Operand& operator*() const { return operand_; }

 private:
  Tape& tape_;
  Operand operand_;
  Mat<float> memory_;
};

Operand weight(const Exec& e, size_t param) {
  return {e.weight(param), e.precision() == Precision::kBf16 ? e.weight_bf16(param) : Mat<const bf16>{},
          e.weight_packed(param, MatmulForm::kNT), e.weight_packed(param, MatmulForm::kNN)};
}

void product(const Exec& e, MatmulForm form, const Operand& a, const Operand& b, Mat<float> c, Into into) {
  const PackedWeight packed = form == MatmulForm::kNT   ? b.nt
                              : form == MatmulForm::kNN ? b.nn
                                                        : PackedWeight{};
  if (e.precision() == Precision::kF32)
    matmul(form, a.f, b.f, packed, c, into, e.par());
  else
    matmul(form, a.b, b.b, packed, c, into, e.par());
}

// y = x W^T, or added to it, for matrices that are stored elsewhere: all in one parallel region.
void project_stored(const Exec& e, std::span<const WeightProduct> products, Into into) {
  check(!e.recording() && !e.exact(), "stored weights are for inference");
  const Arena::Mark mark = e.arena().mark();
  const size_t scratch = weight_matmul_scratch(products, e.activations(), e.par());
  weight_matmul(products, into, e.activations(), e.arena().take<float>(scratch), e.par());
  e.arena().release(mark);
}

// y = x W^T, or added to it.
void project(const Exec& e, const Operand& x, size_t w, Mat<float> y, Into into) {
  if (const StoredMatrix* m = e.stored(w)) {
    const WeightProduct one{x.f, *m, y};
    return project_stored(e, {&one, 1}, into);
  }
  product(e, MatmulForm::kNT, x, weight(e, w), y, into);
  if (Exact* exact = e.exact()) exact->matmul(x.f, e.weight(w), y, into);
}

// dW += dy^T x.
void add_weight_gradient(const Exec& e, size_t w, const Operand& dy, const Operand& x) {
  if (e.late() && e.late()->keep(e, w, dy.f, x.f)) return;
  product(e, MatmulForm::kTN, dy, x, e.weight_grad(w), Into::kAdd);
}

// Where a branch is added to the residual stream: a copy when the tape needs the old value, in place when
// not.
Var onto(Exec& e, Var residual, Var x, size_t cols) {
  if (!residual.present()) return e.result_like(x, cols);
  if (!e.recording()) return residual;
  const Var y = e.result_like(x, cols);
  copy<float>(residual.v, y.v);
  if (Exact* exact = e.exact()) exact->copy(residual.v, y.v);
  return y;
}

Into into_of(Var residual) { return residual.present() ? Into::kAdd : Into::kOverwrite; }

// Rows that wait (late.h): so few at a time, so many together, in so much memory for all parameters: enough
// for a small model, not for many experts.
constexpr size_t kLateRows = 16, kWaitingRows = 128, kWaitingBytes = size_t{16} << 20;

}  // namespace

bool LateGradients::keep(const Exec& e, size_t w, Mat<const float> dy, Mat<const float> x) {
  if (dy.rows > kLateRows) return false;
  if (waiting_.size() <= w) waiting_.resize(w + 1);
  Waiting& l = waiting_[w];
  if (l.memory.bytes() == 0) {
    const size_t bytes = kWaitingRows * (dy.cols + x.cols) * sizeof(float);
    if (bytes_ + bytes > kWaitingBytes) return false;
    l.memory = Tensor(DType::kF32, {static_cast<int64_t>(kWaitingRows * (dy.cols + x.cols))});
    bytes_ += bytes;
  }
  if (l.rows + dy.rows > kWaitingRows) add(e, w);
  float* to = l.memory.as<float>().data();
  copy<float>(dy, Mat<float>(to + l.rows * dy.cols, dy.rows, dy.cols));
  copy<float>(x, Mat<float>(to + kWaitingRows * dy.cols + l.rows * x.cols, x.rows, x.cols));
  l.rows += dy.rows;
  return true;
}

void LateGradients::add(const Exec& e, size_t w) {
  Waiting& l = waiting_[w];
  if (l.rows == 0) return;
  const Param& p = e.param(w);
  const float* from = l.memory.as<float>().data();
  const Arena::Mark mark = e.arena().mark();
  product(e, MatmulForm::kTN, activation(e, Mat<const float>(from, l.rows, p.rows())),
          activation(e, Mat<const float>(from + kWaitingRows * p.rows(), l.rows, p.cols())), e.weight_grad(w),
          Into::kAdd);
  e.arena().release(mark);
  l.rows = 0;
}

void LateGradients::add_all(const Exec& e) {
  const OpTimer timer(e.profile(), "linear", true);
  for (size_t w = 0; w < waiting_.size(); ++w) add(e, w);
}

Var every_token(Exec& e, Var x) { return with_rows(e, x, nullptr); }

Var with_rows(Exec& e, Var x, const RowMap* to) {
  if (!x.present() || x.rows == to) return x;
  std::span<const uint32_t> which = to ? to->token : x.rows->of_token;
  if (to && x.rows) {
    const std::span<uint32_t> through = e.arena().take<uint32_t>(to->token.size());
    for (size_t i = 0; i < through.size(); ++i) through[i] = x.rows->of_token[to->token[i]];
    which = through;
  }
  for (const uint32_t r : which)
    check(r < x.v.rows, "with_rows: a token without a row (row-wise ops make results by result_like())");
  Var y = rows(e, {x.v, x.slot}, which);
  y.rows = to;
  return y;
}

void common_rows(Exec& e, std::initializer_list<Var*> vars) {
  const RowMap* to = nullptr;
  bool differ = false;
  for (const Var* x : vars)
    if (x->present()) {
      differ |= x->rows != (*vars.begin())->rows;
      if (x->rows == e.output_rows()) to = e.output_rows();
    }
  for (Var* x : vars)
    if (differ && x->present()) *x = with_rows(e, *x, to);
}

Var embedding(Exec& e, std::span<const int32_t> ids, size_t table) {
  const OpTimer timer(e.profile(), "embedding", false);
  const Var y = e.result(ids.size(), e.param(table).cols());
  if (const StoredMatrix* m = e.stored(table)) return weight_rows(*m, ids.data(), y.v, e.par()), y;
  embedding_fwd(ids.data(), e.weight(table), y.v, e.par());
  if (Exact* exact = e.exact()) exact->embedding_fwd(ids.data(), e.weight(table), y.v);
  if (e.recording())
    e.tape().record("embedding", y.slot, [e, ids, table, y] {
      embedding_bwd(ids.data(), e.tape().grad(y.slot), e.weight_grad(table), e.par());
    });
  return y;
}

Var linear(Exec& e, Var x, size_t w, Var residual) {
  common_rows(e, {&x, &residual});
  const OpTimer timer(e.profile(), "linear", false);
  const Operand xs = activation(e, x.v);
  const Var y = onto(e, residual, x, e.param(w).rows());
  project(e, xs, w, y.v, into_of(residual));
  if (e.recording())
    e.tape().record("linear", y.slot, [e, x, xs, w, y, residual] {
      Tape& t = e.tape();
      const GradientOperand dy(e, t.grad(y.slot));
      add_weight_gradient(e, w, *dy, xs);
      if (const auto [dx, into] = t.target(x.slot); dx.data)
        product(e, MatmulForm::kNN, *dy, weight(e, w), dx, into);
      if (residual.present()) t.give(y.slot, residual.slot);
    });
  return y;
}

Var linear_bias(Exec& e, Var x, size_t w, int bias, Var residual) {
  if (bias < 0) return linear(e, x, w, residual);
  const Var y = map(e, linear(e, x, w), Map::kIdentity, 1, bias);
  return residual.present() ? add(e, residual, y) : y;
}

Var linear_concat(Exec& e, Var x, std::span<const size_t> ws) {
  const OpTimer timer(e.profile(), "linear", false);
  size_t cols = 0;
  bool all_stored = true;
  for (const size_t w : ws) cols += e.param(w).rows(), all_stored &= e.stored(w) != nullptr;
  const Operand xs = activation(e, x.v);
  const Var y = e.result_like(x, cols);
  const std::span<WeightProduct> products = e.arena().take<WeightProduct>(all_stored ? ws.size() : 0);
  size_t at = 0;
  for (size_t i = 0; i < ws.size(); ++i) {
    const size_t out = e.param(ws[i]).rows();
    const Mat<float> part = y.v.col_range(at, at + out);
    if (all_stored)
      products[i] = {x.v, *e.stored(ws[i]), part};
    else
      project(e, xs, ws[i], part, Into::kOverwrite);
    at += out;
  }
  if (all_stored) project_stored(e, products, Into::kOverwrite);
  if (e.recording())
    e.tape().record("linear", y.slot, [e, x, xs, list = std::vector<size_t>(ws.begin(), ws.end()), y] {
      Tape& t = e.tape();
      const GradientOperand dy(e, t.grad(y.slot));
      size_t from = 0;
      for (const size_t w : list) {
        const size_t out = e.param(w).rows();
        const Operand part = (*dy).col_range(from, from + out);
        from += out;
        add_weight_gradient(e, w, part, xs);
        if (const auto [dx, into] = t.target(x.slot); dx.data)
          product(e, MatmulForm::kNN, part, weight(e, w), dx, into);
      }
    });
  return y;
}

Var swiglu_linear(Exec& e, Var gu, size_t w, Var residual) {
  common_rows(e, {&gu, &residual});
  const size_t n = gu.v.rows, f = gu.v.cols / 2;
  const SwigluIn in{gu.v.col_range(0, f), gu.v.col_range(f, 2 * f)};
  const Var y = onto(e, residual, gu, e.param(w).rows());
  const Arena::Mark mark = e.arena().mark();
  const Mat<float> h = e.arena().mat(n, f);
  {
    const OpTimer timer(e.profile(), "swiglu", false);
    swiglu_fwd(in, h, e.par());
    if (Exact* exact = e.exact()) exact->swiglu_fwd(in, h);
  }
  {
    const OpTimer timer(e.profile(), "linear", false);
    project(e, activation(e, h), w, y.v, into_of(residual));
  }
  e.arena().release(mark);
  if (e.recording())
    e.tape().record("swiglu+linear", y.slot, [e, gu, in, w, y, residual, n, f] {
      Tape& t = e.tape();
      const GradientOperand dy(e, t.grad(y.slot));
      const Mat<float> dh = t.take(n, f), h_again = t.take(n, f);
      product(e, MatmulForm::kNN, *dy, weight(e, w), dh, Into::kOverwrite);
      // g and u are not needed again: their gradient takes their place.
      const size_t rows = gu.v.rows;
      swiglu_bwd(in, dh,
                 {.dg = {gu.v.data, rows, f, gu.v.stride},
                  .du = {gu.v.data + f, rows, f, gu.v.stride},
                  .y = h_again},
                 e.par());
      add_weight_gradient(e, w, *dy, *GradientOperand(e, h_again));
      t.put(dh), t.put(h_again);
      if (gu.slot >= 0) t.set_grad(gu.slot, gu.v);
      if (residual.present()) t.give(y.slot, residual.slot);
    });
  return y;
}

Var rmsnorm(Exec& e, Var x, size_t w, const NormOptions& o, const NormGate& gate) {
  Var z = gate.z;
  common_rows(e, {&x, &z});
  const OpTimer timer(e.profile(), "rmsnorm", false);
  const Var y = e.result_like(x, x.v.cols);
  float* rstd = e.recording() ? e.arena().take<float>(x.v.rows * o.groups).data() : nullptr;
  const RmsNormIn in{.x = x.v,
                     .w = e.weight(w).data,
                     .z = z.v,
                     .groups = o.groups,
                     .weight_per_group = o.weight_per_group,
                     .eps = o.eps,
                     .offset = o.offset,
                     .gate = gate.gate,
                     .order = gate.order};
  rmsnorm_fwd(in, y.v, rstd, e.par());
  if (Exact* exact = e.exact()) exact->rmsnorm_fwd(in, y.v);
  if (e.recording())
    e.tape().record("rmsnorm", y.slot, [e, in, rstd, x, y, z, w] {
      Tape& t = e.tape();
      const auto [dx, into] = t.target(x.slot);
      RmsNormGrad grad{.dx = dx, .dx_mode = into, .dw = e.weight_grad(w).data};
      std::optional<Overwrite> dz;
      if (z.slot >= 0) grad.dz = dz.emplace(t, z);
      rmsnorm_bwd(in, {rstd}, t.grad(y.slot), grad, e.par());
    });
  return y;
}

Var add(Exec& e, Var a, Var b) {
  common_rows(e, {&a, &b});
  const OpTimer timer(e.profile(), "add", false);
  if (!e.recording()) {
    if (Exact* exact = e.exact()) exact->add(a.v, b.v, a.v);  // before a changes: it may hold constants
    add_to(b.v, a.v, e.par());
    return a;
  }
  const Var y = e.result_like(a, a.v.cols);
  add(a.v, b.v, y.v, e.par());
  if (Exact* exact = e.exact()) exact->add(a.v, b.v, y.v);
  e.tape().record("add", y.slot, [e, a, b, y] {
    Tape& t = e.tape();
    const Mat<float> dy = t.grad(y.slot);
    if (const auto [db, into] = t.target(b.slot); db.data) {
      if (into == Into::kAdd)
        add_to(dy, db, e.par());
      else
        copy<float>(dy, db);
    }
    t.give(y.slot, a.slot);
  });
  return y;
}

Var dropout(Exec& e, Var x, float p) {
  if (p <= 0 || !e.dropout_rng()) return x;
  const OpTimer timer(e.profile(), "dropout", false);
  const DropoutMask mask{.rng = *e.dropout_rng(), .index = e.next_dropout_site(), .p = p};
  const Var y = e.result_like(x, x.v.cols);
  dropout(mask, x.v, y.v, e.par());
  if (Exact* exact = e.exact()) exact->dropout(mask, x.v, y.v);
  if (e.recording())
    e.tape().record("dropout", y.slot, [e, mask, x, y] {
      Tape& t = e.tape();
      const Mat<float> dy = t.grad(y.slot);
      dropout(mask, dy, dy, e.par());
      t.give(y.slot, x.slot);
    });
  return y;
}

Var rows(Exec& e, Var x, std::span<const uint32_t> which) {
  if (which.size() == x.v.rows) {
    size_t i = 0;
    while (i < which.size() && which[i] == i) ++i;
    if (i == which.size()) return x;
  }
  const OpTimer timer(e.profile(), "rows", false);
  const Var y = e.result(which.size(), x.v.cols);
  for (size_t i = 0; i < which.size(); ++i) {
    std::copy_n(x.v.row(which[i]), x.v.cols, y.v.row(i));
    if (Exact* exact = e.exact()) exact->copy(x.v.row_range(which[i], which[i] + 1), y.v.row_range(i, i + 1));
  }
  if (e.recording())
    e.tape().record("rows", y.slot, [e, x, y, which] {
      const Mat<float> dy = e.tape().grad(y.slot);
      const auto [dx, into] = e.tape().target(x.slot);
      if (!dx.data) return;
      // A row that is chosen for the first time is copied, so that dx is written once.
      const Arena::Mark mark = e.arena().mark();
      const std::span<uint8_t> written = e.arena().take<uint8_t>(dx.rows);
      std::ranges::fill(written, into == Into::kAdd);
      for (size_t i = 0; i < which.size(); ++i) {
        const size_t r = which[i];
        if (written[r])
          add_to(dy.row_range(i, i + 1), dx.row_range(r, r + 1), e.par().alone());
        else
          std::copy_n(dy.row(i), dx.cols, dx.row(r));
        written[r] = 1;
      }
      for (size_t r = 0; r < dx.rows; ++r)
        if (!written[r]) std::fill_n(dx.row(r), dx.cols, 0.0f);
      e.arena().release(mark);
    });
  return y;
}

Var cols(Exec& e, Var x, size_t begin, size_t end) {
  return {x.v.col_range(begin, end),
          e.recording() && x.slot >= 0 ? e.tape().new_part(x.slot, begin, end) : -1, x.rows};
}

Var reshape(Exec& e, Var x, size_t rows, size_t cols) {
  x = every_token(e, x);
  check(x.v.contiguous() && rows * cols == x.v.count(), "reshape: not dense, or another count");
  if (!e.recording() || x.slot < 0) return {{x.v.data, rows, cols}, -1};
  const Var y{{x.v.data, rows, cols}, e.tape().new_slot(rows, cols)};
  e.tape().record("reshape", y.slot, [e, x, y] { e.tape().give(y.slot, x.slot); });
  return y;
}

Var place(Exec& e, Var x, size_t cols, size_t begin) {
  const OpTimer timer(e.profile(), "place", false);
  const Var y = e.result_like(x, cols, x.slot >= 0);
  std::fill_n(y.v.data, y.v.count(), 0.0f);
  copy<float>(x.v, y.v.col_range(begin, begin + x.v.cols));
  if (Exact* exact = e.exact()) exact->copy(x.v, y.v.col_range(begin, begin + x.v.cols));
  if (e.recording() && x.slot >= 0)
    e.tape().record("place", y.slot, [e, x, y, begin] {
      const auto [dx, into] = e.tape().target(x.slot);
      const Mat<const float> dy = e.tape().grad(y.slot).col_range(begin, begin + x.v.cols);
      if (into == Into::kAdd)
        add_to(dy, dx, e.par());
      else
        copy<float>(dy, dx);
    });
  return y;
}

namespace {

Var copied(Exec& e, Var x) {
  const Var y = e.result_like(x, x.v.cols, x.slot >= 0);
  copy<float>(x.v, y.v);
  if (Exact* exact = e.exact()) exact->copy(x.v, y.v);
  if (e.recording() && x.slot >= 0)
    e.tape().record("copy", y.slot, [e, x, y] { e.tape().give(y.slot, x.slot); });
  return y;
}

void norm_and_rotate(Exec& e, Var x, size_t heads, int norm, std::span<const int32_t> positions,
                     const QkOptions& o) {
  RmsNormIn in;
  float* rstd = nullptr;
  if (norm >= 0) {
    Mat<const float> raw = x.v;
    if (e.recording()) {  // the norm's backward reads its input, which is about to be overwritten
      const Mat<float> kept = e.arena().mat(x.v.rows, x.v.cols);
      copy<float>(x.v, kept);
      if (Exact* exact = e.exact()) exact->copy(x.v, kept);
      raw = kept;
      rstd = e.arena().take<float>(x.v.rows * heads).data();
    }
    in = {.x = raw,
          .w = e.weight(norm).data,
          .groups = o.norm_heads ? heads : 1,
          .eps = o.norm.eps,
          .offset = o.norm.offset};
    rmsnorm_fwd(in, x.v, rstd, e.par());
    if (Exact* exact = e.exact()) exact->rmsnorm_fwd(in, x.v);
  }
  if (o.rope) {
    const RopeIn rope{.x = x.v, .positions = positions.data(), .table = o.rope, .heads = heads};
    rope_fwd(rope, x.v, e.par());
    if (Exact* exact = e.exact()) exact->rope_fwd(rope, x.v);
  }
  if (!e.recording() || x.slot < 0) return;
  e.tape().record_in_place("norm+rope", x.slot, [e, x, heads, norm, in, rstd, positions, rope = o.rope] {
    const Mat<float> d = e.tape().grad(x.slot);
    if (rope)
      rope_bwd({.x = d, .positions = positions.data(), .table = rope, .heads = heads}, d, Into::kOverwrite,
               e.par());
    if (norm >= 0)
      rmsnorm_bwd(in, {rstd}, d, {.dx = d, .dx_mode = Into::kOverwrite, .dw = e.weight_grad(norm).data},
                  e.par());
  });
}

}  // namespace

Qk qk_prepare(Exec& e, Var q, Var k, std::span<const int32_t> positions, const QkOptions& o) {
  if (!o.rope && o.q_norm < 0 && o.k_norm < 0) return {q, k};
  q = every_token(e, q), k = every_token(e, k);
  if (o.rope && !positions.empty()) o.rope->ensure(static_cast<size_t>(std::ranges::max(positions)) + 1);
  const OpTimer timer(e.profile(), "norm+rope", false);
  if (!o.in_place) q = copied(e, q), k = copied(e, k);
  norm_and_rotate(e, q, o.heads, o.q_norm, positions, o);
  norm_and_rotate(e, k, o.kv_heads, o.k_norm, positions, o);
  return {q, k};
}

namespace {

// Attention of the tokens `of`; all others get zeros, and backward skips them.
void attention_of(const AttentionShape& s, const AttentionPacked& in, std::span<const uint32_t> of,
                  Mat<float> o, float* lse, Par par) {
  std::fill_n(o.data, o.count(), 0.0f);
  if (lse) std::fill_n(lse, o.rows * s.heads, -HUGE_VALF);
  std::vector<KvSegment> kv(of.size());
  std::vector<AttentionSeq> seqs;
  for (size_t i = 0, seq = 0; i < of.size(); ++i) {
    while (in.offsets[seq + 1] <= of[i]) ++seq;
    const uint32_t first = in.offsets[seq], position = of[i] - first;
    kv[i] = {in.k.row(first), in.v.row(first), position + 1, 0, in.k.stride, in.v.stride};
    seqs.push_back({.begin = of[i], .count = 1, .first = position, .kv = {&kv[i], 1}});
  }
  attention_fwd(s, in.q, seqs, o, lse, par);
}

}  // namespace

Var attention(Exec& e, Var q, Var k, Var v, std::span<const uint32_t> offsets, const AttentionShape& shape,
              float p) {
  q = every_token(e, q), k = every_token(e, k), v = every_token(e, v);
  const OpTimer timer(e.profile(), "attention", false);
  AttentionShape s = shape;
  if (p > 0 && e.dropout_rng()) s.drop = {p, e.dropout_rng()->block(e.next_dropout_site(), 0)[0]};
  // Row by row is slower than in tiles, so the output rows must be few.
  constexpr size_t kFew = 8;
  const RowMap* out = e.output_rows();
  const bool few =
      out && out->skip_others && kFew * out->token.size() <= q.v.rows && !e.exact() && s.drop.p == 0;
  const AttentionPacked in{.q = q.v, .k = k.v, .v = v.v, .offsets = offsets};
  const Var o = e.result(q.v.rows, s.heads * s.dv);
  float* lse = e.recording() ? e.arena().take<float>(q.v.rows * s.heads).data() : nullptr;
  if (few) {
    attention_of(s, in, out->token, o.v, lse, e.par());
  } else {
    const Arena::Mark mark = e.arena().mark();
    attention_packed_fwd(s, in, o.v, lse, e.arena().take<float>(attention_fwd_scratch(s, offsets, e.par())),
                         e.par());
    e.arena().release(mark);
  }
  if (Exact* exact = e.exact()) exact->attention_packed_fwd(s, in, o.v);
  if (e.recording())
    e.tape().record("attention", o.slot, [e, s, in, q, k, v, o, lse] {
      Tape& t = e.tape();
      const Overwrite dq(t, q), dk(t, k), dv(t, v);
      const Arena::Mark mark = e.arena().mark();
      const std::span<float> scratch = e.arena().take<float>(attention_bwd_scratch(s, in.offsets, e.par()));
      attention_packed_bwd(s, in, {.o = o.v, .lse = lse}, t.grad(o.slot), {.dq = dq, .dk = dk, .dv = dv},
                           scratch, e.par());
      e.arena().release(mark);
    });
  return with_rows(e, o, out);
}

LossResult linear_cross_entropy(Exec& e, Var x, size_t w, std::span<const int32_t> targets,
                                std::span<const float> weights, float z_loss) {
  const OpTimer timer(e.profile(), "linear+cross-entropy", false);
  const size_t n = x.v.rows, vocab = e.param(w).rows();
  LossResult r{.row_loss = e.arena().take<float>(n), .row_argmax = e.arena().take<int32_t>(n)};
  const auto [dx, into] = e.recording() ? e.tape().target(x.slot) : Tape::Target{{}, Into::kOverwrite};
  // About 256 K logits at a time: they stay in L2 from the product to the gradient.
  const size_t block = std::clamp<size_t>((size_t{1} << 18) / vocab, 16, 1024);
  const Operand xs = activation(e, x.v);
  for (size_t begin = 0; begin < n; begin += block) {
    const size_t end = std::min(n, begin + block);
    const Arena::Mark mark = e.arena().mark();
    const Mat<float> logits = e.arena().mat(end - begin, vocab);
    const Operand part = xs.row_range(begin, end);
    project(e, part, w, logits, Into::kOverwrite);
    const CrossEntropyIn in{
        .logits = logits, .target = targets.data() + begin, .weight = weights.data() + begin, .z = z_loss};
    if (Exact* exact = e.exact()) exact->cross_entropy(in);
    cross_entropy(in,
                  {.loss = r.row_loss.data() + begin,
                   .argmax = r.row_argmax.data() + begin,
                   .dlogits = e.recording() ? logits : Mat<float>{}},
                  e.par());
    if (e.recording()) {
      const Operand d = activation(e, logits);
      add_weight_gradient(e, w, d, part);
      if (dx.data) product(e, MatmulForm::kNN, d, weight(e, w), dx.row_range(begin, end), into);
    }
    e.arena().release(mark);
  }
  for (size_t i = 0; i < n; ++i) r.loss += static_cast<double>(weights[i]) * r.row_loss[i];
  return r;
}

}  // namespace braid
