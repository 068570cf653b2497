// Ops that remember: convolution, scan, delay and fast weights.
#include <algorithm>
#include <cstdint>
#include <optional>

#include "autograd/exact.h"
#include "autograd/ops.h"
#include "autograd/overwrite.h"
#include "kernels/common/ragged.h"
#include "kernels/selective_scan/selective_scan.h"
#include "kernels/short_conv/short_conv.h"

namespace braid {
namespace {

bool single_tokens(std::span<const uint32_t> offsets) {
  for (size_t s = 0; s + 1 < offsets.size(); ++s)
    if (offsets[s + 1] - offsets[s] != 1) return false;
  return true;
}

// Kernels that take the states of all sequences in one block: gathered, and put back at the end.
class StateBlock {
 public:
  StateBlock(const Exec& e, std::span<float* const> states, size_t size) : states_(states), size_(size) {
    if (states.empty()) return;
    if (states.size() == 1) {
      block_ = states[0];
      return;
    }
    block_ = e.arena().take<float>(states.size() * size).data();
    for (size_t s = 0; s < states.size(); ++s) std::copy_n(states[s], size, block_ + s * size);
  }
  ~StateBlock() {
    if (states_.size() > 1)
      for (size_t s = 0; s < states_.size(); ++s) std::copy_n(block_ + s * size_, size_, states_[s]);
  }
  StateBlock(const StateBlock&) = delete;
  StateBlock& operator=(const StateBlock&) = delete;
  float* data() const { return block_; }

 private:
  std::span<float* const> states_;
  size_t size_;
  float* block_ = nullptr;
};

void check_states(const Exec& e, std::span<float* const> states) {
  check(states.empty() || !e.recording(), "gradients through a state are not recorded");
  check(states.empty() || !e.exact(), "Exact carries no states");
}

// part(sequence, begin, end) for all rows: whole sequences, or up to each cut, where the state is copied.
template <class Part>
void in_parts(std::span<const uint32_t> offsets, std::span<float* const> states, size_t size,
              std::span<const StateCut> cuts, const Part& part) {
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    size_t at = offsets[s];
    for (const StateCut& c : cuts) {
      if (c.sequence != s) continue;
      part(s, at, offsets[s] + c.rows);
      at = offsets[s] + c.rows;
      std::copy_n(states[s], size, c.to);
    }
    part(s, at, offsets[s + 1]);
  }
}

}  // namespace

Var delay(Exec& e, Var x, size_t by, std::span<const uint32_t> offsets, std::span<float* const> states,
          std::span<const StateCut> cuts) {
  x = every_token(e, x);
  const OpTimer timer(e.profile(), "delay", false);
  check_states(e, states);
  const size_t width = x.v.cols;
  const Var y = e.result(x.v.rows, width);
  in_parts(offsets, states, by * width, cuts, [&](size_t s, size_t begin, size_t end) {
    const size_t n = end - begin, early = std::min(n, by);
    for (size_t i = 0; i < early; ++i)
      if (states.empty())
        std::fill_n(y.v.row(begin + i), width, 0.0f);
      else
        std::copy_n(states[s] + i * width, width, y.v.row(begin + i));
    for (size_t i = by; i < n; ++i) std::copy_n(x.v.row(begin + i - by), width, y.v.row(begin + i));
    if (Exact* exact = e.exact(); exact && n > by)
      exact->copy(x.v.row_range(begin, begin + n - by), y.v.row_range(begin + by, begin + n));
    if (states.empty()) return;
    std::copy(states[s] + early * width, states[s] + by * width, states[s]);
    for (size_t i = 0; i < early; ++i)
      std::copy_n(x.v.row(begin + n - early + i), width, states[s] + (by - early + i) * width);
  });
  if (e.recording())
    e.tape().record("delay", y.slot, [e, x, y, by, offsets] {
      const Mat<float> dy = e.tape().grad(y.slot);
      const Overwrite dx(e.tape(), x);
      for (size_t s = 0; s + 1 < offsets.size(); ++s)
        for (size_t i = offsets[s]; i < offsets[s + 1]; ++i)
          if (i + by < offsets[s + 1])
            std::copy_n(dy.row(i + by), dy.cols, dx.mat().row(i));
          else
            std::fill_n(dx.mat().row(i), dy.cols, 0.0f);
    });
  return y;
}

