// Ops that remember: convolution, scan, delay and fast weights.
#include <algorithm>
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

}  // namespace

Var delay(Exec& e, Var x, size_t by, std::span<const uint32_t> offsets, std::span<float* const> states) {
  const OpTimer timer(e.profile(), "delay", false);
  check_states(e, states);
  const size_t width = x.v.cols;
  const Var y = e.result(x.v.rows, width);
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const size_t begin = offsets[s], n = offsets[s + 1] - begin, early = std::min(n, by);
    for (size_t i = 0; i < early; ++i)
      if (states.empty())
        std::fill_n(y.v.row(begin + i), width, 0.0f);
      else
        std::copy_n(states[s] + i * width, width, y.v.row(begin + i));
    for (size_t i = by; i < n; ++i) std::copy_n(x.v.row(begin + i - by), width, y.v.row(begin + i));
    if (Exact* exact = e.exact(); exact && n > by)
      exact->copy(x.v.row_range(begin, begin + n - by), y.v.row_range(begin + by, begin + n));
    if (states.empty()) continue;
    std::copy(states[s] + early * width, states[s] + by * width, states[s]);
    for (size_t i = 0; i < early; ++i)
      std::copy_n(x.v.row(begin + n - early + i), width, states[s] + (by - early + i) * width);
  }
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
               std::span<float* const> states) {
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
  const StateBlock block(e, states, x.v.cols * (width - 1));
  const ShortConvIn in{.x = x.v,
                       .w = e.weight(w).data,
                       .width = width,
                       .offsets = offsets,
                       .state = block.data(),
                       .silu = o.silu,
                       .l2_dim = o.l2_dim,
                       .l2_channels = o.l2_channels};
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

Var selective_scan(Exec& e, const ScanVars& v, std::span<const uint32_t> offsets,
                   std::span<float* const> states) {
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
                         .states = states},
                        y.v, e.par());
    return y;
  }
  const StateBlock block(e, states, count);
  const SelectiveScanIn in{.x = v.x.v,
                           .dt = v.dt.v,
                           .A = A.data,
                           .B = v.B.v,
                           .C = v.C.v,
                           .skip = e.weight(v.skip).data,
                           .offsets = offsets,
                           .h0 = block.data()};
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
  return y;
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

}  // namespace

Var fast_weight(Exec& e, const FastWeightShape& s, const FastWeightVars& v, std::span<const uint32_t> offsets,
                std::span<float* const> states) {
  const OpTimer timer(e.profile(), "fast weight", false);
  check_states(e, states);
  FastWeightIn in = inputs(s, v, offsets);
  const std::vector<const float*> s0(states.begin(), states.end());
  in.s0 = s0;
  const Var o = e.result(v.q.v.rows, s.value_heads * s.dv);
  // States on the way spare backward a pass. They take as much memory as kEvery tokens' values each.
  constexpr size_t kEvery = 128;
  std::vector<float*> emitted;
  const size_t longest = longest_sequence(offsets);
  if (e.recording() && longest > kEvery &&
      fast_weight_plan(s, longest, true, true).form == FastWeightForm::kChunk)
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      const size_t count = (offsets[i + 1] - offsets[i]) / kEvery;
      emitted.push_back(e.arena().take<float>(count * s.value_heads * s.dk * s.dv).data());
    }
  const size_t every = emitted.empty() ? 0 : kEvery;
  {
    const Arena::Mark mark = e.arena().mark();
    fast_weight_fwd(s, in, o.v, states, e.par(), e.arena().take<float>(fast_weight_fwd_scratch(s, e.par())),
                    {every, emitted});
    e.arena().release(mark);
  }
  in.s0 = {};
  if (Exact* exact = e.exact()) exact->fast_weight_fwd(s, in, o.v);
  if (e.recording())
    e.tape().record("fast weight", o.slot, [e, s, in, v, o, every, emitted] {
      Tape& t = e.tape();
      const Overwrite dq(t, v.q), dk(t, v.k), dv(t, v.v);
      std::optional<Overwrite> dg, dbeta;
      FastWeightGrad grad{.dq = dq, .dk = dk, .dv = dv, .dg = {}, .dbeta = {}, .ds0 = {}};
      if (v.g.slot >= 0) grad.dg = dg.emplace(t, v.g);
      if (v.beta.present()) grad.dbeta = dbeta.emplace(t, v.beta);
      const std::vector<const float*> kept(emitted.begin(), emitted.end());
      const FastWeightKept from{.every = every, .states = kept};
      const Arena::Mark mark = e.arena().mark();
      const std::span<float> scratch =
          e.arena().take<float>(fast_weight_bwd_scratch(s, in.offsets, e.par(), from));
      fast_weight_bwd(s, in, t.grad(o.slot), {}, grad, scratch, e.par(), from);
      e.arena().release(mark);
    });
  return o;
}