Var short_conv(Exec& e, Var x, size_t w, const ConvOptions& o, std::span<const uint32_t> offsets,
               std::span<float* const> states, std::span<const StateCut> cuts) {
  x = every_token(e, x);
  const OpTimer timer(e.profile(), "short conv", false);
  check_states(e, states);
  const size_t width = e.weight(w).cols;
  const Var y = e.result(x.v.rows, x.v.cols);
  if (!states.empty() && single_tokens(offsets)) {
    short_conv_step({.x = x.v,
                     .w = e.weight(w).data,
                     .width = width,
                     .states = states,
                     .silu = o.silu,
                     .l2_dim = o.l2_dim,
                     .l2_channels = o.l2_channels},
                    y.v, e.par());
    return y;
  }
  const auto inputs = [&](Mat<const float> rows, std::span<const uint32_t> bounds, const float* state) {
    return ShortConvIn{.x = rows,
                       .w = e.weight(w).data,
                       .width = width,
                       .offsets = bounds,
                       .state = state,
                       .silu = o.silu,
                       .l2_dim = o.l2_dim,
                       .l2_channels = o.l2_channels};
  };
  if (!cuts.empty()) {
    in_parts(offsets, states, x.v.cols * (width - 1), cuts, [&](size_t s, size_t begin, size_t end) {
      const uint32_t bounds[] = {0, static_cast<uint32_t>(end - begin)};
      short_conv_fwd(inputs(x.v.row_range(begin, end), bounds, states[s]), y.v.row_range(begin, end),
                     states[s], e.par());
    });
    return y;
  }
  const StateBlock block(e, states, x.v.cols * (width - 1));
  const ShortConvIn in = inputs(x.v, offsets, block.data());
  short_conv_fwd(in, y.v, block.data(), e.par());
  if (Exact* exact = e.exact()) exact->short_conv_fwd(in, y.v);
  if (e.recording())
    e.tape().record("short conv", y.slot, [e, in, x, y, w] {
      Tape& t = e.tape();
      const Overwrite dx(t, x);
      short_conv_bwd(in, t.grad(y.slot), nullptr, {.dx = dx, .dw = e.weight_grad(w).data}, e.par());
    });
  return y;
}

Var selective_scan(Exec& e, const ScanVars& vars, std::span<const uint32_t> offsets,
                   std::span<float* const> states, std::span<const StateCut> cuts) {
  ScanVars v = vars;
  for (Var* x : {&v.x, &v.dt, &v.B, &v.C}) *x = every_token(e, *x);
  const OpTimer timer(e.profile(), "selective scan", false);
  check_states(e, states);
  const Mat<const float> a_log = e.weight(v.a_log);
  const size_t channels = a_log.rows, state = a_log.cols, count = a_log.count();
  // A = -exp(A_log) is the decay of a step of length one.
  const Mat<float> A = e.result(1, count, false).v, one = e.result(1, count, false).v;
  std::fill_n(one.data, count, 1.0f);
  const DecayIn unit{.dt = one, .a_log = a_log.data, .heads = count};
  decay_fwd(unit, A, e.par());
  if (Exact* exact = e.exact()) exact->decay_fwd(unit, A);
  const Var y = e.result(v.x.v.rows, channels);
  if (!states.empty() && single_tokens(offsets)) {
    selective_scan_step({.x = v.x.v,
                         .dt = v.dt.v,
                         .A = A.data,
                         .B = v.B.v,
                         .C = v.C.v,
                         .skip = e.weight(v.skip).data,
                         .states = states,
                         .low = v.low},
                        y.v, e.par());
    return with_rows(e, y, e.output_rows());
  }
  SelectiveScanIn in{.x = v.x.v,
                     .dt = v.dt.v,
                     .A = A.data,
                     .B = v.B.v,
                     .C = v.C.v,
                     .skip = e.weight(v.skip).data,
                     .offsets = offsets,
                     .h0 = nullptr,
                     .low = v.low};
  if (!cuts.empty()) {
    in_parts(offsets, states, count, cuts, [&](size_t s, size_t begin, size_t end) {
      const uint32_t bounds[] = {0, static_cast<uint32_t>(end - begin)};
      SelectiveScanIn part = in;
      part.x = in.x.row_range(begin, end), part.dt = in.dt.row_range(begin, end);
      part.B = in.B.row_range(begin, end), part.C = in.C.row_range(begin, end);
      part.offsets = bounds, part.h0 = states[s];
      selective_scan_fwd(part, y.v.row_range(begin, end), states[s], e.par());
    });
    return with_rows(e, y, e.output_rows());
  }
  const StateBlock block(e, states, count);
  in.h0 = block.data();
  selective_scan_fwd(in, y.v, block.data(), e.par());
  if (Exact* exact = e.exact()) exact->selective_scan_fwd(in, y.v);
  if (e.recording())
    e.tape().record("selective scan", y.slot, [e, in, unit, v, y, channels, state, count] {
      Tape& t = e.tape();
      const Overwrite dx(t, v.x), ddt(t, v.dt), dB(t, v.B), dC(t, v.C);
      const Mat<float> dA = t.take(1, count);
      std::fill_n(dA.data, count, 0.0f);
      const Arena::Mark mark = e.arena().mark();
      const std::span<float> scratch =
          e.arena().take<float>(selective_scan_bwd_scratch(channels, state, in.offsets, e.par()));
      selective_scan_bwd(
          in, t.grad(y.slot), nullptr,
          {.dx = dx, .ddt = ddt, .dB = dB, .dC = dC, .dA = dA.data, .dskip = e.weight_grad(v.skip).data},
          scratch, e.par());
      e.arena().release(mark);
      decay_bwd(unit, dA, {.da_log = e.weight_grad(v.a_log).data}, e.par());
      t.put(dA);
    });
  return with_rows(e, y, e.output_rows());
}

namespace {

FastWeightIn inputs(const FastWeightShape& s, const FastWeightVars& v, std::span<const uint32_t> offsets) {
  return {.q = v.q.v,
          .k = v.k.v,
          .v = v.v.v,
          .g = v.g_head ? Mat<const float>{v.g_head, 1, s.value_heads} : Mat<const float>(v.g.v),
          .beta = v.beta.v,
          .offsets = offsets,
          .s0 = {}};
}

// Where backward writes.
struct Gradients {
  Overwrite dq, dk, dv;
  std::optional<Overwrite> dg, dbeta;
  FastWeightGrad grad;
  Gradients(Tape& t, const FastWeightVars& v)
      : dq(t, v.q),
        dk(t, v.k),
        dv(t, v.v),
        grad{.dq = dq, .dk = dk, .dv = dv, .dg = {}, .dbeta = {}, .ds0 = {}} {
    if (v.g.slot >= 0) grad.dg = dg.emplace(t, v.g);
    if (v.beta.present()) grad.dbeta = dbeta.emplace(t, v.beta);
  }
};

// Rows [begin, end) as a sequence of their own.
FastWeightIn part_of(const FastWeightShape& s, const FastWeightIn& all, size_t begin, size_t end,
                     std::span<const uint32_t> offsets, std::span<const float* const> s0) {
  const auto part = [&](Mat<const float> m) { return m.data ? m.row_range(begin, end) : m; };
  return {.q = part(all.q),
          .k = part(all.k),
          .v = part(all.v),
          .g = s.decay == FastWeightDecay::kHead ? all.g : part(all.g),
          .beta = part(all.beta),
          .offsets = offsets,
          .s0 = s0};
}

}  // namespace