namespace {

// One chunk of one sequence.
struct Chunk {
  size_t begin, end;
  const float* read;   // the state before the chunk, which its tokens read; null: zeros
  const float* write;  // the state that its tokens go on to write; null: zeros
  float* after;        // where that leads
};

// A matrix of equal rows: all zeros.
Mat<const float> zero_rows(const float* zeros, size_t rows, size_t cols) { return {zeros, rows, cols, 0}; }

FastWeightShape reading(FastWeightShape s) {
  s.decay = FastWeightDecay::kNone, s.write = FastWeightWrite::kAdditive;
  return s;
}

}  // namespace

Var fast_weight_chunks(Exec& e, const FastWeightShape& s, const FastWeightVars& v, size_t chunk,
                       std::span<const int32_t> positions, std::span<const uint32_t> offsets,
                       std::span<float* const> states) {
  const OpTimer timer(e.profile(), "fast weight chunks", false);
  check_states(e, states);
  const size_t size = s.value_heads * s.dk * s.dv, n = v.q.v.rows;
  const FastWeightIn all = inputs(s, v, offsets);
  const std::span<float> zeros = e.arena().take<float>(std::max(s.key_heads * s.dk, s.value_heads * s.dv));
  std::ranges::fill(zeros, 0.0f);

  // Chunk by chunk: write, and remember which state each chunk reads.
  std::vector<Chunk> chunks;
  std::vector<size_t> last(offsets.size());  // index of each sequence's last chunk + 1
  const auto part = [all, s, zeros, constant = v.g_head != nullptr](const Chunk& c,
                                                                    std::span<const uint32_t> bounds) {
    FastWeightIn in = all;
    in.q = zero_rows(zeros.data(), c.end - c.begin, s.key_heads * s.dk);
    in.k = all.k.row_range(c.begin, c.end), in.v = all.v.row_range(c.begin, c.end);
    if (all.g.data && !constant) in.g = all.g.row_range(c.begin, c.end);
    if (all.beta.data) in.beta = all.beta.row_range(c.begin, c.end);
    in.offsets = bounds;
    return in;
  };
  const Mat<float> unread = e.arena().mat(chunk, s.value_heads * s.dv);
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    const float *read = states.empty() ? nullptr : states[i],
                *write = states.empty() ? nullptr : states[i] + size;
    for (size_t at = offsets[i]; at < offsets[i + 1];) {
      const size_t phase = static_cast<size_t>(positions[at]) % chunk;
      Chunk c{at, std::min<size_t>(offsets[i + 1], at + chunk - phase), read, write, nullptr};
      if (c.end < offsets[i + 1] || !states.empty()) {
        c.after = e.arena().take<float>(size).data();
        const uint32_t bounds[] = {0, static_cast<uint32_t>(c.end - c.begin)};
        FastWeightIn in = part(c, bounds);
        const float* from[] = {c.write};
        float* to[] = {c.after};
        in.s0 = from;
        fast_weight_fwd(s, in, unread.row_range(0, c.end - c.begin), to, e.par());
      }
      write = c.after;
      if ((phase + c.end - c.begin) % chunk == 0) read = c.after;
      at = c.end;
      chunks.push_back(c);
    }
    last[i] = chunks.size();
  }

  // All chunks read at once: sequences of their own that write nothing.
  const std::span<uint32_t> bounds = e.arena().take<uint32_t>(chunks.size() + 1);
  const std::span<const float*> starts = e.arena().take<const float*>(chunks.size());
  for (size_t c = 0; c < chunks.size(); ++c)
    bounds[c] = static_cast<uint32_t>(chunks[c].begin), starts[c] = chunks[c].read;
  bounds[chunks.size()] = static_cast<uint32_t>(n);
  const FastWeightIn read{.q = v.q.v,
                          .k = zero_rows(zeros.data(), n, s.key_heads * s.dk),
                          .v = zero_rows(zeros.data(), n, s.value_heads * s.dv),
                          .g = {},
                          .beta = {},
                          .offsets = bounds,
                          .s0 = starts};
  const Var o = e.result(n, s.value_heads * s.dv);
  fast_weight_fwd(reading(s), read, o.v, {}, e.par());
  if (Exact* exact = e.exact()) exact->fast_weight_chunks_fwd(s, all, chunk, o.v);

  for (size_t i = 0; i < states.size(); ++i) {
    if (offsets[i] == offsets[i + 1]) continue;
    const Chunk& c = chunks[last[i] - 1];
    const bool full = (static_cast<size_t>(positions[c.begin]) + c.end - c.begin) % chunk == 0;
    const float* next = full ? c.after : c.read;  // may be where it has to go already
    if (next != states[i]) std::copy_n(next, size, states[i]);
    std::copy_n(c.after, size, states[i] + size);
  }
  if (!e.recording()) return o;

  e.tape().record("fast weight chunks", o.slot, [e, s, v, o, read, chunks, size, n, zeros, part] {
    Tape& t = e.tape();
    const Overwrite dq(t, v.q), dk(t, v.k), dv(t, v.v);
    std::optional<Overwrite> dg, dbeta;
    if (v.g.slot >= 0) dg.emplace(t, v.g);
    if (v.beta.present()) dbeta.emplace(t, v.beta);
    // What nobody wants: gradients of the zeros.
    const Mat<float> no_k = t.take(n, s.key_heads * s.dk), no_v = t.take(n, s.value_heads * s.dv);
    const Arena::Mark mark = e.arena().mark();
    const std::span<float> dread = e.arena().take<float>(chunks.size() * size);
    std::vector<float*> dstates(chunks.size());
    for (size_t c = 0; c < chunks.size(); ++c) dstates[c] = dread.data() + c * size;
    {
      const std::span<float> scratch =
          e.arena().take<float>(fast_weight_bwd_scratch(reading(s), read.offsets, e.par()));
      fast_weight_bwd(reading(s), read, t.grad(o.slot), {},
                      {.dq = dq, .dk = no_k, .dv = no_v, .dg = {}, .dbeta = {}, .ds0 = dstates}, scratch,
                      e.par());
    }
    // The writes, last chunk first. ds: gradient of the state after a chunk, which the next one reads and
    // goes on to write.
    const std::span<float> ds = e.arena().take<float>(size);
    for (size_t c = chunks.size(); c-- > 0;) {
      const Chunk& x = chunks[c];
      const auto range = [&](Mat<float> m) { return m.row_range(x.begin, x.end); };
      const auto clear = [&](Mat<float> m) {
        for (size_t r = x.begin; r < x.end; ++r) std::fill_n(m.row(r), m.cols, 0.0f);
      };
      if (!x.after) {  // the last of its sequence: nobody reads what it writes
        std::ranges::fill(ds, 0.0f);
        clear(dk), clear(dv);
        if (dg) clear(*dg);
        if (dbeta) clear(*dbeta);
      } else {
        const Arena::Mark inner = e.arena().mark();
        const uint32_t bounds[] = {0, static_cast<uint32_t>(x.end - x.begin)};
        FastWeightIn in = part(x, bounds);
        const float *from[] = {x.write}, *up[] = {ds.data()};
        float* to[] = {ds.data()};
        in.s0 = from;
        const std::span<float> scratch = e.arena().take<float>(fast_weight_bwd_scratch(s, bounds, e.par()));
        fast_weight_bwd(s, in, zero_rows(zeros.data(), x.end - x.begin, s.value_heads * s.dv), up,
                        {.dq = range(no_k),
                         .dk = range(dk),
                         .dv = range(dv),
                         .dg = dg ? range(*dg) : Mat<float>{},
                         .dbeta = dbeta ? range(*dbeta) : Mat<float>{},
                         .ds0 = to},
                        scratch, e.par());
        e.arena().release(inner);
      }
      for (size_t i = 0; i < size; ++i) ds[i] += dstates[c][i];
    }
    e.arena().release(mark);
    t.put(no_k), t.put(no_v);
  });
  return o;
}

DeltaFormerResult delta_former(Exec& e, const DeltaFormerShape& s, const DeltaFormerVars& v,
                               std::span<const uint32_t> offsets,
                               std::span<const std::span<const KvSegment>> past) {
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
  return {o, u};
}

}  // namespace braid