namespace {

// A row per write; outputs of all of them.
Var every_write(Exec& e, const FastWeightShape& shape, const FastWeightVars& v,
                std::span<const uint32_t> offsets, std::span<float* const> states,
                std::span<const StateCut> cuts) {
  FastWeightShape s = shape;
  if (states.empty()) s.precision = e.precision();
  check_states(e, states);
  FastWeightIn in = inputs(s, v, offsets);
  if (!cuts.empty()) {
    const Var o = e.result(v.q.v.rows, s.value_heads * s.dv);
    const Arena::Mark mark = e.arena().mark();
    const std::span<float> scratch = e.arena().take<float>(fast_weight_fwd_scratch(s, e.par()));
    in_parts(offsets, states, s.value_heads * s.dk * s.dv, cuts, [&](size_t i, size_t begin, size_t end) {
      // The form that the whole sequence would have.
      const FastWeightPlan plan = fast_weight_plan(s, offsets[i + 1] - offsets[i], {}, e.par());
      FastWeightShape how = s;
      how.form = plan.form, how.chunk = plan.chunk;
      const uint32_t bounds[] = {0, static_cast<uint32_t>(end - begin)};
      const float* const s0[] = {states[i]};
      fast_weight_fwd(how, part_of(s, in, begin, end, bounds, s0), o.v.row_range(begin, end),
                      states.subspan(i, 1), {}, scratch, e.par());
    });
    e.arena().release(mark);
    return o;
  }
  const std::vector<const float*> s0(states.begin(), states.end());
  in.s0 = s0;
  const Var o = e.result(v.q.v.rows, s.value_heads * s.dv);
  // States on the way spare backward a pass. They take as much memory as kEvery tokens' values each.
  constexpr size_t kEvery = 128;
  std::vector<float*> emitted;
  const size_t longest = longest_sequence(offsets);
  if (e.recording() && longest > kEvery &&
      fast_weight_plan(s, longest, {.backward = true, .alone = true}, e.par()).form == FastWeightForm::kChunk)
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      const size_t count = (offsets[i + 1] - offsets[i]) / kEvery;
      emitted.push_back(e.arena().take<float>(count * s.value_heads * s.dk * s.dv).data());
    }
  const size_t every = emitted.empty() ? 0 : kEvery;
  {
    const Arena::Mark mark = e.arena().mark();
    fast_weight_fwd(s, in, o.v, states, {every, emitted},
                    e.arena().take<float>(fast_weight_fwd_scratch(s, e.par())), e.par());
    e.arena().release(mark);
  }
  in.s0 = {};
  if (Exact* exact = e.exact()) exact->fast_weight_fwd(s, in, o.v);
  if (e.recording())
    e.tape().record("fast weight", o.slot, [e, s, in, v, o, every, emitted] {
      Tape& t = e.tape();
      const Gradients to(t, v);
      const std::vector<const float*> kept(emitted.begin(), emitted.end());
      const FastWeightKept from{.every = every, .states = kept};
      const Arena::Mark mark = e.arena().mark();
      const std::span<float> scratch =
          e.arena().take<float>(fast_weight_bwd_scratch(s, in.offsets, from, e.par()));
      fast_weight_bwd(s, in, from, t.grad(o.slot), {}, to.grad, scratch, e.par());
      e.arena().release(mark);
    });
  return o;
}

// Outputs of the tokens `asked` only, evaluated backward in time without the state.
Var sparse_queries(Exec& e, const FastWeightShape& s, const FastWeightVars& v,
                   std::span<const uint32_t> offsets, std::span<const uint32_t> asked) {
  const FastWeightIn in = inputs(s, v, offsets);
  const Var o = e.result(asked.size(), s.value_heads * s.dv);
  fast_weight_asked_fwd(s, in, asked, o.v, e.par());
  if (e.recording())
    e.tape().record("fast weight", o.slot, [e, s, in, v, o, asked] {
      Tape& t = e.tape();
      const Gradients to(t, v);
      const Arena::Mark mark = e.arena().mark();
      fast_weight_asked_bwd(s, in, asked, t.grad(o.slot), to.grad,
                            e.arena().take<float>(fast_weight_asked_scratch(s, in.offsets, e.par())),
                            e.par());
      e.arena().release(mark);
    });
  return o;
}

// Several writes per token as rows of their own, `writes` per token: the first decays, the last is read.
struct WriteRows {
  FastWeightVars in;
  std::span<const uint32_t> offsets;
  std::vector<StateCut> cuts;
};
WriteRows write_rows(Exec& e, const FastWeightVars& v, std::span<const uint32_t> offsets,
                     std::span<const StateCut> cuts) {
  const size_t w = v.writes, m = v.k.v.rows * w;
  const auto dense = [&](Var x) { return x.v.contiguous() ? x : place(e, x, x.v.cols, 0); };
  const auto apart = [&](Var x) { return x.present() ? reshape(e, dense(x), m, x.v.cols / w) : x; };
  const auto in_write = [&](Var x, size_t i) {
    return x.present() ? reshape(e, place(e, x, w * x.v.cols, i * x.v.cols), m, x.v.cols) : x;
  };
  const FastWeightVars in{.q = in_write(v.q, w - 1),
                          .k = apart(v.k),
                          .v = apart(v.v),
                          .g = in_write(v.g, 0),
                          .beta = apart(v.beta),
                          .g_head = v.g_head};
  const std::span<uint32_t> bounds = e.arena().take<uint32_t>(offsets.size());
  for (size_t i = 0; i < bounds.size(); ++i) bounds[i] = static_cast<uint32_t>(offsets[i] * w);
  std::vector<StateCut> at(cuts.begin(), cuts.end());
  for (StateCut& c : at) c.rows *= w;
  return {in, bounds, std::move(at)};
}
// What each token's last write has read.
Var last_of(Exec& e, Var o, size_t writes) {
  const size_t width = o.v.cols;
  return cols(e, reshape(e, o, o.v.rows / writes, writes * width), (writes - 1) * width, writes * width);
}

Var last_writes(Exec& e, const FastWeightShape& s, const FastWeightVars& v, std::span<const uint32_t> offsets,
                std::span<float* const> states, std::span<const StateCut> cuts) {
  const WriteRows rows = write_rows(e, v, offsets, cuts);
  return last_of(e, every_write(e, s, rows.in, rows.offsets, states, rows.cuts), v.writes);
}

}  // namespace

Var fast_weight(Exec& e, const FastWeightShape& s, const FastWeightVars& vars,
                std::span<const uint32_t> offsets, std::span<float* const> states,
                std::span<const StateCut> cuts) {
  FastWeightVars v = vars;
  for (Var* x : {&v.k, &v.v, &v.g, &v.beta}) *x = every_token(e, *x);
  // A query costs about 2 (dk + dv) per token before it, the states dk dv per token.
  const RowMap* out = e.output_rows();
  const bool sparse = out && out->skip_others && states.empty() && !e.exact() && v.writes == 1 &&
                      2 * out->token.size() * (s.dk + s.dv) <= (offsets.size() - 1) * s.dk * s.dv;
  v.q = with_rows(e, v.q, sparse ? out : nullptr);
  const OpTimer timer(e.profile(), "fast weight", false);
  if (sparse) {
    Var o = sparse_queries(e, s, v, offsets, out->token);
    o.rows = out;
    return o;
  }
  const auto run = v.writes > 1 ? last_writes : every_write;
  return with_rows(e, run(e, s, v, offsets, states, cuts), out);
}

namespace {

// A matrix of equal rows: all zeros.
Mat<const float> zero_rows(const float* zeros, size_t rows, size_t cols) { return {zeros, rows, cols, 0}; }

// A chunk of a sequence, and the state before it, which its tokens read: the index among all states kept, or
// none in a sequence's first chunk, where it is zero.
struct Reading {
  size_t begin, end, state;
};
constexpr size_t kNoState = SIZE_MAX;

// Whole sequences: one pass writes everything and keeps the state after every chunk; what tokens read of
// those are matrix products.
Var chunks_at_once(Exec& e, const FastWeightShape& s, const FastWeightVars& v, size_t chunk,
                   std::span<const uint32_t> offsets) {
  const size_t size = s.value_heads * s.dk * s.dv, n = v.q.v.rows;
  const std::span<float> zeros = e.arena().take<float>(std::max(s.key_heads * s.dk, s.value_heads * s.dv));
  std::ranges::fill(zeros, 0.0f);
  FastWeightIn in = inputs(s, v, offsets);
  in.q = zero_rows(zeros.data(), n, s.key_heads * s.dk);  // the pass reads nothing

  std::vector<Reading> chunks;
  std::vector<size_t> first;  // each sequence's first state
  size_t total = 0;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    first.push_back(total);
    for (size_t at = offsets[i]; at < offsets[i + 1]; at += chunk)
      chunks.push_back({at, std::min<size_t>(offsets[i + 1], at + chunk),
                        at == offsets[i] ? kNoState : total + (at - offsets[i]) / chunk - 1});
    total += (offsets[i + 1] - offsets[i]) / chunk;
  }
  float* const kept = e.arena().take<float>(total * size).data();
  const Var o = e.result(n, s.value_heads * s.dv);
  {
    std::vector<float*> to;
    for (const size_t at : first) to.push_back(kept + at * size);
    const Arena::Mark mark = e.arena().mark();
    fast_weight_fwd(s, in, o.v, {}, {chunk, to}, e.arena().take<float>(fast_weight_fwd_scratch(s, e.par())),
                    e.par());
    e.arena().release(mark);
  }
  // Columns of a value head, or of the key head that it reads.
  const auto values = [s](auto m, size_t h) { return m.col_range(h * s.dv, (h + 1) * s.dv); };
  const auto keys = [s](auto m, size_t h) {
    const size_t at = h / (s.value_heads / s.key_heads) * s.dk;
    return m.col_range(at, at + s.dk);
  };
  const auto state = [s, size](auto* states, size_t i, size_t h) {
    return Mat(states + i * size + h * s.dk * s.dv, s.dk, s.dv);
  };
  e.par().tasks(chunks.size() * s.value_heads, [&](size_t i) {
    const size_t h = i % s.value_heads;
    const Reading& c = chunks[i / s.value_heads];
    if (c.state == kNoState) return;  // zeros, which the pass has left there
    matmul(MatmulForm::kNN, keys(v.q.v.row_range(c.begin, c.end), h), state(kept, c.state, h),
           values(o.v.row_range(c.begin, c.end), h), Into::kOverwrite, e.par().alone());
  });
  map_fwd({.x = o.v, .scale = s.scale}, o.v, e.par());
  if (!e.recording()) return o;

  e.tape().record(
      "fast weight chunks", o.slot,
      [e, s, in, v, o, chunk, chunks, first, total, kept, size, n, zeros, values, keys, state] {
        Tape& t = e.tape();
        const Mat<float> d = t.grad(o.slot);
        map_fwd({.x = d, .scale = s.scale}, d, e.par());
        const Gradients gradients(t, v);
        const FastWeightGrad& grad = gradients.grad;
        const Arena::Mark mark = e.arena().mark();
        // What the tokens that read a state want of it; nothing of the one after a last, full chunk.
        const std::span<float> dkept = e.arena().take<float>(total * size);
        std::ranges::fill(dkept, 0.0f);
        e.par().tasks(chunks.size() * s.value_heads, [&](size_t i) {
          const size_t h = i % s.value_heads;
          const Reading& c = chunks[i / s.value_heads];
          if (c.state != kNoState)
            matmul(MatmulForm::kTN, keys(v.q.v.row_range(c.begin, c.end), h),
                   values(d.row_range(c.begin, c.end), h), state(dkept.data(), c.state, h), Into::kOverwrite,
                   e.par().alone());
        });
        std::vector<const float*> states, dstates;
        for (const size_t at : first)
          states.push_back(kept + at * size), dstates.push_back(dkept.data() + at * size);
        const FastWeightKept from{.every = chunk, .states = states, .dstates = dstates};
        fast_weight_bwd(s, in, from, zero_rows(zeros.data(), n, s.value_heads * s.dv), {}, grad,
                        e.arena().take<float>(fast_weight_bwd_scratch(s, in.offsets, from, e.par())),
                        e.par());
        // dq of the pass is that of zeros; this is of what was read. The value heads of a key head in turn.
        const size_t group = s.value_heads / s.key_heads;
        e.par().tasks(chunks.size() * s.key_heads, [&](size_t i) {
          const Reading& c = chunks[i / s.key_heads];
          const size_t head = i % s.key_heads * group;
          const Mat<float> to = keys(grad.dq.row_range(c.begin, c.end), head);
          if (c.state == kNoState)
            for (size_t r = 0; r < to.rows; ++r) std::fill_n(to.row(r), to.cols, 0.0f);
          else
            for (size_t h = head; h < head + group; ++h)
              matmul(MatmulForm::kNT, values(d.row_range(c.begin, c.end), h), state(kept, c.state, h), to,
                     h == head ? Into::kOverwrite : Into::kAdd, e.par().alone());
        });
        e.arena().release(mark);
      });
  return o;
}

FastWeightShape reading(FastWeightShape s) {
  s.decay = FastWeightDecay::kNone, s.write = FastWeightWrite::kAdditive;
  return s;
}

// Sequences that go on from a state, anywhere in a chunk: chunk by chunk, read and write. Token by token, as
// then any cut gives the same bits.
Var chunks_in_turn(Exec& e, FastWeightShape s, const FastWeightVars& v, size_t chunk,
                   std::span<const int32_t> positions, std::span<const uint32_t> offsets,
                   std::span<float* const> states, std::span<const StateCut> cuts) {
  s.form = FastWeightForm::kRecurrent;
  const size_t size = s.value_heads * s.dk * s.dv;
  const FastWeightIn all = inputs(s, v, offsets);
  const Var o = e.result(v.q.v.rows, s.value_heads * s.dv);
  const Arena::Mark mark = e.arena().mark();
  const std::span<float> zeros = e.arena().take<float>(std::max(s.key_heads * s.dk, s.value_heads * s.dv));
  std::ranges::fill(zeros, 0.0f);
  const Mat<float> unread = e.arena().mat(std::min(chunk, v.q.v.rows), s.value_heads * s.dv);
  in_parts(offsets, states, 2 * size, cuts, [&](size_t i, size_t begin, size_t last) {
    float* const read = states[i];
    float* const write[] = {states[i] + size};
    const float *const from_read[] = {read}, *const from_write[] = {write[0]};
    for (size_t at = begin; at < last;) {
      const size_t phase = static_cast<size_t>(positions[at]) % chunk,
                   end = std::min<size_t>(last, at + chunk - phase), n = end - at;
      const uint32_t bounds[] = {0, static_cast<uint32_t>(n)};
      fast_weight_fwd(reading(s),
                      {.q = all.q.row_range(at, end),
                       .k = zero_rows(zeros.data(), n, s.key_heads * s.dk),
                       .v = zero_rows(zeros.data(), n, s.value_heads * s.dv),
                       .g = {},
                       .beta = {},
                       .offsets = bounds,
                       .s0 = from_read},
                      o.v.row_range(at, end), {}, {}, {}, e.par());
      FastWeightIn in = part_of(s, all, at, end, bounds, from_write);
      in.q = zero_rows(zeros.data(), n, s.key_heads * s.dk);
      fast_weight_fwd(s, in, unread.row_range(0, n), write, {}, {}, e.par());
      if (phase + n == chunk) std::copy_n(write[0], size, read);
      at = end;
    }
  });
  e.arena().release(mark);
  return o;
}

Var chunks(Exec& e, const FastWeightShape& s, const FastWeightVars& v, size_t chunk,
           std::span<const int32_t> positions, std::span<const uint32_t> offsets,
           std::span<float* const> states, std::span<const StateCut> cuts) {
  const Var o = states.empty() ? chunks_at_once(e, s, v, chunk, offsets)
                               : chunks_in_turn(e, s, v, chunk, positions, offsets, states, cuts);
  if (Exact* exact = e.exact()) exact->fast_weight_chunks_fwd(s, inputs(s, v, offsets), chunk, o.v);
  return o;
}

}  // namespace

Var fast_weight_chunks(Exec& e, const FastWeightShape& s, const FastWeightVars& vars, size_t chunk,
                       std::span<const int32_t> positions, std::span<const uint32_t> offsets,
                       std::span<float* const> states, std::span<const StateCut> cuts) {
  FastWeightVars v = vars;
  for (Var* x : {&v.q, &v.k, &v.v, &v.g, &v.beta}) *x = every_token(e, *x);
  const OpTimer timer(e.profile(), "fast weight chunks", false);
  check_states(e, states);
  const size_t w = v.writes;
  if (w == 1) return with_rows(e, chunks(e, s, v, chunk, positions, offsets, states, cuts), e.output_rows());
  const WriteRows rows = write_rows(e, v, offsets, cuts);
  std::vector<int32_t> at;
  for (const int32_t p : positions)
    for (size_t i = 0; i < w; ++i) at.push_back(static_cast<int32_t>(static_cast<size_t>(p) * w + i));
  const Var o = chunks(e, s, rows.in, chunk * w, at, rows.offsets, states, rows.cuts);
  return with_rows(e, last_of(e, o, w), e.output_rows());
}

DeltaFormerResult delta_former(Exec& e, const DeltaFormerShape& s, const DeltaFormerVars& vars,
                               std::span<const uint32_t> offsets,
                               std::span<const std::span<const KvSegment>> past) {
  DeltaFormerVars v = vars;
  for (Var* x : {&v.q, &v.k, &v.v, &v.a, &v.b}) *x = every_token(e, *x);
  const OpTimer timer(e.profile(), "delta former", false);
  check(past.empty() || !e.recording(), "gradients through a cache are not recorded");
  check(past.empty() || !e.exact(), "Exact carries no states");
  const size_t n = v.q.v.rows, width = s.heads * s.dv;
  const DeltaFormerIn in{
      .q = v.q.v, .k = v.k.v, .v = v.v.v, .a = v.a.v, .b = v.b.v, .offsets = offsets, .past = past};
  const Var o = e.result(n, width);
  const Mat<float> u = e.arena().mat(n, width);
  DeltaFormerOut out{.o = o.v, .u = u};
  if (e.recording()) {
    out.m = e.arena().mat(n, width);
    out.lse_write = e.arena().take<float>(n * s.heads).data();
    out.lse_read = e.arena().take<float>(n * s.heads).data();
  }
  const Arena::Mark mark = e.arena().mark();
  delta_former_fwd(s, in, out, e.arena().take<float>(delta_former_fwd_scratch(s, offsets, e.par())), e.par());
  e.arena().release(mark);
  if (Exact* exact = e.exact()) exact->delta_former_fwd(s, in, o.v);
  if (e.recording())
    e.tape().record("delta former", o.slot, [e, s, in, v, o, out] {
      Tape& t = e.tape();
      const Overwrite dq(t, v.q), dk(t, v.k), dv(t, v.v);
      DeltaFormerGrad grad{.dq = dq, .dk = dk, .dv = dv};
      std::optional<Overwrite> db;
      Mat<float> da;  // a and b may be one variable: da is added after db
      if (v.b.slot >= 0) grad.db = db.emplace(t, v.b);
      if (v.a.slot >= 0) grad.da = da = t.take(v.a.v.rows, v.a.v.cols);
      const Arena::Mark before = e.arena().mark();
      const std::span<float> scratch =
          e.arena().take<float>(delta_former_bwd_scratch(s, in.offsets, e.par()));
      delta_former_bwd(s, in, {out.o, out.u, out.m, out.lse_write, out.lse_read}, t.grad(o.slot), {}, grad,
                       scratch, e.par());
      e.arena().release(before);
      db.reset();
      if (!da.data) return;
      if (const auto [to, into] = t.target(v.a.slot); to.data) {
        if (into == Into::kAdd)
          add_to(da, to, e.par());
        else
          copy<float>(da, to);
      }
      t.put(da);
    });
  return {with_rows(e, o, e.output_rows()), u};
}

}  // namespace braid
